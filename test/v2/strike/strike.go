// Package strike does something to messages of RPC-over-RDMA version 2 on their way through a relay.
package strike

import (
	"encoding/binary"
	"sync"

	"sluice.dev/sluice/pkg/rdma/iwarp/iwarptest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Strike does Action to the first messages for which What is true. The zero value looks at what passes.
type Strike struct {
	What   func(*Message) bool
	Action iwarptest.Action
	Times  int           // how often, at most; -1 for always
	After  int           // so many of the messages that it is meant for are spared first
	Struck chan struct{} // if not nil, it is closed when it has struck

	mu         sync.Mutex
	seen, hits int
	begun      int          // groups of several transmissions
	on         map[int]bool // connections that it struck
}

// Message is one of version 2.
type Message struct {
	*iwarptest.Message
	Procedure wire.Procedure
	Operation wire.Operation
	Count     uint32 // of a group's first transmission
}

func word(b []byte, k int) uint32 {
	if len(b) < 4*k+4 {
		return 0
	}
	return binary.BigEndian.Uint32(b[4*k:])
}

// read finds out what a message is.
func read(m *iwarptest.Message) *Message {
	x := &Message{Message: m, Procedure: wire.Procedure(word(m.Head, 3))}
	if word(m.Head, 1) != wire.Version2 || x.Procedure != wire.Optional {
		return x
	}
	var h wire.Header
	lim := wire.DefaultLimits
	lim.Version2 = true
	if h.Parse([][]byte{m.Head}, &lim) == nil {
		x.Operation = h.Operation
		x.Count = h.Transmit.Count
	}
	return x
}

// Begins is true of the first of several transmissions of a call, or of a reply.
func Begins(call bool) func(*Message) bool {
	return func(m *Message) bool { return m.FromDialer == call && m.Count > 1 }
}

// GoesOn is true of continuations.
func GoesOn(call bool) func(*Message) bool {
	return func(m *Message) bool { return m.FromDialer == call && m.Operation == wire.XmtCont }
}

// Long is true of messages that move bulk data, where there are no groups.
func Long(call bool) func(*Message) bool {
	return func(m *Message) bool {
		return m.FromDialer == call && (m.Operation == wire.XmtReq || m.Operation == wire.XmtResp || m.Procedure == wire.Msg && word(m.Head, 6)|word(m.Head, 7) != 0)
	}
}

// Look is for the relay's configuration.
func (s *Strike) Look(m *iwarptest.Message) iwarptest.Action {
	x := read(m)
	s.mu.Lock()
	defer s.mu.Unlock()
	if x.Count > 1 {
		s.begun++
	}
	if s.What == nil || s.hits == s.Times || !s.What(x) {
		return iwarptest.Pass
	}
	if s.seen++; s.seen <= s.After {
		return iwarptest.Pass
	}
	if s.hits++; s.hits == 1 && s.Struck != nil {
		close(s.Struck)
	}
	if s.on == nil {
		s.on = map[int]bool{}
	}
	s.on[m.Conn] = true
	return s.Action
}

// Done is how often it struck, and how many groups of several transmissions began.
func (s *Strike) Done() (hits, groups int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits, s.begun
}

// Connections is how many connections it struck.
func (s *Strike) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.on)
}
