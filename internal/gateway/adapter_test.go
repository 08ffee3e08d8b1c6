package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/doctor"
	"sluice.dev/sluice/internal/gateway/conns"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rdma/verbs"
)

// byVerbs changes the RDMA listeners of a configuration to provider verbs.
func byVerbs(yaml, more string) string {
	return strings.ReplaceAll(yaml, "{network: rdma,", "{network: rdma, provider: verbs, "+more)
}

// TestVerbsWithoutDevice checks that a listener without a device reports a remedy, and that nothing
// else fails.
func TestVerbsWithoutDevice(t *testing.T) {
	r := newEnv(t)
	r.start(byVerbs(r.yaml(exportYAML{name: "data"}), "device: none9, "))
	s := r.export("data")
	l := s.Listeners[0]
	if s.State != status.Serving || l.State != status.Retrying || !strings.Contains(l.Error, `no RDMA device "none9"`) {
		t.Errorf("export %s, listener %+v", s.State, l)
	}
	if l.Device == nil || l.Device.Name != "none9" || len(l.Device.Problems) == 0 || !strings.Contains(l.Device.Problems[0].Message, "no RDMA device none9") {
		t.Errorf("device %+v", l.Device)
	}
	if d := s.Listeners[1].Device; d != nil {
		t.Errorf("the TCP listener has a device: %+v", d)
	}
	if !r.g.Status().Ready {
		t.Error("not ready, though TCP is served")
	}
	r.connect("data", config.TCP).works()
}

// TestVerbsListener checks that a provider that failed to open is retried, and that each export has
// a protection domain of its own.
func TestVerbsListener(t *testing.T) {
	r := newEnv(t)
	var there atomic.Bool
	var times atomic.Int32
	r.verbs = func(cfg verbs.Config) (rdma.Provider, error) {
		if cfg.Device != "" {
			t.Errorf("device %q, want any", cfg.Device)
		}
		if !there.Load() {
			return nil, errors.New("there is no adapter yet")
		}
		times.Add(1)
		return iwarp.New(iwarp.Config{}) // stands for an adapter
	}
	g := r.start(byVerbs(r.yaml(exportYAML{name: "data", rdma: ":0"}, exportYAML{name: "more", rdma: ":0"}), ""))
	if l := r.export("data").Listeners[0]; l.State != status.Retrying || l.Error != "there is no adapter yet" {
		t.Errorf("%+v", l)
	}
	there.Store(true)
	for _, name := range []string{"data", "more"} {
		eventually(t, name+" listens", func() bool { return r.export(name).Listeners[0].State == status.Listening })
		address := strings.Replace(r.export(name).Listeners[0].Address, "[::]", "127.0.0.1", 1)
		c, err := dial(t, config.RDMA, address)
		if err != nil {
			t.Fatal(err)
		}
		if c.root, err = c.Mount(t.Context(), "/"); err != nil {
			t.Fatal(err)
		}
		c.works()
	}
	if n := times.Load(); n != 1 {
		t.Errorf("the provider was opened %d times, want once for both exports", n)
	}
	for _, e := range g.list() {
		if n := len(e.served.domains); n != 1 {
			t.Errorf("export %s has %d protection domains of the provider, want its own", e.name, n)
		}
	}
}

