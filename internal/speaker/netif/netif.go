// Package netif puts virtual IPs on a network interface such that the pod serves them, but its
// kernel stays silent about them: no answer to ARP or Neighbor Discovery, and no request that names
// them as its sender. That is the speaker's task.
//
//   - IPv4: the address is on the interface, where an RDMA device takes its GIDs from, with scope
//     host. arp_ignore 3 keeps the kernel from answering for such addresses, arp_announce 2 from
//     sending requests with them. Both are set by netlink, since /proc/sys is read-only in a
//     container.
//   - IPv6 has no such settings: the address is on the loopback interface. The kernel accepts
//     packets for it from all other interfaces, but answers no solicitation for it.
//
// A rule routes packets from the address by a table of the interface's routes, so that replies do
// not leave by the pod's default route.
package netif

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/internal/speaker/api"
	"sluice.dev/sluice/internal/speaker/fsm"
)

// Table is the number of the routing table and the priority of the rules. Rules for it mark the
// addresses that are ours.
const Table = 20049

// Device is an interface that can carry addresses.
type Device struct {
	Name  string
	Index int
	MAC   fsm.MAC
	Up    bool
}

// Find looks the interface up. The error is a *api.Problem.
func Find(name string) (Device, error) {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return Device{Name: name}, &api.Problem{Reason: api.InterfaceMissing,
			Message: fmt.Sprintf("there is no interface %s in this pod (%v): does rdma.networks name it?", name, err)}
	}
	a := link.Attrs()
	d := Device{Name: name, Index: a.Index, Up: a.Flags&net.FlagUp != 0 && (a.OperState == netlink.OperUp || a.OperState == netlink.OperUnknown)}
	notLayer2 := func(why string) error {
		return &api.Problem{Reason: api.NetworkNotLayer2,
			Message: fmt.Sprintf("interface %s %s: a virtual IP wants one on an Ethernet network of its own hardware address, such as macvlan or a virtual function", name, why)}
	}
	switch {
	case a.EncapType != "ether" || len(a.HardwareAddr) != 6:
		return d, notLayer2("is no Ethernet interface but of type " + a.EncapType)
	case link.Type() == "ipvlan":
		return d, notLayer2("is ipvlan, which shares its hardware address with others")
	case a.RawFlags&unix.IFF_NOARP != 0:
		return d, notLayer2("has ARP off")
	case a.Flags&net.FlagPointToPoint != 0 || a.Flags&net.FlagBroadcast == 0:
		return d, notLayer2("cannot broadcast")
	}
	d.MAC = fsm.MAC(a.HardwareAddr)
	return d, nil
}

// Add puts ip on the device. It may be there already. The error is a *api.Problem.
func (d Device) Add(ip netip.Addr, networks []netip.Prefix, gateways []netip.Addr) error {
	if err := d.add(ip, networks, gateways); err != nil {
		reason := api.DeviceAddressLimit
		if errors.Is(err, unix.EPERM) {
			reason = api.NotPermitted
		}
		_ = d.Remove(ip)
		return &api.Problem{Reason: reason, Address: ip.String(), Message: fmt.Sprintf("interface %s does not take the address %v: %v", d.Name, ip, err)}
	}
	return nil
}

func (d Device) add(ip netip.Addr, networks []netip.Prefix, gateways []netip.Addr) error {
	if ip.Is4() {
		if err := restrictARP(); err != nil {
			return err
		}
	}
	if err := d.routes(family(ip), networks, gateways); err != nil {
		return err
	}
	if err := netlink.RuleAdd(rule(ip)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("source rule: %w", err)
	}
	link, a, err := d.address(ip)
	if err != nil {
		return err
	}
	if err := netlink.AddrReplace(link, a); err != nil {
		return fmt.Errorf("address: %w", err)
	}
	return nil
}

