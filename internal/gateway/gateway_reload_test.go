package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/verbs"
	"sluice.dev/sluice/test/freeport"
)

// TestLiveChanges changes access, credits and limits while connections stay.
func TestLiveChanges(t *testing.T) {
	r := newEnv(t)
	a, b := exportYAML{name: "a"}, exportYAML{name: "b"}
	r.start(r.yaml(a, b))
	ar, at, br := r.connect("a", config.RDMA), r.connect("a", config.TCP), r.connect("b", config.RDMA)
	addresses := []string{r.address("a", config.RDMA), r.address("a", config.TCP), r.address("b", config.RDMA)}

	a.transport = "{credits: {max: 7}}"
	s := r.apply(r.yaml(a, b))
	if s.Config.Error != "" || s.Exports[0].State != status.Serving {
		t.Fatalf("%+v", s)
	}
	ar.works()
	ar.works()
	if n := ar.rdma.Negotiated().Granted; n != 7 {
		t.Errorf("%d credits are granted, want the 7 of now", n)
	}
	if n := r.export("a").Clients[0].RDMA.Credits; n != 7 {
		t.Errorf("/status shows %d credits", n)
	}
	a.transport = "{credits: {max: 300}}"
	r.apply(r.yaml(a, b))
	ar.works()
	if n := r.export("a").Clients[0].RDMA.Credits; n != 128 {
		t.Errorf("%d credits are granted, want the 128 that the client asks for", n)
	}

	a.access = `[{from: {networks: ["127.0.0.0/8"]}, mode: ReadOnly, squash: Root}]`
	r.apply(r.yaml(a, b))
	for _, c := range []*testClient{ar, at} {
		_, err := c.Mkdir(context.Background(), c.root, "d", nfs3.SetAttrs{})
		if !errors.Is(err, nfs3.ErrROFS) {
			t.Errorf("MKDIR on what is read-only now: %v", err)
		}
		c.works()
	}
	a.access = `[{from: {networks: ["192.0.2.0/24"]}}]`
	r.apply(r.yaml(a, b))
	for _, c := range []*testClient{ar, at} {
		if _, err := c.GetAttr(context.Background(), c.root); err == nil || !strings.Contains(err.Error(), "AUTH_TOOWEAK") {
			t.Errorf("a call of a client that may no longer: %v", err)
		}
	}
	a.access = ""
	a.limits = "{connections: 2}"
	r.apply(r.yaml(a, b))
	ar.works()
	at.works()
	br.works()
	if c, err := dial(t, config.RDMA, r.address("a", config.RDMA)); err == nil {
		if err := c.Null(context.Background()); err == nil {
			t.Error("a third connection is served, where there may be two")
		}
	}
	if now := []string{r.address("a", config.RDMA), r.address("a", config.TCP), r.address("b", config.RDMA)}; strings.Join(now, " ") != strings.Join(addresses, " ") {
		t.Errorf("the addresses were %v and are %v", addresses, now)
	}
}

// TestTotalLimits checks the limits of all exports together.
func TestTotalLimits(t *testing.T) {
	r := newEnv(t)
	a, b := exportYAML{name: "a"}, exportYAML{name: "b"}
	limited := func(limits string) string { return "limits: " + limits + "\n" + r.yaml(a, b) }
	g := r.start(limited("{connections: 2, memory: 8Mi}"))
	at, bt := r.connect("a", config.TCP), r.connect("b", config.RDMA)
	if c, err := dial(t, config.TCP, r.address("a", config.TCP)); err == nil && c.Null(t.Context()) == nil {
		t.Error("a third connection is served, where there may be two of all exports together")
	}
	_, body := r.get("/metrics")
	for _, want := range []string{
		`sluice_total_connections{state="open"} 2`, `sluice_total_connections{state="limit"} 2`,
		`sluice_total_memory_bytes{state="reserved"} `, `sluice_total_memory_bytes{state="limit"} 8.388608e+06`,
	} {
		if !strings.Contains(body, want) {
			t.Errorf("the metrics have no %s", want)
		}
	}
	// Memory of one export counts against the other.
	file := bt.put("file", 1<<20)
	eventually(t, "no call is in flight", func() bool { return g.memory.Used() == 0 })
	var held bufpool.Grant
	if ok, err := g.list()[0].served.budget.Share(netip.Addr{}, nil).Acquire(&held, 8<<20-1000, nil); !ok || err != nil {
		t.Fatal(ok, err)
	}
	read := make(chan error, 1)
	go func() {
		_, err := bt.ReadAt(context.Background(), file, make([]byte, 64<<10), 0)
		read <- err
	}()
	eventually(t, "a call waits for memory", func() bool { return g.list()[1].served.budget.Waiting() == 1 })
	held.Release()
	if err := <-read; err != nil {
		t.Error(err)
	}
	at.works()
	r.apply(limited("{}"))
	r.connect("a", config.TCP).works()
	eventually(t, "all is given back", func() bool { return g.memory.Used() == 0 })
}

