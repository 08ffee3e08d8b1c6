package bufpool

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"sync"
	"sync/atomic"
)

// ErrTooLarge is returned for a need that no waiting could ever meet.
var ErrTooLarge = errors.New("bufpool: larger than the budget allows")

// Budget bounds the bulk memory of calls in flight: a total (an export's), a part of it for each client address, and a
// share for each connection. It counts bytes and holds no memory. A call takes its whole need in one [Share.Acquire]
// and holds nothing while it waits, so that calls cannot block each other.
//
// Needs are met first come, first served, with these exceptions:
//
//   - A need that waits only for its own share does not hold up other shares.
//   - A need beyond its client's part is met only when no need within a client's part waits for the total. One client
//     alone may thus use the whole budget. Once another one waits, it gets no more until it is below its part.
//   - The needs of one client keep their order, or its large needs would starve among its small ones.
//
// Every other need that waits for the total holds up all later ones, for the same reason.
//
// While a need waits for the total, connections have to make progress with the memory that they hold; see [Limits.MinProgress].
type Budget struct {
	mu      sync.Mutex
	limits  Limits
	used    int64
	waiting int
	seq     uint64
	// first and last are the shares in which something waits, in the order of their oldest grants.
	first, last *Share
	holding     *Share // the shares that hold something
	clients     map[netip.Addr]*client
	look        uint64 // number of the last look for a need that can be met; see client.heldUp
	starved     starvation
	contended   bool // something has waited for the total since the monitor looked last

	retained, retainable atomic.Int64

	monitor *monitor
	ceiling *Ceiling
	// behindOthers: the budget waits at its ceiling; behind is the one that came after it. Both are the ceiling's.
	behindOthers bool
	behind       *Budget
}

// Limits are the limits of a [Budget], in bytes. 0 means no limit.
type Limits struct {
	// Total bounds the memory of all calls.
	Total int64
	// PerClient bounds the memory of one address's connections while others wait.
	PerClient int64
	// PerShare bounds the memory of one connection. A single larger need is met when its connection holds nothing else.
	PerShare int64
	// MinProgress is the least number of bytes per second that a connection has to move while it holds memory for its
	// peer and others wait for the total. It is measured over 5 s. 0 demands no progress.
	MinProgress int64
}

// starvation says which needs wait for the total, so that later ones wait too.
type starvation uint8

const (
	nobody       starvation = iota
	beyondPart              // only such as exceed their client's part: others are met
	anybodyWaits            // nobody gets anything
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

// Grant is what one call has, or waits for. It is part of the call's own object; the zero value holds nothing.
// It must not be copied.
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

// NewBudget makes a budget of total bytes, of which each connection gets at most perShare. 0 means no limit.
// [Budget.SetLimits] sets the other limits.
func NewBudget(total, perShare int64) *Budget {
	b := &Budget{clients: map[netip.Addr]*client{}, look: 1}
	b.monitor = newMonitor(nil, b)
	b.setLimitsLocked(Limits{Total: total, PerShare: perShare})
	return b
}

// Under puts the budget under a ceiling, before its first share is made. Close ends that.
func (b *Budget) Under(c *Ceiling) {
	b.ceiling, b.monitor = c, c.monitor
	c.monitor.add(b)
}

// Close takes the budget from under its ceiling. What is held stays counted until it is released.
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

// SetLimits changes the limits. What is held stays held. What already waits is granted in its turn even if the new
// limits are below it: then as soon as nothing else is held.
func (b *Budget) SetLimits(l Limits) {
	b.mu.Lock()
	b.setLimitsLocked(l)
	b.mu.Unlock()
	b.grant()
}

// Used returns how many bytes are held.
func (b *Budget) Used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// Waiting returns how many grants wait.
func (b *Budget) Waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting
}

// Share makes the share of a connection to a client's address. p.Stalled is called when the connection has to end; p may be nil.
// Close follows when the connection has ended.
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

// forgetLocked drops a client of which nothing is left.
func (b *Budget) forgetLocked(c *client) {
	if c.shares == 0 && c.used == 0 {
		delete(b.clients, c.addr)
	}
}

// Acquire takes n bytes. True: g holds them now, and ready is never called. False: g waits, and ready will be called once,
// outside any lock, on the goroutine whose Release (or Cancel, or SetLimits) made room; unless g is cancelled before.
// The error is [ErrTooLarge] when n is above the total; then g holds nothing.
// A grant that holds or waits already must not be acquired again: that panics.
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

// Release gives back what g holds, or withdraws it if it waits. Nothing happens if it does neither.
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

// Shrink gives back what g holds beyond n bytes. Nothing happens if it holds no more.
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

// Cancel withdraws a grant that waits: its ready will not be called. It returns false if g does not wait (any more);
// if it waited until now, its ready has been called or is about to be.
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

// fits reports whether n more bytes may be held. What is above a limit by itself is held when nothing else is.
func (b *Budget) fits(n int64) bool { return n <= b.limits.Total-b.used || b.used == 0 }
func (s *Share) fits(n int64) bool  { return n <= s.b.limits.PerShare-s.used || s.used == 0 }

// fits reports whether n more bytes are within the client's part, and none of its needs waits because they are not.
func (c *client) fits(b *Budget, n int64) bool {
	return (n <= b.limits.PerClient-c.used || c.used == 0) && c.heldUp != b.look
}

// starveLocked notes that something waits for the total.
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

// giveLocked gives n bytes of a share back.
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

// takeLocked takes n bytes from the ceiling. Without it, something has to wait.
func (b *Budget) takeLocked(n int64) bool { return b.ceiling == nil || b.ceiling.reserve(b, n) }

// grant gives to those that wait what there is, here and in other budgets under the same ceiling.
func (b *Budget) grant() {
	b.grantOwn()
	if b.ceiling != nil {
		b.ceiling.wake()
	}
}

// grantOwn gives to those that wait what there is, and calls them. It looks anew for each, since the lock is not held
// during the call and everything may have changed after it. It returns whether something waits for the ceiling now.
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
			b.starved = anybodyWaits // until the next look: nobody overtakes while ready runs
		}
		b.mu.Unlock()
		ready()
	}
}

// nextGrantLocked returns the waiting grant that can be met now, for which it has taken from the ceiling; nil if there is
// none. low reports whether that is for the ceiling.
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

// meetLocked returns g if there is enough for it. If not, who starves says which needs wait from now on.
func (b *Budget) meetLocked(g *Grant, who starvation) (_ *Grant, low bool) {
	enough := b.fits(g.n)
	if enough && b.takeLocked(g.n) {
		return g, false
	}
	b.starveLocked(who)
	return nil, enough
}

// withdrawLocked takes a waiting grant out of its share's queue, and puts the share where its oldest grant belongs.
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
