package gateway

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/gateway/conns"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/oncrpc/rpcbind"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rdma/verbs"
	"sluice.dev/sluice/pkg/rpcrdma"
)

func TestMain(m *testing.M) {
	if os.Getenv("SLUICE_TEST_GATEWAY") != "" {
		// This process is a gateway of main_test.go.
		c := cli{decorate: gateFile(os.Getenv("SLUICE_TEST_GATE")).decorate}
		os.Exit(c.main(os.Args[1:], "test", os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// networks are the networks by their index in counters.
var networks = []config.Network{conns.RDMA: config.RDMA, conns.TCP: config.TCP}

// patience bounds each wait of a test.
const patience = 30 * time.Second

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not in %v: %s", patience, what)
		}
	}
}

// env is a gateway with a configuration file that is replaced as Kubernetes does it.
type env struct {
	t    *testing.T
	dir  string // of the configuration
	vols string // of volumes
	n    int
	g    *Gateway
	gate *gate
	// services are the addresses of rpcbind; nil: those of the host.
	services []rpcbind.Address
	// host is Options.Host.
	host netip.Addr
	// verbs opens providers; nil: verbs.New.
	verbs func(verbs.Config) (rdma.Provider, error)
}

// exportYAML is an export of the configuration. Empty fields have defaults.
type exportYAML struct {
	name, path, rdma, tcp, access, transport, limits string
	backend                                          string // instead of a volume at path
}

func (r *env) yaml(exports ...exportYAML) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: %s\nkind: %s\nadmin: {address: \"127.0.0.1:0\"}\nstateDir: %s\ndrainTimeout: 20s\nexports:%s\n",
		config.APIVersion, config.Kind, filepath.Join(r.vols, "state"), map[bool]string{true: " []"}[len(exports) == 0])
	def := func(s, d string) string {
		if s == "" {
			return d
		}
		return s
	}
	for _, e := range exports {
		fmt.Fprintf(&b, "- name: %s\n  listeners:\n", e.name)
		fmt.Fprintf(&b, "  - {network: rdma, address: \"%s\"}\n", def(e.rdma, "127.0.0.1:0"))
		fmt.Fprintf(&b, "  - {network: tcp, address: \"%s\"}\n", def(e.tcp, "127.0.0.1:0"))
		if e.backend != "" {
			fmt.Fprintf(&b, "  backend: %s\n", e.backend)
		} else {
			fmt.Fprintf(&b, "  backend: {volume: {path: %s}}\n", def(e.path, r.volume(e.name)))
		}
		fmt.Fprintf(&b, "  access: %s\n", def(e.access, `[{from: {networks: ["127.0.0.0/8"]}, mode: ReadWrite, squash: None}]`))
		fmt.Fprintf(&b, "  transport: %s\n", def(e.transport, "{}"))
		fmt.Fprintf(&b, "  limits: %s\n", def(e.limits, "{}"))
	}
	return b.String()
}

// volume makes a directory.
func (r *env) volume(name string) string {
	dir := filepath.Join(r.vols, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		r.t.Fatal(err)
	}
	return dir
}

func newEnv(t *testing.T) *env {
	return &env{t: t, dir: t.TempDir(), vols: t.TempDir(), gate: newGate()}
}

func (r *env) start(yaml string) *Gateway {
	t := r.t
	t.Helper()
	if err := os.Symlink("..data/sluice.yaml", filepath.Join(r.dir, "sluice.yaml")); err != nil {
		t.Fatal(err)
	}
	r.write(yaml)
	level := slog.LevelVar{}
	g, err := New(Options{
		Version: "test", File: filepath.Join(r.dir, "sluice.yaml"), Level: &level, decorate: r.gate.decorate, services: r.services, Host: r.host,
		Log: slog.New(slog.NewTextHandler(testWriter{t}, &slog.HandlerOptions{Level: &level})),
	})
	if err != nil {
		t.Fatal(err)
	}
	g.adapters.open = r.verbs
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	r.g = g
	ctx, cancel := context.WithCancel(context.Background())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		g.Watch(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-watched
		r.gate.open()
		if err := g.Stop(context.Background()); err != nil {
			t.Error("stop:", err)
		}
	})
	return g
}

// write replaces the configuration: it links ..data to a new directory.
func (r *env) write(yaml string) {
	r.t.Helper()
	r.n++
	version := fmt.Sprintf("..v%d", r.n)
	must := func(err error) {
		r.t.Helper()
		if err != nil {
			r.t.Fatal(err)
		}
	}
	must(os.Mkdir(filepath.Join(r.dir, version), 0o755))
	must(os.WriteFile(filepath.Join(r.dir, version, "sluice.yaml"), []byte(yaml), 0o644))
	must(os.Symlink(version, filepath.Join(r.dir, "..tmp")))
	must(os.Rename(filepath.Join(r.dir, "..tmp"), filepath.Join(r.dir, "..data")))
}

// apply replaces the configuration, and waits until each export has applied or refused it.
func (r *env) apply(yaml string) status.Status {
	r.t.Helper()
	before := r.g.Status().Config
	r.write(yaml)
	var s status.Status
	eventually(r.t, "the configuration is applied", func() bool {
		s = r.g.Status()
		if s.Config.Hash == before.Hash && s.Config.Error == before.Error {
			return false
		}
		return !slices.ContainsFunc(s.Exports, func(e status.Export) bool { return e.State == status.Applying || e.State == status.Removing })
	})
	return s
}

