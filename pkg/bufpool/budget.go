package bufpool

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
)

// ErrTooLarge is returned for a need above the total, for which waiting is pointless.
var ErrTooLarge = errors.New("bufpool: larger than the budget allows")

// Budget bounds the bulk memory of calls in flight: a total (an export's), a part of it for each
// client address, and a share for each connection. It counts bytes and holds no memory. A call
// takes its whole need in one [Share.Acquire] and holds nothing while it waits, so calls cannot
// block each other.
//
// Needs are met in order of arrival, with these exceptions:
//
//   - A need that waits only for its own share does not hold up other shares.
//   - A need beyond its client's part is met only when no need within a part waits for the total.
//     So a lone client may use the whole budget. When another one waits, it gets no more until it
//     is below its part.
//   - The needs of one client keep their order, or its large needs would starve among its small
//     ones.
//
// Every other need that waits for the total holds up all later ones, for the same reason.
//
// While a need waits for the total, connections have to make progress with the memory that they
// hold; see [Limits.MinProgress].
type Budget struct {
	mu      sync.Mutex
	limits  Limits
	used    int64
	waiting int
	seq     uint64
	// first and last are the shares with waiting grants, ordered by their oldest.
	first, last *Share
	holding     *Share // the shares that hold bytes
	clients     map[netip.Addr]*client
	look        uint64 // number of the last search for a need that can be met; see client.heldUp
	starved     starvation
	contended   bool // a need has waited for the total since the monitor's last look

	retained, retainable atomic.Int64

	monitor *monitor
	ceiling *Ceiling
	// behindOthers: the budget waits at its ceiling; behind is the next one there. The ceiling's
	// lock guards both.
	behindOthers bool
	behind       *Budget
}

// Limits are the limits of a [Budget], in bytes. 0 means no limit.
type Limits struct {
	// Total bounds the memory of all calls.
	Total int64
	// PerClient bounds the memory of one address's connections while others wait.
	PerClient int64
	// PerShare bounds the memory of one connection. A single larger need is met when its connection
	// holds nothing else.
	PerShare int64
	// MinProgress is the least number of bytes per second that a connection must move while it
	// holds memory for its peer and others wait for the total. It is measured over 5 s. 0 demands
	// no progress.
	MinProgress int64
}

// starvation says which needs wait for the total, so that later ones wait too.
type starvation uint8

const (
	nobody       starvation = iota
	beyondPart              // only needs beyond their client's part
	anybodyWaits            // all needs
)

// client is an address with its connections.
type client struct {
	addr   netip.Addr
	shares int
	used   int64
	heldUp uint64 // Budget.look, if one of its needs beyond its part waits for the total
}

// Share is one connection's part of a [Budget].
type Share struct {
	b           *Budget
	client      *client
	used        int64
	first, last *Grant // waiting, in order of arrival
	prev, next  *Share
	// Neighbours in Budget.holding.
	prevHolding, nextHolding *Share

	peer  Peer // may be nil
	lanes [lanes]lane
	watch watch // the monitor's
}

// Grant is memory that a call holds or waits for. It is part of the call's own object; the zero
// value holds nothing. It must not be copied.
type Grant struct {
	state atomic.Uint32 // changed under the budget's lock
	lane  Lane          // the owner's: the direction in which the call waits
	share *Share
	n     int64
	seq   uint64
	ready func()
	prev  *Grant
	next  *Grant
}

const (
	grantIdle = iota
	grantWaiting
	grantHeld
)

// NewBudget makes a budget of total bytes, at most perShare for each connection. 0 means no limit.
// [Budget.SetLimits] sets the other limits.
func NewBudget(total, perShare int64) *Budget {
	b := &Budget{clients: map[netip.Addr]*client{}, look: 1}
	b.monitor = newMonitor(nil, b)
	b.setLimitsLocked(Limits{Total: total, PerShare: perShare})
	return b
}

// Under puts the budget under a ceiling, before its first share, until Close.
func (b *Budget) Under(c *Ceiling) {
	b.ceiling, b.monitor = c, c.monitor
	c.monitor.add(b)
}

// Close removes the budget from its ceiling. Held bytes stay counted until their release.
func (b *Budget) Close() { b.monitor.remove(b) }

func (b *Budget) setLimitsLocked(l Limits) {
	for _, v := range []*int64{&l.Total, &l.PerClient, &l.PerShare} {
		if *v <= 0 {
			*v = math.MaxInt64
		}
	}
	b.limits = l
	b.retainable.Store(l.Total / retainedPart)
}

