package rewrite

import (
	"maps"
	"math"
	"sync"
	"sync/atomic"
)

// maxSessions bounds the sessions whose limit is remembered; the one that was made first goes
// first.
const maxSessions = 4096

// sessionID is a sessionid4.
type sessionID [16]byte

// sessionTable remembers the ca_maxoperations that clients got, which is less than the backend
// accepts: that has to take what is inserted too. It is a help to clients and no wall: of a session
// that another gateway has seen made, nothing is known.
type sessionTable struct {
	known atomic.Pointer[sessionLimits]

	mu    sync.Mutex // for note
	order []sessionID
	next  int // in order, when it is full
}

// sessionLimits are never changed.
type sessionLimits struct {
	lowest uint32 // of all
	ops    map[sessionID]uint32
}

// remember remembers the limit of a session.
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

// mayExceed reports whether there is a session with a limit below ops.
func (s *sessionTable) mayExceed(ops uint64) bool {
	l := s.known.Load()
	return l != nil && ops > uint64(l.lowest)
}

// exceeds reports whether a COMPOUND of so many operations has more than its session may have.
func (s *sessionTable) exceeds(id sessionID, ops uint64) bool {
	l := s.known.Load()
	if l == nil {
		return false
	}
	limit, known := l.ops[id]
	return known && ops > uint64(limit)
}
