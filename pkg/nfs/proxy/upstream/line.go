package upstream

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
)

// backendConn is a succession of connections to the backend, from one source port, with the calls that are unanswered. It belongs to a link, or is parked.
//
// No lock is held while a request is submitted, cancelled or finished. A request that a connection has in hand comes back by
// [backendConn.onDoneLocked], which decides what becomes of it.
type backendConn struct {
	b       *Backend
	address netip.Addr // the client's
	ctx     context.Context
	cancel  context.CancelFunc

	// Changed with mu locked.
	owner atomic.Pointer[Link]     // nil: parked, or closed
	live  atomic.Pointer[liveConn] // nil: there is no connection

	mu              sync.Mutex
	queue           queue // all calls that are unanswered, but for those that have an heir
	closed          bool
	running         bool // there is a goroutine that keeps the connection
	countsAsWaiting bool // what is in queue counts as waiting
	replays         [ReplayBySession + 1]bool

	// While a new connection gets what waits, all else waits too, to stay in order.
	resending bool
	rescan    bool     // something before cursor waits
	cursor    *Request // the next to be looked at

	softTimer  *time.Timer // for the soft timeout
	timerArmed bool
	timerDue   time.Time // when the timer runs
	unordered  bool      // a request may have waited for longer than one before it in the queue
	scans      uint64    // how often it ran

	// recent are XIDs that the backend may know.
	recent [128]uint32
	seen   uint64

	detachTimer *time.Timer // guarded by b.mu

	// Of the goroutine that keeps the connection.
	port          int
	portUsed      bool // there was a connection from it
	portBusySince time.Time
	failures      int
	notBefore     time.Time // the next attempt to connect
}

// liveConn is one connection of a line, and its Peer.
type liveConn struct {
	bc     *backendConn
	Conn   Conn
	corked oncrpc.Gatherer

	// With backendConn.mu locked, once the session is the line's.
	answered    bool // the backend has answered a call
	abandoned   bool // this side has closed the connection
	afterOutage bool // the backend was away before: it took no connection, or answered nothing
}

// maxDeaths is how many connections a call is sent on that end before it is answered, although the
// backend has answered others and was away in between. A call may be what ends the backend.
const maxDeaths = 2

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

// Hold implements [oncrpc.Gatherer]: the client's replies leave together.
func (lc *liveConn) Hold() {
	if lk := lc.bc.owner.Load(); lk != nil && lk.client.Out != nil {
		lc.corked = lk.client.Out
		lc.corked.Hold()
	}
}

// Release implements [oncrpc.Gatherer].
func (lc *liveConn) Release() {
	if lc.corked != nil {
		lc.corked.Release()
		lc.corked = nil
	}
}

// submitFrom is [Link.Submit].
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
	if superseded := bc.queue.find(r.XID); superseded != nil {
		bc.supersedeLocked(superseded, r)
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
	bc.sendLocked(lc, r)
}

// mayWait reports whether a call of the size may wait. One that is alone always may.
func (b *Backend) mayWait(size int64) bool {
	if w := b.waiting.Load(); w == 0 || w+size <= b.cfg.WaitLimit {
		return true
	}
	b.counts.overloads.Add(1)
	return false
}

// recordLocked remembers of a call what tells later whether the line is worth parking, and for whom.
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

// addLocked puts r at the end of what is unanswered.
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

// removeLocked takes r out of what is unanswered.
func (bc *backendConn) removeLocked(r *Request) {
	if bc.cursor == r {
		bc.cursor = r.next
	}
	bc.queue.unlink(r)
	if bc.countsAsWaiting {
		bc.b.waiting.Add(-r.size)
	}
}

// sendLocked submits r to the connection, and unlocks the line.
func (bc *backendConn) sendLocked(lc *liveConn, r *Request) {
	if r.wasSent {
		bc.b.counts.resends.Add(1)
	}
	r.sentOn, r.wasSent = lc, true
	bc.mu.Unlock()
	lc.Conn.Submit(&r.Request)
}

// supersedeLocked lets r take the place of former, an unanswered call with the same XID, and unlocks the line.
//
// If both are the same, the client has sent its call again, perhaps on a new connection. What the backend has in hand is then r's too, and
// nothing more is sent.
//
// If they differ, the client has given the former up, and used its XID again. A reply to the former, with that XID, would be taken for the reply to r, so
// r is not sent before the former is answered, or lost with its connection, whatever comes first. If the client sends a third call that differs
// from the former, it has waited for the second in vain, and the former may never be answered (a server drops calls that RPCSEC_GSS finds wrong): then
// the connection is given up, since a new one can bring no reply to the former.
func (bc *backendConn) supersedeLocked(superseded, r *Request) {
	bc.b.counts.superseded.Add(1)
	bc.removeLocked(superseded)
	inFlight := superseded.inFlight
	if inFlight == nil && superseded.sentOn != nil {
		inFlight = superseded
	}
	over := superseded // what ends now
	var lost Conn
	if inFlight != nil {
		r.differs = !sameBytes(&inFlight.Call, &r.Call)
		if superseded == inFlight {
			over = nil
		} else if superseded.differs && r.differs {
			lost = inFlight.sentOn.Conn
			inFlight.sentOn.abandoned = true
		}
		inFlight.replacement, r.inFlight, r.sentOn = r, inFlight, inFlight.sentOn
		if r.wasSent = !r.differs; r.wasSent {
			r.deaths = inFlight.deaths
		}
	}
	bc.addLocked(r)
	if inFlight == nil {
		if r.wasSent = superseded.wasSent && sameBytes(&superseded.Call, &r.Call); r.wasSent {
			r.deaths = superseded.deaths
		}
		if bc.resending {
			bc.rescan = true
		}
		bc.reconnectLocked()
	}
	bc.mu.Unlock()
	if over != nil {
		over.finish(ErrSuperseded)
	}
	if lost != nil {
		_ = lost.Close()
	}
}

