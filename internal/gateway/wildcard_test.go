package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rdma/verbs"
)

// wild is an address with bind Wildcard, for an exportYAML.
func wild(host, port string) string { return net.JoinHostPort(host, port) + `", bind: "Wildcard` }

// refused tells whether a connection to an address is taken away at once.
func refused(t *testing.T, address string) bool {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err == nil {
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) // the reset may come before connect returns
}

// TestWildcard: exports that have a port in common are told apart by address, also where one speaks RDMA and another one TCP, and come and go while the
// others stay.
func TestWildcard(t *testing.T) {
	_, p, _ := net.SplitHostPort(freeAddress(t))
	_, q, _ := net.SplitHostPort(freeAddress(t))
	r := newRig(t)
	access := `[{from: {networks: ["127.0.0.0/8", "::1/128"]}, mode: ReadWrite, squash: None}]`
	a := exportYAML{name: "a", rdma: wild("127.0.0.2", p), tcp: wild("127.0.0.2", q), access: access}
	b := exportYAML{name: "b", rdma: wild("127.0.0.3", p), tcp: wild("::1", p), access: access}
	// No host has this address, which is for documentation.
	c := exportYAML{name: "c", rdma: wild("192.0.2.1", p), tcp: wild("192.0.2.1", q), access: access}
	g := r.start(r.yaml(a, b, c))
	for _, e := range g.Status().Exports {
		for _, l := range e.Listeners {
			if l.State != status.Listening || l.Address != l.Configured {
				t.Errorf("%s: %+v", e.Name, l)
			}
		}
	}
	ar, at, br, bt := r.connect("a", config.RDMA), r.connect("a", config.TCP), r.connect("b", config.RDMA), r.connect("b", config.TCP)
	ar.put("of a", 1)
	if _, err := at.Lookup(context.Background(), at.root, "of a"); err != nil {
		t.Error("TCP leads to another export than RDMA:", err)
	}
	if _, err := bt.Lookup(context.Background(), bt.root, "of a"); err == nil {
		t.Error("an address of b leads to a")
	}
	if got := r.export("b").Clients[0].Local.String(); got != "127.0.0.3:"+p {
		t.Errorf("/status says that a client of b came to %s", got)
	}
	for _, address := range []string{"127.0.0.4:" + p, "127.0.0.3:" + q, "[::1]:" + q} {
		if !refused(t, address) {
			t.Errorf("%s is served, and is of no export", address)
		}
	}

	r.apply(r.yaml(b, c))
	if !refused(t, "127.0.0.2:"+p) {
		t.Error("the address of an export that is gone is served")
	}
	ar.ends()
	br.works()
	bt.works()
	r.connect("b", config.RDMA).works()

	// It comes back on the other one's address, which moves.
	a.rdma, b.rdma = wild("127.0.0.3", p), wild("127.0.0.2", p)
	r.apply(r.yaml(a, b, c))
	eventually(t, "both have their new addresses", func() bool {
		return r.export("a").Listeners[0].State == status.Listening && r.export("b").Listeners[0].State == status.Listening
	})
	back := r.connect("a", config.RDMA)
	if _, err := back.Lookup(context.Background(), back.root, "of a"); err != nil {
		t.Error("the address leads to the export that had it before:", err)
	}

	// The last one closes the socket, and the port is another's.
	c.rdma, c.tcp, a.rdma, a.tcp = "", "", "127.0.0.2:"+p, "127.0.0.2:"+q
	r.apply(r.yaml(a, c))
	eventually(t, "the address is listened on alone", func() bool {
		l := r.export("a").Listeners
		return l[0].State == status.Listening && l[1].State == status.Listening
	})
	r.connect("a", config.RDMA).works()
	if n := len(g.shared.byPort); n != 0 {
		t.Errorf("%d sockets are left", n)
	}
}

