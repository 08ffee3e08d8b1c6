// Package doctor looks at what RDMA needs of a host, and says what is missing in sentences that tell what to do.
//
// What is looked at ([ReadHost], [ReadClient]) is apart from what is thought of it ([Host.Check], [Client.Check]), which depends on nothing else.
package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"net/netip"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/rdma/verbs"
)

// Host describes what RDMA needs of a host, as seen from this process: of a container, if it is in one.
type Host struct {
	// Folder: there is a /dev/infiniband.
	Folder bool
	// Manager is why /dev/infiniband/rdma_cm cannot be opened; nil if it can.
	Manager error
	// Devices are those of this network namespace, by name.
	Devices []Device
	// Exclusive: the kernel shows RDMA devices in one network namespace each (rdma system set netns exclusive).
	Exclusive bool
	// Interfaces are the network interfaces of this network namespace, by name.
	Interfaces map[string]Interface
	// MemLock is how many bytes this process may lock, [Unlimited] if there is no limit (RLIMIT_MEMLOCK).
	MemLock uint64
	// IPCLock: the process has the capability IPC_LOCK, for which the limit does not count.
	IPCLock bool
}

// Unlimited is the limit where there is none.
const Unlimited = math.MaxUint64

// Interface is a network interface.
type Interface struct {
	// MTU is in bytes.
	MTU int
	// PKey is the partition key of an interface of IP over InfiniBand, 0 for others.
	PKey uint16
}

// Device is an RDMA device.
type Device struct {
	Name string
	// IWARP: its transport is iWARP; otherwise it is InfiniBand or, where the ports' link layer is Ethernet, RoCE.
	IWARP bool
	// GUID is the node GUID as the kernel writes it: "5054:00ff:fe12:3456".
	GUID string
	// Verbs is its character device, "uverbs0"; Open is why it cannot be opened, nil if it can.
	Verbs string
	Open  error
	Ports []Port
}

// Transport is InfiniBand, RoCE or iWARP.
func (d *Device) Transport() string {
	switch {
	case d.IWARP:
		return "iWARP"
	case len(d.Ports) > 0 && d.Ports[0].LinkLayer == "Ethernet":
		return "RoCE"
	default:
		return "InfiniBand"
	}
}

// Port is a port of a device.
type Port struct {
	Number    int
	State     string // "ACTIVE", "DOWN", "INIT", "ARMED"
	LinkLayer string // "Ethernet" or "InfiniBand"
	Table     int    // how many GIDs the port has room for
	GIDs      []GID  // those that are not zero
	// PKeys are the partition keys that are not zero. A key without its highest bit, 0x8000, makes a
	// limited member.
	PKeys []uint16
	// MTU is the active one, MaxMTU the port's most, in bytes of payload of an RDMA packet: 256 to
	// 4096. Both are 0 if unknown, and over iWARP; MaxMTU is also 0 over RoCE.
	MTU, MaxMTU int
}

// GID is an entry of a port's table.
type GID struct {
	Index int
	// Address is the GID. With RoCE it is an IP address; of IPv4 as such.
	Address netip.Addr
	// Interface is the network interface that it belongs to, "" if the kernel does not tell.
	Interface string
	// Type is "RoCE v2" or "IB/RoCE v1"; "" if the kernel does not tell.
	Type string
}

// ReadHost looks at this host.
func ReadHost() *Host {
	h := readHost(os.DirFS("/sys"), openable)
	h.measure(verbs.QueryMTU)
	return h
}

func readHost(sys fs.FS, open func(file string) error) *Host {
	h := &Host{MemLock: Unlimited, Manager: open("/dev/infiniband/rdma_cm"), Devices: readDevices(sys, open), Interfaces: readInterfaces(sys)}
	_, err := os.Stat("/dev/infiniband")
	h.Folder = err == nil
	h.Exclusive = read(sys, "module/ib_core/parameters/netns_mode") == "N"
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) == nil && limit.Cur != unix.RLIM_INFINITY {
		h.MemLock = limit.Cur
	}
	h.IPCLock = effective(unix.CAP_IPC_LOCK)
	return h
}

// openable opens a device file for a moment.
func openable(file string) error {
	fd, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// effective tells whether this process has a capability that is in effect.
func effective(capability int) bool {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(status), "\nCapEff:")
	word, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	set, err := strconv.ParseUint(word, 16, 64)
	return err == nil && set>>capability&1 != 0
}

const class = "class/infiniband"

func readDevices(sys fs.FS, open func(string) error) (all []Device) {
	nodes := map[string]string{}
	files, _ := fs.Glob(sys, "class/infiniband_verbs/uverbs*/ibdev")
	for _, f := range files {
		nodes[read(sys, f)] = path.Base(path.Dir(f))
	}
	entries, _ := fs.ReadDir(sys, class)
	for _, e := range entries {
		at := path.Join(class, e.Name())
		d := Device{Name: e.Name(), GUID: read(sys, path.Join(at, "node_guid")), Verbs: nodes[e.Name()],
			IWARP: strings.Contains(read(sys, path.Join(at, "node_type")), "RNIC")}
		if d.Verbs == "" {
			d.Open = errors.New("the module ib_uverbs is not loaded")
		} else {
			d.Open = open("/dev/infiniband/" + d.Verbs)
		}
		ports, _ := fs.ReadDir(sys, path.Join(at, "ports"))
		for _, p := range ports {
			if n, err := strconv.Atoi(p.Name()); err == nil {
				d.Ports = append(d.Ports, readPort(sys, path.Join(at, "ports", p.Name()), n))
			}
		}
		slices.SortFunc(d.Ports, func(a, b Port) int { return a.Number - b.Number })
		all = append(all, d)
	}
	return all
}