// TestVerbsAccess checks that an adapter rejects connection requests of a peer without an access
// rule, and that these take neither receives nor a place of the limit.
func TestVerbsAccess(t *testing.T) {
	r := newEnv(t)
	var p requestProvider
	r.verbs = func(verbs.Config) (_ rdma.Provider, err error) {
		p.Provider, err = iwarp.New(iwarp.Config{}) // stands for an adapter
		return &p, err
	}
	x := exportYAML{name: "data", rdma: ":0", access: `[{from: {networks: ["192.0.2.0/24"]}}]`, limits: "{connections: 1}"}
	g := r.start(byVerbs(r.yaml(x), ""))
	address := strings.Replace(r.export("data").Listeners[0].Address, "[::]", "127.0.0.1", 1)
	table := r.conns("data")
	promised := g.receiveMemory.Used()
	const peers = 20
	for range peers {
		var rejected *rdma.RejectedError
		if _, err := dial(t, config.RDMA, address); !errors.As(err, &rejected) {
			t.Fatalf("a peer without a rule: %v, want a RejectedError", err)
		}
	}
	if n := p.rejected.Load(); n != peers || p.used.Load() != 0 {
		t.Errorf("%d requests were rejected, want %d; %d other uses of requests, want none", n, peers, p.used.Load())
	}
	if n := table.Refused(conns.RDMA, conns.ByAccess); n != peers || table.Opened() != 0 {
		t.Errorf("%d refusals and %d connections were counted, want %d and 0", n, table.Opened(), peers)
	}
	if n := g.connections.Taken(); n != 0 || g.receiveMemory.Used() != promised {
		t.Errorf("%d places are taken, and %d bytes promised for receives, want 0 and %d", n, g.receiveMemory.Used(), promised)
	}
	x.access = `[{from: {networks: ["127.0.0.1/32"]}}]`
	r.apply(byVerbs(r.yaml(x), ""))
	if _, err := dial(t, config.RDMA, address); err != nil || p.used.Load() == 0 {
		t.Errorf("a peer with a rule: %v, after %d uses of requests", err, p.used.Load())
	}
}

// requestProvider counts the uses of connection requests.
type requestProvider struct {
	rdma.Provider
	rejected atomic.Int32
	used     atomic.Int32 // accepted, or given a queue of receives
}

func (p *requestProvider) Listen(ctx context.Context, address string) (rdma.Listener, error) {
	l, err := p.Provider.Listen(ctx, address)
	return &requestListener{l, p}, err
}

type requestListener struct {
	rdma.Listener
	p *requestProvider
}

func (l *requestListener) Accept() (rdma.ConnRequest, error) {
	in, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &countedRequest{in, l.p}, nil
}

type countedRequest struct {
	rdma.ConnRequest
	p *requestProvider
}

func (in *countedRequest) Accept(o rdma.Options) (rdma.Endpoint, error) {
	in.p.used.Add(1)
	return in.ConnRequest.Accept(o)
}

func (in *countedRequest) NewSRQ(d rdma.Domain, depth int) (rdma.SRQ, error) {
	in.p.used.Add(1)
	return in.ConnRequest.NewSRQ(d, depth)
}

func (in *countedRequest) Reject(data []byte) error {
	in.p.rejected.Add(1)
	return in.ConnRequest.Reject(data)
}

// pathProvider adds a queue pair to the attributes of accepted connections.
type pathProvider struct {
	rdma.Provider
	pair rdma.QueuePair
}

func (p *pathProvider) Listen(ctx context.Context, address string) (rdma.Listener, error) {
	l, err := p.Provider.Listen(ctx, address)
	return &pathListener{l, p}, err
}

type pathListener struct {
	rdma.Listener
	p *pathProvider
}

func (l *pathListener) Accept() (rdma.ConnRequest, error) {
	in, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &pathIncoming{in, l.p}, nil
}

type pathIncoming struct {
	rdma.ConnRequest
	p *pathProvider
}

func (in *pathIncoming) Accept(o rdma.Options) (rdma.Endpoint, error) {
	ep, err := in.ConnRequest.Accept(o)
	if err != nil {
		return nil, err
	}
	return &pathEndpoint{ep, in.p}, nil
}

type pathEndpoint struct {
	rdma.Endpoint
	p *pathProvider
}

func (e *pathEndpoint) Attributes() rdma.Attributes {
	a := e.Endpoint.Attributes()
	a.Device, a.QueuePair = "mlx5_4", &e.p.pair
	return a
}

