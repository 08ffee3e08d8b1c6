package doctor

import (
	"errors"
	"maps"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/rdma/verbs"
)

var address = netip.MustParseAddr("10.0.0.5")

// adapter returns a working RoCE device.
func adapter(change func(*Device)) Device {
	d := Device{Name: "mlx5_4", GUID: "5054:00ff:fe12:3456", Verbs: "uverbs0", Ports: []Port{{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", GIDs: []GID{
		{Index: 0, Address: netip.MustParseAddr("fe80::1"), Interface: "net1", Type: "RoCE v2"},
		{Index: 1, Address: address, Interface: "net1", Type: "RoCE v2"},
	}}}}
	change(&d)
	return d
}

func host(change func(*Host), devices ...Device) *Host {
	h := &Host{Folder: true, MemLock: Unlimited, Devices: devices}
	change(h)
	return h
}

func same[T any](*T) {}

// assigned is a function of the device plugin, with its driver and its RDMA device.
func assigned(driver, device string) Function {
	return Function{Assigned: verbs.Assigned{Variable: "PCIDEVICE_A", ID: "0000:3b:02.1"}, Present: true, Driver: driver, RDMA: device}
}

// lines returns problems as lines with their reasons.
func lines(ps []Problem) (all []string) {
	for _, p := range ps {
		all = append(all, p.Reason+": "+p.Message)
	}
	return all
}

// compare checks that each sentence contains its words.
func compare(t *testing.T, got, want []string) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("got %q, want %d", got, len(want))
	}
	for i, w := range want {
		for word := range strings.SplitSeq(w, "|") {
			if !strings.Contains(got[i], word) {
				t.Errorf("%q says nothing of %q", got[i], word)
			}
		}
	}
}

