package rewrite

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
)

// maxSessions bounds the remembered sessions; the oldest is dropped first.
const maxSessions = 4096

// sessionID is a sessionid4.
type sessionID [16]byte

// sessionTable remembers the ca_maxoperations granted to clients, which is less than the backend
// accepts, as it includes insertions. It helps clients but is no protection: sessions made through
// another gateway are unknown.
type sessionTable struct {
	known atomic.Pointer[sessionLimits]

	mu    sync.Mutex // for remember
	order []sessionID
	next  int // index in order, once full
}

// sessionLimits is immutable.
type sessionLimits struct {
	lowest uint32 // of all
	ops    map[sessionID]uint32
}

// remember adds the limit of a session.
func (s *sessionTable) remember(id sessionID, ops uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := &sessionLimits{lowest: math.MaxUint32}
	if before := s.known.Load(); before != nil {
		l.ops = maps.Clone(before.ops)
	} else {
		l.ops = map[sessionID]uint32{}
	}
	if _, again := l.ops[id]; !again {
		if len(s.order) < maxSessions {
			s.order = append(s.order, id)
		} else {
			delete(l.ops, s.order[s.next])
			s.order[s.next] = id
			s.next = (s.next + 1) % maxSessions
		}
	}
	l.ops[id] = ops
	for _, n := range l.ops {
		l.lowest = min(l.lowest, n)
	}
	s.known.Store(l)
}

// mayExceed reports whether any session has a limit below ops.
func (s *sessionTable) mayExceed(ops uint64) bool {
	l := s.known.Load()
	return l != nil && ops > uint64(l.lowest)
}

// exceeds reports whether a COMPOUND of ops operations exceeds its session's limit.
func (s *sessionTable) exceeds(id sessionID, ops uint64) bool {
	l := s.known.Load()
	if l == nil {
		return false
	}
	limit, known := l.ops[id]
	return known && ops > uint64(limit)
}
