package gateway

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rdma/verbs"
)

// wild returns an address with bind Wildcard for an exportYAML.
func wild(host, port string) string { return net.JoinHostPort(host, port) + `", bind: "Wildcard` }

// refused reports whether a connection is refused or reset at once.
func refused(t *testing.T, address string) bool {
	t.Helper()
	c, err := net.Dial("tcp", address)
	if err == nil {
		defer c.Close()
		_, err = c.Read(make([]byte, 1))
	}
	// the reset may come before connect returns
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)
}

// TestWildcard checks that exports with a common port are distinguished by address, over both
// networks, and that one can be removed while the others stay.
func TestWildcard(t *testing.T) {
	_, p, _ := net.SplitHostPort(freeAddress(t))
	_, q, _ := net.SplitHostPort(freeAddress(t))
	r := newEnv(t)
	access := `[{from: {networks: ["127.0.0.0/8", "::1/128"]}, mode: ReadWrite, squash: None}]`
	a := exportYAML{name: "a", rdma: wild("127.0.0.2", p), tcp: wild("127.0.0.2", q), access: access}
	b := exportYAML{name: "b", rdma: wild("127.0.0.3", p), tcp: wild("::1", p), access: access}
	// No host has this address: it is for documentation (RFC 5737).
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

	// Two exports swap their addresses.
	a.rdma, b.rdma = wild("127.0.0.3", p), wild("127.0.0.2", p)
	r.apply(r.yaml(a, b, c))
	eventually(t, "both have their new addresses", func() bool {
		return r.export("a").Listeners[0].State == status.Listening && r.export("b").Listeners[0].State == status.Listening
	})
	back := r.connect("a", config.RDMA)
	if _, err := back.Lookup(context.Background(), back.root, "of a"); err != nil {
		t.Error("the address leads to the export that had it before:", err)
	}

	// After the last listener the socket is closed, and the port is free.
	c.rdma, c.tcp, a.rdma, a.tcp = "", "", "127.0.0.2:"+p, "127.0.0.2:"+q
	r.apply(r.yaml(a, c))
	eventually(t, "the address is listened on alone", func() bool {
		l := r.export("a").Listeners
		return l[0].State == status.Listening && l[1].State == status.Listening
	})
	r.connect("a", config.RDMA).works()
	for _, port := range []string{p, q} {
		l, err := net.Listen("tcp", "127.0.0.4:"+port)
		if err != nil {
			t.Errorf("a shared socket is left: %v", err)
			continue
		}
		_ = l.Close()
	}
}

// TestWildcardBusy checks that each listener of a port in use retries.
func TestWildcardBusy(t *testing.T) {
	busy, err := net.Listen("tcp", freeAddress(t))
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	_, port, _ := net.SplitHostPort(busy.Addr().String())
	r := newEnv(t)
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

// countingProvider counts the listeners of a provider.
type countingProvider struct {
	rdma.Provider
	listeners *atomic.Int32
}

func (p countingProvider) Listen(ctx context.Context, address string) (rdma.Listener, error) {
	l, err := p.Provider.Listen(ctx, address)
	if err == nil {
		p.listeners.Add(1)
	}
	return l, err
}

// TestWildcardByVerbs checks that listeners of adapters share ports too.
func TestWildcardByVerbs(t *testing.T) {
	_, port, _ := net.SplitHostPort(freeAddress(t))
	r := newEnv(t)
	var sockets atomic.Int32
	r.verbs = func(verbs.Config) (rdma.Provider, error) {
		p, err := iwarp.New(iwarp.Config{})
		return countingProvider{p, &sockets}, err
	}
	r.start(byVerbs(r.yaml(exportYAML{name: "a", rdma: wild("127.0.0.2", port)}, exportYAML{name: "b", rdma: wild("127.0.0.3", port)},
		exportYAML{name: "c", rdma: wild("192.0.2.1", port)}), ""))
	r.connect("a", config.RDMA).put("of a", 1)
	b := r.connect("b", config.RDMA)
	if _, err := b.Lookup(t.Context(), b.root, "of a"); err == nil {
		t.Error("an address of b leads to a")
	}
	if n := sockets.Load(); n != 1 {
		t.Errorf("%d sockets, want one", n)
	}
	if l := r.export("c").Listeners[0]; l.State != status.Listening {
		t.Errorf("an address that the host does not have: %+v", l)
	}
}

// TestWildcardSettings: exports that share a port with different settings of verbs work with those
// of the first, and a note says so.
func TestWildcardSettings(t *testing.T) {
	_, port, _ := net.SplitHostPort(freeAddress(t))
	r := newEnv(t)
	var providers atomic.Int32
	r.verbs = func(verbs.Config) (rdma.Provider, error) {
		providers.Add(1)
		return iwarp.New(iwarp.Config{})
	}
	yaml := r.yaml(exportYAML{name: "a", rdma: wild("127.0.0.2", port)}, exportYAML{name: "b", rdma: wild("127.0.0.3", port)})
	g := r.start(strings.Replace(byVerbs(yaml, "verbs: {spin: 1}, "), "spin: 1", "spin: 2", 1))
	for _, name := range []string{"a", "b"} {
		eventually(t, name+" listens", func() bool { return r.export(name).Listeners[0].State == status.Listening })
		r.connect(name, config.RDMA).works()
	}
	noted := 0
	for _, e := range g.list() {
		domains := 1
		if strings.Contains(strings.Join(r.export(e.name).Listeners[0].Device.Notes, "; "), "another export, which opened the port first") {
			noted, domains = noted+1, 2
		}
		if n := len(e.served.domains); n != domains {
			t.Errorf("%s has %d protection domains, want %d", e.name, n, domains)
		}
	}
	if n := providers.Load(); noted != 1 || n != 2 {
		t.Errorf("%d exports have a note, want 1; %d providers, want 2", noted, n)
	}
}