func TestHostCheck(t *testing.T) {
	good := adapter(same)
	on := Wanted{Device: "mlx5_4", Address: address, Interface: "net1", Memory: 768 << 20}
	for _, c := range []struct {
		name string
		host *Host
		want Wanted
		says []string
	}{
		{name: "all is well", host: host(same, good), want: on},
		{name: "any device, any address", host: host(same, good), want: Wanted{Address: netip.IPv6Unspecified()}},
		{name: "no folder", host: host(func(h *Host) { h.Folder, h.Manager = false, syscall.ENOENT }, adapter(func(d *Device) { d.Open = syscall.ENOENT })), want: on,
			says: []string{"DeviceNodeMissing: there is no /dev/infiniband:|isRdma|rdma_ucm"}},
		{name: "no connection manager", host: host(func(h *Host) { h.Manager = syscall.ENOENT }, good), want: on, says: []string{"DeviceNodeMissing: there is no /dev/infiniband/rdma_cm|rdma_ucm"}},
		{name: "manager not allowed", host: host(func(h *Host) { h.Manager = syscall.EPERM }, good), want: on, says: []string{"DeviceNodeDenied: /dev/infiniband/rdma_cm cannot be opened|not permitted|cgroup|rdma.devices"}},
		{name: "device not allowed", host: host(same, adapter(func(d *Device) { d.Open = syscall.EACCES })), want: on, says: []string{"DeviceNodeDenied: /dev/infiniband/uverbs0 of mlx5_4 cannot be opened|denied|container_use_devices"}},
		{name: "no character device", host: host(same, adapter(func(d *Device) { d.Verbs, d.Open = "", errors.New("the module ib_uverbs is not loaded") })), want: on, says: []string{"DeviceNodeMissing: mlx5_4|ib_uverbs"}},
		{name: "no device at all", host: host(same), says: []string{"DeviceMissing: there is no RDMA device:|driver|siw"}},
		{name: "another one", host: host(same, good), want: Wanted{Device: "mlx5_5"}, says: []string{"DeviceMissing: there is no RDMA device mlx5_5"}},
		{name: "in another namespace", host: host(func(h *Host) { h.Exclusive = true }, good), want: Wanted{Device: "mlx5_5"}, says: []string{"DeviceInOtherNamespace: the RDMA device mlx5_5 is not in this network namespace|exclusive|rdma dev set mlx5_5 netns"}},
		{name: "all in other namespaces", host: host(func(h *Host) { h.Exclusive = true }), says: []string{"DeviceInOtherNamespace: no RDMA device is in this network namespace"}},
		{name: "exclusive, and here", host: host(func(h *Host) { h.Exclusive = true }, good), want: on},
		{name: "no node GUID", host: host(same, adapter(func(d *Device) { d.GUID = "0000:0000:0000:0000" })), want: on, says: []string{"DeviceNotUsable: the node GUID of mlx5_4 is 0|vf N mac"}},
		{name: "port down", host: host(same, adapter(func(d *Device) { d.Ports[0].State = "DOWN" })), want: on, says: []string{"PortDown: port 1 of mlx5_4 is DOWN|ip link set NAME up"}},
		{name: "port down, with its interface", host: host(func(h *Host) { h.Interfaces = map[string]Interface{"net1": {MTU: 1500}} }, adapter(func(d *Device) { d.Ports[0].State = "DOWN" })), want: on,
			says: []string{"PortDown: port 1 of mlx5_4 is DOWN, because its network interface net1 is down|ip link set net1 up"}},
		{name: "port down, for want of a carrier", host: host(func(h *Host) { h.Interfaces = map[string]Interface{"net1": {MTU: 1500, Up: true}} }, adapter(func(d *Device) { d.Ports[0].State = "DOWN" })), want: on,
			says: []string{"PortDown: port 1 of mlx5_4 is DOWN, because its network interface net1 has no carrier|cable|state auto"}},
		{name: "no GID", host: host(same, adapter(func(d *Device) { d.Ports[0].GIDs = d.Ports[0].GIDs[:1] })), want: on, says: []string{"GIDMissing: mlx5_4 has no GID for the address 10.0.0.5 yet, although net1 has the address"}},
		{name: "a full table", host: host(same, adapter(func(d *Device) { d.Ports[0].GIDs, d.Ports[0].Table = d.Ports[0].GIDs[:1], 1 })), want: on, says: []string{"GIDMissing: mlx5_4 has no GID for the address 10.0.0.5|table of port 1 is full (1 entries)"}},
		{name: "no GID, another interface", host: host(same, adapter(func(d *Device) { d.Ports[0].GIDs = d.Ports[0].GIDs[:1] })), want: Wanted{Device: "mlx5_4", Address: address, Interface: "eth0"},
			says: []string{"GIDMissing: mlx5_4 has no GID for the address 10.0.0.5 (it is on eth0)"}},
		{name: "nobody's address", host: host(same, adapter(func(d *Device) { d.Ports[0].GIDs = nil })), want: Wanted{Device: "mlx5_4", Address: address}, says: []string{"GIDMissing: |no interface here has that address"}},
		{name: "iWARP has no such GIDs", host: host(same, adapter(func(d *Device) { d.IWARP, d.Ports[0].GIDs = true, nil })), want: on},
		{name: "nor has InfiniBand", host: host(same, adapter(func(d *Device) { d.Ports[0].LinkLayer, d.Ports[0].GIDs = "InfiniBand", nil })), want: on},
		{name: "memlock", host: host(func(h *Host) { h.MemLock = 8 << 20 }, good), want: on, says: []string{"DeviceNotUsable: |may lock 8 MiB|up to 768 MiB|IPC_LOCK|memlock"}},
		{name: "memlock, need unknown", host: host(func(h *Host) { h.MemLock = 64 << 10 }, good), says: []string{"may lock 64 KiB|16 MiB"}},
		{name: "memlock large enough", host: host(func(h *Host) { h.MemLock = 768 << 20 }, good), want: on},
		{name: "the capability", host: host(func(h *Host) { h.MemLock, h.IPCLock = 8<<20, true }, good), want: on},
		{name: "one cable, any device", host: host(same, adapter(func(d *Device) { d.Name, d.Ports[0].State = "mlx5_3", "DOWN" }), good), want: Wanted{Address: netip.IPv6Unspecified()}},
		{name: "one cable, the address on the other", host: host(same, adapter(func(d *Device) { d.Name, d.Ports[0].State, d.Ports[0].GIDs = "mlx5_3", "DOWN", nil }), good),
			want: Wanted{Address: address, Interface: "net1"}},
		{name: "no cable", host: host(same, adapter(func(d *Device) { d.Name, d.Ports[0].State = "mlx5_3", "DOWN" }), adapter(func(d *Device) { d.Ports[0].State = "DOWN" })),
			says: []string{"port 1 of mlx5_3 is DOWN", "port 1 of mlx5_4 is DOWN"}},
		{name: "two ports, one cable", host: host(same, adapter(func(d *Device) { d.Ports = append(d.Ports, Port{Number: 2, State: "DOWN", LinkLayer: "Ethernet"}) })), want: on},
		{name: "two ports, the cable in the other", host: host(same, adapter(func(d *Device) {
			d.Ports[0].State = "DOWN"
			d.Ports = append(d.Ports, Port{Number: 2, State: "ACTIVE", LinkLayer: "Ethernet"})
		})), want: on, says: []string{"port 1 of mlx5_4 is DOWN"}},
		{name: "RoCE v1 alone", host: host(same, adapter(func(d *Device) { d.Ports[0].GIDs[1].Type = "IB/RoCE v1" })), want: on, says: []string{"RoCEv1Only: |mlx5_4 for 10.0.0.5 is RoCE v1 only|RoCE v2"}},
		{name: "both versions of RoCE", host: host(same, adapter(func(d *Device) {
			d.Ports[0].GIDs = append(d.Ports[0].GIDs, GID{Index: 2, Address: address, Interface: "net1", Type: "IB/RoCE v1"})
		})), want: on},
		{name: "several", host: host(func(h *Host) { h.MemLock = 0 }, adapter(func(d *Device) { d.GUID, d.Ports[0].State = "", "INIT" })), want: on,
			says: []string{"node GUID", "is INIT", "may lock 0 KiB"}},
		{name: "the function's own", host: host(func(h *Host) { h.Functions = []Function{assigned("mlx5_core", "mlx5_4")} }, adapter(func(d *Device) { d.Name, d.Open = "mlx5_0", syscall.ENOENT }), good), want: Wanted{Address: address, Interface: "net1"}},
		{name: "other devices of the host count for nothing", host: host(func(h *Host) { h.Functions = []Function{assigned("mlx5_core", "")} }, adapter(func(d *Device) { d.Name = "mlx5_0" })),
			says: []string{"FunctionWithoutDevice: PCIDEVICE_A gives 0000:3b:02.1|its driver mlx5_core has no RDMA device|mlx5_ib|isRdma"}},
		{name: "a function of vfio", host: host(func(h *Host) { h.Functions = []Function{assigned("vfio-pci", "")} }), says: []string{"FunctionWithoutDevice: |its driver is vfio-pci|drivers"}},
		{name: "a function without a driver", host: host(func(h *Host) { h.Functions = []Function{assigned("", "")} }), says: []string{"FunctionWithoutDevice: |has no driver|0000:3b:02.1 > "}},
		{name: "a function that is gone", host: host(func(h *Host) {
			h.Functions = []Function{{Assigned: verbs.Assigned{Variable: "PCIDEVICE_A", ID: "0000:3b:02.1"}}}
		}), want: Wanted{Device: "mlx5_4"},
			says: []string{"FunctionWithoutDevice: |no such device|Delete the pod"}},
		{name: "a function's device in another namespace", host: host(func(h *Host) {
			f := assigned("mlx5_core", "")
			f.Device = "mlx5_4"
			h.Functions, h.Exclusive = []Function{f}, true
		}), says: []string{"DeviceInOtherNamespace: PCIDEVICE_A gives 0000:3b:02.1|its RDMA device mlx5_4 is not in this network namespace|rdmaCNI"}},
		{name: "two functions, one of RDMA", host: host(func(h *Host) { h.Functions = []Function{assigned("vfio-pci", ""), assigned("mlx5_core", "mlx5_4")} }, good), want: on},
	} {
		t.Run(c.name, func(t *testing.T) { compare(t, lines(c.host.Check(c.want)), c.says) })
	}
}

