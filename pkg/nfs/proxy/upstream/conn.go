package upstream

import (
	"context"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
)

// backendConn carries a link's calls to the backend over a succession of connections from one
// source port, and holds the unanswered calls. It belongs to a link, or is detached.
//
// No lock is held while a request is submitted, cancelled or finished.
type backendConn struct {
	b       *Backend
	address netip.Addr // the client's
	ctx     context.Context
	cancel  context.CancelFunc

	// Written with mu held.
	owner atomic.Pointer[Link]     // nil: detached, or closed
	live  atomic.Pointer[liveConn] // nil: no connection

	mu              sync.Mutex
	queue           queue // all unanswered calls except replaced ones
	closed          bool
	running         bool                      // keepConnected runs
	countsAsWaiting bool                      // the queue's bytes are in Backend.waiting
	replays         [ReplayBySession + 1]bool // of all calls so far

	// While a new connection gets the waiting calls, later calls wait too, to keep the order.
	resending bool
	rescan    bool     // a call before cursor waits
	cursor    *Request // next call to look at

	softTimer  *time.Timer
	timerArmed bool
	timerDue   time.Time
	unordered  bool // a request may have waited longer than one before it in the queue
	scans      uint64

	// recent holds XIDs that the backend may know.
	recent [128]uint32
	seen   uint64

	detachTimer *time.Timer // guarded by b.mu

	// Used only by keepConnected.
	port          int
	portUsed      bool // a connection came from it
	portBusySince time.Time
	failures      int
	notBefore     time.Time // of the next attempt to connect
}

// liveConn is one connection of a backendConn, and its Peer.
type liveConn struct {
	Conn
	bc     *backendConn
	corked oncrpc.Corker

	// Guarded by bc.mu once the connection is live.
	answered    bool // the backend has answered a call
	abandoned   bool // this side has closed the connection
	afterOutage bool // before it, the backend refused a connection or answered nothing
}

func newBackendConn(b *Backend, lk *Link) *backendConn {
	bc := &backendConn{b: b, address: lk.client.Remote.Addr().Unmap(), countsAsWaiting: true}
	bc.ctx, bc.cancel = context.WithCancel(b.ctx)
	bc.owner.Store(lk)
	return bc
}

// ServeRPC implements [oncrpc.Handler]: the backend's calls go to the owner.
func (lc *liveConn) ServeRPC(c *oncrpc.Call) {
	if lk := lc.bc.owner.Load(); lk != nil && lk.back != nil {
		lk.back.ServeRPC(c)
		return
	}
	c.ReplyAccept(oncrpc.ProgUnavail)
}

// Cork implements [oncrpc.Corker]. It corks the client's connection, so that replies leave
// together.
func (lc *liveConn) Cork() {
	if lk := lc.bc.owner.Load(); lk != nil && lk.client.Out != nil {
		lc.corked = lk.client.Out
		lc.corked.Cork()
	}
}

// Uncork implements [oncrpc.Corker].
func (lc *liveConn) Uncork() {
	if lc.corked != nil {
		lc.corked.Uncork()
		lc.corked = nil
	}
}

// submitFrom sends a call of lk, or queues it.
func (bc *backendConn) submitFrom(lk *Link, r *Request) {
	if r.onDone == nil {
		r.onDone = func(*oncrpc.Request) { r.bc.onDone(r) }
	}
	r.Done, r.bc, r.size = r.onDone, bc, int64(r.Call.Len()+callCost)
	bc.mu.Lock()
	if bc.owner.Load() != lk {
		bc.mu.Unlock()
		r.finish(ErrClosed)
		return
	}
	bc.recordLocked(r)
	if old := bc.queue.find(r.XID); old != nil {
		superseded, broken := bc.supersedeLocked(old, r)
		bc.mu.Unlock()
		if superseded != nil {
			superseded.finish(ErrSuperseded)
		}
		if broken != nil {
			_ = broken.Close()
		}
		return
	}
	lc := bc.live.Load()
	if lc == nil && !bc.b.mayWait(r.size) {
		bc.mu.Unlock()
		r.finish(ErrOverloaded)
		return
	}
	bc.addLocked(r)
	if lc == nil || bc.resending {
		bc.reconnectLocked()
		bc.mu.Unlock()
		return
	}
	bc.markSentLocked(lc, r)
	bc.mu.Unlock()
	lc.Submit(&r.Request)
}

// recordLocked records the facts of a call that later decide whether the connection is kept for its
// client, and which client it belongs to.
func (bc *backendConn) recordLocked(r *Request) {
	bc.replays[r.Replay] = true
	if r.Replay == ReplayByXID {
		bc.recent[bc.seen%uint64(len(bc.recent))] = r.XID
		bc.seen++
	}
}

// sawXID reports whether a call with the XID was submitted lately.
func (bc *backendConn) sawXID(xid uint32) bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	for _, x := range bc.recent[:min(bc.seen, uint64(len(bc.recent)))] {
		if x == xid {
			return true
		}
	}
	return false
}

// addLocked appends r to the unanswered calls.
func (bc *backendConn) addLocked(r *Request) {
	bc.queue.push(r)
	if bc.countsAsWaiting {
		bc.b.waiting.Add(r.size)
	}
	if bc.resending && bc.cursor == nil {
		bc.cursor = r
	}
	bc.scheduleTimeoutLocked(r)
}

// removeLocked removes r from the unanswered calls.
func (bc *backendConn) removeLocked(r *Request) {
	if bc.cursor == r {
		bc.cursor = r.next
	}
	bc.queue.unlink(r)
	if bc.countsAsWaiting {
		bc.b.waiting.Add(-r.size)
	}
}

// markSentLocked assigns r to the connection. The caller submits it after unlocking.
func (bc *backendConn) markSentLocked(lc *liveConn, r *Request) {
	if r.wasSent {
		bc.b.counts.resends.Add(1)
	}
	r.sentOn, r.wasSent = lc, true
}
