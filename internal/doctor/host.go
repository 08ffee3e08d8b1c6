// Package doctor examines a host's requirements for RDMA and reports problems as sentences with
// their remedies.
//
// The examination ([ReadHost], [ReadClient]) is separate from the judgement ([Host.Check],
// [Client.Check]), which is a pure function.
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

// Host describes a host's RDMA setup as seen from this process, such as inside a container.
type Host struct {
	// Folder means that /dev/infiniband exists.
	Folder bool
	// Manager is the error of opening /dev/infiniband/rdma_cm; nil on success.
	Manager error
	// Devices are the devices of this network namespace, by name.
	Devices []Device
	// Functions are the devices that the SR-IOV device plugin gave to this container.
	Functions []Function
	// Exclusive means that each RDMA device is visible in one network namespace only (rdma system
	// set netns exclusive).
	Exclusive bool
	// Interfaces are the network interfaces of this network namespace, by name.
	Interfaces map[string]Interface
	// MemLock is the number of bytes that this process may lock (RLIMIT_MEMLOCK), or [Unlimited].
	MemLock uint64
	// IPCLock means that the process has the capability IPC_LOCK, which lifts the limit.
	IPCLock bool
}

// Unlimited means no limit.
const Unlimited = math.MaxUint64

// Interface is a network interface.
type Interface struct {
	// MTU is in bytes.
	MTU int
	// PKey is the partition key of an IP over InfiniBand interface, 0 for others.
	PKey uint16
	// Up means that the interface is administratively up, Carrier that its link is.
	Up, Carrier bool
}

// Function is a device that the SR-IOV device plugin gave to this container.
type Function struct {
	verbs.Assigned
	// Present means that the host has the device.
	Present bool
	// Driver is the device's driver, "" if none.
	Driver string
	// RDMA is its RDMA device in this network namespace, "" if none.
	RDMA string
}

// Device is an RDMA device.
type Device struct {
	Name string
	// IWARP selects between iWARP and InfiniBand; an InfiniBand device with link layer Ethernet is
	// RoCE.
	IWARP bool
	// GUID is the node GUID as the kernel writes it: "5054:00ff:fe12:3456".
	GUID string
	// Verbs is the character device, "uverbs0"; Open is the error of opening it, nil on success.
	Verbs string
	Open  error
	// Removing means that the kernel removes the device once no program has it open.
	Removing bool
	Ports    []Port
}

// Transport returns InfiniBand, RoCE or iWARP.
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
	Table     int    // number of GIDs that the port can hold
	GIDs      []GID  // the nonzero ones
	// PKeys are the nonzero partition keys. A key without its highest bit, 0x8000, makes a limited
	// member.
	PKeys []uint16
	// MTU is the active and MaxMTU the maximum payload of an RDMA packet in bytes: 256 to 4096.
	// Both are 0 if unknown, and for iWARP; MaxMTU is also 0 for RoCE.
	MTU, MaxMTU int
}

// GID is an entry of a port's GID table.
type GID struct {
	Index int
	// Address is the GID. For RoCE it is an IP address, with IPv4 unmapped.
	Address netip.Addr
	// Interface is the GID's network interface, "" if unknown.
	Interface string
	// Type is "RoCE v2" or "IB/RoCE v1"; "" if unknown.
	Type string
}

// ReadHost examines this host.
func ReadHost() *Host {
	h := readHost(os.DirFS("/sys"), os.Environ(), openable)
	h.measure(verbs.QueryMTU)
	return h
}