// TestThreshold checks that a new threshold closes the RDMA connections of that export when their
// calls have finished.
func TestThreshold(t *testing.T) {
	r := newEnv(t)
	a, b := exportYAML{name: "a"}, exportYAML{name: "b"}
	r.start(r.yaml(a, b))
	ar, at, br := r.connect("a", config.RDMA), r.connect("a", config.TCP), r.connect("b", config.RDMA)
	address := r.address("a", config.RDMA)
	r.gate.close()
	outcome := ar.slow()
	<-r.gate.held

	a.transport = "{inlineThreshold: {call: 2Ki, reply: 1Ki}, remoteInvalidation: false}"
	r.apply(r.yaml(a, b))
	fresh := r.connect("a", config.RDMA) // during the drain
	if n := fresh.rdma.Negotiated(); n.InlineCall != 2048 || n.InlineReply != 1024 || n.RemoteInvalidation {
		t.Errorf("a new connection got %+v", n)
	}
	select {
	case <-ar.done:
		t.Error("the connection was closed with a call in flight")
	case err := <-outcome:
		t.Error("the call in flight ended:", err)
	default:
	}
	r.gate.open()
	if err := <-outcome; err != nil {
		t.Error("the call in flight failed:", err)
	}
	ar.ends()
	fresh.works()
	at.works()
	br.works()
	if now := r.address("a", config.RDMA); now != address {
		t.Errorf("the address was %s and is %s", address, now)
	}
}

// TestNextConnection checks that with onChange NextConnection a new transport leaves connections
// alone.
func TestNextConnection(t *testing.T) {
	r := newEnv(t)
	a := exportYAML{name: "a", transport: "{onChange: NextConnection}"}
	r.start(r.yaml(a))
	first := r.connect("a", config.RDMA)
	a.transport = "{onChange: NextConnection, inlineThreshold: {call: 2Ki}}"
	r.apply(r.yaml(a))
	second := r.connect("a", config.RDMA)
	a.transport = "{onChange: NextConnection, inlineThreshold: {call: 3Ki}}"
	r.apply(r.yaml(a))
	third := r.connect("a", config.RDMA)
	for i, c := range []*testClient{first, second, third} {
		c.works()
		if n, want := c.rdma.Negotiated().InlineCall, []int{4096, 2048, 3072}[i]; n != want {
			t.Errorf("connection %d: threshold %d, want %d", i, n, want)
		}
	}

	// A former server ends after its last client.
	former := func() int { // each former server has one goroutine in idle
		stacks := make([]byte, 4<<20)
		return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte(".idle.func"))
	}
	eventually(t, "two servers are kept for their clients", func() bool { return former() == 2 })
	_ = second.rdma.Close()
	eventually(t, "the second server ends", func() bool { return former() == 1 })
	first.works()

	// A later change with onChange Reconnect ends former servers too.
	a.transport = "{inlineThreshold: {call: 3Ki}}"
	r.apply(r.yaml(a))
	first.works()
	third.works()
	a.transport = "{}"
	r.apply(r.yaml(a))
	first.ends()
	third.ends()
	eventually(t, "the former servers end", func() bool { return former() == 0 })
	r.connect("a", config.RDMA).works()
}

