package netif

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/internal/speaker/api"
	"sluice.dev/sluice/test/prereq"
)

var ip4, ip6 = netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("fd00::10")

// namespace moves the test to a network namespace of its own, with an interface rdma0 in
// 192.0.2.0/24 and fd00::/64 and an interface eth0. The test's thread is not used again.
func namespace(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); errors.Is(err, unix.EPERM) {
		runtime.UnlockOSThread()
		prereq.Missing(t, "making a network namespace wants root: %v", err)
	} else if err != nil {
		t.Fatal(err)
	}
	up(t, "lo")
	for name, addrs := range map[string][]string{"rdma0": {"192.0.2.100/24", "fd00::100/64"}, "eth0": {"10.0.0.1/24"}} {
		must(t, netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}))
		up(t, name+"p")
		l := up(t, name)
		for _, a := range addrs {
			addr, err := netlink.ParseAddr(a)
			must(t, err)
			addr.Flags = unix.IFA_F_NODAD
			must(t, netlink.AddrAdd(l, addr))
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func up(t *testing.T, name string) netlink.Link {
	t.Helper()
	l, err := netlink.LinkByName(name)
	must(t, err)
	must(t, netlink.LinkSetUp(l))
	return l
}

func find(t *testing.T) Device {
	t.Helper()
	d, err := Find("rdma0")
	if err != nil || !d.Up || d.Index == 0 {
		t.Fatalf("%+v, %v", d, err)
	}
	return d
}

// on returns the address as it is on an interface, nil if it is not there.
func on(t *testing.T, name string, ip netip.Addr) *netlink.Addr {
	t.Helper()
	l, err := netlink.LinkByName(name)
	must(t, err)
	all, err := netlink.AddrList(l, family(ip))
	must(t, err)
	for _, a := range all {
		if a.IP.Equal(ip.AsSlice()) {
			return &a
		}
	}
	return nil
}

func TestAddAndRemove(t *testing.T) {
	namespace(t)
	d := find(t)
	for range 2 { // existing addresses do no harm
		for _, ip := range []netip.Addr{ip4, ip6} {
			must(t, d.Add(ip, nil, []netip.Addr{netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("fd00::1")}))
		}
	}
	if a := on(t, "rdma0", ip4); a == nil || a.Scope != unix.RT_SCOPE_HOST {
		t.Errorf("%v on rdma0: %+v, want it with scope host", ip4, a)
	}
	if a := on(t, "lo", ip6); a == nil || a.Flags&unix.IFA_F_DEPRECATED == 0 {
		t.Errorf("%v on lo: %+v, want it deprecated", ip6, a)
	}
	for _, name := range []string{"rdma0", "eth0"} {
		for setting, want := range map[string]string{"arp_ignore": "3", "arp_announce": "2"} {
			if b, err := os.ReadFile(filepath.Join("/proc/sys/net/ipv4/conf", name, setting)); err != nil || strings.TrimSpace(string(b)) != want {
				t.Errorf("%s of %s: %q, %v; want %s", setting, name, b, err, want)
			}
		}
	}
	if all, err := Present(); err != nil || !slices.Contains(all, ip4) || !slices.Contains(all, ip6) || len(all) != 2 {
		t.Errorf("present: %v, %v", all, err)
	}
	// Packets from the address leave by rdma0 to any destination; packets from the pod's own
	// addresses are unaffected.
	for from, to := range map[string]string{"192.0.2.10": "192.0.2.50", "192.0.2.10 far": "198.51.100.1", "fd00::10": "fd00::50", "fd00::10 far": "2001:db8::1"} {
		src, _, _ := strings.Cut(from, " ")
		r, err := netlink.RouteGetWithOptions(netip.MustParseAddr(to).AsSlice(), &netlink.RouteGetOptions{SrcAddr: netip.MustParseAddr(src).AsSlice()})
		if err != nil || len(r) != 1 || r[0].LinkIndex != d.Index || (r[0].Gw != nil) != strings.Contains(from, "far") {
			t.Errorf("from %s to %s: %v, %v", from, to, r, err)
		}
	}
	if r, err := netlink.RouteGet(netip.MustParseAddr("192.0.2.50").AsSlice()); err != nil || r[0].Src.String() != "192.0.2.100" {
		t.Errorf("connections of the pod's own: %v, %v", r, err)
	}
	for range 2 {
		must(t, d.Remove(ip4))
		must(t, d.Remove(ip6))
	}
	if all, err := Present(); err != nil || len(all) != 0 || on(t, "rdma0", ip4) != nil || on(t, "lo", ip6) != nil {
		t.Errorf("after removal: %v, %v", all, err)
	}
}

// Connections of the address end with it, others do not.
func TestRemoveClosesConnections(t *testing.T) {
	namespace(t)
	d := find(t)
	own := netip.MustParseAddr("192.0.2.100")
	type conn struct {
		ip             netip.Addr
		client, server *net.TCPConn
	}
	l, err := net.Listen("tcp", ":0")
	must(t, err)
	defer l.Close()
	var conns []conn
	for _, ip := range []netip.Addr{ip4, ip6, own} {
		if ip != own {
			must(t, d.Add(ip, nil, nil))
		}
		to := net.TCPAddrFromAddrPort(netip.AddrPortFrom(ip, uint16(l.Addr().(*net.TCPAddr).Port)))
		c, err := net.DialTCP("tcp", nil, to)
		for end := time.Now().Add(time.Second); errors.Is(err, unix.ENETUNREACH) && time.Now().Before(end); {
			// The kernel makes the route to an address of IPv6 a moment after the address.
			c, err = net.DialTCP("tcp", nil, to)
		}
		must(t, err)
		defer c.Close()
		s, err := l.Accept()
		must(t, err)
		defer s.Close()
		conns = append(conns, conn{ip, c, s.(*net.TCPConn)})
	}
	must(t, d.Remove(ip4))
	must(t, d.Remove(ip6))
	for _, c := range conns {
		must(t, c.server.SetReadDeadline(time.Now().Add(100*time.Millisecond)))
		_, err := c.server.Read(make([]byte, 1))
		if timeout := errors.Is(err, os.ErrDeadlineExceeded); timeout != (c.ip == own) {
			t.Errorf("connection of %v: %v", c.ip, err)
		}
	}
}

// The network need not be the interface's own.
func TestNetworks(t *testing.T) {
	namespace(t)
	d := find(t)
	ip := netip.MustParseAddr("198.51.100.10")
	must(t, d.Add(ip, []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("fd77::/64")}, nil))
	r, err := netlink.RouteGetWithOptions(netip.MustParseAddr("198.51.100.50").AsSlice(), &netlink.RouteGetOptions{SrcAddr: ip.AsSlice()})
	if err != nil || r[0].LinkIndex != d.Index {
		t.Errorf("route %v, %v", r, err)
	}
}