func TestClientCheck(t *testing.T) {
	server := netip.MustParseAddrPort("10.0.0.9:20049")
	loaded := []Module{{"rpcrdma", true, true}, {"siw", false, true}}
	siw := Device{Name: "siw0", IWARP: true, GUID: "1", Ports: []Port{{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet",
		GIDs: []GID{{Address: netip.MustParseAddr("5254:0012:3456::")}}}}}
	client := func(change func(*Client), devices ...Device) *Client {
		c := &Client{Host: host(same, devices...), Server: server, Modules: loaded, From: address, Interface: "net1"}
		if len(devices) > 0 {
			c.On = devices[0].Name
		}
		change(c)
		return c
	}
	for _, c := range []struct {
		name   string
		client *Client
		says   []string
	}{
		{name: "RoCE, where TCP tells nothing", client: client(func(c *Client) { c.Dial = syscall.ECONNREFUSED }, adapter(same))},
		{name: "siw", client: client(same, siw)},
		{name: "siw of a later kernel", client: client(same, adapter(func(d *Device) { d.IWARP = true }))},
		{name: "module not loaded", client: client(func(c *Client) { c.Modules = []Module{{"rpcrdma", false, true}, {"siw", false, false}} }, siw), says: []string{"rpcrdma is not loaded: modprobe rpcrdma"}},
		{name: "module missing", client: client(func(c *Client) { c.Modules = []Module{{"rpcrdma", false, false}, {"siw", false, false}} }, siw), says: []string{"no module rpcrdma|linux-modules-extra"}},
		{name: "no route", client: client(func(c *Client) { c.NoRoute, c.Dial = syscall.ENETUNREACH, syscall.ENETUNREACH }), says: []string{"no route leads to 10.0.0.9|unreachable"}},
		{name: "no device", client: client(func(c *Client) { c.Modules = []Module{{"rpcrdma", true, true}, {"siw", false, false}} }), says: []string{"no RDMA device:|has no siw"}},
		{name: "device elsewhere", client: client(func(c *Client) { c.Interface, c.On = "eth0", "" }, adapter(same)), says: []string{"uses eth0, which has no RDMA device|mlx5_4|siw netdev eth0"}},
		{name: "port down", client: client(same, adapter(func(d *Device) { d.Ports[0].State = "DOWN" })), says: []string{"port 1 of mlx5_4 is DOWN"}},
		{name: "refused", client: client(func(c *Client) { c.Dial = syscall.ECONNREFUSED }, siw), says: []string{"nothing listens on 10.0.0.9:20049"}},
		{name: "silent", client: client(func(c *Client) { c.Dial = syscall.ETIMEDOUT }, siw), says: []string{"10.0.0.9:20049 does not answer|TCP port 20049"}},
	} {
		t.Run(c.name, func(t *testing.T) { compare(t, lines(c.client.Check()), c.says) })
	}
}

