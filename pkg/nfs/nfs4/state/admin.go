package state

import (
	"cmp"
	"slices"
	"time"
)

// SetLimits replaces MaxClients, MaxOpens, MaxLocks and MaxDelegations; zero values mean the
// defaults. State beyond a lower limit stays.
func (s *State) SetLimits(clients, opens, locks, delegations int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.MaxClients, s.cfg.MaxOpens, s.cfg.MaxLocks, s.cfg.MaxDelegations = clients, opens, locks, delegations
	s.cfg.defaults()
}

// ClientInfo describes a confirmed client and its state.
type ClientInfo struct {
	ID    uint64
	Owner []byte // must not be changed
	// Conn is the connection of its latest CREATE_SESSION.
	Conn any
	// Expires is the end of its lease; before now it is courteous.
	Expires time.Time
	// Reclaiming: it has not completed its recovery.
	Reclaiming bool
	// Ranges are the locked ranges.
	Sessions, Opens, Ranges, Delegations int
}

// Clients returns the oldest confirmed clients, at most limit, and the number of the others.
func (s *State) Clients(limit int) (list []ClientInfo, omitted int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*Client, 0, len(s.confirmed))
	for _, c := range s.confirmed {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b *Client) int { return cmp.Compare(a.id, b.id) })
	if len(all) > limit {
		omitted = len(all) - limit
		all = all[:limit]
	}
	for _, c := range all {
		i := ClientInfo{
			ID: c.id, Owner: c.owner, Conn: c.conn, Expires: c.expires, Reclaiming: !c.reclaimed,
			Sessions: len(c.sessions), Delegations: len(c.delegations),
		}
		for _, o := range c.owners {
			i.Opens += len(o.opens)
		}
		for _, o := range c.lockers {
			for _, l := range o.locks {
				i.Ranges += len(l.ranges)
			}
		}
		list = append(list, i)
	}
	return list, omitted
}

// Expel ends a client and all that it has, as soon as its COMPOUNDs in progress are finished; no
// others begin. It reports whether there is such a client. The client may come back as a new one.
func (s *State) Expel(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[id]
	if c == nil {
		return false
	}
	c.expelled = true
	if !c.busy() {
		s.endClient(c)
	}
	return true
}

// expire ends a client since its lease has expired.
func (s *State) expire(c *Client) {
	if c.confirmed {
		s.expiries++
	}
	s.endClient(c)
}
