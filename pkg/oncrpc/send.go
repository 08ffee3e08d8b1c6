package oncrpc

import (
	"encoding/binary"
	"sync"
	"time"
)

const (
	// Limits of the messages gathered while the receive loop runs.
	gatherMessages = 64
	gatherBytes    = 256 << 10
)

// outgoing is a message to send.
type outgoing interface {
	// outgoing returns the message and room for its record mark, both untouched until sent.
	outgoing() (*Message, *[4]byte)
	// sent is called when the memory is no longer needed. err: the message was not sent, or not as
	// a whole.
	sent(err error)
}

// sender writes messages to a socket. A goroutine queues its message and, if no other one is
// flushing, flushes the queue with everything that is added meanwhile. A flush never waits for the
// peer: when the socket is full, it is left to the writer goroutine, which may wait.
type sender struct {
	sock    socket
	timeout time.Duration
	stats   *counters
	done    <-chan struct{} // closed after close was called
	fail    func(error)     // ends the connection, by close among others
	running *sync.WaitGroup

	mu       sync.Mutex
	queue    []outgoing
	queued   int  // bytes in queue
	corks    int  // Corks without Uncork: messages gather until the last is
	flushing bool // a goroutine is flushing
	writer   bool // the writer goroutine was started
	closed   error
	wake     chan struct{} // leaves the flush to the writer; holds one

	// Owned by the flushing goroutine: the messages being written.
	batch   []outgoing
	ends    []int // end of each message of batch, in bytes from the beginning of the batch
	first   int   // of batch, not yet finished
	out     [][]byte
	at      int // first of out that is not written
	written int // bytes of the batch
}

// send sends o, of n bytes, now or with others.
func (s *sender) send(o outgoing, n int) {
	s.mu.Lock()
	if err := s.closed; err != nil {
		s.mu.Unlock()
		o.sent(err)
		return
	}
	s.queue = append(s.queue, o)
	s.queued += n
	if s.flushing || s.corks > 0 && len(s.queue) < gatherMessages && s.queued < gatherBytes {
		s.mu.Unlock()
		return
	}
	s.flushing = true
	s.mu.Unlock()
	s.flush(false)
}

// Cork implements [Corker].
func (s *sender) Cork() {
	s.mu.Lock()
	s.corks++
	s.mu.Unlock()
}

// Uncork implements [Corker].
func (s *sender) Uncork() {
	s.mu.Lock()
	s.corks--
	mine := s.corks == 0 && len(s.queue) > 0 && !s.flushing
	if mine {
		s.flushing = true
	}
	s.mu.Unlock()
	if mine {
		s.flush(false)
	}
}

// withdraw takes o out of the queue, unless sending it has begun.
func (s *sender) withdraw(o outgoing) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range s.queue {
		if q == o {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			return true
		}
	}
	return false
}

// close ends all sending: queued and later messages are dropped.
func (s *sender) close(err error) {
	s.mu.Lock()
	s.closed = err
	mine := !s.flushing
	s.flushing = true
	s.mu.Unlock()
	if mine {
		s.drop(err)
	}
}

// flush writes until the queue is empty or, unless it may wait, the socket is full.
func (s *sender) flush(wait bool) {
	for s.at < len(s.out) || s.take() {
		var deadline time.Time
		if wait {
			deadline = time.Now().Add(s.timeout)
		}
		offered := min(s.at+maxVector, len(s.out))
		n, err := s.sock.write(s.out[s.at:], wait, deadline)
		if err != nil {
			s.fail(err)
			s.drop(err)
			return
		}
		if n > 0 {
			s.stats.writeCalls.Add(1)
			s.stats.bytesOut.Add(uint64(n))
		}
		s.advance(n)
		if s.at < offered && !wait {
			s.leave()
			return
		}
	}
}

// take makes the queue the next batch. If it is empty, flushing is over.
func (s *sender) take() bool {
	s.mu.Lock()
	s.batch, s.queue, s.queued = s.queue, s.batch[:0], 0
	if len(s.batch) == 0 {
		s.flushing = false
		s.mu.Unlock()
		return false
	}
	s.mu.Unlock()
	s.out, s.ends, s.at, s.first, s.written = s.out[:0], s.ends[:0], 0, 0, 0
	total := 0
	for _, o := range s.batch {
		m, mark := o.outgoing()
		from := len(s.out)
		s.out = m.Gather(append(s.out, mark[:]))
		n := 0
		for _, b := range s.out[from+1:] {
			n += len(b)
		}
		binary.BigEndian.PutUint32(mark[:], uint32(n)|lastFragment)
		total += 4 + n
		s.ends = append(s.ends, total)
	}
	return true
}

// advance records that n more bytes are written, and finishes the messages that end there.
func (s *sender) advance(n int) {
	s.written += n
	for s.at < len(s.out) && n >= len(s.out[s.at]) {
		n -= len(s.out[s.at])
		s.out[s.at] = nil
		s.at++
	}
	if n > 0 {
		s.out[s.at] = s.out[s.at][n:]
	}
	for s.first < len(s.batch) && s.ends[s.first] <= s.written {
		o := s.batch[s.first]
		s.batch[s.first] = nil
		s.first++
		s.stats.recordsOut.Add(1)
		o.sent(nil)
	}
}

// drop finishes everything without sending it.
func (s *sender) drop(err error) {
	for {
		for i := s.first; i < len(s.batch); i++ {
			o := s.batch[i]
			s.batch[i] = nil
			o.sent(err)
		}
		clear(s.out)
		s.out, s.at, s.first = s.out[:0], 0, 0
		s.mu.Lock()
		s.batch, s.queue = s.queue, s.batch[:0]
		if len(s.batch) == 0 {
			s.flushing = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// leave hands the flush over to the writer goroutine.
func (s *sender) leave() {
	s.mu.Lock()
	if err := s.closed; err != nil {
		s.mu.Unlock()
		s.drop(err)
		return
	}
	if !s.writer {
		s.writer = true
		s.running.Go(s.write)
	}
	// never blocks: only the flushing goroutine sends, and the writer has taken the last one
	s.wake <- struct{}{}
	s.mu.Unlock()
}

// write is the writer goroutine.
func (s *sender) write() {
	for {
		select {
		case <-s.wake:
			s.flush(true)
		case <-s.done:
			select {
			case <-s.wake: // left to us before the end
				s.flush(true)
			default:
			}
			return
		}
	}
}
