package bufpool

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
)

// ErrTooLarge is returned for a need that no waiting could ever meet.
var ErrTooLarge = errors.New("bufpool: larger than the budget allows")

// Budget bounds the bulk memory of calls in flight: a total (an export's), and a share of it for each connection.
// It counts bytes and holds no memory. A call takes its whole need in one [Share.Acquire] and holds nothing while it
// waits, so that calls cannot block each other.
//
// Needs are met first come, first served, with one exception: one that waits only because its own share is used up does
// not hold up those of other shares. One that waits for the total does hold up all later ones, or a large need would
// starve among small ones.
type Budget struct {
	mu              sync.Mutex
	total, perShare int64
	used            int64
	waiting         int
	seq             uint64
	// first and last are the shares in which something waits, in the order of their oldest grants.
	first, last *Share
	// starved: something waits for the total, so that later needs wait too.
	starved bool

	ceiling *Ceiling
	// behindOthers: the budget waits at its ceiling; behind is the one that came after it. Both are the ceiling's.
	behindOthers bool
	behind       *Budget
}

// Share is one connection's part of a [Budget].
type Share struct {
	b           *Budget
	used        int64
	first, last *Grant // waiting, in order of arrival
	prev, next  *Share
}

// Grant is what one call has, or waits for. It is part of the call's own object; the zero value holds nothing.
// It must not be copied.
type Grant struct {
	state atomic.Uint32 // changed under the budget's lock
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

// NewBudget makes a budget of total bytes, of which each share gets at most perShare, or a single need that is larger. 0 means no limit.
func NewBudget(total, perShare int64) *Budget {
	b := &Budget{}
	b.setLimits(total, perShare)
	return b
}

// Under puts the budget under a ceiling. It comes before everything else.
func (b *Budget) Under(c *Ceiling) { b.ceiling = c }

func (b *Budget) setLimits(total, perShare int64) {
	if total <= 0 {
		total = math.MaxInt64
	}
	if perShare <= 0 {
		perShare = math.MaxInt64
	}
	b.total, b.perShare = total, perShare
}

// SetLimits changes the limits. What is held stays held. What already waits is granted in its turn even if the new
// limits are below it: then as soon as nothing else is held.
func (b *Budget) SetLimits(total, perShare int64) {
	b.mu.Lock()
	b.setLimits(total, perShare)
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

// Share makes a new share. It needs no closing: it is gone when its grants are released.
func (b *Budget) Share() *Share { return &Share{b: b} }

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
	if n < 0 || n > b.total {
		return false, fmt.Errorf("%w: %d bytes are needed, at most %d may be had at once", ErrTooLarge, n, b.total)
	}
	g.share, g.n = s, n
	alone := s.first == nil
	if alone && s.fits(n) {
		if !b.starved && b.fits(n) && b.take(n) {
			b.hold(g)
			return true, nil
		}
		b.starved = true
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
	b.insert(s, b.last)
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
		b.withdraw(g)
	case grantHeld:
		b.used -= g.n
		g.share.used -= g.n
		if b.ceiling != nil {
			b.ceiling.give(g.n)
		}
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
	b.used -= over
	g.share.used -= over
	if b.ceiling != nil {
		b.ceiling.give(over)
	}
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
	b.withdraw(g)
	g.state.Store(grantIdle)
	b.mu.Unlock()
	b.grant()
	return true
}

// fits reports whether n more bytes may be held. What is above a limit by itself is held when nothing else is.
func (b *Budget) fits(n int64) bool { return n <= b.total-b.used || b.used == 0 }
func (s *Share) fits(n int64) bool  { return n <= s.b.perShare-s.used || s.used == 0 }

func (b *Budget) hold(g *Grant) {
	b.used += g.n
	g.share.used += g.n
	g.state.Store(grantHeld)
}

// take takes n bytes from the ceiling. Without it, something has to wait.
func (b *Budget) take(n int64) bool { return b.ceiling == nil || b.ceiling.take(b, n) }

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
		g, low := b.nextGrant()
		if g == nil {
			if b.ceiling != nil && !low {
				b.ceiling.leave(b)
			}
			b.mu.Unlock()
			return low
		}
		ready := g.ready
		b.withdraw(g)
		b.hold(g)
		b.starved = b.waiting > 0 // until the next look: nobody overtakes while ready runs
		b.mu.Unlock()
		ready()
	}
}

// nextGrant returns the waiting grant that can be met now, for which it has taken from the ceiling; nil if there is none. low tells whether that is for
// the ceiling.
func (b *Budget) nextGrant() (g *Grant, low bool) {
	b.starved = false
	for s := b.first; s != nil; s = s.next {
		if !s.fits(s.first.n) {
			continue
		}
		if !b.fits(s.first.n) {
			b.starved = true
			return nil, false
		}
		if !b.take(s.first.n) {
			b.starved = true
			return nil, true
		}
		return s.first, false
	}
	return nil, false
}

// withdraw takes a waiting grant out of its share's queue, and puts the share where its oldest grant belongs.
func (b *Budget) withdraw(g *Grant) {
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
	b.insert(s, at)
}

// insert puts s behind the share at, or first if at is nil.
func (b *Budget) insert(s, at *Share) {
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