// TestWildcardBusy: a port that cannot be had is tried again by each of its listeners.
func TestWildcardBusy(t *testing.T) {
	busy, err := net.Listen("tcp", freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, port, _ := net.SplitHostPort(busy.Addr().String())
	r := newRig(t)
	r.start(r.yaml(exportYAML{name: "a", tcp: wild("127.0.0.2", port)}, exportYAML{name: "b", tcp: wild("127.0.0.3", port)}))
	for _, name := range []string{"a", "b"} {
		if l := r.export(name).Listeners[1]; l.State != status.Retrying || !strings.Contains(l.Error, "address already in use") {
			t.Errorf("%s: %+v", name, l)
		}
	}
	_ = busy.Close()
	for _, name := range []string{"a", "b"} {
		eventually(t, "the port is had", func() bool { return r.export(name).Listeners[1].State == status.Listening })
		r.connect(name, config.TCP).works()
	}
}

// TestWildcardByVerbs: adapters' listeners share their ports likewise.
func TestWildcardByVerbs(t *testing.T) {
	_, port, _ := net.SplitHostPort(freeAddress(t))
	r := newRig(t)
	r.verbs = func(verbs.Config) (rdma.Provider, error) { return iwarp.New(iwarp.Config{}) }
	g := r.start(byVerbs(r.yaml(exportYAML{name: "a", rdma: wild("127.0.0.2", port)}, exportYAML{name: "b", rdma: wild("127.0.0.3", port)},
		exportYAML{name: "c", rdma: wild("192.0.2.1", port)}), ""))
	r.connect("a", config.RDMA).put("of a", 1)
	b := r.connect("b", config.RDMA)
	if _, err := b.Lookup(t.Context(), b.root, "of a"); err == nil {
		t.Error("an address of b leads to a")
	}
	if n := len(g.adapted.byPort); n != 1 {
		t.Errorf("%d sockets, want one", n)
	}
	if l := r.export("c").Listeners[0]; l.State != status.Listening {
		t.Errorf("an address that the host does not have: %+v", l)
	}
}

// arrival is a connection to an address.
type arrival string

func (a arrival) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(string(a)))
}

// TestWildcardDoors: who gets what, without sockets.
func TestWildcardDoors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var turnedAway []arrival
		w := newWildcards(slog.New(slog.DiscardHandler), func(a arrival) { turnedAway = append(turnedAway, a) })
		var made []*fakeSource[arrival]
		join := func(device, at string) source[arrival] {
			t.Helper()
			s, err := w.join(ctx, device, netip.MustParseAddrPort(at), func(_ context.Context, address string) (source[arrival], error) {
				if address != ":2049" {
					t.Errorf("the socket is on %q", address)
				}
				made = append(made, newFakeSource[arrival]())
				return made[len(made)-1], nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		one, six, other := join("", "192.0.2.1:2049"), join("", "[2001:db8::1]:2049"), join("mlx5_0", "192.0.2.1:2049")
		if len(made) != 2 {
			t.Fatalf("%d sockets, want one for each device", len(made))
		}
		if _, err := w.join(ctx, "", netip.MustParseAddrPort("192.0.2.1:2049"), nil); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("the same address twice: %v", err)
		}
		get := func(s source[arrival], in *fakeSource[arrival], a arrival) {
			t.Helper()
			in.accept <- a
			if got, err := s.Accept(); got != a || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, a)
			}
		}
		get(one, made[0], "[::ffff:192.0.2.1]:2049") // as an IPv6 socket tells it
		get(six, made[0], "[2001:db8::1]:2049")
		get(other, made[1], "192.0.2.1:2049")
		made[0].accept <- "192.0.2.2:2049"
		_ = one.Close()
		_ = one.Close()
		if _, err := one.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error("a closed source:", err)
		}
		made[0].accept <- "192.0.2.1:2049"
		synctest.Wait()
		if fmt.Sprint(turnedAway) != "[192.0.2.2:2049 192.0.2.1:2049]" {
			t.Errorf("turned away: %s", turnedAway)
		}

		// A socket that fails is everybody's loss, and is made anew.
		lost := errors.New("lost")
		made[0].fail <- lost
		if _, err := six.Accept(); !errors.Is(err, lost) {
			t.Error(err)
		}
		_ = six.Close()
		synctest.Wait()
		again := join("", "[2001:db8::1]:2049")
		get(again, made[2], "[2001:db8::1]:2049")
		_ = again.Close()
		_ = other.Close()
		for i, s := range made {
			select {
			case <-s.closed:
			default:
				t.Errorf("socket %d is open", i)
			}
		}
	})
}
