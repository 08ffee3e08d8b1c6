package upstream

import (
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/oncrpc"
)

// Link forwards the calls of one client connection, by a connection to the backend that is the client's alone.
//
// It is an [oncrpc.Corker] for [oncrpc.Conn].Batch of the client's connection: what that connection's receive loop submits between Cork and Uncork
// leaves together. In the other direction the client's connection is held while the backend's replies are worked through.
type Link struct {
	b      *Backend
	client *oncrpc.Conn
	back   oncrpc.Handler

	mu     sync.Mutex // for opening and closing
	closed bool
	bc     atomic.Pointer[backendConn] // from the first call on

	corked oncrpc.Corker // of who holds the link
}

// Submit sends r, or lets it wait until it can be sent. r.Finished tells the outcome.
func (lk *Link) Submit(r *Request) {
	bc := lk.bc.Load()
	if bc == nil {
		if bc = lk.openConn(r); bc == nil {
			r.finish(ErrClosed)
			return
		}
	}
	bc.submitFrom(lk, r)
}

// openConn gives the link its line, or nil if it is closed.
func (lk *Link) openConn(r *Request) *backendConn {
	lk.mu.Lock()
	defer lk.mu.Unlock()
	bc := lk.bc.Load()
	if bc == nil && !lk.closed {
		if bc = lk.b.connFor(lk, r); bc != nil {
			lk.bc.Store(bc)
		}
	}
	return bc
}

// Close ends the link, when the client's connection is gone. If all its calls were of those that the backend knows again by XID and address, the
// connection to the backend is kept for a while, together with the calls in flight, which hold their memory until they are answered or that time is over;
// otherwise, or if calls in flight of clients that have gone exceed WaitLimit, it is closed. Whatever else waits ends with ErrClosed.
func (lk *Link) Close() {
	lk.mu.Lock()
	lk.closed = true
	bc := lk.bc.Load()
	lk.mu.Unlock()
	if bc != nil {
		bc.detach(lk)
	}
}

// Cork implements [oncrpc.Corker]. Only one goroutine holds a link, and does not nest.
func (lk *Link) Cork() {
	if bc := lk.bc.Load(); bc != nil {
		if s := bc.live.Load(); s != nil {
			lk.corked = s.Out()
			lk.corked.Cork()
		}
	}
}

// Uncork implements [oncrpc.Corker].
func (lk *Link) Uncork() {
	if lk.corked != nil {
		lk.corked.Uncork()
		lk.corked = nil
	}
}