// SetLimits changes the limits. Held bytes stay held. Waiting needs keep their turn; one above the
// new limits is met when nothing else is held.
func (b *Budget) SetLimits(l Limits) {
	b.mu.Lock()
	b.setLimitsLocked(l)
	b.mu.Unlock()
	b.grant()
}

// Used returns the bytes held.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Waiting returns the number of waiting grants.
func (b *Budget) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting
}

// Share makes the share of a connection from a client's address, until Close. p.Stalled is called
// when the connection has to end; p may be nil.
func (b *Budget) Share(addr netip.Addr, p Peer) *Share {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.clients[addr]
	if c == nil {
		c = &client{addr: addr}
		b.clients[addr] = c
	}
	c.shares++
	return &Share{b: b, client: c, peer: p}
}

// Close ends the share. Its grants may be released later.
func (s *Share) Close() {
	s.b.mu.Lock()
	s.client.shares--
	s.b.forgetLocked(s.client)
	s.b.mu.Unlock()
}

// forgetLocked drops a client without shares and bytes.
func (b *Budget) forgetLocked(c *client) {
	if c.shares == 0 && c.used == 0 {
		delete(b.clients, c.addr)
	}
}

// Acquire takes n bytes. True: g holds them, and ready is never called. False: g waits. ready is
// then called once, unless g is cancelled first: outside all locks, on the goroutine whose Release,
// Cancel or SetLimits made room. The error is [ErrTooLarge] if n is above the total; then g holds
// nothing. To acquire a grant that holds or waits panics.
func (s *Share) Acquire(g *Grant, n int64, ready func()) (bool, error) {
	b := s.b
	b.mu.Lock()
	defer b.mu.Unlock()
	if g.state.Load() != grantIdle {
		panic("bufpool: grant acquired while it is in use")
	}
	if n < 0 || n > b.limits.Total {
		return false, fmt.Errorf("%w: %d bytes are needed, at most %d may be had at once", ErrTooLarge, n, b.limits.Total)
	}
	g.share, g.n = s, n
	alone := s.first == nil
	if alone && s.fits(n) {
		within := s.client.fits(b, n)
		if (b.starved == nobody || within && b.starved == beyondPart) && b.fits(n) && b.takeLocked(n) {
			b.holdLocked(g)
			return true, nil
		}
		if within {
			b.starveLocked(anybodyWaits)
		} else {
			s.client.heldUp = b.look
			b.starveLocked(max(b.starved, beyondPart))
		}
	}
	b.seq++
	g.seq, g.ready, g.prev, g.next = b.seq, ready, s.last, nil
	g.state.Store(grantWaiting)
	b.waiting++
	if s.last = g; !alone {
		g.prev.next = g
		return false, nil
	}
	s.first = g
	b.insertLocked(s, b.last)
	return false, nil
}

// Release gives back the grant's bytes, or withdraws a waiting grant. Otherwise it does nothing.
func (g *Grant) Release() {
	if g.state.Load() == grantIdle {
		return
	}
	b := g.share.b
	b.mu.Lock()
	switch g.state.Load() {
	case grantWaiting:
		b.withdrawLocked(g)
	case grantHeld:
		g.PeerDone()
		b.giveLocked(g.share, g.n)
	}
	g.state.Store(grantIdle)
	b.mu.Unlock()
	b.grant()
}

// Shrink gives back the bytes beyond n, if there are any.
func (g *Grant) Shrink(n int64) {
	if g.state.Load() != grantHeld || g.n <= n {
		return
	}
	b, over := g.share.b, g.n-n
	b.mu.Lock()
	g.n = n
	if g.lane != noLane {
		g.share.lanes[g.lane-1].settle(over)
	}
	b.giveLocked(g.share, over)
	b.mu.Unlock()
	b.grant()
}

// Cancel withdraws a waiting grant: ready will not be called. It returns false if g does not wait,
// or no longer: ready has been called or is about to be.
func (g *Grant) Cancel() bool {
	if g.state.Load() != grantWaiting {
		return false
	}
	b := g.share.b
	b.mu.Lock()
	if g.state.Load() != grantWaiting {
		b.mu.Unlock()
		return false
	}
	b.withdrawLocked(g)
	g.state.Store(grantIdle)
	b.mu.Unlock()
	b.grant()
	return true
}

// fits reports whether n more bytes may be held. A need above a limit fits when nothing else is
// held.
func (b *Budget) fits(n int64) bool { return n <= b.limits.Total-b.used || b.used == 0 }
func (s *Share) fits(n int64) bool  { return n <= s.b.limits.PerShare-s.used || s.used == 0 }

// fits reports whether n more bytes are within the client's part, and no earlier need of it waits
// beyond the part.
func (c *client) fits(b *Budget, n int64) bool {
	return (n <= b.limits.PerClient-c.used || c.used == 0) && c.heldUp != b.look
}

