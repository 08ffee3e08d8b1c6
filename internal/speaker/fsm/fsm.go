// Package fsm decides which addresses a speaker answers for. It is pure: events and the time go in,
// actions come out.
//
// A group of addresses belongs to a Lease. A speaker holds the group after writing its Lease, which
// must be free, or expired with unanswered addresses. Holding is not yet a right to answer: an
// address is carried only after probes for it went unanswered, whatever the Lease says, and again
// after every pause of the process. So the Lease decides which speaker probes, and the network
// decides which one answers.
//
// At most one speaker answers, as long as frames arrive within Timing.Probe. A speaker that answers
// has sent Timing.Probes probes before, Timing.Probe apart, and waited as long after the last one.
// Another speaker that carried the address in that time would have answered one of them: one that
// did not run for longer than Timing.Probe probes again before it answers. Of two that probe at the
// same time, at most one has a valid Lease; the one without starts over whenever it hears a probe
// of the other.
package fsm

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Time is the time since some moment in the past. It never goes back, and continues while the
// process or the machine is stopped.
type Time = time.Duration

// MAC is an Ethernet address.
type MAC [6]byte

// Timing has the durations. All are positive.
type Timing struct {
	Lease  time.Duration // a Lease expires so long after its last renewal
	Renew  time.Duration // interval of renewals
	Probe  time.Duration // between two probes; a longer pause of the process is noticed
	Probes int           // unanswered probes of a free address
	// delays of further announcements after the first, which follows the taking of an address at
	// once
	Announce []time.Duration
	// interval at which a holder without a valid Lease probes for others
	Check time.Duration
	// delay of another try for an address that another host answers for
	Retry time.Duration
	// shortest interval of announcements against claims of our addresses
	Defend time.Duration
	// delay before trying for another group, for each group that the speaker has,
	Spread      time.Duration
	SpreadFirst time.Duration // or this, for a group without a former holder
	Jitter      time.Duration // largest random addition
	// delay before an address found on the interface is taken up again without the API server
	Start time.Duration
	Stop  time.Duration // longest wait for the API server while giving up
}

// Default are the times of a real speaker.
var Default = Timing{
	Lease: 10 * time.Second, Renew: 3 * time.Second, Probe: 400 * time.Millisecond, Probes: 3,
	Announce: []time.Duration{200 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second},
	Check:    3 * time.Second, Retry: 5 * time.Second, Defend: time.Second,
	Spread: 500 * time.Millisecond, SpreadFirst: 10 * time.Second, Jitter: 200 * time.Millisecond,
	Start: 3 * time.Second, Stop: 3 * time.Second,
}

// margin is the time by which a holder takes its Lease for expired before others do.
func (t *Timing) margin() time.Duration { return t.Lease / 10 }

// Group is a Lease and the addresses that go with it.
type Group struct {
	Lease     string
	Addresses []netip.Addr
}

// Record is a Lease as it was read or written.
type Record struct {
	Version     string // for a write that fails after another one
	Order       uint64 // grows with each write; zero if unknown
	Holder      string // empty if the Lease is free
	EverHeld    bool
	Transitions int
	Duration    time.Duration // the Lease expires this long after it was last written
}

// Event is something that happened.
type Event interface{ event() }

type (
	// Tick marks the passing of time. It comes at least each half of Timing.Probe.
	Tick struct{}
	// Configure replaces the groups.
	Configure struct{ Groups []Group }
	// Present are the addresses that an earlier process of this pod left on the interface.
	Present struct{ Addresses []netip.Addr }
	// Fit reports whether the pod may take groups, and whether it may keep its own.
	Fit struct{ Take, Keep bool }
	// Observed is a Lease as read from the API server.
	Observed struct {
		Lease  string
		Record Record
	}
	// Written is the outcome of a Write: the Lease as it is now, unless it failed.
	Written struct {
		Lease  string
		Failed bool
		Record Record
	}
	// Added is the outcome of an Add.
	Added struct {
		Address netip.Addr
		Failed  bool
	}
	// Heard is a frame of another host.
	Heard struct {
		Kind    Kind
		Address netip.Addr
		From    MAC
		IP      netip.Addr // of the sender; unspecified in a probe
		Age     time.Duration
	}
	// Stop gives everything up. Done follows.
	Stop struct{}
)

// Kind is the kind of a frame about an address.
type Kind int

// Kinds of frames.
const (
	Request Kind = iota // who has it?
	Probe               // who has it? I would take it
	Claim               // I have it
)

func (Tick) event()      {}
func (Configure) event() {}
func (Present) event()   {}
func (Fit) event()       {}
func (Observed) event()  {}
func (Written) event()   {}
func (Added) event()     {}
func (Heard) event()     {}
func (Stop) event()      {}

// Action is an action to execute. Late frames are useless: do not send them after Timing.Probe/2.
type Action interface{ action() }

type (
	// Write writes a Lease if it is still at Version. Exactly one Written follows; one write at a
	// time for a Lease.
	Write struct {
		Lease, Version, Holder string
		Acquire                bool // the holder changes
		Transitions            int
	}
	// Ask sends a probe.
	Ask struct{ Address netip.Addr }
	// Announce announces an address to all.
	Announce struct{ Address netip.Addr }
	// Reply answers a Heard.
	Reply struct{ To Heard }
	// Add puts an address on the interface. Added follows at once.
	Add struct{ Address netip.Addr }
	// Remove takes it off.
	Remove struct{ Address netip.Addr }
	// Done reports that everything is given up.
	Done struct{}
)

