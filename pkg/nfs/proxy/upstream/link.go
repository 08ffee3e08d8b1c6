package upstream

import (
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/oncrpc"
)

// Link forwards the calls of one client connection over its own backend connection.
//
// It is the [oncrpc.Corker] for [oncrpc.Conn].Batch of the client's connection: calls submitted
// between Cork and Uncork leave together. In the other direction it corks the client's connection
// while a batch of the backend's replies is processed.
type Link struct {
	b      *Backend
	client *oncrpc.Conn
	back   oncrpc.Handler

	mu     sync.Mutex // for openConn and Close
	closed bool
	bc     atomic.Pointer[backendConn] // set by the first call

	corked oncrpc.Corker // set between Cork and Uncork
}

// Submit sends r, or queues it until it can be sent. r.Finished gets the result.
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

// openConn returns the link's connection, or nil if the link is closed.
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

// Close ends the link after its client has disconnected. If the backend detects replays of all its
// calls by XID and address, the backend connection is detached, together with the calls in flight,
// which hold their memory until they are answered or the connection expires. Otherwise, or if the
// orphaned calls exceed WaitLimit, it is closed. All other calls end with ErrClosed.
func (lk *Link) Close() {
	lk.mu.Lock()
	lk.closed = true
	bc := lk.bc.Load()
	lk.mu.Unlock()
	if bc != nil {
		bc.detach(lk)
	}
}

// Cork implements [oncrpc.Corker]. Calls come from one goroutine and do not nest.
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
