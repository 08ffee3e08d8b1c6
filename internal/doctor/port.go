package doctor

import (
	"fmt"
	"slices"
)

// fullMember is the partition key bit of full members. Limited members reach only full members
// (InfiniBand Architecture Specification, volume 1, section 10.9.3).
const fullMember = 0x8000

// checkPartitions checks that an InfiniBand device has the interface's partition on a port.
func (h *Host) checkPartitions(devices []Device, w Wanted, say report) {
	key := h.Interfaces[w.Interface].PKey
	for i := range devices {
		d := &devices[i]
		if d.Transport() != "InfiniBand" || key == 0 {
			continue
		}
		has := slices.ContainsFunc(d.Ports, func(p Port) bool {
			return len(p.PKeys) == 0 || slices.ContainsFunc(p.PKeys, func(k uint16) bool { return k|fullMember == key|fullMember })
		})
		if !has {
			say(DeviceNotUsable, "no port of %s has the partition key %#04x of the interface %s: add the port to the partition in the subnet manager", d.Name, key, w.Interface)
		}
	}
}

// Notes returns remarks on ports of the wanted device that slow RDMA down or may exclude clients,
// one sentence each.
func (h *Host) Notes(w Wanted) []string {
	var ns []string
	say := func(format string, a ...any) { ns = append(ns, fmt.Sprintf(format, a...)) }
	for i := range h.Devices {
		d := &h.Devices[i]
		if w.Device != "" && d.Name != w.Device {
			continue
		}
		for _, p := range d.portsFor(w.Address, w.Interface) {
			if p.State != "ACTIVE" {
				continue
			}
			switch d.Transport() {
			case "RoCE":
				h.noteRoCE(d, &p, w.Interface, say)
			case "InfiniBand":
				noteInfiniBand(d, &p, say)
			}
		}
	}
	return ns
}

// noteRoCE compares the MTUs of a port and its interfaces. A standard Ethernet frame carries 1024
// bytes of payload, a jumbo frame 4096.
func (h *Host) noteRoCE(d *Device, p *Port, link string, say func(string, ...any)) {
	own := h.Interfaces[p.link()].MTU
	switch {
	case p.MTU == 0:
		return
	case p.MTU < 1024:
		say("the active MTU of port %d of %s is %d: set the MTU of %s to 1500 or more, and the MTU of the switch and of clients too", p.Number, d.Name, p.MTU, p.link())
	case own > 1500 && p.MTU < 4096:
		say("the active MTU of port %d of %s is %d, since the MTU of %s is %d: set it to %d or more for 4096, and the MTU of the switch and of clients too",
			p.Number, d.Name, p.MTU, p.link(), own, 4096+roceHeaders)
	}
	if at, ok := h.Interfaces[link]; ok && packetMTU(at.MTU) != p.MTU {
		say("connections from %s have a path MTU of %d (its MTU is %d), while the active MTU of port %d of %s is %d: give both interfaces the same MTU",
			link, packetMTU(at.MTU), at.MTU, p.Number, d.Name, p.MTU)
	}
}

func noteInfiniBand(d *Device, p *Port, say func(string, ...any)) {
	if p.MTU > 0 && p.MTU < p.MaxMTU {
		say("the active MTU of port %d of %s is %d, and the port supports up to %d: raise the MTU in the subnet manager and on the switch's port", p.Number, d.Name, p.MTU, p.MaxMTU)
	}
	if len(p.PKeys) > 0 && !slices.ContainsFunc(p.PKeys, func(k uint16) bool { return k&fullMember != 0 }) {
		say("port %d of %s is a limited member of all its partitions, and reaches only full members: make it a full member in the subnet manager where clients are limited members", p.Number, d.Name)
	}
}

// Notes returns remarks on the route to the server, as [Host.Notes].
func (c *Client) Notes() []string {
	d := c.Device()
	if d == nil {
		return nil
	}
	ns := c.Host.Notes(Wanted{Device: d.Name, Address: c.From, Interface: c.Interface})
	link := c.Interfaces[c.Interface].MTU
	if ours, route := packetMTU(link), packetMTU(c.RouteMTU); d.Transport() == "RoCE" && c.RouteMTU > 0 && route < ours {
		ns = append(ns, fmt.Sprintf("the route to %s takes packets of %d bytes, and %s sends payloads up to %d, for which the route needs %d: adapters do not split packets. Raise the MTU along the route, or lower the MTU of %s (%d)",
			c.Server.Addr(), c.RouteMTU, d.Name, ours, ours+roceHeaders, c.Interface, link))
	}
	return ns
}