func (Write) action()    {}
func (Ask) action()      {}
func (Announce) action() {}
func (Reply) action()    {}
func (Add) action()      {}
func (Remove) action()   {}
func (Done) action()     {}

// Machine is the state of a speaker. It is not for concurrent use.
type Machine struct {
	t          Timing
	self       string                              // the holder identity
	random     func(n time.Duration) time.Duration // in [0, n)
	groups     []*group                            // in this pod's order of trying
	byAddr     map[netip.Addr]*address
	configured bool
	leftover   map[netip.Addr]bool // on the interface, of no group yet
	began      Time
	last       Time // of the last event
	fit        Fit
	fitAt      Time // start of its fitness to take groups
	stopping   bool
	stopped    bool
	deadline   Time     // of stopping
	out        []Action // of the current event
}

// New makes a machine at the time now, with holder identity self. random returns a number in [0,
// n).
func New(t Timing, self string, now Time, random func(n time.Duration) time.Duration) *Machine {
	return &Machine{t: t, self: self, random: random, byAddr: map[netip.Addr]*address{}, leftover: map[netip.Addr]bool{}, last: now, began: now}
}

// Step handles an event at the time now and returns the actions, in order. The caller owns the
// slice.
func (m *Machine) Step(now Time, e Event) []Action {
	m.out = nil
	if now-m.last > m.t.Probe {
		for _, g := range m.groups {
			g.paused(now)
		}
	}
	m.last = now
	switch e := e.(type) {
	case Configure:
		m.configure(now, e.Groups)
	case Present:
		for _, a := range e.Addresses {
			if x := m.byAddr[a]; x != nil {
				x.present = true
			} else {
				m.leftover[a] = true
			}
		}
	case Fit:
		if e.Take && !m.fit.Take {
			m.fitAt = now
		}
		m.fit = e
	case Observed:
		if g := m.group(e.Lease); g != nil {
			g.seen(now, e.Record)
		}
	case Written:
		if g := m.group(e.Lease); g != nil {
			g.written(now, e)
		}
	case Added:
		if a := m.byAddr[e.Address]; a != nil {
			a.added(now, e.Failed)
		}
	case Heard:
		if a := m.byAddr[e.Address]; a != nil {
			a.heard(now, e)
		}
	case Stop:
		if !m.stopping {
			m.stopping, m.deadline = true, now+m.t.Stop
		}
	}
	m.tick(now)
	return m.out
}

func (m *Machine) do(a Action) { m.out = append(m.out, a) }

func (m *Machine) tick(now Time) {
	if m.stopped {
		return
	}
	if m.configured || m.stopping {
		for _, a := range slices.SortedFunc(maps.Keys(m.leftover), netip.Addr.Compare) {
			m.do(Remove{a}) // it is in no group
		}
		clear(m.leftover)
	}
	busy := false
	for _, g := range slices.Clone(m.groups) {
		if (m.stopping || g.removed || !m.fit.Keep) && g.state != following {
			g.giveUp(now)
		}
		g.tick(now)
		if g.removed && g.state == following && !g.writing {
			m.drop(g)
		}
		busy = busy || g.state != following || g.writing
	}
	if m.stopping && (!busy || now >= m.deadline) {
		m.stopped = true
		m.do(Done{})
	}
}

func (m *Machine) group(lease string) *group {
	for _, g := range m.groups {
		if g.lease == lease {
			return g
		}
	}
	return nil
}

func (m *Machine) drop(g *group) {
	for _, a := range g.addrs {
		a.leave()
		delete(m.byAddr, a.ip)
	}
	m.groups = slices.DeleteFunc(m.groups, func(x *group) bool { return x == g })
}

// configure takes over the groups. An address belongs to the first group that names it.
func (m *Machine) configure(now Time, groups []Group) {
	m.configured = true
	owner := map[netip.Addr]string{}
	for _, c := range groups {
		for _, ip := range c.Addresses {
			if _, taken := owner[ip]; !taken {
				owner[ip] = c.Lease
			}
		}
	}
	for _, g := range m.groups {
		g.removed = true
		g.addrs = slices.DeleteFunc(g.addrs, func(a *address) bool {
			gone := owner[a.ip] != g.lease
			if gone {
				a.leave()
				delete(m.byAddr, a.ip)
			}
			return gone
		})
	}
	for _, c := range groups {
		g := m.group(c.Lease)
		if g == nil {
			g = &group{m: m, lease: c.Lease}
			m.groups = append(m.groups, g)
		}
		g.removed = false
		for _, ip := range c.Addresses {
			if m.byAddr[ip] != nil || owner[ip] != c.Lease {
				continue
			}
			a := &address{m: m, g: g, ip: ip, present: m.leftover[ip]}
			delete(m.leftover, ip)
			m.byAddr[ip] = a
			g.addrs = append(g.addrs, a)
			if g.state == holding {
				a.ask(now, 0)
			}
		}
	}
	// Every pod has its own order of the groups, so that they try for different ones.
	slices.SortFunc(m.groups, func(a, b *group) int { return strings.Compare(mix(m.self, a.lease), mix(m.self, b.lease)) })
}

// load counts the groups that are ours, or soon will be.
func (m *Machine) load() int {
	n := 0
	for _, g := range m.groups {
		if g.state != following {
			n++
		}
	}
	return n
}
