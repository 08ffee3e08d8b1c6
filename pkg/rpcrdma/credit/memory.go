package credit

import "sync/atomic"

// leastCredits is the grant of a connection when Memory is exhausted.
const leastCredits = 8

// Memory bounds the memory for receives of several policies together; see [Adaptive.Under]. The
// zero value has no limit. All methods are safe for concurrent use.
//
// Grants beyond a connection's first credits (8, or its Min if less) use three quarters of the
// limit. The last quarter is for new connections. Memory itself does not refuse them; see
// [Adaptive.Room].
type Memory struct{ limit, used atomic.Int64 }

// SetLimit changes the limit in bytes; 0 means none. Existing grants stay until they are used up.
func (m *Memory) SetLimit(n int64) { m.limit.Store(n) }

// Used returns the bytes for credits, and for receives still posted for earlier ones.
func (m *Memory) Used() int64 { return m.used.Load() }

// take reserves up to n bytes for grants beyond first credits, and returns the reserved number.
func (m *Memory) take(n int64) int64 {
	for {
		used := m.used.Load()
		if limit := m.limit.Load(); limit > 0 {
			n = max(0, min(n, limit-limit/4-used))
		}
		if n == 0 || m.used.CompareAndSwap(used, used+n) {
			return n
		}
	}
}

// Under makes the policy take its memory from m, in addition to its own budget. Call it before the
// first connection.
func (p *Adaptive) Under(m *Memory) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shares.memory = m
}

// Room reports whether there is Memory for one more connection.
func (p *Adaptive) Room() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := &p.shares
	if s.memory == nil {
		return true
	}
	limit := s.memory.limit.Load()
	return limit == 0 || s.memory.used.Load()+int64(s.first())*int64(s.limits.ReceiveSize) <= limit
}

// first is the number of credits that a connection has without Memory.
func (s *shares) first() int {
	if s.memory == nil {
		return s.limits.Min
	}
	return min(leastCredits, s.limits.Min)
}

// within returns how many of n credits fit the memory, and makes m hold it. posted receives stand
// for its credits.
func (s *shares) within(m *member, n, posted int) int {
	if s.memory == nil {
		return n
	}
	size := int64(m.size)
	has := m.holds
	if more := int64(max(n, posted))*size - has; more > 0 {
		has += s.memory.take(more)
	}
	n = max(1, min(n, max(int(has/size), posted)))
	m.holds = max(m.first, int64(max(n, posted))*size)
	s.memory.used.Add(m.holds - has)
	return n
}
