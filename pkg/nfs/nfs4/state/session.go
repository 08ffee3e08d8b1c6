package state

import (
	"slices"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// Smallest sizes of a channel's messages in bytes: a COMPOUND with SEQUENCE alone and a credential,
// and its reply.
const (
	minRequest  = 200
	minResponse = 120
)

// The same for callbacks: a CB_COMPOUND of CB_SEQUENCE and CB_RECALL, and its reply.
const (
	minBackRequest  = 512
	minBackResponse = 128
	minBackOps      = 2
)

// Session is a client's session.
type Session struct {
	id     nfs4.SessionID
	client *Client
	slots  []slot
	table  slotTable
	busy   int // slots in use
	ended  bool

	fore nfs4.ChannelAttrs
	back backChannel
	// conns are the latest connections of the fore channel. Some may have ended.
	conns []any
}

// ID returns the session's id.
func (n *Session) ID() nfs4.SessionID { return n.id }

// Client returns the session's client.
func (n *Session) Client() *Client { return n.client }

// Fore returns the attributes of the fore channel.
func (n *Session) Fore() *nfs4.ChannelAttrs { return &n.fore }

// slot is an entry of a session's reply cache (RFC 8881 section 2.10.6.1).
type slot struct {
	sequence uint32
	busy     bool
	cached   bool   // reply is the reply of the latest request; otherwise only its outcome is known
	used     bool   // there has been a request
	request  uint64 // a hash of it
	solo     bool   // it had no operation besides SEQUENCE
	reply    []byte
}

// Slot is a slot in use, from Sequence to Finish.
type Slot struct {
	Session *Session
	index   uint32
	cache   bool
	call    nfs4.ReferringCall
}

// Call names the request in the slot, for callbacks that refer to it.
func (l *Slot) Call() nfs4.ReferringCall { return l.call }

// Cache reports whether the client wants the reply to be cached.
func (l *Slot) Cache() bool { return l.cache }

// CreateSession is CREATE_SESSION (RFC 8881 section 18.36), after the checks of its flags. conn
// is the connection, for callbacks if the flags ask for it; they have the minor version.
func (s *State) CreateSession(a *nfs4.CreateSessionArgs, minor uint32, p Principal, conn any, now time.Time) (nfs4.CreateSessionRes, nfs4.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var none nfs4.CreateSessionRes
	c := s.clients[a.ClientID]
	switch {
	case c == nil:
		return none, nfs4.ErrStaleClientID
	case !c.confirmed && c.expired(now):
		s.endClient(c)
		return none, nfs4.ErrStaleClientID
	case a.Sequence == c.sequence && c.hasReply:
		return c.created, nfs4.OK
	case a.Sequence != c.sequence+1:
		return none, nfs4.ErrSeqMisordered
	case !c.confirmed && c.principal != p:
		return none, nfs4.ErrClientIDInUse
	}
	fore, back := a.Fore, a.Back
	switch {
	case fore.MaxRequestSize < minRequest || fore.MaxResponseSize < minResponse || fore.MaxOperations == 0:
		return none, nfs4.ErrTooSmall
	case back.MaxRequestSize < minBackRequest || back.MaxResponseSize < minBackResponse || back.MaxOperations < minBackOps:
		return none, nfs4.ErrTooSmall
	case fore.MaxRequests == 0 || back.MaxRequests == 0:
		return none, nfs4.ErrInval
	case len(c.sessions) >= s.cfg.MaxSessions:
		return none, nfs4.ErrNoSpc
	}
	s.confirm(c)
	c.conn = conn
	c.expires = now.Add(s.cfg.Lease)
	fore.HeaderPadSize, back.HeaderPadSize = 0, 0
	fore.MaxRequestSize = min(fore.MaxRequestSize, uint32(s.cfg.MaxRequest))
	fore.MaxResponseSize = min(fore.MaxResponseSize, uint32(s.cfg.MaxResponse))
	fore.MaxResponseSizeCached = min(fore.MaxResponseSizeCached, uint32(s.cfg.MaxCached), fore.MaxResponseSize)
	fore.MaxOperations = min(fore.MaxOperations, uint32(s.cfg.MaxOps))
	fore.MaxRequests = min(fore.MaxRequests, uint32(s.cfg.MaxSlots))
	granted := s.reserveSlots(c.host, int(fore.MaxRequests))
	if granted == 0 {
		return none, nfs4.ErrDelay
	}
	fore.MaxRequests = uint32(granted)
	n := &Session{id: s.sessionID(c.id), client: c, slots: make([]slot, granted), fore: fore}
	n.back.init(&back, minor, a.CBProgram, a.SecParms)
	s.sessions[n.id] = n
	c.sessions[n.id] = n
	s.bind(n, conn)
	flags := a.Flags & nfs4.SessionConnBackChan
	if flags != 0 {
		n.back.addConn(conn)
	}
	c.sequence++
	c.created = nfs4.CreateSessionRes{Session: n.id, Sequence: c.sequence, Flags: flags, Fore: fore, Back: back}
	c.hasReply = true
	return c.created, nfs4.OK
}

// Persist makes a new session persistent, before the reply to its CREATE_SESSION.
func (s *State) Persist(id nfs4.SessionID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.sessions[id]; n != nil && n.client.created.Session == id {
		n.client.created.Flags |= nfs4.SessionPersist
	}
}

// HasSession reports whether there is a session.
func (s *State) HasSession(id nfs4.SessionID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sessions[id] != nil
}

// bind associates a connection with the fore channel of n. SEQUENCE does so, since no client has
// state protection (RFC 8881 section 2.10.3.1).
func (s *State) bind(n *Session, conn any) {
	if slices.Contains(n.conns, conn) {
		return
	}
	if len(n.conns) == maxConns {
		n.conns = slices.DeleteFunc(n.conns, s.cfg.Gone)
	}
	if len(n.conns) == maxConns {
		n.conns = slices.Delete(n.conns, 0, 1)
	}
	n.conns = append(n.conns, conn)
}

// bound reports whether DESTROY_SESSION may come on a connection: it is associated with the
// session, or none is any more.
func (s *State) bound(n *Session, conn any) bool {
	return slices.Contains(n.conns, conn) || slices.Contains(n.back.conns, conn) ||
		!slices.ContainsFunc(slices.Concat(n.conns, n.back.conns), func(k any) bool { return !s.cfg.Gone(k) })
}

// DestroySession is DESTROY_SESSION (RFC 8881 section 18.37) on a connection. own is the session of
// the COMPOUND, if it has one.
func (s *State) DestroySession(id nfs4.SessionID, own *Session, conn any) nfs4.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sessions[id]
	if n == nil {
		return nfs4.ErrBadSession
	}
	if !s.bound(n, conn) {
		return nfs4.ErrConnNotBoundToSession
	}
	running := n.busy
	if n == own {
		running--
	}
	if running > 0 {
		return nfs4.ErrDelay
	}
	s.endSession(n)
	return nfs4.OK
}

