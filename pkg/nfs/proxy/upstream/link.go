package upstream

import (
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/oncrpc"
)

// Link forwards the calls of one client connection, by a connection to the backend that is the client's alone.
//
// It is an [oncrpc.Gatherer] for [oncrpc.Conn].Batch of the client's connection: what that connection's receive loop submits between Hold and Release
// leaves together. In the other direction the client's connection is held while the backend's replies are worked through.
type Link struct {
	b      *Backend
	client *oncrpc.Conn
	back   oncrpc.Handler

	mu     sync.Mutex // for opening and closing
	closed bool
	line   atomic.Pointer[line] // from the first call on

	held oncrpc.Gatherer // of who holds the link
}

// Submit sends r, or lets it wait until it can be sent. r.Finished tells the outcome.
func (lk *Link) Submit(r *Request) {
	l := lk.line.Load()
	if l == nil {
		if l = lk.open(r); l == nil {
			r.finish(ErrClosed)
			return
		}
	}
	l.submit(lk, r)
}

// open gives the link its line, or nil if it is closed.
func (lk *Link) open(r *Request) *line {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	l := lk.line.Load()
	if l == nil && !lk.closed {
		if l = lk.b.line(lk, r); l != nil {
			lk.line.Store(l)
		}
	}
	return l
}

// Close ends the link, when the client's connection is gone. If all its calls were of those that the backend knows again by XID and address, the
// connection to the backend is kept for a while, together with the calls in flight, which hold their memory until they are answered or that time is over;
// otherwise, or if calls in flight of clients that have gone exceed WaitLimit, it is closed. Whatever else waits ends with ErrClosed.
func (lk *Link) Close() {
	lk.mu.Lock()
	lk.closed = true
	l := lk.line.Load()
	lk.mu.Unlock()
	if l != nil {
		l.leave(lk)
	}
}

// Hold implements [oncrpc.Gatherer]. Only one goroutine holds a link, and does not nest.
func (lk *Link) Hold() {
	if l := lk.line.Load(); l != nil {
		if s := l.current.Load(); s != nil {
			lk.held = s.conn.Out()
			lk.held.Hold()
		}
	}
}

// Release implements [oncrpc.Gatherer].
func (lk *Link) Release() {
	if lk.held != nil {
		lk.held.Release()
		lk.held = nil
	}
}
