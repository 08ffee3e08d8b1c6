package state

import (
	"net/netip"
	"time"
)

// amounts counts bounded things.
type amounts struct{ clients, slots, opens, locks, ranges int }

// kind selects one of them.
type kind func(*amounts) *int

func clients(a *amounts) *int { return &a.clients }
func slots(a *amounts) *int   { return &a.slots }
func opens(a *amounts) *int   { return &a.opens }
func locks(a *amounts) *int   { return &a.locks } // lock stateids
func ranges(a *amounts) *int  { return &a.ranges }

// host is an address that clients come from, and their amounts. No host gets more than half of
// the rest that the others leave, so one that asks for everything leaves room for the others.
type host struct {
	addr netip.Addr // the zero address shares with nobody
	has  amounts
}

func (s *State) hostOf(addr netip.Addr) *host {
	h := s.hosts[addr]
	if h == nil {
		h = &host{addr: addr}
		s.hosts[addr] = h
	}
	return h
}

func (s *State) dropHost(h *host) {
	if h.has == (amounts{}) {
		delete(s.hosts, h.addr)
	}
}

// take counts n more of a kind, or fewer.
func (s *State) take(h *host, k kind, n int) {
	*k(&s.used) += n
	*k(&h.has) += n
}

// left returns how many of a kind there are for h, and whether only its share keeps it from more.
func (s *State) left(h *host, k kind) (n int, byShare bool) {
	limits := amounts{s.cfg.MaxClients, s.cfg.MaxAllSlots, s.cfg.MaxOpens, s.cfg.MaxLocks, s.cfg.MaxLocks}
	n = *k(&limits) - *k(&s.used)
	if !h.addr.IsValid() {
		return n, false
	}
	own := *k(&h.has)
	if share := max((n+own)/2, 1) - own; share < n {
		return share, true
	}
	return n, false
}

// makeRoom ends expired clients until there are n of a kind for h. A host that has its share loses
// its own. With unconfirmed set, it ends unconfirmed clients too.
func (s *State) makeRoom(h *host, k kind, n int, unconfirmed bool, now time.Time) bool {
	for {
		left, byShare := s.left(h, k)
		if left >= n {
			return true
		}
		of := h
		if !byShare {
			of = nil
		}
		victim := s.dispensable(of, unconfirmed, now)
		if victim == nil {
			return false
		}
		s.expire(victim)
	}
}

// dispensable returns the client that ends first for want of room: of the host with the most
// clients, the one whose lease ends first. of is a host, nil for any.
func (s *State) dispensable(of *host, unconfirmed bool, now time.Time) (victim *Client) {
	for _, c := range s.clients {
		switch {
		case c.busy() || of != nil && c.host != of:
			continue
		case unconfirmed && !c.confirmed: // may go at any time
		case !c.expired(now) || !unconfirmed && !c.hasState():
			continue
		}
		if victim == nil || c.before(victim) {
			victim = c
		}
	}
	return victim
}

// before reports whether c ends before d for want of room.
func (c *Client) before(d *Client) bool {
	if a, b := c.host.has.clients, d.host.has.clients; a != b {
		return a > b
	}
	return c.expires.Before(d.expires)
}
