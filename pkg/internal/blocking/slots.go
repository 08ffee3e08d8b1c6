package blocking

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// quantum is how long a busy connection keeps its thread while others wait for one.
	quantum = 100 * time.Millisecond
	// busyReads is how many reads in quick succession make a connection busy.
	busyReads = 16
	// askAgain is how long a connection that waits for a thread leaves the holders alone.
	askAgain = time.Millisecond
)

// slots shares the threads that block among the connections of a process. A connection without a
// thread claims one while it is busy. An idle holder gives its thread to the first claim. If all
// holders are busy, each keeps its thread for a quantum, and claims are served in their order.
type slots struct {
	held atomic.Int32 // len(holders)

	mu      sync.Mutex
	holders []*claim
	queue   []*claim
	revoked int // holders that are to give their threads back
}

// threads are the threads of this process.
var threads slots

// claim is a connection's part in slots.
type claim struct {
	limit int    // most holders with this one
	wake  func() // interrupts an idle holder

	// Of the reader's goroutine.
	reads int          // in quick succession, up to busyReads
	next  int64        // the time of the next look at the holders
	last  atomic.Int64 // the last read

	idle    atomic.Bool // a holder that waits for its peer
	revoked atomic.Bool // a holder that is to give its thread back
	granted atomic.Bool // a holder that has not begun to block

	// Guarded by slots.mu.
	queued bool
	since  int64 // a holder's beginning
}

// begin gives c a thread if one is free.
func (s *slots) begin(c *claim, now int64) bool {
	if int(s.held.Load()) >= c.limit {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.holders) >= c.limit {
		return false
	}
	s.dequeue(c)
	s.hold(c, now)
	return true
}

// ask notes a read of a connection that does not block, and reports whether it may begin to.
func (s *slots) ask(c *claim, now int64) bool {
	gap := now - c.last.Swap(now)
	if c.granted.Load() || s.begin(c, now) {
		return true
	}
	if gap > int64(recvTime) {
		c.reads = 0
		return false
	}
	if c.reads++; c.reads < busyReads {
		return false
	}
	c.reads = busyReads
	if now < c.next || !s.mu.TryLock() {
		return false
	}
	c.next = now + int64(askAgain)
	victim := s.claimLocked(c, now)
	s.mu.Unlock()
	if victim != nil && victim.idle.Load() {
		victim.wake()
	}
	return false
}

// claimLocked queues c and revokes a holder's thread, if one may be.
func (s *slots) claimLocked(c *claim, now int64) (victim *claim) {
	if !c.queued && !slices.Contains(s.holders, c) {
		c.queued = true
		s.queue = append(s.queue, c)
	}
	if s.revoked >= len(s.queue) {
		return nil
	}
	oldest := int64(-1)
	for _, h := range s.holders {
		held := now - h.since
		switch {
		case h == c || h.revoked.Load():
			continue
		case h.granted.Load():
			if now-h.last.Load() > int64(quantum) { // idle since before it could begin
				s.releaseLocked(h, now)
				return nil
			}
			continue
		case h.idle.Load():
			held += 1 << 62
		case held < int64(quantum):
			continue
		}
		if held > oldest {
			victim, oldest = h, held
		}
	}
	if victim != nil {
		victim.revoked.Store(true)
		s.revoked++
	}
	return victim
}

// accept reports whether c still has the thread that it was granted. Then it must begin to block.
func (s *slots) accept(c *claim, now int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !c.granted.Load() {
		return false
	}
	c.granted.Store(false)
	c.since = now
	return true
}

// giveBack is release by the reader, which must be busy again before its next claim.
func (s *slots) giveBack(c *claim, now int64) {
	s.release(c, now)
	c.reads = 0
}

// release ends a connection's part. A thread that it holds goes to the first claim that is still
// busy.
func (s *slots) release(c *claim, now int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dequeue(c)
	s.releaseLocked(c, now)
}

func (s *slots) releaseLocked(c *claim, now int64) {
	i := slices.Index(s.holders, c)
	if i < 0 {
		return
	}
	s.holders = slices.Delete(s.holders, i, i+1)
	s.held.Add(-1)
	if c.revoked.Swap(false) {
		s.revoked--
	}
	c.granted.Store(false)
	for len(s.queue) > 0 {
		next := s.queue[0]
		if len(s.holders) >= next.limit {
			return
		}
		s.dequeue(next)
		if now-next.last.Load() <= int64(quantum) {
			s.hold(next, now)
			return
		}
	}
}

func (s *slots) hold(c *claim, now int64) {
	c.since = now
	c.granted.Store(true)
	s.holders = append(s.holders, c)
	s.held.Add(1)
}

func (s *slots) dequeue(c *claim) {
	if !c.queued {
		return
	}
	c.queued = false
	i := slices.Index(s.queue, c)
	s.queue = slices.Delete(s.queue, i, i+1)
}