// TestBadExport checks that an invalid export stays as it was, and others change.
func TestBadExport(t *testing.T) {
	r := newEnv(t)
	a, b := exportYAML{name: "a"}, exportYAML{name: "b"}
	r.start(r.yaml(a, b))
	ar, bt := r.connect("a", config.RDMA), r.connect("b", config.TCP)
	hash := r.export("a").Hash

	bad := a
	bad.transport = "{credits: {max: many}}"
	b.transport = "{credits: {max: 9}}"
	s := r.apply(r.yaml(bad, b, exportYAML{name: "c", path: "relative"}))
	if s.Config.Error != "" || len(s.Exports) != 3 {
		t.Fatalf("%+v", s)
	}
	want := map[string]struct {
		state status.ExportState
		err   string
	}{
		"a": {status.Outdated, `line 13: exports[0].transport.credits.max: "many": want a whole number`},
		"b": {status.Serving, ""},
		"c": {status.Refused, `line 27: exports[2].backend.volume.path: "relative": want an absolute path, such as /srv/data`},
	}
	for _, e := range s.Exports {
		if w := want[e.Name]; e.State != w.state || e.Error != w.err {
			t.Errorf("%s is %s: %s\nwant %s: %s", e.Name, e.State, e.Error, w.state, w.err)
		}
	}
	if got := r.export("a").Hash; got != hash {
		t.Errorf("the hash of what is served is %s, want that of before, %s", got, hash)
	}
	ar.works()
	bt.works()

	// The same holds for an export that is valid and fails.
	missing := a
	missing.path = filepath.Join(r.vols, "missing")
	s = r.apply(r.yaml(missing, b))
	if e := s.Exports[0]; e.State != status.Outdated || !strings.Contains(e.Error, "no such file or directory") {
		t.Errorf("%s: %s", e.State, e.Error)
	}
	ar.works()

	// It is retried without a reload.
	if err := os.Mkdir(missing.path, 0o755); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the export moves to the directory that is there now", func() bool { return r.export("a").State == status.Serving })
	ar.ends()
	r.connect("a", config.RDMA).put("in the other directory", 10)
	if _, err := os.Stat(filepath.Join(missing.path, "in the other directory")); err != nil {
		t.Error(err)
	}
	bt.works()
}

// TestBadFile checks that an unreadable file changes nothing.
func TestBadFile(t *testing.T) {
	r := newEnv(t)
	a := exportYAML{name: "a"}
	good := r.yaml(a)
	g := r.start(good)
	c := r.connect("a", config.RDMA)
	loaded := g.Status().Config
	s := r.apply(good + "  nonsense\n")
	if !strings.HasPrefix(s.Config.Error, "line 16: not YAML: ") || len(s.Config.Problems) != 1 || s.Config.Problems[0].Line != 16 {
		t.Errorf("%+v", s.Config)
	}
	if s.Config.Hash != loaded.Hash || !s.Ready || s.Exports[0].State != status.Serving {
		t.Errorf("%+v", s)
	}
	c.works()
	if err := os.Remove(filepath.Join(r.dir, "..data")); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the missing file is reported", func() bool { return strings.Contains(g.Status().Config.Error, "no such file") })
	c.works()
	if s := r.apply(good); s.Config.Error != "" || s.Exports[0].State != status.Serving {
		t.Errorf("%+v", s)
	}
	c.works()
}

// TestNameless checks that an export without a readable name keeps all missing ones.
func TestNameless(t *testing.T) {
	r := newEnv(t)
	a, b := exportYAML{name: "a"}, exportYAML{name: "b"}
	r.start(r.yaml(a, b))
	c := r.connect("b", config.TCP)
	b.name, b.path = "B!", r.volume("b")
	s := r.apply(r.yaml(a, b))
	if len(s.Exports) != 2 || s.Exports[0].State != status.Serving || s.Exports[1].Name != "b" || s.Exports[1].State != status.Outdated {
		t.Errorf("%+v", s.Exports)
	}
	c.works()
}