func TestProblems(t *testing.T) {
	namespace(t)
	want := func(err error, reason, text string) {
		t.Helper()
		var p *api.Problem
		if !errors.As(err, &p) || p.Reason != reason || !strings.Contains(p.Message, text) {
			t.Errorf("%v, want %s with %q", err, reason, text)
		}
	}
	_, err := Find("rdma7")
	want(err, api.InterfaceMissing, "rdma7")
	_, err = Find("lo")
	want(err, api.NetworkNotLayer2, "loopback")
	d := find(t)
	must(t, os.WriteFile("/proc/sys/net/ipv6/conf/lo/disable_ipv6", []byte("1"), 0))
	want(d.Add(ip6, nil, nil), api.DeviceAddressLimit, "fd00::10")
	if all, err := Present(); err != nil || len(all) != 0 {
		t.Errorf("a refused address is left behind: %v, %v", all, err)
	}
	l := up(t, "rdma0")
	must(t, netlink.LinkSetARPOff(l))
	_, err = Find("rdma0")
	want(err, api.NetworkNotLayer2, "ARP off")
	must(t, netlink.LinkSetARPOn(l))
	must(t, netlink.LinkSetDown(l))
	if d, err := Find("rdma0"); err != nil || d.Up {
		t.Errorf("an interface that is down: %+v, %v", d, err)
	}
}

func TestGIDs(t *testing.T) {
	sys := t.TempDir()
	put := func(name, text string) {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(sys, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(sys, name), []byte(text), 0o600))
	}
	if d := RDMADevice(sys, "rdma0"); d != "" {
		t.Errorf("device %q of an interface without one", d)
	}
	put("class/net/rdma0/device/infiniband/mlx5_2/node_type", "1: CA\n")
	put("class/infiniband/mlx5_2/ports/1/gids/0", "fe80:0000:0000:0000:0000:00ff:fe00:0001\n")
	put("class/infiniband/mlx5_2/ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:c000:020a\n")
	put("class/infiniband/mlx5_2/ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n")
	d := RDMADevice(sys, "rdma0")
	if d != "mlx5_2" || !HasGID(sys, d, ip4) || HasGID(sys, d, ip6) || HasGID(sys, d, netip.MustParseAddr("192.0.2.11")) {
		t.Errorf("device %q, GIDs: %v %v", d, HasGID(sys, d, ip4), HasGID(sys, d, ip6))
	}
	put("class/infiniband/mlx5_2/node_type", "1: CA\n")
	if HasGID(sys, d, ip6) {
		t.Error("a RoCE device without the GID has it")
	}
	// An iWARP device's only GID is made from the interface's hardware address.
	put("class/infiniband/siw0/node_type", "4: RNIC\n")
	put("class/infiniband/siw0/ports/1/gids/0", "0200:c000:0202:0000:0000:0000:0000:0000\n")
	if !HasGID(sys, "siw0", ip4) {
		t.Error("an iWARP device does not answer for the interface's address")
	}
}
