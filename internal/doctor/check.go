package doctor

import (
	"cmp"
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

// Check returns the problems that keep RDMA from working. The first one causes the others, as far
// as known.
func (h *Host) Check(w Wanted) []Problem {
	ps, say := collect()
	devices := h.wanted(w)
	switch {
	case len(devices) > 0:
	case len(h.usable()) == 0 && len(h.Functions) > 0:
		for i := range h.Functions {
			h.checkFunction(&h.Functions[i], say)
		}
	case h.Exclusive && w.Device != "":
		say(DeviceInOtherNamespace, "the RDMA device %s is not in this network namespace, and the kernel shows each device in one namespace only (rdma system: netns exclusive): move it here, as the CNI plugin rdma does (rdma dev set %[1]s netns NAME)", w.Device)
	case h.Exclusive:
		say(DeviceInOtherNamespace, "no RDMA device is in this network namespace, and the kernel shows each device in one namespace only (rdma system: netns exclusive): move one here, as the CNI plugin rdma does (rdma dev set DEVICE netns NAME)")
	case w.Device != "":
		say(DeviceMissing, "there is no RDMA device %s: rdma link lists the present ones; load the adapter's driver", w.Device)
	default:
		say(DeviceMissing, "there is no RDMA device: load the adapter's driver, or create a software device (rdma link add siw0 type siw netdev eth0)")
	}
	if !h.Folder {
		say(DeviceNodeMissing, "there is no /dev/infiniband: load the modules ib_uverbs and rdma_ucm on the host; a container gets it from the SR-IOV device plugin, whose selector must set isRdma: true")
	} else if h.Manager != nil {
		sayNode(say, "/dev/infiniband/rdma_cm", "", h.Manager, "load the module rdma_ucm on the host, and give the file to the container")
	}
	*ps = append(*ps, h.checkDevices(devices, w)...)
	h.checkPartitions(devices, w, say)
	h.checkMemory(w.Memory, say)
	return *ps
}

// usable returns the RDMA devices of the functions that the SR-IOV device plugin gave to this
// container.
func (h *Host) usable() (names []string) {
	for i := range h.Functions {
		if name := h.Functions[i].RDMA; name != "" {
			names = append(names, name)
		}
	}
	return names
}

// wanted returns the present devices that may serve. In RDMA namespace mode shared a container sees
// all devices of the host, but may use only those of its functions.
func (h *Host) wanted(w Wanted) []Device {
	mine := h.usable()
	return slices.DeleteFunc(slices.Clone(h.Devices), func(d Device) bool {
		if w.Device != "" {
			return d.Name != w.Device
		}
		return len(h.Functions) > 0 && !slices.Contains(mine, d.Name)
	})
}

// checkFunction explains why a function has no RDMA device in this network namespace.
func (h *Host) checkFunction(f *Function, say report) {
	gives := fmt.Sprintf("%s gives %s to this container", f.Variable, f.ID)
	switch {
	case !f.Present:
		say(FunctionWithoutDevice, "%s, but the host has no such device: it was removed, or the virtual functions were created again. Delete the pod, so that the plugin assigns another one", gives)
	case f.Driver == "":
		say(FunctionWithoutDevice, "%s, but the device has no driver: bind it to the adapter's driver on the node (echo %s > /sys/bus/pci/drivers/mlx5_core/bind, for mlx5)", gives, f.ID)
	case strings.HasPrefix(f.Driver, "vfio") || strings.Contains(f.Driver, "uio"):
		say(FunctionWithoutDevice, "%s, but its driver is %s, for programs that drive adapters themselves: bind it to the adapter's driver on the node, and name that in the selectors of the plugin's resource (drivers)", gives, f.Driver)
	case h.Exclusive:
		device := "its RDMA device"
		if f.Device != "" {
			device += " " + f.Device
		}
		say(DeviceInOtherNamespace, "%s, but %s is not in this network namespace, and the kernel shows each device in one namespace only (rdma system: netns exclusive): add the CNI plugin rdma to the network (sriov.network.rdmaCNI of the chart)", gives, device)
	default:
		say(FunctionWithoutDevice, "%s, but its driver %s has no RDMA device for it: load the driver's RDMA module on the node (mlx5_ib, irdma, bnxt_re), check that RDMA is enabled for the function (devlink dev param show), "+
			"and set isRdma: true in the selectors of the plugin's resource, so that it leaves out such functions", gives, f.Driver)
	}
}

// checkDevices checks devices. If one of them is usable, it ignores the problems of the others.
func (h *Host) checkDevices(devices []Device, w Wanted) (ps []Problem) {
	for i := range devices {
		own, say := collect()
		h.checkDevice(&devices[i], w, say)
		if len(*own) == 0 {
			return nil
		}
		ps = append(ps, *own...)
	}
	return ps
}

func (h *Host) checkDevice(d *Device, w Wanted, say report) {
	if d.Removing {
		say(DeviceMissing, "the RDMA device %s is being removed, and the kernel waits for the programs that have it open: end them (lsof | grep uverbs, on the node). A pod gets another device when it is deleted", d.Name)
		return
	}
	if d.Open != nil && d.Verbs == "" {
		say(DeviceNodeMissing, "%s has no character device: %v", d.Name, d.Open)
	} else if d.Open != nil && h.Folder {
		sayNode(say, "/dev/infiniband/"+d.Verbs, " of "+d.Name, d.Open, "give the file to the container: the selectors of the SR-IOV device plugin's resource need isRdma: true")
	}
	h.checkState(d, w.Address, w.Interface, say)
	d.checkGIDTypes(w.Address, say)
	if d.Transport() != "RoCE" || !w.Address.IsValid() || w.Address.IsUnspecified() || d.has(w.Address) {
		return
	}
	for _, p := range d.Ports {
		if w.Interface == "" || w.Interface != p.link() {
			continue
		}
		if len(p.GIDs) >= p.Table && p.Table > 0 {
			say(GIDMissing, "%s has no GID for the address %s, since the GID table of port %d is full (%d entries): remove addresses from %s, or use fewer virtual IPs for a gateway", d.Name, w.Address, p.Number, p.Table, w.Interface)
		} else {
			say(GIDMissing, "%s has no GID for the address %s yet, although %s has the address: the kernel adds one while the interface is up. If it does not within seconds, look for errors of the adapter's driver in the node's log (dmesg), and make the address new (ip addr del, ip addr add)",
				d.Name, w.Address, w.Interface)
		}
		return
	}
	on := "no interface here has that address"
	if w.Interface != "" {
		on = "it is on " + w.Interface
	}
	say(GIDMissing, "%s has no GID for the address %s (%s): the address must be on the device's own network interface, or a VLAN of it, in this network namespace", d.Name, w.Address, on)
}

// checkGIDTypes finds an address (any GID without one) that has a GID for RoCE version 1 only. That
// version is not routed, and Linux dials version 2 by default.
func (d *Device) checkGIDTypes(address netip.Addr, say report) {
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
		say(RoCEv1Only, "the GID of %s for %s is RoCE v1 only, which is not routed, and which RoCE v2 clients cannot reach: enable RoCE v2 on the adapter", d.Name, first)
	}
}