// TestAddresses checks that new addresses are listened on before old ones are closed, and that
// exports can swap theirs.
func TestAddresses(t *testing.T) {
	r := newEnv(t)
	a, b := exportYAML{name: "a"}, exportYAML{name: "b"}
	r.start(r.yaml(a, b))
	ar, at, bt := r.connect("a", config.RDMA), r.connect("a", config.TCP), r.connect("b", config.TCP)
	old := r.address("a", config.RDMA)
	a.rdma = freeAddress(t)
	r.apply(r.yaml(a, b))
	if got := r.address("a", config.RDMA); got != a.rdma {
		t.Errorf("rdma is on %s, want %s", got, a.rdma)
	}
	ar.ends()
	if c, err := net.Dial("tcp", old); err == nil {
		_ = c.Close()
		t.Error("the old address is still listened on")
	}
	r.connect("a", config.RDMA).works()
	at.works()
	bt.works()

	a.tcp, b.tcp = freeAddress(t), freeAddress(t)
	r.apply(r.yaml(a, b))
	a.tcp, b.tcp = b.tcp, a.tcp
	r.apply(r.yaml(a, b))
	eventually(t, "the exports have swapped their addresses", func() bool {
		for _, n := range []string{"a", "b"} {
			for _, l := range r.export(n).Listeners {
				if l.State != status.Listening {
					return false
				}
			}
		}
		return true
	})
	r.connect("a", config.TCP).put("of a", 1)
	if _, err := os.Stat(filepath.Join(r.vols, "a", "of a")); err != nil {
		t.Error(err)
	}

	// All addresses replace a single one on the same port.
	_, port, _ := net.SplitHostPort(a.tcp)
	a.tcp = ":" + port
	r.apply(r.yaml(a, b))
	eventually(t, "the wildcard address is listened on", func() bool { return r.export("a").Listeners[1].State == status.Listening })
	if c, err := dial(t, config.TCP, "127.0.0.1:"+port); err != nil {
		t.Error(err)
	} else if err := c.Null(context.Background()); err != nil {
		t.Error(err)
	}
}

// freeAddress returns a free address, with a port that nobody uses: loopback has many addresses.
func freeAddress(t *testing.T) string {
	t.Helper()
	return fmt.Sprintf("127.%d.%d.%d:%d", 1+rand.IntN(250), rand.IntN(250), 1+rand.IntN(250), freeport.Choose(t, 1)[0])
}

// TestBusyAddress checks that an address in use is reported and retried, and that others serve.
func TestBusyAddress(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	r := newEnv(t)
	g := r.start(r.yaml(exportYAML{name: "a", rdma: busy.Addr().String()}))
	s := g.Status()
	if l := s.Exports[0].Listeners[0]; l.State != status.Retrying || !strings.Contains(l.Error, "address already in use") || l.Address != "" {
		t.Errorf("%+v", l)
	}
	if !s.Ready {
		t.Error("the gateway is not ready, though TCP is served")
	}
	r.connect("a", config.TCP).works()
	_ = busy.Close()
	eventually(t, "the address is listened on", func() bool { return r.export("a").Listeners[0].State == status.Listening })
	r.connect("a", config.RDMA).works()
}

// TestRemovalOfTheLast checks that a gateway is ready while its last export drains.
func TestRemovalOfTheLast(t *testing.T) {
	r := newEnv(t)
	g := r.start(r.yaml(exportYAML{name: "a"}))
	c := r.connect("a", config.TCP)
	c.put("file", 100_000)
	r.gate.close()
	outcome := c.slow()
	<-r.gate.held
	r.write(r.yaml())
	eventually(t, "its address is given up", func() bool {
		e := r.export("a")
		return e.State == status.Removing && !slices.ContainsFunc(e.Listeners, func(l status.Listener) bool { return l.State == status.Listening })
	})
	if !g.Status().Ready {
		t.Error("not ready, though no export is missing")
	}
	r.gate.open()
	if err := <-outcome; err != nil {
		t.Error("a call in flight failed:", err)
	}
	eventually(t, "the export is gone", func() bool { return len(g.Status().Exports) == 0 })
}

