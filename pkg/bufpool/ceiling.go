package bufpool

import (
	"math"
	"sync"
)

// Ceiling bounds the memory of several budgets together. A [Budget] takes each grant from its ceiling too. Budgets for
// which there is not enough are served in the order in which they began to wait, and none overtakes another one that
// waits.
type Ceiling struct {
	mu          sync.Mutex
	total, used int64
	// first and last are the budgets that wait, linked by Budget.behind.
	first, last *Budget

	monitor *monitor // of all budgets under the ceiling
}

// NewCeiling makes a ceiling of total bytes; a single need that is larger is met when nothing else is held. 0 means no limit.
func NewCeiling(total int64) *Ceiling {
	c := &Ceiling{}
	c.monitor = newMonitor(c)
	c.SetTotal(total)
	return c
}

// SetTotal changes the limit. What is held stays held.
func (c *Ceiling) SetTotal(total int64) {
	if total <= 0 {
		total = math.MaxInt64
	}
	c.mu.Lock()
	c.total = total
	c.mu.Unlock()
	c.wake()
}

// Used returns how many bytes all budgets hold.
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

// reserve takes n bytes for b. If it returns false b waits for them: it is woken by a call of grantOwn. b is locked.
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

// release gives n bytes back. Without any lock held, wake has to follow.
func (c *Ceiling) release(n int64) {
	c.mu.Lock()
	c.used -= n
	c.mu.Unlock()
}

// dequeue notes that b does not wait any more. b is locked.
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

// wake has the budgets that wait grant what there is now, one after the other.
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