// starveLocked records that a need waits for the total.
func (b *Budget) starveLocked(s starvation) {
	b.starved, b.contended = s, true
	if b.limits.MinProgress > 0 {
		b.monitor.arm()
	}
}

func (b *Budget) holdLocked(g *Grant) {
	s := g.share
	if s.used == 0 && g.n > 0 {
		if s.nextHolding = b.holding; b.holding != nil {
			b.holding.prevHolding = s
		}
		b.holding = s
	}
	b.used += g.n
	s.used += g.n
	s.client.used += g.n
	g.state.Store(grantHeld)
}

// giveLocked gives back n bytes of a share.
func (b *Budget) giveLocked(s *Share, n int64) {
	b.used -= n
	s.client.used -= n
	if s.used -= n; s.used == 0 && n > 0 {
		if s.prevHolding == nil {
			b.holding = s.nextHolding
		} else {
			s.prevHolding.nextHolding = s.nextHolding
		}
		if s.nextHolding != nil {
			s.nextHolding.prevHolding = s.prevHolding
		}
		s.prevHolding, s.nextHolding = nil, nil
		b.forgetLocked(s.client)
	}
	if b.ceiling != nil {
		b.ceiling.release(n)
	}
}

// takeLocked takes n bytes from the ceiling, or returns false.
func (b *Budget) takeLocked(n int64) bool { return b.ceiling == nil || b.ceiling.reserve(b, n) }

// grant meets waiting needs, here and in other budgets under the ceiling.
func (b *Budget) grant() {
	b.grantOwn()
	if b.ceiling != nil {
		b.ceiling.wake()
	}
}

// grantOwn meets this budget's waiting needs. It searches anew after each call of ready, which runs
// without the lock. It returns whether a need waits for the ceiling.
func (b *Budget) grantOwn() bool {
	for {
		b.mu.Lock()
		g, low := b.nextGrantLocked()
		if g == nil {
			if b.ceiling != nil && !low {
				b.ceiling.dequeue(b)
			}
			b.mu.Unlock()
			return low
		}
		ready := g.ready
		b.withdrawLocked(g)
		b.holdLocked(g)
		if b.waiting > 0 {
			b.starved = anybodyWaits // until the next search: nobody overtakes while ready runs
		}
		b.mu.Unlock()
		ready()
	}
}

// nextGrantLocked returns the next waiting grant that can be met, with its bytes taken from the
// ceiling, or nil. low reports that the ceiling is short.
func (b *Budget) nextGrantLocked() (g *Grant, low bool) {
	b.starved = nobody
	b.look++
	var beyond *Grant
	for s := b.first; s != nil; s = s.next {
		switch g := s.first; {
		case !s.fits(g.n):
		case s.client.fits(b, g.n):
			return b.meetLocked(g, anybodyWaits)
		default:
			s.client.heldUp = b.look
			if beyond == nil {
				beyond = g
			}
		}
	}
	if beyond == nil {
		return nil, false
	}
	return b.meetLocked(beyond, beyondPart)
}

// meetLocked returns g if it can be met. Otherwise the needs of who wait from now on.
func (b *Budget) meetLocked(g *Grant, who starvation) (_ *Grant, low bool) {
	enough := b.fits(g.n)
	if enough && b.takeLocked(g.n) {
		return g, false
	}
	b.starveLocked(who)
	return nil, enough
}

// withdrawLocked removes a waiting grant from its share's queue, and moves the share to the place
// of its oldest grant.
func (b *Budget) withdrawLocked(g *Grant) {
	s := g.share
	head := s.first == g
	if head {
		s.first = g.next
	} else {
		g.prev.next = g.next
	}
	if g.next == nil {
		s.last = g.prev
	} else {
		g.next.prev = g.prev
	}
	g.prev, g.next, g.ready = nil, nil, nil
	b.waiting--
	if !head {
		return
	}
	at := s.prev
	if at == nil {
		b.first = s.next
	} else {
		at.next = s.next
	}
	if s.next == nil {
		b.last = s.prev
	} else {
		s.next.prev = s.prev
	}
	if s.first == nil {
		s.prev, s.next = nil, nil
		return
	}
	for after := s.next; after != nil && after.first.seq < s.first.seq; after = after.next {
		at = after
	}
	b.insertLocked(s, at)
}

// insertLocked puts s behind the share at, or first if at is nil.
func (b *Budget) insertLocked(s, at *Share) {
	s.prev = at
	if at == nil {
		s.next, b.first = b.first, s
	} else {
		s.next, at.next = at.next, s
	}
	if s.next == nil {
		b.last = s
	} else {
		s.next.prev = s
	}
}