// Remove takes ip off, and ends its TCP connections. That it is not there is no error.
func (d Device) Remove(ip netip.Addr) error {
	err := closeConnections(ip)
	link, a, e := d.address(ip)
	if e == nil {
		e = netlink.AddrDel(link, a)
	}
	if !errors.Is(e, unix.EADDRNOTAVAIL) {
		err = errors.Join(err, e)
	}
	if e := netlink.RuleDel(rule(ip)); e != nil && !errors.Is(e, unix.ENOENT) {
		err = errors.Join(err, e)
	}
	return err
}

// Present returns the addresses that Add put somewhere and nobody took off.
func Present() ([]netip.Addr, error) {
	rules, err := netlink.RuleListFiltered(netlink.FAMILY_ALL, &netlink.Rule{Table: Table}, netlink.RT_FILTER_TABLE)
	if err != nil {
		return nil, err
	}
	var all []netip.Addr
	for _, r := range rules {
		if r.Src == nil {
			continue
		}
		if ip, ok := netip.AddrFromSlice(r.Src.IP); ok {
			all = append(all, ip.Unmap())
		}
	}
	return all, nil
}

func family(ip netip.Addr) int {
	if ip.Is4() {
		return netlink.FAMILY_V4
	}
	return netlink.FAMILY_V6
}

func single(ip netip.Addr) *net.IPNet {
	return &net.IPNet{IP: ip.AsSlice(), Mask: net.CIDRMask(ip.BitLen(), ip.BitLen())}
}

func rule(ip netip.Addr) *netlink.Rule {
	r := netlink.NewRule()
	r.Family, r.Src, r.Table, r.Priority = family(ip), single(ip), Table, Table
	return r
}

// address is where ip goes, and how.
func (d Device) address(ip netip.Addr) (netlink.Link, *netlink.Addr, error) {
	a := &netlink.Addr{IPNet: single(ip)}
	if ip.Is4() {
		a.Scope = unix.RT_SCOPE_HOST
		return &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: d.Index}}, a, nil
	}
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return nil, nil, err
	}
	// Without detection of duplicates, which the speaker does. Deprecated: connections of the pod's
	// own do not begin with it.
	a.Flags, a.ValidLft, a.PreferedLft = unix.IFA_F_NODAD, 1<<32-1, 0
	return lo, a, nil
}

// routes makes the table: the routes that go through the device, the networks on its link, the
// gateway to all others.
func (d Device) routes(family int, networks []netip.Prefix, gateways []netip.Addr) error {
	all, err := netlink.RouteListFiltered(family, &netlink.Route{LinkIndex: d.Index, Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_OIF|netlink.RT_FILTER_TABLE)
	if err != nil {
		return fmt.Errorf("routes of %s: %w", d.Name, err)
	}
	var routes []*netlink.Route
	for _, r := range all {
		if r.Type == unix.RTN_UNICAST && (r.Dst == nil || !r.Dst.IP.IsLinkLocalUnicast()) && len(r.MultiPath) == 0 {
			routes = append(routes, &netlink.Route{LinkIndex: d.Index, Table: Table, Family: family, Dst: r.Dst, Gw: r.Gw, Scope: r.Scope})
		}
	}
	for _, n := range networks {
		if n.Addr().Is4() == (family == netlink.FAMILY_V4) {
			routes = append(routes, &netlink.Route{LinkIndex: d.Index, Table: Table, Family: family, Scope: netlink.SCOPE_LINK,
				Dst: &net.IPNet{IP: n.Addr().AsSlice(), Mask: net.CIDRMask(n.Bits(), n.Addr().BitLen())}})
		}
	}
	for _, g := range gateways {
		if g.Is4() == (family == netlink.FAMILY_V4) {
			routes = append(routes, &netlink.Route{LinkIndex: d.Index, Table: Table, Family: family, Gw: g.AsSlice(), Flags: int(netlink.FLAG_ONLINK)})
		}
	}
	// First those without a gateway: the others are reached through them.
	slices.SortStableFunc(routes, func(a, b *netlink.Route) int { return min(len(a.Gw), 1) - min(len(b.Gw), 1) })
	for _, r := range routes {
		if err := netlink.RouteReplace(r); err != nil {
			return fmt.Errorf("route %v: %w", r, err)
		}
	}
	return nil
}
