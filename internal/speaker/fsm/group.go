package fsm

import (
	"crypto/sha256"
	"time"
)

type groupState int

const (
	following   groupState = iota // the group is another's, or free
	challenging                   // the Lease has expired; its addresses are being probed
	acquiring                     // the Lease is being written
	holding                       // its addresses are ours to carry
	releasing                     // it is being given back
)

// group is a Lease and its addresses.
type group struct {
	m       *Machine
	lease   string
	addrs   []*address
	removed bool // removed from the configuration
	state   groupState

	record  *Record // last seen; nil before
	seenAt  Time    // when it was first seen in that state
	jitter  time.Duration
	notNow  Time // no try before this
	valid   Time // until then no other can have taken the Lease
	writing bool
	started Time // time of the last write
	renewAt Time
}

// mix orders groups for a pod.
func mix(self, lease string) string {
	s := sha256.Sum256([]byte(self + "\x00" + lease))
	return string(s[:8])
}

// seen handles a Lease as read from the API server. An older record than the known one is ignored.
func (g *group) seen(now Time, r Record) {
	if g.record != nil && (r.Version == g.record.Version || r.Order != 0 && r.Order < g.record.Order) {
		return
	}
	g.record, g.seenAt, g.jitter = &r, now, g.m.random(g.m.t.Jitter)
	switch {
	case r.Holder == g.m.self:
	case r.Holder == "" && g.state == holding:
		// Freed meanwhile, by another holder or by hand: write it again with the next renewal.
		g.renewAt = now
	case g.state == challenging, g.state == holding, g.state == releasing && !g.writing:
		g.follow()
	}
	if r.Holder != "" && r.Holder != g.m.self {
		g.clear()
	}
}

// follow gives everything up without a write to the API server.
func (g *group) follow() {
	g.state, g.valid = following, 0
	g.clear()
}

// clear removes the addresses from the interface.
func (g *group) clear() {
	for _, a := range g.addrs {
		a.leave()
	}
}

// paused is called after a pause in which others may have taken our addresses.
func (g *group) paused(now Time) {
	switch g.state {
	case challenging:
		g.state = following
		for _, a := range g.addrs {
			a.state = idle
		}
	case holding:
		for _, a := range g.addrs {
			if a.state == carried || a.state == asking || a.state == adding {
				a.ask(now, 0)
			}
		}
	}
}

func (g *group) tick(now Time) {
	switch g.state {
	case following:
		g.consider(now)
	case challenging:
		g.challenge(now)
	case holding:
		g.hold(now)
	case releasing:
		g.giveUp(now)
	}
}

// consider tries for the Lease when it is ours to take.
func (g *group) consider(now Time) {
	m := g.m
	if m.stopping || g.removed || g.writing || now < g.notNow {
		return
	}
	if g.record == nil {
		// A restart while the API server is unreachable: this pod takes its addresses up again
		// unless another one has.
		if m.fit.Keep && now >= m.began+m.t.Start && g.hasPresent() {
			g.begin(now)
		}
		return
	}
	if g.record.Holder == m.self && m.fit.Keep {
		// an earlier process of this pod had it, or the reply to a successful write was lost
		g.state = acquiring
		g.write(now, m.self)
		return
	}
	expired := g.record.Holder != ""
	due := g.seenAt
	if expired {
		due += g.record.Duration
	}
	// Pods whose gateways become ready at about the same time share.
	due = max(due, m.fitAt) + g.jitter
	if g.record.EverHeld {
		due += time.Duration(m.load()) * m.t.Spread
	} else {
		due += time.Duration(m.load()) * m.t.SpreadFirst
	}
	if !m.fit.Take || now < due {
		return
	}
	if expired && g.record.Holder != m.self {
		g.state = challenging
		for _, a := range g.addrs {
			a.ask(now, 0)
		}
		return
	}
	g.state = acquiring
	g.write(now, m.self)
}

func (g *group) hasPresent() bool {
	for _, a := range g.addrs {
		if a.present {
			return true
		}
	}
	return false
}

// challenge probes the addresses of an expired Lease. If all of them are answered, its holder
// lives.
func (g *group) challenge(now Time) {
	answered, open := 0, false
	for _, a := range g.addrs {
		a.tick(now)
		answered += btoi(a.state == taken)
		open = open || a.state == asking
	}
	if open {
		return
	}
	if answered > 0 && answered == len(g.addrs) {
		g.back(now)
		return
	}
	g.state = acquiring
	g.write(now, g.m.self)
}

// back gives the group up for a while, since another host answers for it.
func (g *group) back(now Time) {
	g.follow()
	g.notNow = now + g.m.t.Retry + g.m.random(g.m.t.Retry)
}

// begin begins to hold the group, by probing its addresses.
func (g *group) begin(now Time) {
	g.state = holding
	for _, a := range g.addrs {
		a.ask(now, 0)
	}
}

func (g *group) hold(now Time) {
	lost := 0
	for _, a := range g.addrs {
		a.tick(now)
		lost += btoi(a.state == taken || a.state == refused)
	}
	if lost > 0 && lost == len(g.addrs) {
		// Another host answers for all of it, or none can be added here: another pod may do better.
		g.giveUp(now)
		g.notNow = now + g.m.t.Retry + g.m.random(g.m.t.Retry)
		return
	}
	if !g.writing && g.record != nil && now >= g.renewAt {
		g.write(now, g.m.self)
	}
}

// giveUp removes the addresses and frees the Lease, if it is ours. It is called again until that is
// done.
func (g *group) giveUp(now Time) {
	g.clear()
	if g.writing && g.state != challenging {
		g.state, g.valid = releasing, 0 // the outcome of the write decides the rest
		return
	}
	if g.state == challenging || g.record == nil || g.record.Holder != g.m.self {
		g.follow()
		return
	}
	if g.state != releasing || now >= g.renewAt {
		g.state, g.valid = releasing, 0
		g.write(now, "")
	}
}

func (g *group) write(now Time, holder string) {
	acquire, t := holder != "" && holder != g.record.Holder, g.record.Transitions
	if acquire {
		t++
	}
	g.writing, g.started = true, now
	g.renewAt = now + g.m.t.Renew
	g.m.do(Write{Lease: g.lease, Version: g.record.Version, Holder: holder, Acquire: acquire, Transitions: t})
}

// written handles the outcome of a write.
func (g *group) written(now Time, w Written) {
	g.writing = false
	if w.Failed {
		switch g.state {
		case acquiring:
			// The write may have succeeded all the same: then it is seen with our name.
			g.state, g.notNow = following, now+g.m.t.Renew/3
		case releasing:
			g.renewAt = now + g.m.t.Renew/3
			if g.removed {
				// its Lease may be gone as well, or no longer ours to write; otherwise it expires
				g.follow()
			}
		case holding:
			g.renewAt = now + g.m.t.Renew/3
		}
		return
	}
	r := w.Record
	if g.record == nil || r.Order == 0 || r.Order >= g.record.Order {
		g.record, g.seenAt = &r, now
	}
	switch {
	case g.state == releasing:
		g.renewAt = now
		if r.Holder == "" {
			g.follow()
			g.notNow = max(g.notNow, now+g.m.t.Retry) // whoever can do better goes first
		}
	case g.record.Holder != g.m.self:
		g.follow()
	case g.state == acquiring:
		g.renewed()
		g.begin(now)
	case g.state == holding:
		g.renewed()
	}
}

// renewed says until when nobody else can take the Lease: others count from when they see the
// write, which is later than its start.
func (g *group) renewed() { g.valid = g.started + g.record.Duration - g.m.t.margin() }

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
