package state

import (
	"bytes"
	"slices"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// backChannel is the back channel of a session (RFC 8881 section 2.10.3.1).
type backChannel struct {
	minor   uint32
	program uint32
	sec     nfs4.SecParms
	// usable: the channel has room for callbacks, and a security flavor of this server.
	usable bool
	conns  []any // the newest last
	// up: the client has answered on the channel. fault: it has answered by an error.
	up, fault bool
	// changed: the program or the credential is another one since the last answer.
	changed bool
	slots   []callbackSlot
}

type callbackSlot struct {
	sequence uint32
	busy     bool
}

const (
	// maxConns bounds the connections of a session's back channel.
	maxConns = 16
	// maxCallbacks bounds the callbacks in progress of a session.
	maxCallbacks = 16
	// minCallback is the smallest size of requests that has room for every callback, in bytes.
	minCallback = 1 << 10
	// minCallbackOps are the operations of a callback: CB_SEQUENCE and one more.
	minCallbackOps = 2
)

func (b *backChannel) init(a *nfs4.ChannelAttrs, minor, program uint32, sec []nfs4.SecParms) {
	b.minor = minor
	b.usable = a.MaxRequestSize >= minCallback && a.MaxOperations >= minCallbackOps && a.MaxRequests > 0
	if b.usable {
		b.slots = make([]callbackSlot, min(a.MaxRequests, maxCallbacks))
	}
	b.usable = b.secure(program, sec) && b.usable
}

// secure takes over the first credential that the server can use (RFC 8881 section 18.36.3).
func (b *backChannel) secure(program uint32, sec []nfs4.SecParms) bool {
	at := slices.IndexFunc(sec, func(p nfs4.SecParms) bool { return p.Flavor != nfs4.AuthGSS })
	if at < 0 && len(sec) > 0 {
		return false
	}
	b.program, b.sec = program, nfs4.SecParms{}
	if at >= 0 {
		b.sec = sec[at]
		b.sec.Machine = bytes.Clone(b.sec.Machine)
	}
	return true
}

func (b *backChannel) addConn(conn any) {
	b.conns = slices.DeleteFunc(b.conns, func(k any) bool { return k == conn })
	if len(b.conns) == maxConns {
		b.conns = slices.Delete(b.conns, 0, 1)
	}
	b.conns = append(b.conns, conn)
	b.fault = false
}

func (b *backChannel) dropConn(conn any) {
	b.conns = slices.DeleteFunc(b.conns, func(k any) bool { return k == conn })
	if len(b.conns) == 0 {
		b.up = false
	}
}

// works reports whether callbacks reach the client.
func (b *backChannel) works() bool { return b.usable && b.up && !b.fault && len(b.conns) > 0 }

// reachable reports whether callbacks of a session reach the client.
func (c *Client) reachable() bool {
	for _, n := range c.sessions {
		if n.back.works() {
			return true
		}
	}
	return false
}

// statusFlags are the bits of sr_status_flags.
func (s *State) statusFlags(n *Session) (flags uint32) {
	if len(n.back.conns) == 0 {
		flags |= nfs4.SeqCBPathDownSession
	}
	if n.back.fault {
		flags |= nfs4.SeqBackchannelFault
	}
	if len(n.client.delegations) > 0 && !n.client.reachable() {
		flags |= nfs4.SeqCBPathDown
	}
	if len(n.client.revoked) > 0 {
		flags |= nfs4.SeqRecallableRevoked
	}
	return flags
}

// BindConn is BIND_CONN_TO_SESSION (RFC 8881 section 18.34): it adds conn to the channels.
func (s *State) BindConn(id nfs4.SessionID, conn any, fore, back bool, now time.Time) nfs4.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sessions[id]
	if n == nil {
		return nfs4.ErrBadSession
	}
	if back {
		n.back.addConn(conn)
	}
	if fore {
		s.bind(n, conn)
	}
	n.client.expires = now.Add(s.cfg.Lease)
	return nfs4.OK
}

// BackchannelCtl is BACKCHANNEL_CTL (RFC 8881 section 18.33). A list of flavors without one that
// the server has is refused.
func (s *State) BackchannelCtl(n *Session, program uint32, sec []nfs4.SecParms) nfs4.Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !n.back.secure(program, sec) {
		return nfs4.ErrNoEnt
	}
	n.back.usable = len(n.back.slots) > 0
	n.back.up, n.back.fault, n.back.changed = n.back.up && !n.back.fault, false, true
	return nfs4.OK
}