// TestRemoval checks that a removed export finishes its calls, and releases its memory and
// directory.
func TestRemoval(t *testing.T) {
	r := newEnv(t)
	a, b := exportYAML{name: "a"}, exportYAML{name: "b"}
	g := r.start(r.yaml(a, b))
	ar, at, bt := r.connect("a", config.RDMA), r.connect("a", config.TCP), r.connect("b", config.TCP)
	handle := ar.put("file", 100_000)
	address := r.address("a", config.RDMA)
	var pools []*servedExport
	for _, e := range g.list() {
		pools = append(pools, e.served)
	}
	r.gate.close()
	outcomes := []<-chan error{ar.slow(), at.slow()}
	<-r.gate.held
	<-r.gate.held
	r.write(r.yaml(b))
	eventually(t, "the export is being removed", func() bool { return r.export("a").State == status.Removing })
	eventually(t, "its address is given up", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	r.gate.open()
	for _, o := range outcomes {
		if err := <-o; err != nil {
			t.Error("a call in flight failed:", err)
		}
	}
	ar.ends()
	at.ends()
	eventually(t, "the export is gone", func() bool { return len(g.Status().Exports) == 1 })
	if s := pools[0].pool.Stats(); s.Mapped != 0 {
		t.Errorf("%d bytes of its memory are still mapped", s.Mapped)
	}
	if s := pools[1].pool.Stats(); s.Mapped == 0 {
		t.Error("the other export's memory is gone")
	}
	bt.works()

	// The export can return, and its handles are still valid.
	r.apply(r.yaml(b, a))
	back := r.connect("a", config.TCP)
	if _, err := back.GetAttr(context.Background(), handle); err != nil {
		t.Error("a handle of before:", err)
	}
}

// TestSameDirectory checks that a directory of another export or gateway is refused.
func TestSameDirectory(t *testing.T) {
	r := newEnv(t)
	if err := os.Symlink(r.volume("a"), filepath.Join(r.vols, "alias")); err != nil {
		t.Fatal(err)
	}
	g := r.start(r.yaml(exportYAML{name: "a"}))
	s := r.apply(r.yaml(exportYAML{name: "a"}, exportYAML{name: "b", path: filepath.Join(r.vols, "alias")}))
	if e := s.Exports[1]; e.State != status.Refused || !strings.Contains(e.Error, "is locked by another export or gateway") {
		t.Errorf("%s: %s", e.State, e.Error)
	}
	c := r.connect("a", config.TCP)
	// Another path of the same directory is the same backend.
	s = r.apply(r.yaml(exportYAML{name: "a", path: filepath.Join(r.vols, "alias")}))
	if s.Exports[0].State != status.Serving {
		t.Errorf("%+v", s.Exports)
	}
	c.works()
	if !g.Status().Ready {
		t.Error("not ready")
	}
}

// TestStop checks that calls in flight finish, new connections are refused, and nothing leaks.
func TestStop(t *testing.T) {
	r := newEnv(t)
	g := r.start(r.yaml(exportYAML{name: "a"}))
	ar, at := r.connect("a", config.RDMA), r.connect("a", config.TCP)
	address := r.address("a", config.TCP)
	r.gate.close()
	outcomes := []<-chan error{ar.slow(), at.slow()}
	<-r.gate.held
	<-r.gate.held
	stopped := make(chan error, 1)
	go func() { stopped <- g.Stop(context.Background()) }()
	eventually(t, "new connections are refused", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			_ = c.Close()
		}
		return err != nil
	})
	if s := g.Status(); !s.Draining || s.Ready {
		t.Errorf("draining %v, ready %v", s.Draining, s.Ready)
	}
	select {
	case err := <-stopped:
		t.Fatal("stopped with calls in flight:", err)
	default:
	}
	r.gate.open()
	for _, o := range outcomes {
		if err := <-o; err != nil {
			t.Error("a call in flight failed:", err)
		}
	}
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	ar.ends()
	at.ends()
}

// TestStopInTime checks that calls are cut off after drainTimeout.
func TestStopInTime(t *testing.T) {
	r := newEnv(t)
	g := r.start(strings.Replace(r.yaml(exportYAML{name: "a"}), "drainTimeout: 20s", "drainTimeout: 50ms", 1))
	ar, at := r.connect("a", config.RDMA), r.connect("a", config.TCP)
	r.gate.close()
	outcomes := []<-chan error{ar.slow(), at.slow()}
	<-r.gate.held
	<-r.gate.held
	stopped := make(chan error, 1)
	go func() { stopped <- g.Stop(context.Background()) }()
	for _, o := range outcomes {
		if err := <-o; err == nil {
			t.Error("the call was answered")
		}
	}
	r.gate.open() // handlers release calls after their connections end
	if err := <-stopped; err != nil {
		t.Error(err)
	}
}

