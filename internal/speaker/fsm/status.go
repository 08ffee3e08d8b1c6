package fsm

import "net/netip"

// GroupStatus is how a group stands.
type GroupStatus struct {
	Lease     string
	State     string // Following, Challenging, Acquiring, Holding or Releasing
	Holder    string // as the Lease was last seen; empty if it is free or was not seen
	Observed  bool
	Valid     bool // the Lease is ours for certain
	Addresses []AddressStatus
}

// AddressStatus is how an address stands.
type AddressStatus struct {
	Address netip.Addr
	State   string // Idle, Asking, Carried, Taken or Refused
	Foreign MAC    // who else claimed it lately; zero if nobody did
}

var groupStates = [...]string{following: "Following", challenging: "Challenging", acquiring: "Acquiring", holding: "Holding", releasing: "Releasing"}

var addressStates = [...]string{idle: "Idle", asking: "Asking", adding: "Asking", carried: "Carried", taken: "Taken", refused: "Refused"}

// Status returns the state of the groups at the time now.
func (m *Machine) Status(now Time) []GroupStatus {
	var all []GroupStatus
	for _, g := range m.groups {
		s := GroupStatus{Lease: g.lease, State: groupStates[g.state], Observed: g.record != nil, Valid: now < g.valid}
		if g.record != nil {
			s.Holder = g.record.Holder
		}
		for _, a := range g.addrs {
			as := AddressStatus{Address: a.ip, State: addressStates[a.state]}
			if g.state == holding && now-a.clash < 2*m.t.Retry {
				as.Foreign = a.foreign
			}
			s.Addresses = append(s.Addresses, as)
		}
		all = append(all, s)
	}
	return all
}