func (s *State) endSession(n *Session) {
	n.ended = true
	s.take(n.client.host, slots, -len(n.slots))
	delete(s.sessions, n.id)
	delete(n.client.sessions, n.id)
	n.back.conns, n.conns = nil, nil
}

// Sequenced is the outcome of Sequence.
type Sequenced struct {
	Slot Slot
	Res  nfs4.SequenceRes
	// Replay: the request is a retry. Reply is its cached reply, appended to the buffer; without
	// one, Solo reports that SEQUENCE was its only operation.
	Replay, Cached, Solo bool
	Reply                []byte
}

// Request describes a COMPOUND to Sequence.
type Request struct {
	Ops   uint32 // operations, SEQUENCE included
	Size  int    // bytes of the whole call
	Reply int    // bytes of the reply up to the result of SEQUENCE
	Hash  uint64 // of its contents, to find other requests in place of retries
	Conn  any    // it came on
}

// Sequence is SEQUENCE (RFC 8881 section 18.46). For a new request the slot is in use until Finish.
// A cached reply is appended to buf.
func (s *State) Sequence(a *nfs4.SequenceArgs, q *Request, buf []byte, now time.Time) (r Sequenced, st nfs4.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sessions[a.Session]
	if n == nil || n.client.expelled {
		return r, nfs4.ErrBadSession
	}
	last := uint32(len(n.slots) - 1)
	switch {
	case q.Ops > n.fore.MaxOperations:
		return r, nfs4.ErrTooManyOps
	case q.Size > int(n.fore.MaxRequestSize):
		return r, nfs4.ErrReqTooBig
	case a.Slot > last:
		return r, nfs4.ErrBadSlot
	case a.HighestSlot > last || a.HighestSlot < a.Slot:
		return r, nfs4.ErrBadHighSlot
	}
	l := &n.slots[a.Slot]
	r.Slot = Slot{
		Session: n, index: a.Slot, cache: a.CacheThis, call: nfs4.ReferringCall{Session: n.id, Sequence: a.Sequence, Slot: a.Slot},
	}
	r.Res = nfs4.SequenceRes{
		Session: n.id, Sequence: a.Sequence, Slot: a.Slot, HighestSlot: last, TargetHighestSlot: n.target(), StatusFlags: s.statusFlags(n),
	}
	switch {
	case a.Sequence == l.sequence && l.used:
		if l.busy {
			return r, nfs4.ErrDelay
		}
		if l.request != q.Hash {
			return r, nfs4.ErrSeqFalseRetry
		}
		r.Replay, r.Cached, r.Solo = true, l.cached, l.solo
		if l.cached {
			buf = append(buf, l.reply...)
			r.Reply = buf
		}
	case a.Sequence != l.sequence+1:
		return r, nfs4.ErrSeqMisordered
	case l.busy:
		return r, nfs4.ErrSeqMisordered
	case a.CacheThis && q.Reply > int(n.fore.MaxResponseSizeCached):
		return r, nfs4.ErrRepTooBigToCache
	case q.Reply > int(n.fore.MaxResponseSize):
		return r, nfs4.ErrRepTooBig
	default:
		l.sequence, l.busy, l.used, l.cached, l.request, l.solo = a.Sequence, true, true, false, q.Hash, q.Ops == 1
		n.busy++
		s.resize(n, a.HighestSlot)
		r.Res.HighestSlot, r.Res.TargetHighestSlot = uint32(len(n.slots)-1), n.target()
	}
	s.bind(n, q.Conn)
	n.client.expires = now.Add(s.cfg.Lease)
	return r, nfs4.OK
}

// Finish ends the use of a slot. reply is cached, unless it is nil.
func (s *State) Finish(l *Slot, reply []byte, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := l.Session
	t := &n.slots[l.index]
	t.busy = false
	n.busy--
	if reply != nil {
		t.reply = append(t.reply[:0], reply...)
		t.cached = true
	}
	// A lease does not end while a COMPOUND runs.
	n.client.expires = now.Add(s.cfg.Lease)
	if n.client.expelled && !n.client.busy() {
		s.endClient(n.client)
	}
}
