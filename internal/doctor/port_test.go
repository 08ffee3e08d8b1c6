package doctor

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"sluice.dev/sluice/pkg/rdma/verbs"
)

func TestPacketMTU(t *testing.T) {
	for link, want := range map[int]int{0: 0, 351: 0, 352: 256, 1119: 512, 1120: 1024, 1500: 1024, 4191: 2048, 4192: 4096, 9000: 4096} {
		if got := packetMTU(link); got != want {
			t.Errorf("%d on an interface with an MTU of %d, want %d", got, link, want)
		}
	}
}

// infiniBand returns a working adapter with an interface ib0.8001.
func infiniBand(change func(*Port)) *Host {
	p := Port{Number: 1, State: "ACTIVE", LinkLayer: "InfiniBand", PKeys: []uint16{0x7fff, 0x8001}, MTU: 4096, MaxMTU: 4096}
	change(&p)
	return host(func(h *Host) {
		h.Interfaces = map[string]Interface{"ib0": {MTU: 2044, PKey: 0xffff}, "ib0.8001": {MTU: 2044, PKey: 0x8001}}
	}, Device{Name: "mlx5_0", GUID: "1", Verbs: "uverbs0", Ports: []Port{p}})
}

func TestPartitions(t *testing.T) {
	for _, c := range []struct {
		name, link string
		host       *Host
		says       []string
	}{
		{name: "a partition", link: "ib0.8001", host: infiniBand(same)},
		{name: "a limited member", link: "ib0", host: infiniBand(same)},
		{name: "not known", link: "ib0.8001", host: infiniBand(func(p *Port) { p.PKeys = nil })},
		{name: "any interface", host: infiniBand(func(p *Port) { p.PKeys = []uint16{0x8002} })},
		{name: "another partition", link: "ib0.8001", host: infiniBand(func(p *Port) { p.PKeys = []uint16{0xffff, 0x8002} }),
			says: []string{"no port of mlx5_0 has the partition key 0x8001|ib0.8001|subnet manager"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			compare(t, lines(c.host.Check(Wanted{Device: "mlx5_0", Interface: c.link})), c.says)
		})
	}
}

func TestNotes(t *testing.T) {
	// roce returns an adapter on net1 and on net1.5, which has address.
	roce := func(net1, vlan int, change func(*Device)) *Host {
		h := host(func(h *Host) { h.Interfaces = map[string]Interface{"net1": {MTU: net1}, "net1.5": {MTU: vlan}} }, adapter(func(d *Device) {
			d.Ports[0].GIDs[1].Interface = "net1.5"
			change(d)
		}))
		h.measure(func(string) ([]verbs.PortMTU, error) { panic("RoCE needs no device") })
		return h
	}
	ib := infiniBand
	on := Wanted{Device: "mlx5_4", Address: address, Interface: "net1.5"}
	for _, c := range []struct {
		name string
		host *Host
		want Wanted
		says []string
	}{
		{name: "standard frames", host: roce(1500, 1500, same), want: on},
		{name: "jumbo frames", host: roce(9000, 9000, same), want: on},
		{name: "any device", host: roce(9000, 9000, same)},
		{name: "another device", host: roce(1000, 1000, same), want: Wanted{Device: "mlx5_5"}},
		{name: "small frames", host: roce(1000, 1000, same), want: on, says: []string{"port 1 of mlx5_4 is 512|net1 to 1500"}},
		{name: "jumbo frames that are too small", host: roce(4096, 4096, same), want: on, says: []string{"port 1 of mlx5_4 is 2048|MTU of net1 is 4096|4192 or more"}},
		{name: "the VLAN differs", host: roce(9000, 1500, same), want: on, says: []string{"from net1.5 have a path MTU of 1024 (its MTU is 1500)|port 1 of mlx5_4 is 4096"}},
		{name: "the VLAN of another address", host: roce(9000, 1500, same), want: Wanted{Device: "mlx5_4", Interface: "net1"}},
		{name: "port down", host: roce(1000, 1000, func(d *Device) { d.Ports[0].State = "DOWN" }), want: on},
		{name: "iWARP", host: roce(1000, 1000, func(d *Device) { d.IWARP = true }), want: on},
		{name: "no interface", host: roce(0, 0, same), want: Wanted{Device: "mlx5_4"}},
		{name: "InfiniBand", host: ib(same)},
		{name: "InfiniBand with a small MTU", host: ib(func(p *Port) { p.MTU = 2048 }), says: []string{"port 1 of mlx5_0 is 2048|up to 4096|subnet manager"}},
		{name: "InfiniBand that has no more", host: ib(func(p *Port) { p.MTU, p.MaxMTU = 2048, 2048 })},
		{name: "InfiniBand not built", host: ib(func(p *Port) { p.MTU, p.MaxMTU = 0, 0 })},
		{name: "limited member", host: ib(func(p *Port) { p.PKeys = []uint16{0x7fff} }), says: []string{"port 1 of mlx5_0 is a limited member"}},
	} {
		t.Run(c.name, func(t *testing.T) { compare(t, c.host.Notes(c.want), c.says) })
	}
}