func readInterfaces(sys fs.FS) map[string]Interface {
	all := map[string]Interface{}
	entries, _ := fs.ReadDir(sys, "class/net")
	for _, e := range entries {
		at := path.Join("class/net", e.Name())
		mtu, err := strconv.Atoi(read(sys, path.Join(at, "mtu")))
		if err != nil {
			continue // no interface, as bonding_masters
		}
		key, _ := strconv.ParseUint(read(sys, path.Join(at, "pkey")), 0, 16)
		all[e.Name()] = Interface{MTU: mtu, PKey: uint16(key)}
	}
	return all
}

// measure finds the MTU of each port. That of RoCE follows from the interface's, as the drivers
// compute it; sysfs lacks that of InfiniBand, which query asks the device for.
func (h *Host) measure(query func(device string) ([]verbs.PortMTU, error)) {
	for i := range h.Devices {
		d := &h.Devices[i]
		switch d.Transport() {
		case "RoCE":
			for j := range d.Ports {
				p := &d.Ports[j]
				p.MTU = packetMTU(h.Interfaces[p.link()].MTU)
			}
		case "InfiniBand":
			all, _ := query(d.Name) // a device that does not open is reported as such
			for _, m := range all {
				for j := range d.Ports {
					if d.Ports[j].Number == m.Port {
						d.Ports[j].MTU, d.Ports[j].MaxMTU = m.Active, m.Max
					}
				}
			}
		}
	}
}

// link returns the network interface of a port's first GID, "" if the kernel does not tell.
func (p *Port) link() string {
	for _, g := range p.GIDs {
		if g.Interface != "" {
			return g.Interface
		}
	}
	return ""
}

// roceHeaders is the room in bytes that the kernel reserves in an Ethernet frame for the headers of
// RoCE: GRH or IP, UDP, BTH, XRC, atomic operations, and ICRC.
const roceHeaders = 40 + 8 + 12 + 4 + 28 + 4

// packetMTU returns the MTU of RoCE on an interface with an MTU: a power of two from 256 to 4096,
// and 0 if the interface is too small.
func packetMTU(link int) int {
	for mtu := 4096; mtu >= 256; mtu /= 2 {
		if mtu <= link-roceHeaders {
			return mtu
		}
	}
	return 0
}

func readPort(sys fs.FS, at string, number int) Port {
	p := Port{Number: number, LinkLayer: read(sys, path.Join(at, "link_layer"))}
	_, p.State, _ = strings.Cut(read(sys, path.Join(at, "state")), ": ")
	gids, _ := fs.ReadDir(sys, path.Join(at, "gids"))
	p.Table = len(gids)
	for _, g := range gids {
		i, err1 := strconv.Atoi(g.Name())
		a, err2 := netip.ParseAddr(read(sys, path.Join(at, "gids", g.Name())))
		if err1 != nil || err2 != nil || a.IsUnspecified() {
			continue
		}
		p.GIDs = append(p.GIDs, GID{Index: i, Address: a.Unmap(), Interface: read(sys, path.Join(at, "gid_attrs/ndevs", g.Name())),
			Type: read(sys, path.Join(at, "gid_attrs/types", g.Name()))})
	}
	slices.SortFunc(p.GIDs, func(a, b GID) int { return a.Index - b.Index })
	keys, _ := fs.Glob(sys, path.Join(at, "pkeys/*"))
	for _, file := range keys {
		if key, err := strconv.ParseUint(read(sys, file), 0, 16); err == nil && key != 0 {
			p.PKeys = append(p.PKeys, uint16(key))
		}
	}
	slices.Sort(p.PKeys)
	return p
}

// read returns what a file of /sys says, "" if it says nothing.
func read(sys fs.FS, file string) string {
	b, err := fs.ReadFile(sys, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// InterfaceOf returns the network interface that has an address, "" if that is any address.
func InterfaceOf(a netip.Addr) (string, error) {
	if !a.IsValid() || a.IsUnspecified() {
		return "", nil
	}
	link := ""
	err := eachAddress(func(l string, p netip.Prefix) {
		if link == "" && p.Addr() == a.Unmap().WithZone("") {
			link = l
		}
	})
	if err == nil && link == "" {
		err = fmt.Errorf("no network interface has the address %s: %w", a, syscall.EADDRNOTAVAIL)
	}
	return link, err
}

// InterfaceFor returns the network interface in whose network an address lies, that of the longest prefix; "" if there is none.
func InterfaceFor(a netip.Addr) string {
	link, bits := "", 0
	_ = eachAddress(func(l string, p netip.Prefix) { // without a list there is none
		if p.Bits() > bits && p.Contains(a.Unmap().WithZone("")) {
			link, bits = l, p.Bits()
		}
	})
	return link
}

// eachAddress calls do with each address of this host's interfaces, and the length of its network's prefix.
func eachAddress(do func(link string, p netip.Prefix)) error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, l := range links {
		addresses, err := l.Addrs()
		if err != nil {
			continue // it went away
		}
		for _, has := range addresses {
			if p, err := netip.ParsePrefix(has.String()); err == nil {
				do(l.Name, netip.PrefixFrom(p.Addr().Unmap(), p.Bits()))
			}
		}
	}
	return nil
}
