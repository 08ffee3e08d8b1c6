package v2

import (
	"encoding/binary"
	"sync"

	"sluice.dev/sluice/pkg/rdma/iwarp/iwarptest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// strike does something to the first messages that it is meant for.
type strike struct {
	what   func(m *message) bool
	action iwarptest.Action
	times  int // how often, at most
	after  int // so many of the messages that it is meant for are spared first
	struck chan struct{}

	mu         sync.Mutex
	seen, hits int
	begun      int          // groups of several transmissions
	on         map[int]bool // connections that it struck
}

// message is one of version 2.
type message struct {
	*iwarptest.Message
	procedure wire.Procedure
	operation wire.Operation
	count     uint32 // of a group's first transmission
}

func word(b []byte, k int) uint32 {
	if len(b) < 4*k+4 {
		return 0
	}
	return binary.BigEndian.Uint32(b[4*k:])
}

// read finds out what a message is.
func read(m *iwarptest.Message) *message {
	x := &message{Message: m, procedure: wire.Procedure(word(m.Head, 3))}
	if word(m.Head, 1) != wire.Version2 || x.procedure != wire.Optional {
		return x
	}
	var h wire.Header
	lim := wire.DefaultLimits
	lim.Version2 = true
	if h.Parse([][]byte{m.Head}, &lim) == nil {
		x.operation = h.Operation
		x.count = h.Transmit.Count
	}
	return x
}

// begins: a group of several transmissions in a direction. goesOn: its continuation.
func begins(call bool) func(*message) bool {
	return func(m *message) bool { return m.FromDialer == call && m.count > 1 }
}

func goesOn(call bool) func(*message) bool {
	return func(m *message) bool { return m.FromDialer == call && m.operation == wire.XmtCont }
}

// long: a message that moves bulk data, with a subset of extensions that has no groups.
func long(call bool) func(*message) bool {
	return func(m *message) bool {
		return m.FromDialer == call && (m.operation == wire.XmtReq || m.operation == wire.XmtResp || m.procedure == wire.Msg && word(m.Head, 6)|word(m.Head, 7) != 0)
	}
}

func (s *strike) look(m *iwarptest.Message) iwarptest.Action {
	x := read(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.count > 1 {
		s.begun++
	}
	if s.what == nil || s.hits == s.times || !s.what(x) {
		return iwarptest.Pass
	}
	if s.seen++; s.seen <= s.after {
		return iwarptest.Pass
	}
	if s.hits++; s.hits == 1 && s.struck != nil {
		close(s.struck)
	}
	if s.on == nil {
		s.on = map[int]bool{}
	}
	s.on[m.Conn] = true
	return s.action
}

// done is how often it struck, and how many groups there were.
func (s *strike) done() (hits, groups int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits, s.begun
}