// TestQueuePair checks that /status has the queue pair of each connection on an adapter, and none
// of software.
func TestQueuePair(t *testing.T) {
	r := newEnv(t)
	gid, remote := netip.MustParseAddr("10.0.0.5"), netip.MustParseAddr("fe80::9")
	r.verbs = func(verbs.Config) (rdma.Provider, error) {
		p, err := iwarp.New(iwarp.Config{})
		return &pathProvider{p, rdma.QueuePair{
			Port: 2, QPN: 293, RemoteQPN: 17, GID: gid, RemoteGID: remote, GIDType: "RoCE v2", PathMTU: 4096,
		}}, err
	}
	r.start(byVerbs(r.yaml(exportYAML{name: "data", rdma: ":0"}), ""))
	eventually(t, "data listens", func() bool { return r.export("data").Listeners[0].State == status.Listening })
	if _, err := dial(t, config.RDMA, strings.Replace(r.export("data").Listeners[0].Address, "[::]", "127.0.0.1", 1)); err != nil {
		t.Fatal(err)
	}
	want := &status.QueuePair{
		Device: "mlx5_4", Port: 2, QPN: 293, RemoteQPN: 17, GID: gid, RemoteGID: remote, GIDType: "RoCE v2", PathMTU: 4096,
	}
	eventually(t, "a client is listed", func() bool { return len(r.export("data").Clients) == 1 })
	if got := r.export("data").Clients[0].RDMA.QueuePair; !reflect.DeepEqual(got, want) {
		t.Errorf("queue pair %+v, want %+v", got, want)
	}
	text, err := json.Marshal(want)
	const wantText = `{"device":"mlx5_4","port":2,"qpn":293,"remoteQPN":17,"gid":"10.0.0.5","remoteGID":"fe80::9","gidType":"RoCE v2","pathMTU":4096}`
	if err != nil || string(text) != wantText {
		t.Errorf("%s, %v; want %s", text, err, wantText)
	}
	r2 := newEnv(t)
	r2.start(r2.yaml(exportYAML{name: "data"}))
	c := r2.connect("data", config.RDMA)
	c.works()
	if clients := r2.export("data").Clients; len(clients) != 1 || clients[0].RDMA.QueuePair != nil {
		t.Errorf("software has a queue pair: %+v", clients)
	}
}

// TestVirtualAddress checks that a RoCE device needs a GID of a virtual address only where an
// interface of the host has the address.
func TestVirtualAddress(t *testing.T) {
	r := newEnv(t)
	g := r.start(r.yaml(exportYAML{name: "data"}))
	g.adapters.read = func() *doctor.Host {
		return &doctor.Host{Folder: true, MemLock: doctor.Unlimited, Devices: []doctor.Device{{
			Name: "mlx5_4", GUID: "5054:00ff:fe12:3456", Verbs: "uverbs0",
			Ports: []doctor.Port{{Number: 1, State: "ACTIVE", LinkLayer: "Ethernet", MTU: 1024, PKeys: []uint16{0xffff},
				GIDs: []doctor.GID{{Address: netip.MustParseAddr("fe80::1"), Type: "RoCE v2"}}}},
		}}}
	}
	for _, c := range []struct {
		name, address   string
		bind            config.Bind
		problems, notes string
	}{
		{"carried by another host", "192.0.2.10:20049", config.Wildcard, "", "no interface here has the address 192.0.2.10 now"},
		{"carried here", "127.0.0.1:20049", config.Wildcard, "mlx5_4 has no GID for the address 127.0.0.1 (it is on lo)", ""},
		{"of this host alone, and missing", "192.0.2.10:20049", "", "mlx5_4 has no GID for the address 192.0.2.10 (no interface here has that address)", ""},
	} {
		served := g.list()[0].served
		a := &adapterPort{res: g.resources, memory: served.memory, export: served.currentConfig, spec: config.Listener{Network: config.RDMA, Provider: config.Verbs, Address: c.address, Bind: c.bind, Device: "mlx5_4"}}
		s := a.status()
		problems, notes := "", strings.Join(s.Notes, "; ")
		for _, p := range s.Problems {
			problems += p.Message
		}
		if !strings.HasPrefix(problems, c.problems) || (problems == "") != (c.problems == "") || !strings.HasPrefix(notes, c.notes) || (notes == "") != (c.notes == "") {
			t.Errorf("%s: problems %q, notes %q; want %q, %q", c.name, problems, notes, c.problems, c.notes)
		}
		if s.Transport != "RoCE" {
			t.Errorf("%s: transport %q", c.name, s.Transport)
		}
		want := []status.Port{{Number: 1, State: "ACTIVE", ActiveMTU: 1024, PKeys: []string{"0xffff"}, GIDs: []string{"fe80::1"}, GIDTypes: []string{"RoCE v2"}}}
		if !reflect.DeepEqual(s.Ports, want) {
			t.Errorf("%s: ports %+v, want %+v", c.name, s.Ports, want)
		}
	}
}

