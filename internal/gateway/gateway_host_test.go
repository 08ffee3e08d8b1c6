package gateway

import (
	"net"
	"net/netip"
	"strings"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
)

// TestHost checks that gateways on two addresses of a host use equal ports, and report addresses as
// configured.
func TestHost(t *testing.T) {
	address, err := netip.ParseAddrPort(freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(address.String())
	var hashes []string
	for range 2 {
		r := newEnv(t)
		r.host = address.Addr()
		g := r.start(strings.Replace(r.yaml(exportYAML{name: "a", tcp: ":" + port}), `admin: {address: "127.0.0.1:0"}`, `admin: {address: ":0"}`, 1))
		if host, _, _ := net.SplitHostPort(g.Admin()); host != address.Addr().String() {
			t.Errorf("the admin page is on %s", g.Admin())
		}
		if got := r.address("a", config.TCP); got != address.String() {
			t.Errorf("the listener is on %s, want %s", got, address)
		}
		if l := r.export("a").Listeners[1]; l.Configured != ":"+port {
			t.Errorf("the address is configured as %q", l.Configured)
		}
		if got := g.resolve("127.0.0.1:0"); got != "127.0.0.1:0" {
			t.Errorf("an address with an IP became %s", got)
		}
		r.connect("a", config.TCP).works()
		x := *r.g.list()[0].servedConfig()
		x.Backend.Volume = &config.Volume{Path: "/the/same"}
		hashes = append(hashes, x.Hash())
		address = netip.AddrPortFrom(address.Addr().Next(), address.Port())
	}
	if hashes[0] != hashes[1] {
		t.Errorf("the exports' hashes differ: %s", hashes)
	}
}

// TestIPv4Alone checks that 0.0.0.0 does not take the port on IPv6.
func TestIPv4Alone(t *testing.T) {
	r := newEnv(t)
	y := strings.Replace(r.yaml(exportYAML{name: "a", rdma: "0.0.0.0:0", tcp: "0.0.0.0:0"}), `admin: {address: "127.0.0.1:0"}`, `admin: {address: "0.0.0.0:0"}`, 1)
	g := r.start(y)
	for _, at := range []string{g.Admin(), r.address("a", config.RDMA), r.address("a", config.TCP)} {
		if host, _, _ := net.SplitHostPort(at); host != "0.0.0.0" {
			t.Errorf("0.0.0.0 is listened on as %s", at)
		}
	}
}