func (r *env) export(name string) status.Export {
	r.t.Helper()
	for _, e := range r.g.Status().Exports {
		if e.Name == name {
			return e
		}
	}
	r.t.Fatalf("there is no export %s", name)
	return status.Export{}
}

func (r *env) address(export string, network config.Network) string {
	r.t.Helper()
	for _, l := range r.export(export).Listeners {
		if l.Network == network && l.State == status.Listening {
			return l.Address
		}
	}
	r.t.Fatalf("%s has no %s address", export, network)
	return ""
}

// testClient is a client with one connection.
type testClient struct {
	*client.Client
	t    *testing.T
	rdma *rpcrdma.Client
	done <-chan struct{}
	root nfs3.Handle
}

// connect mounts an export. change modifies the configuration of an RDMA client.
func (r *env) connect(export string, network config.Network, change ...func(*rpcrdma.Config)) *testClient {
	r.t.Helper()
	c, err := dial(r.t, network, r.address(export, network), change...)
	if err != nil {
		r.t.Fatal(err)
	}
	if c.root, err = c.Mount(context.Background(), "/"); err != nil {
		r.t.Fatal("mount:", err)
	}
	return c
}

func dial(t *testing.T, network config.Network, address string, change ...func(*rpcrdma.Config)) (*testClient, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	pool := bufpool.New(0)
	c := &testClient{t: t}
	var rq oncrpc.Requester
	switch network {
	case config.RDMA:
		p, err := iwarp.New(iwarp.Config{})
		if err != nil {
			return nil, err
		}
		cfg := rpcrdma.Config{Pool: pool, Bindings: binding.For, RemoteInvalidation: true}
		for _, f := range change {
			f(&cfg)
		}
		if c.rdma, err = rpcrdma.Dial(ctx, p, address, cfg); err != nil {
			return nil, err
		}
		rq, c.done = c.rdma, c.rdma.Done()
	default:
		tcp, err := oncrpc.Dial(ctx, address, oncrpc.Config{Pool: pool, Bindings: binding.For})
		if err != nil {
			return nil, err
		}
		t.Cleanup(tcp.Wait)
		rq, c.done = tcp, tcp.Done()
	}
	t.Cleanup(func() {
		_ = rq.Close()
		<-c.done
	})
	cred, err := client.ProcessCred()
	if err != nil {
		return nil, err
	}
	c.Client = client.New(client.Config{Requester: rq, Pool: pool, Cred: cred})
	return c, nil
}

// works fails the test unless a call succeeds.
func (c *testClient) works() {
	c.t.Helper()
	if _, err := c.GetAttr(context.Background(), c.root); err != nil {
		c.t.Error("the connection does not work:", err)
	}
}

// ends waits for the end of the connection.
func (c *testClient) ends() {
	c.t.Helper()
	select {
	case <-c.done:
	case <-time.After(patience):
		c.t.Error("the connection is still there")
	}
}

func (c *testClient) put(name string, size int) nfs3.Handle {
	c.t.Helper()
	o, err := c.Create(context.Background(), c.root, name, nfs3.Unchecked, nfs3.SetAttrs{}, nfs3.Verifier{})
	if err != nil {
		c.t.Fatal("create:", err)
	}
	if err := c.WriteAt(context.Background(), o.Handle, make([]byte, size), 0, nfs3.FileSync); err != nil {
		c.t.Fatal("write:", err)
	}
	return o.Handle
}

// gate is a handler that delays PATHCONF calls while it is closed. Nothing else makes such calls.
type gate struct {
	mu     sync.Mutex
	closed chan struct{} // nil while open
	held   chan struct{} // gets one for each delayed call
	wait   func()        // replaces held and closed, if not nil
}

func newGate() *gate { return &gate{held: make(chan struct{}, 16)} }

func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = make(chan struct{})
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed != nil {
		close(g.closed)
		g.closed = nil
	}
}

func (g *gate) decorate(next oncrpc.Handler) oncrpc.Handler { return gated{g, next} }

type gated struct {
	g    *gate
	next oncrpc.Handler
}

func (h gated) ServeRPC(c *oncrpc.Call) {
	h.g.mu.Lock()
	closed := h.g.closed
	h.g.mu.Unlock()
	if c.Program != nfs3.Program || c.Procedure != nfs3.ProcPathConf || closed == nil && h.g.wait == nil {
		h.next.ServeRPC(c)
		return
	}
	go func() {
		if h.g.wait != nil {
			h.g.wait()
		} else {
			h.g.held <- struct{}{}
			<-closed
		}
		h.next.ServeRPC(c)
	}()
}

// gateFile returns a gate that is closed while a file exists.
func gateFile(path string) *gate {
	return &gate{wait: func() {
		for {
			if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}}
}

// slow makes a call that the gate delays, and returns a channel for its outcome.
func (c *testClient) slow() <-chan error {
	outcome := make(chan error, 1)
	go func() {
		_, err := c.PathConf(context.Background(), c.root)
		outcome <- err
	}()
	return outcome
}

type testWriter struct{ t *testing.T }

func (w testWriter) Write(b []byte) (int, error) {
	w.t.Log(strings.TrimSpace(string(b)))
	return len(b), nil
}