// onDone is called when a connection gives r back.
func (bc *backendConn) onDone(r *Request) {
	bc.mu.Lock()
	if r.cancelling {
		r.doneEarly = true
		bc.mu.Unlock()
		return
	}
	bc.onDoneLocked(r)
}

// onDoneLocked decides what becomes of r, which its connection has given back, and unlocks the line.
//
// A connection that still owes the reply to a former call with the same XID, which was given up, is given up too: a new one can bring no such reply.
func (bc *backendConn) onDoneLocked(r *Request) {
	lc, err := r.sentOn, r.Err
	who, superseded := r, r.replacement // who waits for the answer
	if superseded != nil {
		who, superseded = superseded, r
		who.inFlight, superseded.replacement = nil, nil
	}
	final := err != nil && r.cancelCause == nil && lc.Conn.Final(err)
	switch {
	case err == nil:
		lc.answered = true
		bc.b.health.onAnswer()
	case r.cancelCause == nil && !final:
		bc.dropLiveLocked(lc)
	}
	owes := errors.Is(err, oncrpc.ErrXIDInUse)
	if owes {
		lc.abandoned = true
	}
	if err != nil && r.cancelCause == nil && !final && lc.answered && !lc.abandoned && !who.differs {
		// A link that is cut comes back at once. Only a backend that was away in between has died.
		if who.deaths == 0 || lc.afterOutage {
			who.deaths++
		}
	}
	var next *liveConn
	ends := true
	switch {
	case err == nil && !who.differs:
		if superseded != nil {
			who.takeReply(superseded)
		}
	case who.cancelCause != nil:
		err = who.cancelCause
	case final && !who.differs:
	case bc.owner.Load() == nil:
		err = ErrClosed
	case who.NoReplay && who.wasSent, who.deaths == maxDeaths:
		err = ErrLost
	default:
		ends, who.sentOn, who.differs = false, nil, false
		if bc.resending {
			bc.rescan = true
		} else {
			next = bc.live.Load()
		}
	}
	if ends {
		bc.removeLocked(who)
	}
	switch {
	case next != nil:
		bc.sendLocked(next, who)
	default:
		bc.mu.Unlock()
	}
	if owes {
		_ = lc.Conn.Close()
	}
	if superseded != nil {
		superseded.finish(ErrSuperseded)
	}
	if ends {
		who.finish(err)
	}
}

// takeReply takes over the reply to a former call that was the same.
func (r *Request) takeReply(superseded *Request) {
	r.Reply.Release()
	r.Reply, superseded.Reply = superseded.Reply, r.Reply
	for i := range min(len(r.Plan.Results), len(superseded.Plan.Results)) {
		r.Plan.Results[i].State = superseded.Plan.Results[i].State
	}
}

// dropLiveLocked takes note that the connection is of no use any more. The line is locked.
func (bc *backendConn) dropLiveLocked(lc *liveConn) {
	if bc.live.Load() != lc {
		return
	}
	bc.live.Store(nil)
	bc.resending, bc.rescan, bc.cursor = false, false, nil
	bc.countsAsWaiting = true
	bc.b.waiting.Add(bc.queue.bytes)
	bc.b.counts.connected.Add(-1)
}

// detach is [Link.Close].
func (bc *backendConn) detach(lk *Link) {
	bc.mu.Lock()
	if bc.owner.Load() != lk {
		bc.mu.Unlock()
		return
	}
	if bc.replays[ReplayBySession] || !bc.replays[ReplayByXID] {
		bc.mu.Unlock()
		bc.close()
		return
	}
	bc.owner.Store(nil)
	gone := bc.takeUnsentLocked()
	for r := bc.queue.first; r != nil; r = r.next {
		r.orphan()
		if r.inFlight != nil {
			r.inFlight.orphan()
		}
	}
	bc.mu.Unlock()
	finishAll(gone, ErrClosed)
	if bc.b.orphaned.Load() > bc.b.cfg.WaitLimit {
		bc.b.cfg.Logger.Warn("backend: a connection is not kept for the client that left it: too much is unanswered", "client", bc.address)
		bc.close()
		return
	}
	bc.b.keepDetached(bc)
}

// close ends the line.
func (bc *backendConn) close() {
	bc.mu.Lock()
	if bc.closed {
		bc.mu.Unlock()
		return
	}
	bc.closed = true
	bc.owner.Store(nil)
	gone := bc.takeUnsentLocked()
	lc := bc.live.Load()
	if bc.softTimer != nil {
		bc.softTimer.Stop()
	}
	running := bc.running
	bc.mu.Unlock()
	bc.cancel()
	finishAll(gone, ErrClosed)
	if lc != nil {
		_ = lc.Conn.Close() // what it has in hand comes back
	}
	if !running {
		bc.b.ports.put(bc.port)
	}
	bc.b.forget(bc)
}

// takeUnsentLocked takes out what no connection has in hand. The line is locked. The list is chained by next.
func (bc *backendConn) takeUnsentLocked() (first *Request) {
	at := &first
	for r := bc.queue.first; r != nil; {
		next := r.next
		if r.sentOn == nil {
			bc.removeLocked(r)
			*at, at = r, &r.next
		}
		r = next
	}
	return first
}

func finishAll(r *Request, err error) {
	for r != nil {
		next := r.next
		r.finish(err)
		r = next
	}
}