func TestClientNotes(t *testing.T) {
	client := func(link, route int) *Client {
		c := &Client{Host: host(func(h *Host) { h.Interfaces = map[string]Interface{"net1": {MTU: link}} }, adapter(same)),
			Server: netip.MustParseAddrPort("10.0.0.9:20049"), From: address, Interface: "net1", On: "mlx5_4", RouteMTU: route}
		c.measure(func(string) ([]verbs.PortMTU, error) { return nil, nil })
		return c
	}
	compare(t, client(9000, 9000).Notes(), nil)
	compare(t, client(9000, 0).Notes(), nil)
	compare(t, client(9000, 4200).Notes(), nil)
	compare(t, client(9000, 1500).Notes(), []string{"the route to 10.0.0.9 takes packets of 1500 bytes|mlx5_4 sends payloads up to 4096|needs 4192|net1 (9000)"})
	compare(t, client(2000, 2000).Notes(), []string{"port 1 of mlx5_4 is 1024"})
	nowhere := client(9000, 1500)
	nowhere.On = ""
	compare(t, nowhere.Notes(), nil)
}

// TestMeasure reads InfiniBand and RoCE devices from a fake sysfs.
func TestMeasure(t *testing.T) {
	file := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s + "\n")} }
	sys := fstest.MapFS{
		"class/infiniband/mlx5_0/ports/1/link_layer":        file("InfiniBand"),
		"class/infiniband/mlx5_0/ports/1/pkeys/0":           file("0xffff"),
		"class/infiniband/mlx5_0/ports/1/pkeys/1":           file("0x8001"),
		"class/infiniband/mlx5_0/ports/1/pkeys/2":           file("0x0000"),
		"class/infiniband/mlx5_1/ports/1/link_layer":        file("Ethernet"),
		"class/infiniband/mlx5_1/ports/1/gids/0":            file("fe80:0000:0000:0000:0000:0000:0000:0001"),
		"class/infiniband/mlx5_1/ports/1/gid_attrs/ndevs/0": file("net1"),
		"class/infiniband/siw0/node_type":                   file("4: RNIC"),
		"class/infiniband/siw0/ports/1/link_layer":          file("Ethernet"),
		"class/net/net1/mtu":                                file("9000"),
		"class/net/ib0.8001/mtu":                            file("2044"),
		"class/net/ib0.8001/pkey":                           file("0x8001"),
		"class/net/bonding_masters":                         file("bond0"),
	}
	h := readHost(sys, nil, func(string) error { return syscall.ENOENT })
	want := map[string]Interface{"net1": {MTU: 9000}, "ib0.8001": {MTU: 2044, PKey: 0x8001}}
	if d := cmp.Diff(want, h.Interfaces); d != "" {
		t.Error(d)
	}
	if got := h.Devices[0].Ports[0].PKeys; !cmp.Equal(got, []uint16{0x8001, 0xffff}) {
		t.Errorf("partition keys %#04x", got)
	}
	var asked []string
	h.measure(func(device string) ([]verbs.PortMTU, error) {
		asked = append(asked, device)
		return []verbs.PortMTU{{Port: 2, Active: 256, Max: 256}, {Port: 1, Active: 2048, Max: 4096}}, nil
	})
	if !cmp.Equal(asked, []string{"mlx5_0"}) {
		t.Errorf("asked %q", asked)
	}
	for i, want := range [][2]int{{2048, 4096}, {4096, 0}, {0, 0}} {
		if p := h.Devices[i].Ports[0]; p.MTU != want[0] || p.MaxMTU != want[1] {
			t.Errorf("%s: MTU %d of %d, want %v", h.Devices[i].Name, p.MTU, p.MaxMTU, want)
		}
	}
	h.measure(func(string) ([]verbs.PortMTU, error) { return nil, errors.New("no such device") })
}