// DropConn takes a connection that has ended out of all back channels.
func (s *State) DropConn(conn any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.sessions {
		n.back.dropConn(conn)
	}
}

// LoseConn is DropConn for a callback without an answer. If its session has ended, a client need
// not answer it, and the connection may be good for other sessions.
func (s *State) LoseConn(cb *Callback) {
	s.mu.Lock()
	ended := cb.Session.ended
	s.mu.Unlock()
	if !ended {
		s.DropConn(cb.Conn)
	}
}

// Callback is a callback in progress, with its slot.
type Callback struct {
	Session *Session
	Conn    any
	Minor   uint32 // version
	Program uint32
	Sec     nfs4.SecParms
	// Args are those of CB_SEQUENCE.
	Args nfs4.CBSequenceArgs
}

func (n *Session) callback() Callback {
	b := &n.back
	return Callback{Session: n, Conn: b.conns[len(b.conns)-1], Minor: b.minor, Program: b.program, Sec: b.sec}
}

// Probe returns a callback without a slot, for CB_NULL on a back channel that the client has not
// answered on yet, or not since BACKCHANNEL_CTL; ok is false if there is none to be probed.
func (s *State) Probe(id nfs4.SessionID) (cb Callback, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := s.sessions[id]
	if n == nil || !n.back.usable || n.back.up && !n.back.changed || len(n.back.conns) == 0 {
		return cb, false
	}
	return n.callback(), true
}

// Probed records the outcome of a probe: an answer, or an answer that is an error.
func (s *State) Probed(cb *Callback, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &cb.Session.back
	if slices.Contains(b.conns, cb.Conn) {
		b.up, b.fault, b.changed = ok, !ok, false
	}
}

// BeginCallback takes a slot of a back channel of c for a callback, until EndCallback; ok is false
// if there is none now.
func (s *State) BeginCallback(c *Client) (cb Callback, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range c.sessions {
		if cb, ok = n.beginCallback(); ok {
			return cb, true
		}
	}
	return cb, false
}

// BeginCallbackOf is BeginCallback for a session.
func (s *State) BeginCallbackOf(n *Session) (cb Callback, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return n.beginCallback()
}

func (n *Session) beginCallback() (cb Callback, ok bool) {
	b := &n.back
	if n.ended || !b.works() {
		return cb, false
	}
	at := slices.IndexFunc(b.slots, func(l callbackSlot) bool { return !l.busy })
	if at < 0 {
		return cb, false
	}
	l := &b.slots[at]
	l.busy = true
	l.sequence++
	highest := at
	for i := range b.slots {
		if b.slots[i].busy {
			highest = max(highest, i)
		}
	}
	cb = n.callback()
	cb.Args = nfs4.CBSequenceArgs{Session: n.id, Sequence: l.sequence, Slot: uint32(at), HighestSlot: uint32(highest)}
	return cb, true
}

// Reroute gives a callback that has had no answer another connection. ok is false while there is
// none; ended reports that there will be none, since the session has ended.
func (s *State) Reroute(cb *Callback) (ok, ended bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := cb.Session
	if n.ended {
		return false, true
	}
	if len(n.back.conns) == 0 {
		return false, false
	}
	cb.Conn = n.back.conns[len(n.back.conns)-1]
	return true, false
}

// CallbackEnd is the end of a callback.
type CallbackEnd int

const (
	// CallbackRan means that the client has answered.
	CallbackRan CallbackEnd = iota
	// CallbackUnsent means that the callback was never sent.
	CallbackUnsent
	// CallbackFault means that the client does not know the session or the slot, so the back
	// channel is of no use.
	CallbackFault
)

// EndCallback ends the use of a slot.
func (s *State) EndCallback(cb *Callback, how CallbackEnd) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &cb.Session.back
	l := &b.slots[cb.Args.Slot]
	l.busy = false
	switch how {
	case CallbackUnsent:
		l.sequence--
	case CallbackFault:
		b.fault = true
	}
}

// ClientEnded reports whether a client has ended.
func (s *State) ClientEnded(c *Client) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return c.ended
}

// ClientOf returns the client of a session, nil if the session has ended.
func (s *State) ClientOf(id nfs4.SessionID) *Client {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.sessions[id]; n != nil {
		return n.client
	}
	return nil
}
