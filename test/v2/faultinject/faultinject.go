// Package faultinject injects faults into messages of RPC-over-RDMA version 2 in a relay.
package faultinject

import (
	"encoding/binary"
	"sync"

	"sluice.dev/sluice/pkg/rdma/iwarp/iwarptest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Injector applies Action to the first matching messages. The zero value only counts messages.
type Injector struct {
	Match    func(*Message) bool
	Action   iwarptest.Action
	Times    int           // limit of faults; -1 means none
	After    int           // number of matching messages to spare first
	Injected chan struct{} // closed after the first fault, unless nil

	mu         sync.Mutex
	seen, hits int
	groups     int          // groups of several transmissions
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

// parse parses a message.
func parse(m *iwarptest.Message) *Message {
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

// FirstOfGroup matches the first of several transmissions of a call, or of a reply.
func FirstOfGroup(call bool) func(*Message) bool {
	return func(m *Message) bool { return m.FromDialer == call && m.Count > 1 }
}

// Continuation matches continuations.
func Continuation(call bool) func(*Message) bool {
	return func(m *Message) bool { return m.FromDialer == call && m.Operation == wire.XmtCont }
}

// Bulk matches messages that move bulk data, where there are no groups.
func Bulk(call bool) func(*Message) bool {
	return func(m *Message) bool {
		return m.FromDialer == call && (m.Operation == wire.XmtReq || m.Operation == wire.XmtResp || m.Procedure == wire.Msg && word(m.Head, 6)|word(m.Head, 7) != 0)
	}
}

// Inspect is a function for the relay's configuration.
func (i *Injector) Inspect(m *iwarptest.Message) iwarptest.Action {
	x := parse(m)
	i.mu.Lock()
	defer i.mu.Unlock()
	if x.Count > 1 {
		i.groups++
	}
	if i.Match == nil || i.hits == i.Times || !i.Match(x) {
		return iwarptest.Pass
	}
	if i.seen++; i.seen <= i.After {
		return iwarptest.Pass
	}
	if i.hits++; i.hits == 1 && i.Injected != nil {
		close(i.Injected)
	}
	if i.on == nil {
		i.on = map[int]bool{}
	}
	i.on[m.Conn] = true
	return i.Action
}

// Counts returns the number of faults, and of groups of several transmissions.
func (i *Injector) Counts() (hits, groups int) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.hits, i.groups
}

// Connections returns the number of connections with a fault.
func (i *Injector) Connections() int {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.on)
}