// TestStopWithStuckExport checks that a stuck export delays neither other exports nor the end of
// the process.
func TestStopWithStuckExport(t *testing.T) {
	r := newEnv(t)
	opening, let := make(chan struct{}, 1), make(chan struct{})
	r.verbs = func(verbs.Config) (rdma.Provider, error) {
		opening <- struct{}{}
		<-let
		return nil, errors.New("there is no adapter")
	}
	a := exportYAML{name: "a"}
	stuck := exportYAML{name: "stuck", backend: `{rdma: {server: 192.0.2.1, provider: verbs, versions: ["3"]}}`}
	yaml := func(e ...exportYAML) string {
		return strings.Replace(r.yaml(e...), "drainTimeout: 20s", "drainTimeout: 50ms", 1)
	}
	g := r.start(yaml(a))
	g.o.endTimeout = time.Millisecond
	c := r.connect("a", config.TCP)
	r.write(yaml(a, stuck))
	<-opening
	if err := g.Stop(context.Background()); err == nil || !strings.Contains(err.Error(), "export stuck does not end") {
		t.Errorf("stopped: %v", err)
	}
	c.ends()
	close(let) // the export ends
	g.o.endTimeout = patience
}

// TestSignalWhileStarting checks that a signal ends the wait for the first attempts.
func TestSignalWhileStarting(t *testing.T) {
	cfg := config.Default()
	cfg.APIVersion, cfg.Kind, cfg.StateDir, cfg.Admin.Address = config.APIVersion, config.Kind, t.TempDir(), ""
	x := config.DefaultExport()
	x.Name = "stuck"
	s := config.DefaultNFSServer()
	x.Backend.RDMA = &config.RDMAServer{Server: "192.0.2.1", Port: 20049, Path: "/", Versions: s.Versions, Provider: config.Verbs}
	x.Listeners = []config.Listener{{Network: config.TCP, Address: "127.0.0.1:0"}}
	rule := config.AccessRule{Mode: config.ReadWrite, Squash: config.SquashNone}
	rule.From.Networks = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	x.Access = []config.AccessRule{rule}
	cfg.Exports = []config.Export{x}
	g, err := New(Options{Config: &cfg})
	if err != nil {
		t.Fatal(err)
	}
	opening, let := make(chan struct{}, 1), make(chan struct{})
	g.adapters.open = func(verbs.Config) (rdma.Provider, error) {
		opening <- struct{}{}
		<-let
		return nil, errors.New("there is no adapter")
	}
	signals := make(chan os.Signal, 2)
	go func() {
		<-opening
		signals <- syscall.SIGHUP
		signals <- syscall.SIGTERM
	}()
	if err := start(g, signals); !errors.Is(err, errSignal) {
		t.Errorf("start: %v", err)
	}
	close(let)
	if err := g.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// TestHugePages checks that an export is served with or without huge pages, and that metrics report
// them.
func TestHugePages(t *testing.T) {
	r := newEnv(t)
	r.start("memory: {hugePages: true}\n" + r.yaml(exportYAML{name: "a"}))
	c := r.connect("a", config.RDMA)
	c.put("file", 1<<20)
	c.works()
	_, body := r.get("/metrics")
	value := func(name string) (v float64) {
		_, rest, _ := strings.Cut(body, "\n"+name+" ")
		if _, err := fmt.Sscan(rest, &v); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		return v
	}
	huge, refusals := value(`sluice_memory_bytes{export="a",state="huge_pages"}`), value(`sluice_memory_huge_page_refusals_total{export="a"}`)
	if huge == 0 && refusals == 0 || huge > value(`sluice_memory_bytes{export="a",state="mapped"}`) {
		t.Errorf("%g bytes in huge pages, %g times there were none", huge, refusals)
	}
	t.Logf("%g bytes in huge pages, %g times there were none", huge, refusals)
}