func (d *Device) has(a netip.Addr) bool {
	return slices.ContainsFunc(d.Ports, func(p Port) bool {
		return slices.ContainsFunc(p.GIDs, func(g GID) bool { return g.Address == a.Unmap().WithZone("") })
	})
}

// checkState checks the device and its ports for an address and an interface.
func (h *Host) checkState(d *Device, address netip.Addr, link string, say report) {
	if strings.Trim(d.GUID, "0:") == "" {
		say(DeviceNotUsable, "the node GUID of %s is 0, so the connection manager cannot use it: set a MAC for the virtual function on its host (ip link set PF vf N mac ADDRESS), then rebind its driver", d.Name)
	}
	ports := d.portsFor(address, link)
	if slices.ContainsFunc(ports, func(p Port) bool { return p.State == "ACTIVE" }) {
		return // one active port is enough
	}
	for _, p := range ports {
		own := cmp.Or(p.link(), link)
		at, known := h.Interfaces[own]
		switch {
		case known && !at.Up:
			say(PortDown, "port %d of %s is %s, because its network interface %s is down: bring it up (ip link set %[4]s up)", p.Number, d.Name, p.State, own)
		case known && !at.Carrier:
			say(PortDown, "port %d of %s is %s, because its network interface %s has no carrier: check cable and switch, and for a virtual function the link of its physical one (ip link set PF vf N state auto)", p.Number, d.Name, p.State, own)
		default:
			say(PortDown, "port %d of %s is %s: bring its network interface up (ip link set NAME up), and check cable and switch", p.Number, d.Name, p.State)
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

func (h *Host) checkMemory(need uint64, say report) {
	if h.IPCLock || h.MemLock >= max(need, leastMemory) {
		return
	}
	needs := fmt.Sprintf("at least %s", size(leastMemory))
	if need > 0 {
		needs = "up to " + size(need)
	}
	say(DeviceNotUsable, "this process may lock %s of memory, and RDMA needs %s: raise the memlock limit (ulimit -l, or LimitMEMLOCK= in systemd), or grant the process the capability IPC_LOCK", size(h.MemLock), needs)
}

func size(n uint64) string {
	if n < 1<<20 {
		return fmt.Sprintf("%d KiB", (n+1<<10-1)>>10)
	}
	return fmt.Sprintf("%d MiB", (n+1<<20-1)>>20)
}

// leastMemory is the minimum for a connection: one arena of buffers.
const leastMemory = 16 << 20

// sayNode reports a device file that does not open. of follows the file's name, missing is the
// remedy if there is no such file.
func sayNode(say report, file, of string, err error, missing string) {
	switch {
	case errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ENXIO) || errors.Is(err, syscall.ENODEV):
		say(DeviceNodeMissing, "there is no %s%s: %s", file, of, missing)
	case errors.Is(err, syscall.EPERM):
		say(DeviceNodeDenied, "%s%s cannot be opened (%v): the container's devices cgroup denies it. Request the device by its resource (rdma.devices of the NFSGateway), so that its plugin has it allowed", file, of, err)
	case errors.Is(err, syscall.EACCES):
		say(DeviceNodeDenied, "%s%s cannot be opened (%v): this process needs read and write permission. Check the file's mode on the node, and, with SELinux, the node's audit log (ausearch -m avc): setsebool -P container_use_devices on allows containers to use devices", file, of, err)
	default:
		say(DeviceNotUsable, "%s%s cannot be opened (%v)", file, of, err)
	}
}