func readHost(sys fs.FS, environ []string, open func(file string) error) *Host {
	h := &Host{
		MemLock: Unlimited, Manager: open("/dev/infiniband/rdma_cm"), Devices: readDevices(sys, open), Functions: readFunctions(sys, environ), Interfaces: readInterfaces(sys),
	}
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

func openable(file string) error {
	fd, err := unix.Open(file, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

// effective reports whether this process has an effective capability.
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
	_, err := fs.Stat(sys, "class/infiniband_verbs")
	loaded := err == nil
	entries, _ := fs.ReadDir(sys, class)
	for _, e := range entries {
		at := path.Join(class, e.Name())
		d := Device{Name: e.Name(), GUID: read(sys, path.Join(at, "node_guid")), Verbs: nodes[e.Name()],
			IWARP: strings.Contains(read(sys, path.Join(at, "node_type")), "RNIC")}
		switch {
		case d.Verbs != "":
			d.Open = open("/dev/infiniband/" + d.Verbs)
		case loaded: // a removal begins with the character device
			d.Removing = true
		default:
			d.Open = errors.New("the module ib_uverbs is not loaded")
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

// readFunctions reads the devices that the environment names; none if it is not the plugin's, which
// [verbs.Find] reports.
func readFunctions(sys fs.FS, environ []string) (all []Function) {
	assigned, _ := verbs.AssignedDevices(environ)
	for _, a := range assigned {
		f := Function{Assigned: a, RDMA: a.RDMADevice(sys)}
		for _, bus := range []string{"pci", "auxiliary"} {
			at := path.Join("bus", bus, "devices", a.ID)
			if _, err := fs.Stat(sys, at); err != nil {
				continue
			}
			f.Present = true
			if driver, err := fs.ReadLink(sys, path.Join(at, "driver")); err == nil {
				f.Driver = path.Base(driver)
			}
		}
		all = append(all, f)
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
			continue // not an interface, such as bonding_masters
		}
		key, _ := strconv.ParseUint(read(sys, path.Join(at, "pkey")), 0, 16)
		flags, _ := strconv.ParseUint(read(sys, path.Join(at, "flags")), 0, 32)
		// The carrier of an interface that is down cannot be read.
		all[e.Name()] = Interface{MTU: mtu, PKey: uint16(key), Up: flags&unix.IFF_UP != 0, Carrier: read(sys, path.Join(at, "carrier")) == "1"}
	}
	return all
}

// measure sets the MTU of each port. RoCE's follows from the interface's, as in the drivers. sysfs
// lacks InfiniBand's, so query asks the device.
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
			all, _ := query(d.Name) // Check reports devices that do not open
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

// link returns the network interface of a port's first GID, "" if unknown.
func (p *Port) link() string {
	for _, g := range p.GIDs {
		if g.Interface != "" {
			return g.Interface
		}
	}
	return ""
}

// roceHeaders is the size in bytes that the kernel reserves in an Ethernet frame for RoCE headers:
// GRH or IP, UDP, BTH, XRC, atomic operations, and ICRC.
const roceHeaders = 40 + 8 + 12 + 4 + 28 + 4

// packetMTU returns the RoCE MTU on an interface with the given MTU: a power of two from 256 to
// 4096, or 0 if the interface's is too small.
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

// read returns the content of a /sys file, "" on error.
func read(sys fs.FS, file string) string {
	b, err := fs.ReadFile(sys, file)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// InterfaceOf returns the network interface of an address, "" for an unspecified address.
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

// InterfaceFor returns the network interface with the longest prefix that contains an address; ""
// if none.
func InterfaceFor(a netip.Addr) string {
	link, bits := "", 0
	_ = eachAddress(func(l string, p netip.Prefix) { // no list: no interface
		if p.Bits() > bits && p.Contains(a.Unmap().WithZone("")) {
			link, bits = l, p.Bits()
		}
	})
	return link
}

// eachAddress calls do with each address of this host's interfaces and its prefix length.
func eachAddress(do func(link string, p netip.Prefix)) error {
	links, err := net.Interfaces()
	if err != nil {
		return err
	}
	for _, l := range links {
		addresses, err := l.Addrs()
		if err != nil {
			continue // the interface has disappeared
		}
		for _, has := range addresses {
			if p, err := netip.ParsePrefix(has.String()); err == nil {
				do(l.Name, netip.PrefixFrom(p.Addr().Unmap(), p.Bits()))
			}
		}
	}
	return nil
}
