package state

import (
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// graceState is the grace period (RFC 8881 section 8.4.2).
type graceState struct {
	until   time.Time
	ended   bool
	owners  map[string]bool // may reclaim; true: has completed
	waiting int             // owners that have not
}

func (g *graceState) init(owners [][]byte, until time.Time) {
	g.until, g.owners = until, map[string]bool{}
	for _, o := range owners {
		g.owners[string(o)] = false
	}
	g.waiting = len(g.owners)
	g.ended = g.waiting == 0
}

// complete records that an owner reclaims no more.
func (g *graceState) complete(owner []byte) {
	if done, known := g.owners[string(owner)]; known && !done {
		g.owners[string(owner)] = true
		g.waiting--
	}
}

func (s *State) inGrace(now time.Time) bool {
	s.endGraceIfDone(now)
	return !s.grace.ended
}

// endGraceIfDone ends the grace period when it is over, or everybody has reclaimed.
func (s *State) endGraceIfDone(now time.Time) {
	if !s.grace.ended && (s.grace.waiting == 0 || !now.Before(s.grace.until)) {
		s.grace.ended = true
	}
}

// InGrace reports whether state is being reclaimed, so that nothing else may be granted.
func (s *State) InGrace(now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.inGrace(now)
}

// Unclaimed returns the owners that could reclaim and did not complete it, once the grace period is
// over: their records are obsolete, unless they are clients again.
func (s *State) Unclaimed(now time.Time) (owners [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inGrace(now) {
		return nil
	}
	for o, done := range s.grace.owners {
		if !done && s.confirmed[o] == nil {
			owners = append(owners, []byte(o))
		}
		delete(s.grace.owners, o)
	}
	return owners
}

// mayReclaim returns the status of a reclaim by c.
func (s *State) mayReclaim(c *Client, now time.Time) nfs4.Status {
	_, known := s.grace.owners[string(c.owner)]
	switch {
	case c.reclaimed || !s.inGrace(now):
		return nfs4.ErrNoGrace
	case !known:
		return nfs4.ErrReclaimBad
	}
	return nfs4.OK
}

// mayGrant returns the status of a new open or lock of c.
func (s *State) mayGrant(c *Client, now time.Time) nfs4.Status {
	if !c.reclaimed || s.inGrace(now) {
		return nfs4.ErrGrace
	}
	return nfs4.OK
}
