package iwarp

// writer is the goroutine that goes on sending when the socket was full. It starts when it is needed first and ends with
// the endpoint. The endpoint's mu guards it.
type writer struct {
	running, stopped bool
	wanted           bool // it has the flush token
}

// leaveToWriter hands the flush token, and what is unwritten, to the writer.
func (e *endpoint) leaveToWriter() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.writer.stopped {
		e.releaseToken()
		return
	}
	e.writer.wanted = true
	if !e.writer.running {
		e.writer.running = true
		go e.writeLoop()
	}
	e.changed.Broadcast()
}

func (e *endpoint) writeLoop() {
	for {
		e.mu.Lock()
		for !e.writer.wanted && !e.writer.stopped {
			e.changed.Wait()
		}
		wanted := e.writer.wanted
		e.writer.wanted = false
		if !wanted {
			e.writer.running = false
			e.changed.Broadcast()
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
		e.flush(true)
	}
}