func TestReadDevices(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n"), ModTime: time.Time{}} }
	const dev = "class/infiniband/rxe0/"
	sys := fstest.MapFS{
		"class/infiniband_verbs/abi_version":   file("6"),
		"class/infiniband_verbs/uverbs3/ibdev": file("rxe0"),
		dev + "node_type":                      file("1: CA"),
		dev + "node_guid":                      file("5054:00ff:fe12:3456"),
		dev + "ports/1/state":                  file("4: ACTIVE"),
		dev + "ports/1/link_layer":             file("Ethernet"),
		dev + "ports/1/gids/0":                 file("fe80:0000:0000:0000:5054:00ff:fe12:3456"),
		dev + "ports/1/gids/1":                 file("0000:0000:0000:0000:0000:ffff:0a00:020f"),
		dev + "ports/1/gids/2":                 file("0000:0000:0000:0000:0000:0000:0000:0000"),
		dev + "ports/1/gids/10":                file("fd00:0000:0000:0000:0000:0000:0000:0001"),
		dev + "ports/1/gid_attrs/ndevs/1":      file("eth0"),
		dev + "ports/1/gid_attrs/types/1":      file("RoCE v2"),
		"class/infiniband/siw0/node_type":      file("4: RNIC"),
	}
	opened := ""
	got := readDevices(sys, func(file string) error { opened += file; return syscall.EPERM })
	want := []Device{
		{Name: "rxe0", GUID: "5054:00ff:fe12:3456", Verbs: "uverbs3", Open: syscall.EPERM, Ports: []Port{{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", Table: 4, GIDs: []GID{
			{Index: 0, Address: netip.MustParseAddr("fe80::5054:ff:fe12:3456")},
			{Index: 1, Address: netip.MustParseAddr("10.0.2.15"), Interface: "eth0", Type: "RoCE v2"},
			{Index: 10, Address: netip.MustParseAddr("fd00::1")},
		}}}},
		{Name: "siw0", IWARP: true, Removing: true},
	}
	errs := cmp.Comparer(func(a, b error) bool { return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error()) })
	if d := cmp.Diff(want, got, errs, cmp.Comparer(func(a, b netip.Addr) bool { return a == b })); d != "" {
		t.Error(d)
	}
	if opened != "/dev/infiniband/uverbs3" {
		t.Errorf("opened %s", opened)
	}
	if got[0].Transport() != "RoCE" || got[1].Transport() != "iWARP" {
		t.Errorf("%s and %s", got[0].Transport(), got[1].Transport())
	}
	maps.DeleteFunc(sys, func(name string, _ *fstest.MapFile) bool { return strings.HasPrefix(name, "class/infiniband_verbs/") })
	if d := readDevices(sys, nil)[1]; d.Removing || d.Open == nil || d.Open.Error() != "the module ib_uverbs is not loaded" {
		t.Errorf("without the module: %+v", d)
	}
}

