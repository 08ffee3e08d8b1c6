package fsm

import "net/netip"

type addressState int

const (
	idle    addressState = iota
	asking               // being probed
	adding               // no probe was answered; it is being put on the interface
	carried              // on the interface and answered for
	taken                // another host answers for it
	refused              // it cannot be put on the interface
)

// address is one address of a group.
type address struct {
	m       *Machine
	g       *group
	ip      netip.Addr
	state   addressState
	present bool // on the interface

	sent      int  // probes
	next      Time // of a probe, a check, or another try
	announced int  // announcements
	since     Time // when it was taken up
	defend    Time // no defence before this
	foreign   MAC  // its last claimant,
	clash     Time // and the time of the claim
}

// ask begins to probe after wait. Nothing is answered meanwhile; existing connections continue.
func (a *address) ask(now Time, wait Time) {
	a.state, a.sent, a.next = asking, 0, now+wait
}

// leave ends all that this pod has of the address.
func (a *address) leave() {
	a.state = idle
	a.drop()
}

// drop takes the address off the interface.
func (a *address) drop() {
	if a.present {
		a.present = false
		a.m.do(Remove{a.ip})
	}
}

func (a *address) tick(now Time) {
	t := &a.m.t
	switch a.state {
	case idle, taken, refused:
		if a.g.state == holding && now >= a.next {
			a.ask(now, 0)
		}
	case asking:
		if now < a.next {
			return
		}
		if a.sent < t.Probes {
			a.sent++
			a.next = now + t.Probe
			a.m.do(Ask{a.ip})
			return
		}
		if a.g.state != holding {
			a.state = idle // free, as far as a challenger is concerned
			return
		}
		a.state = adding
		if a.present {
			a.added(now, false)
			return
		}
		a.m.do(Add{a.ip})
	case carried:
		if a.announced < len(t.Announce) && now >= a.since+t.Announce[a.announced] {
			a.announced++
			a.m.do(Announce{a.ip})
		}
		if now >= a.next {
			a.next = now + t.Check
			if now >= a.g.valid {
				a.m.do(Ask{a.ip}) // a host that took it meanwhile would answer
			}
		}
	}
}

// added starts to carry the address, which is on the interface now.
func (a *address) added(now Time, failed bool) {
	a.present = !failed
	switch {
	case a.state == idle || a.state == taken:
		a.drop()
	case a.state != adding: // it is being probed again
	case failed:
		a.state, a.next = refused, now+a.m.t.Retry
	default:
		a.state = carried
		a.since, a.announced, a.next = now, 0, now+a.m.t.Check
		a.m.do(Announce{a.ip})
	}
}

// heard handles a frame of another host.
func (a *address) heard(now Time, h Heard) {
	switch h.Kind {
	case Claim:
		a.claimed(now, h)
	case Probe:
		if (a.state == asking || a.state == adding) && a.g.state == holding && now >= a.g.valid {
			// The prober may have the Lease. It goes first; two without a Lease separate by chance.
			a.ask(now, a.m.t.Probe+a.m.random(2*Time(a.m.t.Probes)*a.m.t.Probe))
			return
		}
		fallthrough
	case Request:
		if a.state == carried && h.Age <= a.m.t.Probe {
			a.m.do(Reply{h})
		}
	}
}

// claimed gives way to another host with the address, unless the Lease says that it is ours.
func (a *address) claimed(now Time, h Heard) {
	switch a.state {
	case asking, adding, carried:
		a.foreign, a.clash = h.From, now
	default:
		return
	}
	if a.state == carried && now < a.g.valid {
		if now >= a.defend {
			a.defend = now + a.m.t.Defend
			a.m.do(Announce{a.ip})
		}
		return
	}
	a.drop()
	a.state, a.next = taken, now+a.m.t.Retry
}
