package iwarp

// writer is the goroutine that continues sending after the socket was full. It starts at its first
// use and ends with the endpoint. The endpoint's mu guards it.
type writer struct {
	running, stopped bool
	wanted           bool // it has the writer lock
}

// leaveToWriter hands the writer lock, and the unwritten bytes, to the writer.
func (e *endpoint) leaveToWriter() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.writer.stopped {
		e.releaseTokenLocked()
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
