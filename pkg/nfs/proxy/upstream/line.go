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

// line is a succession of connections to the backend, from one source port, with the calls that are unanswered. It belongs to a link, or is parked.
//
// No lock is held while a request is submitted, cancelled or finished. A request that a connection has in hand comes back by
// [line.settle], which decides what becomes of it.
type line struct {
	b       *Backend
	address netip.Addr // the client's
	ctx     context.Context
	cancel  context.CancelFunc

	// Changed with mu locked.
	owner   atomic.Pointer[Link]    // nil: parked, or closed
	current atomic.Pointer[session] // nil: there is no connection

	mu      sync.Mutex
	queue   queue // all calls that are unanswered, but for those that have an heir
	closed  bool
	running bool // there is a goroutine that keeps the connection
	counted bool // what is in queue counts as waiting
	kinds   [ReplayBySession + 1]bool

	// While a new connection gets what waits, all else waits too, to stay in order.
	resending bool
	rescan    bool     // something before cursor waits
	cursor    *Request // the next to be looked at

	timer *time.Timer // for the soft timeout
	armed bool
	due   time.Time // when the timer runs
	early bool      // a request may have waited for longer than one before it in the queue
	ticks uint64    // how often it ran

	// recent are XIDs that the backend may know.
	recent [128]uint32
	seen   uint64

	parkTimer *time.Timer // guarded by b.mu

	// Of the goroutine that keeps the connection.
	port      int
	portUsed  bool // there was a connection from it
	portTrial time.Time
	failures  int
	notBefore time.Time // the next attempt to connect
}

// session is one connection of a line, and its Peer.
type session struct {
	line *line
	conn Conn
	held oncrpc.Gatherer

	// With line.mu locked, once the session is the line's.
	answered  bool // the backend has answered a call
	givenUp   bool // this side has closed the connection
	afterAway bool // the backend was away before: it took no connection, or answered nothing
}

// maxDeaths is how many connections a call is sent on that end before it is answered, although the
// backend has answered others and was away in between. A call may be what ends the backend.
const maxDeaths = 2

func newLine(b *Backend, lk *Link) *line {
	l := &line{b: b, address: lk.client.Remote.Addr().Unmap(), counted: true}
	l.ctx, l.cancel = context.WithCancel(b.ctx)
	l.owner.Store(lk)
	return l
}

// ServeRPC implements [oncrpc.Handler]: the backend's calls go to the owner.
func (s *session) ServeRPC(c *oncrpc.Call) {
	if lk := s.line.owner.Load(); lk != nil && lk.back != nil {
		lk.back.ServeRPC(c)
		return
	}
	c.ReplyAccept(oncrpc.ProgUnavail)
}

// Hold implements [oncrpc.Gatherer]: the client's replies leave together.
func (s *session) Hold() {
	if lk := s.line.owner.Load(); lk != nil && lk.client.Out != nil {
		s.held = lk.client.Out
		s.held.Hold()
	}
}

// Release implements [oncrpc.Gatherer].
func (s *session) Release() {
	if s.held != nil {
		s.held.Release()
		s.held = nil
	}
}

// submit is [Link.Submit].
func (l *line) submit(lk *Link, r *Request) {
	if r.answered == nil {
		r.answered = func(*oncrpc.Request) { r.line.done(r) }
	}
	r.Done, r.line, r.size = r.answered, l, int64(r.Call.Len()+callCost)
	l.mu.Lock()
	if l.owner.Load() != lk {
		l.mu.Unlock()
		r.finish(ErrClosed)
		return
	}
	l.note(r)
	if former := l.queue.find(r.XID); former != nil {
		l.succeed(former, r)
		return
	}
	s := l.current.Load()
	if s == nil && !l.b.admit(r.size) {
		l.mu.Unlock()
		r.finish(ErrOverloaded)
		return
	}
	l.add(r)
	if s == nil || l.resending {
		l.keep()
		l.mu.Unlock()
		return
	}
	l.send(s, r)
}