func TestReadModules(t *testing.T) {
	lib := fstest.MapFS{
		"6.1/modules.dep":     {Data: []byte("kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz: kernel/net/sunrpc/sunrpc.ko.xz\n")},
		"6.1/modules.builtin": {Data: []byte("kernel/drivers/infiniband/sw/siw/siw.ko\n")},
	}
	want := []Module{{"rpcrdma", true, true}, {"siw", false, true}}
	if got := readModules(fstest.MapFS{"module/rpcrdma": {}}, lib, "6.1"); !cmp.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := readModules(fstest.MapFS{}, lib, "6.2"); !cmp.Equal(got, []Module{{Name: "rpcrdma"}, {Name: "siw"}}) {
		t.Errorf("%v, want none", got)
	}
}

func TestInterfaceOf(t *testing.T) {
	if link, err := InterfaceOf(netip.MustParseAddr("127.0.0.1")); err != nil || link != "lo" {
		t.Errorf("%q, %v; want lo", link, err)
	}
	if link, err := InterfaceOf(netip.IPv4Unspecified()); err != nil || link != "" {
		t.Errorf("%q, %v; want any", link, err)
	}
	if link, err := InterfaceOf(netip.MustParseAddr("192.0.2.1")); err == nil || !errors.Is(err, syscall.EADDRNOTAVAIL) {
		t.Errorf("%q, %v; want none", link, err)
	}
}

func TestInterfaceFor(t *testing.T) {
	for address, want := range map[string]string{"127.9.9.9": "lo", "::ffff:127.9.9.9": "lo", "0.0.0.0": "", "2001:db8::1": ""} {
		if link := InterfaceFor(netip.MustParseAddr(address)); link != want {
			t.Errorf("%s lies in the network of %q, want %q", address, link, want)
		}
	}
}
