package state

import (
	"bytes"
	"net/netip"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// Principal is the identity that owns a client: an RPC credential.
type Principal struct {
	Flavor, UID, GID uint32
}

// Client is a client's record.
type Client struct {
	id        uint64
	owner     []byte
	verifier  nfs4.Verifier
	principal Principal
	host      *host // that it came from
	confirmed bool
	reclaimed bool // RECLAIM_COMPLETE was done
	recorded  bool // on stable storage
	ended     bool
	expelled  bool // ends when it is idle
	conn      any  // of the latest CREATE_SESSION
	expires   time.Time

	// The reply cache of CREATE_SESSION (RFC 8881 section 18.36.4).
	sequence uint32
	created  nfs4.CreateSessionRes
	hasReply bool

	sessions map[nfs4.SessionID]*Session
	owners   map[string]*openOwner
	lockers  map[string]*lockOwner
	// delegations has those that are not revoked; revoked has the others by number.
	delegations map[*file]*Delegation
	revoked     map[uint64]*Delegation
	offloads    map[uint64]*Offload
	states      int // stateids, but those of revoked delegations
}

// ID returns the client's id.
func (c *Client) ID() uint64 { return c.id }

// Owner returns the client's co_ownerid, which must not change.
func (c *Client) Owner() []byte { return c.owner }

func (c *Client) expired(now time.Time) bool { return now.After(c.expires) }
func (c *Client) hasState() bool             { return c.states > 0 }

// busy reports whether a COMPOUND of the client is running.
func (c *Client) busy() bool {
	for _, n := range c.sessions {
		if n.busy > 0 {
			return true
		}
	}
	return false
}

// Exchanged is the outcome of ExchangeID.
type Exchanged struct {
	ClientID  uint64
	Sequence  uint32
	Confirmed bool
}

// ExchangeID is EXCHANGE_ID with its cases (RFC 8881 section 18.35.4), after the checks of its
// flags. addr is the client's address; all but the zero one have a share of the limits. update is
// EXCHGID4_FLAG_UPD_CONFIRMED_REC_A.
func (s *State) ExchangeID(owner []byte, v nfs4.Verifier, p Principal, addr netip.Addr, update bool, now time.Time) (Exchanged, nfs4.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	old := s.confirmed[string(owner)]
	if update {
		switch {
		case old == nil: // case 7
			return Exchanged{}, nfs4.ErrNoEnt
		case old.principal != p: // case 9
			return Exchanged{}, nfs4.ErrPerm
		case old.verifier != v: // case 8
			return Exchanged{}, nfs4.ErrNotSame
		}
		return old.exchanged(), nfs4.OK // case 6
	}
	if old != nil {
		switch {
		case old.principal != p: // case 3
			if old.hasState() && !old.expired(now) || len(old.sessions) > 0 && !old.expired(now) {
				return Exchanged{}, nfs4.ErrClientIDInUse
			}
			s.endClient(old)
		case old.verifier == v: // case 2
			return old.exchanged(), nfs4.OK
		}
		// Case 5, a restart: the old record stays until the new one is confirmed.
	}
	if c := s.pending[string(owner)]; c != nil { // case 4
		s.endClient(c)
	}
	if !s.makeRoom(s.hostOf(addr), clients, 1, true, now) {
		s.dropHost(s.hostOf(addr))
		return Exchanged{}, nfs4.ErrDelay
	}
	h := s.hostOf(addr) // anew: its other clients may have ended
	c := &Client{
		id: s.clientID(s.nextID()), owner: bytes.Clone(owner), verifier: v, principal: p, host: h, expires: now.Add(s.cfg.Lease),
		sessions: map[nfs4.SessionID]*Session{}, owners: map[string]*openOwner{}, lockers: map[string]*lockOwner{},
		delegations: map[*file]*Delegation{}, revoked: map[uint64]*Delegation{}, offloads: map[uint64]*Offload{},
	}
	s.clients[c.id] = c
	s.take(h, clients, 1)
	s.pending[string(owner)] = c
	return c.exchanged(), nfs4.OK
}

func (c *Client) exchanged() Exchanged {
	return Exchanged{ClientID: c.id, Sequence: c.sequence + 1, Confirmed: c.confirmed}
}

// endClient ends a client and all that it has.
func (s *State) endClient(c *Client) {
	if c.ended {
		return
	}
	c.ended = true
	if c.recorded {
		s.ended.Store(true)
		s.obsolete = append(s.obsolete, c.owner)
	}
	for _, n := range c.sessions {
		s.endSession(n)
	}
	for _, o := range c.owners {
		for _, st := range o.opens {
			s.endOpen(st)
		}
	}
	for _, d := range c.delegations {
		s.endDelegation(d)
	}
	for _, d := range c.revoked {
		s.endDelegation(d)
	}
	for _, o := range c.offloads {
		s.endOffload(o)
		s.release(o.Job)
	}
	delete(s.clients, c.id)
	s.take(c.host, clients, -1)
	s.dropHost(c.host)
	if s.confirmed[string(c.owner)] == c {
		delete(s.confirmed, string(c.owner))
	}
	if s.pending[string(c.owner)] == c {
		delete(s.pending, string(c.owner))
	}
}

// confirm makes c the confirmed client of its owner, in place of an earlier incarnation.
func (s *State) confirm(c *Client) {
	if c.confirmed {
		return
	}
	if old := s.confirmed[string(c.owner)]; old != nil {
		c.recorded, old.recorded = old.recorded, false
		s.endClient(old)
	}
	c.confirmed = true
	delete(s.pending, string(c.owner))
	s.confirmed[string(c.owner)] = c
}

// DestroyClientID is DESTROY_CLIENTID (RFC 8881 section 18.50).
func (s *State) DestroyClientID(id uint64) nfs4.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[id]
	switch {
	case c == nil:
		return nfs4.ErrStaleClientID
	case len(c.sessions) > 0 || c.hasState():
		return nfs4.ErrClientIDBusy
	}
	s.endClient(c)
	return nfs4.OK
}

// ReclaimComplete is RECLAIM_COMPLETE for all file systems (RFC 8881 section 18.51).
func (s *State) ReclaimComplete(c *Client, now time.Time) nfs4.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.reclaimed {
		return nfs4.ErrCompleteAlready
	}
	c.reclaimed = true
	s.grace.complete(c.owner)
	s.endGraceIfDone(now)
	return nfs4.OK
}

// Recorded reports whether c is known to stable storage.
func (s *State) Recorded(c *Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.recorded
}

// SetRecorded marks c as known to stable storage. If c has ended meanwhile, and has no successor,
// Released returns its owner.
func (s *State) SetRecorded(c *Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.recorded = true
	if c.ended && s.confirmed[string(c.owner)] == nil {
		s.ended.Store(true)
		s.obsolete = append(s.obsolete, c.owner)
	}
}

// courteous ends the expired clients among the holders of a conflict, and reports whether there
// were only such.
func (s *State) courteous(holders []*Client, now time.Time) bool {
	for _, c := range holders {
		if !c.expired(now) || c.busy() {
			return false
		}
	}
	for _, c := range holders {
		s.expire(c)
	}
	return true
}