// admit reports whether a call of the size may wait. One that is alone always may.
func (b *Backend) admit(size int64) bool {
	if w := b.waiting.Load(); w == 0 || w+size <= b.cfg.WaitLimit {
		return true
	}
	b.counts.overloads.Add(1)
	return false
}

// note remembers of a call what tells later whether the line is worth parking, and for whom.
func (l *line) note(r *Request) {
	l.kinds[r.Replay] = true
	if r.Replay == ReplayByXID {
		l.recent[l.seen%uint64(len(l.recent))] = r.XID
		l.seen++
	}
}

// knows reports whether a call with the XID was submitted lately.
func (l *line) knows(xid uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range l.recent[:min(l.seen, uint64(len(l.recent)))] {
		if x == xid {
			return true
		}
	}
	return false
}

// add puts r at the end of what is unanswered.
func (l *line) add(r *Request) {
	l.queue.add(r)
	if l.counted {
		l.b.waiting.Add(r.size)
	}
	if l.resending && l.cursor == nil {
		l.cursor = r
	}
	l.watch(r)
}

// remove takes r out of what is unanswered.
func (l *line) remove(r *Request) {
	if l.cursor == r {
		l.cursor = r.next
	}
	l.queue.remove(r)
	if l.counted {
		l.b.waiting.Add(-r.size)
	}
}

// send submits r to the connection, and unlocks the line.
func (l *line) send(s *session, r *Request) {
	if r.wasSent {
		l.b.counts.resends.Add(1)
	}
	r.via, r.wasSent = s, true
	l.mu.Unlock()
	s.conn.Submit(&r.Request)
}

// succeed lets r take the place of former, an unanswered call with the same XID, and unlocks the line.
//
// If both are the same, the client has sent its call again, perhaps on a new connection. What the backend has in hand is then r's too, and
// nothing more is sent.
//
// If they differ, the client has given the former up, and used its XID again. A reply to the former, with that XID, would be taken for the reply to r, so
// r is not sent before the former is answered, or lost with its connection, whatever comes first. If the client sends a third call that differs
// from the former, it has waited for the second in vain, and the former may never be answered (a server drops calls that RPCSEC_GSS finds wrong): then
// the connection is given up, since a new one can bring no reply to the former.
func (l *line) succeed(former, r *Request) {
	l.b.counts.superseded.Add(1)
	l.remove(former)
	carrier := former.carrier
	if carrier == nil && former.via != nil {
		carrier = former
	}
	over := former // what ends now
	var lost Conn
	if carrier != nil {
		r.differs = !same(&carrier.Call, &r.Call)
		if former == carrier {
			over = nil
		} else if former.differs && r.differs {
			lost = carrier.via.conn
			carrier.via.givenUp = true
		}
		carrier.heir, r.carrier, r.via = r, carrier, carrier.via
		if r.wasSent = !r.differs; r.wasSent {
			r.deaths = carrier.deaths
		}
	}
	l.add(r)
	if carrier == nil {
		if r.wasSent = former.wasSent && same(&former.Call, &r.Call); r.wasSent {
			r.deaths = former.deaths
		}
		if l.resending {
			l.rescan = true
		}
		l.keep()
	}
	l.mu.Unlock()
	if over != nil {
		over.finish(ErrSuperseded)
	}
	if lost != nil {
		_ = lost.Close()
	}
}

// done is called when a connection gives r back.
func (l *line) done(r *Request) {
	l.mu.Lock()
	if r.busy {
		r.ended = true
		l.mu.Unlock()
		return
	}
	l.settle(r)
}

