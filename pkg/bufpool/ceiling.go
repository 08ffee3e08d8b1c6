package bufpool

import (
	"math"
	"sync"
)

// Ceiling bounds the memory of several budgets together. Each [Budget] takes its grants from the
// ceiling too. Budgets that wait are served in order, and none overtakes another.
type Ceiling struct {
	mu          sync.Mutex
	total, used int64
	// first and last are the waiting budgets, linked by Budget.behind.
	first, last *Budget

	monitor *monitor // of all budgets
}

// NewCeiling makes a ceiling of total bytes; 0 means no limit. A larger single need is met when
// nothing else is held.
func NewCeiling(total int64) *Ceiling {
	c := &Ceiling{}
	c.monitor = newMonitor(c)
	c.SetTotal(total)
	return c
}

// SetTotal changes the limit. Held bytes stay held.
func (c *Ceiling) SetTotal(total int64) {
	if total <= 0 {
		total = math.MaxInt64
	}
	c.mu.Lock()
	c.total = total
	c.mu.Unlock()
	c.wake()
}

// Used returns the bytes that all budgets hold.
func (c *Ceiling) Used() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.used
}

// waits reports whether a budget waits.
func (c *Ceiling) waits() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first != nil
}

// reserve takes n bytes for b, whose lock the caller holds. On false b waits, until grantOwn.
func (c *Ceiling) reserve(b *Budget, n int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if (c.first == nil || c.first == b) && (n <= c.total-c.used || c.used == 0) {
		c.used += n
		return true
	}
	if !b.behindOthers {
		b.behindOthers = true
		if c.last == nil {
			c.first = b
		} else {
			c.last.behind = b
		}
		c.last = b
	}
	return false
}

// release gives n bytes back. The caller calls wake later, without any lock.
func (c *Ceiling) release(n int64) {
	c.mu.Lock()
	c.used -= n
	c.mu.Unlock()
}

// dequeue ends the wait of b, whose lock the caller holds.
func (c *Ceiling) dequeue(b *Budget) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !b.behindOthers {
		return
	}
	b.behindOthers = false
	var before *Budget
	for at := c.first; at != b; at = at.behind {
		before = at
	}
	if before == nil {
		c.first = b.behind
	} else {
		before.behind = b.behind
	}
	if c.last == b {
		c.last = before
	}
	b.behind = nil
}

// wake lets the waiting budgets grant, one after the other.
func (c *Ceiling) wake() {
	for {
		c.mu.Lock()
		b := c.first
		c.mu.Unlock()
		if b == nil || b.grantOwn() {
			return
		}
	}
}
