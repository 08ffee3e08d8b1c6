// Package state has the state of an NFS version 4.1 and 4.2 server (RFC 8881): clients, sessions
// and their slots, opens with share reservations, byte-range locks, stateids, leases and the grace
// period. It does no I/O and starts no goroutine: callers pass the time, open and lock the files,
// and keep records on stable storage.
//
// A file is known by its [FileID]. An open and a lock stateid carry a resource of the caller, such
// as an open file. When state ends, its resources are collected: fetch them with [State.Released]
// after each call that may end state, and close them.
//
// # Courtesy
//
// An expired client keeps its state until somebody needs it: a conflicting open or lock, or a new
// client when the limit is reached (RFC 8881 section 8.4.2.1 allows that). A client without opens
// ends with its lease.
package state

import (
	"encoding/binary"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// Config configures a State. Zero values mean the defaults in brackets.
type Config struct {
	// Boot is the instance of the server: ids of another instance are stale. It must differ from
	// those of recent starts.
	Boot uint32
	// Lease is the time after which a silent client may lose its state [90 s].
	Lease time.Duration
	// Grace is the time after the start in which state is reclaimed [the lease].
	Grace time.Duration
	// Courtesy is the longest life of an expired client's state [24 h].
	Courtesy time.Duration
	// MaxClients bounds the clients, confirmed or not [1024].
	MaxClients int
	// MaxSessions bounds the sessions of a client [16].
	MaxSessions int
	// MaxSlots bounds the slots of a session [64], and MaxAllSlots those of all sessions [65536].
	// Each may have a cached reply.
	MaxSlots, MaxAllSlots int
	// MaxRequest and MaxResponse bound a COMPOUND and its reply in bytes [1 MiB + 16 KiB].
	MaxRequest, MaxResponse int
	// MaxCached bounds the bytes of a reply in a slot's cache [4 KiB].
	MaxCached int
	// MaxOps bounds the operations of a COMPOUND [64].
	MaxOps int
	// MaxOpens bounds the opens of all clients [65536].
	MaxOpens int
	// MaxLocks bounds the lock stateids, and the locked ranges, of all clients [65536].
	MaxLocks int
	// MaxDelegations bounds the delegations of all clients [65536]. A negative number means none.
	MaxDelegations int
	// Gone reports whether a connection has ended [never].
	Gone func(conn any) bool
	// MaxOffloads bounds the copies that go on after the reply to their COPY [16].
	MaxOffloads int
}

func (c *Config) defaults() {
	set(&c.Lease, 90*time.Second)
	set(&c.Grace, c.Lease)
	set(&c.Courtesy, 24*time.Hour)
	set(&c.MaxClients, 1024)
	set(&c.MaxSessions, 16)
	set(&c.MaxSlots, 64)
	set(&c.MaxAllSlots, 65536)
	set(&c.MaxRequest, 1<<20+16<<10)
	set(&c.MaxResponse, 1<<20+16<<10)
	set(&c.MaxCached, 4<<10)
	set(&c.MaxOps, 64)
	set(&c.MaxOpens, 65536)
	set(&c.MaxLocks, 65536)
	set(&c.MaxDelegations, 65536)
	set(&c.MaxOffloads, 16)
	if c.Gone == nil {
		c.Gone = func(any) bool { return false }
	}
}

func set[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// FileID identifies a file.
type FileID [48]byte

// State is the state of one server. Its methods may be called concurrently.
type State struct {
	cfg Config

	mu        sync.Mutex
	clients   map[uint64]*Client // confirmed and not
	confirmed map[string]*Client // by owner
	pending   map[string]*Client // unconfirmed, by owner
	sessions  map[nfs4.SessionID]*Session
	stateids  map[uint64]*stateid // by the number in StateID.Other
	files     map[FileID]*file
	lastID    uint64 // of clients, sessions and stateids
	hosts     map[netip.Addr]*host
	used      amounts
	expiries  uint64
	released  []any
	obsolete  [][]byte // owners
	// ended: there is something for Released, Recalls, Returned or LockNotices.
	ended atomic.Bool

	delegations int // not revoked
	delegated   atomic.Int64
	revoked     int
	recalls     []*Delegation
	returned    []FileID
	recent      recentRecalls
	offloads    int
	waiters     int // lock-owners
	notices     []LockNotice
	pressed     bool
	pressedAt   time.Time
	squeeze     bool // slots have become scarce

	grace graceState
}

// New returns the state of a server that starts now. owners are the clients that may reclaim state
// of an earlier instance; without any there is no grace period.
func New(cfg Config, owners [][]byte, now time.Time) *State {
	cfg.defaults()
	s := &State{
		cfg: cfg, clients: map[uint64]*Client{}, confirmed: map[string]*Client{}, pending: map[string]*Client{},
		sessions: map[nfs4.SessionID]*Session{}, stateids: map[uint64]*stateid{}, files: map[FileID]*file{},
		hosts: map[netip.Addr]*host{},
	}
	s.grace.init(owners, now.Add(cfg.Grace))
	return s
}

// Config returns the configuration with its defaults.
func (s *State) Config() Config {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cfg
}

// Ended reports whether Released, Recalls, Returned, LockNotices or Squeezed have something to
// return.
func (s *State) Ended() bool { return s.ended.Load() }

// Released returns the resources of ended state since the last call, to be closed, and the owners
// of recorded clients that ended. Remove their records before the reply to the call that ended
// them: otherwise they could reclaim, after a restart, state that somebody else has meanwhile.
func (s *State) Released() (resources []any, owners [][]byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resources, owners = s.released, s.obsolete
	s.released, s.obsolete = nil, nil
	s.ended.Store(false)
	return resources, owners
}

func (s *State) release(resource any) {
	if resource != nil {
		s.ended.Store(true)
		s.released = append(s.released, resource)
	}
}

func (s *State) nextID() uint64 {
	s.lastID++
	return s.lastID
}

// Stats are figures of a State.
type Stats struct {
	Clients, Courtesy, Sessions, Opens, Locks, Ranges int
	Slots, Delegations, Revoked                       int
	// Expiries counts the confirmed clients that ended since their lease had expired.
	Expiries uint64
	Grace    bool
}

// Stats returns the present figures.
func (s *State) Stats(now time.Time) Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := Stats{Clients: len(s.confirmed), Sessions: len(s.sessions), Opens: s.used.opens, Locks: s.used.locks, Ranges: s.used.ranges,
		Slots: s.used.slots, Delegations: s.delegations, Revoked: s.revoked, Expiries: s.expiries, Grace: s.inGrace(now)}
	for _, c := range s.confirmed {
		if c.expired(now) {
			st.Courtesy++
		}
	}
	return st
}

// Tick ends clients: expired ones without state, those past the courtesy, and unconfirmed ones that
// nobody confirmed during a lease.
func (s *State) Tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.endGraceIfDone(now)
	s.revokeOverdue(now)
	for _, c := range s.clients {
		if !c.expired(now) || c.busy() {
			continue
		}
		if !c.confirmed || !c.hasState() || now.Sub(c.expires) > s.cfg.Courtesy {
			s.expire(c)
		}
	}
}

func (s *State) clientID(id uint64) uint64 { return uint64(s.cfg.Boot)<<32 | id&0xffffffff }

func (s *State) sessionID(client uint64) (id nfs4.SessionID) {
	binary.BigEndian.PutUint64(id[:], client)
	binary.BigEndian.PutUint64(id[8:], s.nextID())
	return id
}

// End ends all state, for a server that stops. The records of clients stay, so that they may
// reclaim.
func (s *State) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.clients {
		c.recorded = false
		s.endClient(c)
	}
}