// settle decides what becomes of r, which its connection has given back, and unlocks the line.
//
// A connection that still owes the reply to a former call with the same XID, which was given up, is given up too: a new one can bring no such reply.
func (l *line) settle(r *Request) {
	s, err := r.via, r.Err
	who, former := r, r.heir // who waits for the answer
	if former != nil {
		who, former = former, r
		who.carrier, former.heir = nil, nil
	}
	final := err != nil && r.cause == nil && s.conn.Final(err)
	switch {
	case err == nil:
		s.answered = true
		l.b.health.heard()
	case r.cause == nil && !final:
		l.lose(s)
	}
	owes := errors.Is(err, oncrpc.ErrXIDInUse)
	if owes {
		s.givenUp = true
	}
	if err != nil && r.cause == nil && !final && s.answered && !s.givenUp && !who.differs {
		// A link that is cut comes back at once. Only a backend that was away in between has died.
		if who.deaths == 0 || s.afterAway {
			who.deaths++
		}
	}
	var next *session
	ends := true
	switch {
	case err == nil && !who.differs:
		if former != nil {
			who.inherit(former)
		}
	case who.cause != nil:
		err = who.cause
	case final && !who.differs:
	case l.owner.Load() == nil:
		err = ErrClosed
	case who.Once && who.wasSent, who.deaths == maxDeaths:
		err = ErrLost
	default:
		ends, who.via, who.differs = false, nil, false
		if l.resending {
			l.rescan = true
		} else {
			next = l.current.Load()
		}
	}
	if ends {
		l.remove(who)
	}
	switch {
	case next != nil:
		l.send(next, who)
	default:
		l.mu.Unlock()
	}
	if owes {
		_ = s.conn.Close()
	}
	if former != nil {
		former.finish(ErrSuperseded)
	}
	if ends {
		who.finish(err)
	}
}

// inherit takes over the reply to a former call that was the same.
func (r *Request) inherit(former *Request) {
	r.Reply.Release()
	r.Reply, former.Reply = former.Reply, r.Reply
	for i := range min(len(r.Plan.Results), len(former.Plan.Results)) {
		r.Plan.Results[i].State = former.Plan.Results[i].State
	}
}

// lose takes note that the connection is of no use any more. The line is locked.
func (l *line) lose(s *session) {
	if l.current.Load() != s {
		return
	}
	l.current.Store(nil)
	l.resending, l.rescan, l.cursor = false, false, nil
	l.counted = true
	l.b.waiting.Add(l.queue.bytes)
	l.b.counts.connected.Add(-1)
}

// leave is [Link.Close].
func (l *line) leave(lk *Link) {
	l.mu.Lock()
	if l.owner.Load() != lk {
		l.mu.Unlock()
		return
	}
	if l.kinds[ReplayBySession] || !l.kinds[ReplayByXID] {
		l.mu.Unlock()
		l.close()
		return
	}
	l.owner.Store(nil)
	gone := l.drain()
	for r := l.queue.first; r != nil; r = r.next {
		r.leave()
		if r.carrier != nil {
			r.carrier.leave()
		}
	}
	l.mu.Unlock()
	finishAll(gone, ErrClosed)
	if l.b.left.Load() > l.b.cfg.WaitLimit {
		l.b.cfg.Logger.Warn("backend: a connection is not kept for the client that left it: too much is unanswered", "client", l.address)
		l.close()
		return
	}
	l.b.park(l)
}

// close ends the line.
func (l *line) close() {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return
	}
	l.closed = true
	l.owner.Store(nil)
	gone := l.drain()
	s := l.current.Load()
	if l.timer != nil {
		l.timer.Stop()
	}
	running := l.running
	l.mu.Unlock()
	l.cancel()
	finishAll(gone, ErrClosed)
	if s != nil {
		_ = s.conn.Close() // what it has in hand comes back
	}
	if !running {
		l.b.ports.put(l.port)
	}
	l.b.forget(l)
}

// drain takes out what no connection has in hand. The line is locked. The list is chained by next.
func (l *line) drain() (first *Request) {
	at := &first
	for r := l.queue.first; r != nil; {
		next := r.next
		if r.via == nil {
			l.remove(r)
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
