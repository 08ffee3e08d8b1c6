package doctor

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// Wanted describes the intended use of a host.
type Wanted struct {
	// Device is the wanted device, "" for any. It may be missing.
	Device string
	// Address is the address to listen on; the zero value and unspecified addresses mean any.
	Address netip.Addr
	// Interface is the interface of Address, "" if none.
	Interface string
	// Memory is the number of bytes that may have to be locked, 0 if unknown.
	Memory uint64
}

// Check returns the problems that keep RDMA from working, one sentence each.
func (h *Host) Check(w Wanted) []string {
	var ps []string
	say := func(format string, a ...any) { ps = append(ps, fmt.Sprintf(format, a...)) }
	if !h.Folder {
		say("there is no /dev/infiniband: load the modules ib_uverbs and rdma_ucm on the host; a container gets it from the SR-IOV device plugin, whose selector must set isRdma: true")
	} else if h.Manager != nil {
		say("%s", cannotOpen("/dev/infiniband/rdma_cm", h.Manager, "load the module rdma_ucm on the host, and give the file to the container"))
	}
	devices := h.Devices
	if w.Device != "" {
		devices = slices.DeleteFunc(slices.Clone(devices), func(d Device) bool { return d.Name != w.Device })
	}
	switch {
	case len(devices) > 0:
	case h.Exclusive && w.Device != "":
		say("the RDMA device %s is not in this network namespace, and the kernel shows each device in one namespace only (rdma system: netns exclusive): move it here, as the CNI plugin rdma does (rdma dev set %[1]s netns NAME)", w.Device)
	case h.Exclusive:
		say("no RDMA device is in this network namespace, and the kernel shows each device in one namespace only (rdma system: netns exclusive): move one here, as the CNI plugin rdma does (rdma dev set DEVICE netns NAME)")
	case w.Device != "":
		say("there is no RDMA device %s: rdma link lists the present ones; load the adapter's driver", w.Device)
	default:
		say("there is no RDMA device: load the adapter's driver, or create a software device (rdma link add siw0 type siw netdev eth0)")
	}
	ps = append(ps, checkDevices(devices, w, h.Folder)...)
	h.checkPartitions(devices, w, say)
	h.checkMemory(w.Memory, say)
	return ps
}

// checkDevices checks devices. If one of them is usable, it ignores the problems of the others.
func checkDevices(devices []Device, w Wanted, folder bool) (ps []string) {
	for i := range devices {
		var own []string
		devices[i].check(w, folder, func(format string, a ...any) { own = append(own, fmt.Sprintf(format, a...)) })
		if len(own) == 0 {
			return nil
		}
		ps = append(ps, own...)
	}
	return ps
}

func (d *Device) check(w Wanted, folder bool, say func(string, ...any)) {
	if d.Open != nil && d.Verbs == "" {
		say("%s has no character device: %v", d.Name, d.Open)
	} else if d.Open != nil && folder {
		say("%s of %s", cannotOpen("/dev/infiniband/"+d.Verbs, d.Open, "give the file to the container"), d.Name)
	}
	d.checkState(w.Address, w.Interface, say)
	d.checkGIDTypes(w.Address, say)
	if d.Transport() != "RoCE" || !w.Address.IsValid() || w.Address.IsUnspecified() || d.has(w.Address) {
		return
	}
	on := "no interface here has that address"
	if w.Interface != "" {
		on = "it is on " + w.Interface
	}
	say("%s has no GID for the address %s (%s): the address must be on the device's own network interface, or a VLAN of it, in this network namespace", d.Name, w.Address, on)
}

// checkGIDTypes finds an address (any GID without one) that has a GID for RoCE version 1 only. That
// version is not routed, and Linux dials version 2 by default.
func (d *Device) checkGIDTypes(address netip.Addr, say func(string, ...any)) {
	first, second := "", false
	for _, p := range d.Ports {
		for _, g := range p.GIDs {
			if address.IsValid() && !address.IsUnspecified() && g.Address != address.Unmap().WithZone("") {
				continue
			}
			switch g.Type {
			case "IB/RoCE v1":
				first = g.Address.String()
			case "":
			default:
				second = true
			}
		}
	}
	if first != "" && !second && d.Transport() == "RoCE" {
		say("the GID of %s for %s is RoCE v1 only, which is not routed, and which RoCE v2 clients cannot reach: enable RoCE v2 on the adapter", d.Name, first)
	}
}

func (d *Device) has(a netip.Addr) bool {
	return slices.ContainsFunc(d.Ports, func(p Port) bool {
		return slices.ContainsFunc(p.GIDs, func(g GID) bool { return g.Address == a.Unmap().WithZone("") })
	})
}

// checkState checks the device and its ports for an address and an interface.
func (d *Device) checkState(address netip.Addr, link string, say func(string, ...any)) {
	if strings.Trim(d.GUID, "0:") == "" {
		say("the node GUID of %s is 0, so the connection manager cannot use it: set a MAC for the virtual function on its host (ip link set PF vf N mac ADDRESS), then rebind its driver", d.Name)
	}
	ports := d.portsFor(address, link)
	if slices.ContainsFunc(ports, func(p Port) bool { return p.State == "ACTIVE" }) {
		return // one active port is enough
	}
	for _, p := range ports {
		if p.State != "ACTIVE" {
			say("port %d of %s is %s: bring its network interface up (ip link set NAME up), and check cable and switch", p.Number, d.Name, p.State)
		}
	}
}

// portsFor returns the ports that have a GID of the address or the interface. It returns all ports
// if none has, as for InfiniBand and iWARP.
func (d *Device) portsFor(address netip.Addr, link string) []Port {
	ports := slices.DeleteFunc(slices.Clone(d.Ports), func(p Port) bool {
		return !slices.ContainsFunc(p.GIDs, func(g GID) bool {
			return address.IsValid() && g.Address == address.Unmap().WithZone("") || link != "" && g.Interface == link
		})
	})
	if len(ports) == 0 {
		return d.Ports
	}
	return ports
}

func (h *Host) checkMemory(need uint64, say func(string, ...any)) {
	if h.IPCLock || h.MemLock >= max(need, leastMemory) {
		return
	}
	needs := fmt.Sprintf("at least %s", size(leastMemory))
	if need > 0 {
		needs = "up to " + size(need)
	}
	say("this process may lock %s of memory, and RDMA needs %s: raise the memlock limit (ulimit -l, or LimitMEMLOCK= in systemd), or grant the process the capability IPC_LOCK", size(h.MemLock), needs)
}

func size(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", (n+1<<10-1)>>10)
	}
	return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20)
}

// leastMemory is the minimum for a connection: one arena of buffers.
const leastMemory = 16 << 20

// cannotOpen returns the problem and the remedy for a device file that does not open.
func cannotOpen(file string, err error, missing string) string {
	if errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENODEV) {
		return fmt.Sprintf("there is no %s: %s", file, missing)
	}
	return fmt.Sprintf("%s cannot be opened (%v): this process needs read and write permission, and the container's devices cgroup must allow it", file, err)
}