// TestHostIsReadOnce checks that the listeners of one report share a reading of the host.
func TestHostIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reads := 0
		a := &adapters{read: func() *doctor.Host { reads++; return &doctor.Host{} }}
		for range 1000 {
			a.hostNow()
		}
		if reads != 1 {
			t.Errorf("%d readings for 1000 listeners", reads)
		}
		time.Sleep(2 * hostAge)
		if a.hostNow(); reads != 2 {
			t.Errorf("%d readings, want another one for the next page", reads)
		}
	})
}

// TestVerbsSettings checks that the options of a listener reach the provider, and that listeners
// with equal options share it.
func TestVerbsSettings(t *testing.T) {
	r := newEnv(t)
	var seen []verbs.Config
	r.verbs = func(cfg verbs.Config) (rdma.Provider, error) {
		cfg.Logger = nil
		seen = append(seen, cfg)
		return iwarp.New(iwarp.Config{})
	}
	r.start(byVerbs(r.yaml(exportYAML{name: "data", rdma: ":0"}, exportYAML{name: "more", rdma: ":0"}),
		"verbs: {keepAlive: 10s, ackTimeout: 67ms, completionVectors: [1, 3], moderationCount: 8, moderationPeriod: 4us, inline: 124, spin: 64, strictOrdering: true}, "))
	want := []verbs.Config{{KeepAlive: 10 * time.Second, AckTimeout: 67 * time.Millisecond, CompletionVectors: []int{1, 3},
		Moderation: verbs.Moderation{Completions: 8, Period: 4 * time.Microsecond}, Inline: 124, Spin: 64, StrictOrdering: true}}
	for _, name := range []string{"data", "more"} {
		eventually(t, name+" listens", func() bool { return r.export(name).Listeners[0].State == status.Listening })
	}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("providers were opened with %+v, want %+v", seen, want)
	}
}

func TestDeviceMetrics(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	r.MustRegister(devices{[]verbs.DeviceEvents{{Device: "mlx5_0", Event: "port error", Count: 3}},
		[]doctor.PortCounter{{Device: "mlx5_0", Port: "1", Name: "out_of_sequence", Value: 17}, {Device: "mlx5_0", Port: "2", Name: "out_of_sequence", Value: 4}}})
	all, err := r.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range all {
		for _, m := range f.Metric {
			got = append(got, fmt.Sprintf("%s %s %g", f.GetName(), m.GetLabel(), m.GetCounter().GetValue()+m.GetUntyped().GetValue()))
		}
	}
	said := strings.Join(got, "\n")
	for _, want := range []string{"sluice_rdma_device_events_total", "port error", " 3", "out_of_sequence", " 17", " 4"} {
		if len(got) != 3 || !strings.Contains(said, want) {
			t.Errorf("the metrics are\n%s\nwant %q among three", said, want)
		}
	}
}

func TestLockedMemory(t *testing.T) {
	x := config.DefaultExport()
	// 16 connections have queues of 112 KiB with their own receives; the others 96 KiB, and
	// receives in a shared queue of 4 MiB.
	const queues = 16*112<<10 + 1008*96<<10 + 4<<20
	// 16 credits take fewer receives: 64 of 64 bytes.
	const small = 16*100<<10 + 1008*96<<10 + 4<<20
	// 4096 credits: 1024 requests, 4114 receives, 8192 completions.
	const large = 16*(256<<10+512<<10+512<<10) + 1008*(256<<10+512<<10) + 4<<20
	for _, c := range []struct {
		credits config.Credits
		want    uint64
	}{
		{config.Credits{Policy: config.Static, Max: 128}, 1024*128*4096 + 256<<20 + queues},
		{config.Credits{Policy: config.Adaptive, Min: 8, Max: 128, Memory: 64 << 20}, 64<<20 + 1024*8*4096 + 256<<20 + queues},
		{config.Credits{Policy: config.Adaptive, Min: 8, Max: 16, Memory: 1 << 40}, 1024*16*4096 + 256<<20 + small},
		{config.Credits{Policy: config.Adaptive, Min: 8, Max: 4096, Memory: 64 << 20}, 64<<20 + 1024*8*4096 + 256<<20 + large},
	} {
		x.Transport.Credits = c.credits
		if got := lockedBytes(&x); got != c.want {
			t.Errorf("%+v: %d, want %d", c.credits, got, c.want)
		}
	}
}
