// Package strike injects faults into messages of RPC-over-RDMA version 2 in a relay.
package strike

import (
	"encoding/binary"
	"sync"

	"sluice.dev/sluice/pkg/rdma/iwarp/iwarptest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Strike applies Action to the first matching messages. The zero value only counts messages.
type Strike struct {
	What   func(*Message) bool
	Action iwarptest.Action
	Times  int           // limit of faults; -1 means none
	After  int           // number of matching messages to spare first
	Struck chan struct{} // closed after the first fault, unless nil

	mu         sync.Mutex
	seen, hits int
	begun      int          // groups of several transmissions
	on         map[int]bool // connections with a fault
}

// Message is a message of version 2.
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

// read parses a message.
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

// Begins matches the first of several transmissions of a call, or of a reply.
func Begins(call bool) func(*Message) bool {
	return func(m *Message) bool { return m.FromDialer == call && m.Count > 1 }
}

// GoesOn matches continuations.
func GoesOn(call bool) func(*Message) bool {
	return func(m *Message) bool { return m.FromDialer == call && m.Operation == wire.XmtCont }
}

// Long matches messages that move bulk data, where there are no groups.
func Long(call bool) func(*Message) bool {
	return func(m *Message) bool {
		return m.FromDialer == call && (m.Operation == wire.XmtReq || m.Operation == wire.XmtResp || m.Procedure == wire.Msg && word(m.Head, 6)|word(m.Head, 7) != 0)
	}
}

// Look is a function for the relay's configuration.
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

// Done returns the number of faults, and of groups of several transmissions.
func (s *Strike) Done() (hits, groups int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits, s.begun
}

// Connections returns the number of connections with a fault.
func (s *Strike) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.on)
}
