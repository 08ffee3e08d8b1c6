package gateway

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
)

var update = flag.Bool("update", false, "write the golden files anew")

// get fetches a path of the admin page.
func (r *env) get(path string) (int, string) {
	r.t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + r.g.Admin() + path)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestStatusGolden compares /status, with placeholders for values that differ from run to run.
func TestStatusGolden(t *testing.T) {
	r := newEnv(t)
	r.start(r.yaml(exportYAML{name: "data"}))
	ar, at := r.connect("data", config.RDMA), r.connect("data", config.TCP)
	bad := exportYAML{name: "data", transport: "{credits: {max: 0}, inlineThreshold: {call: 5}}"}
	r.apply(r.yaml(bad, exportYAML{name: "other", path: filepath.Join(r.vols, "missing")}))
	eventually(t, "no call is in flight", func() bool { return r.export("data").Clients[0].RDMA.InUse == 0 })
	code, body := r.get("/status")
	if code != 200 {
		t.Fatal(code, body)
	}
	for _, n := range []struct{ re, to string }{
		{regexp.QuoteMeta(r.vols), "VOLUMES"},
		{regexp.QuoteMeta(r.dir), "DIR"},
		{`"go": "go[^"]*"`, `"go": "GO"`},
		{`"\d{4}-\d\d-\d\dT[^"]*"`, `"TIME"`},
		{`127\.0\.0\.1:[1-9]\d*`, "127.0.0.1:PORT"},
		{`"hash": "[0-9a-f]{16}"`, `"hash": "HASH"`},
		{`"(identity)": ".*"`, `"$1": "IDENTITY"`},
		// the length of handles depends on the file system
		{`"(bytesIn|bytesOut)": [1-9]\d*`, `"$1": "BYTES"`},
		{`"seconds": [^,\n]*[1-9][^,\n]*`, `"seconds": "SECONDS"`},
		{`(?s)"latency": \[\s*\{.*?\]`, `"latency": "BUCKETS"`},
		{`(?s),\s*"notes": \[.*?\]`, ``},
	} {
		body = regexp.MustCompile(n.re).ReplaceAllString(body, n.to)
	}
	golden := filepath.Join("testdata", "status.golden")
	if *update {
		if err := os.WriteFile(golden, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), body); d != "" {
		t.Error(d)
	}
	ar.works()
	at.works()
}

// TestClientCounters checks that /status counts the calls of each client, and that they add up to
// those of the export.
func TestClientCounters(t *testing.T) {
	r := newEnv(t)
	r.start(r.yaml(exportYAML{name: "data"}))
	const size = 300_000
	for _, c := range []*testClient{r.connect("data", config.RDMA), r.connect("data", config.TCP)} {
		h := c.put("file", size)
		b := make([]byte, size)
		if n, err := c.ReadAt(context.Background(), h, b, 0); err != nil || n != size {
			t.Fatal(n, err)
		}
		if _, err := c.Lookup(context.Background(), c.root, "missing"); err == nil {
			t.Fatal("found")
		}
	}
	var e status.Export
	var sum status.Calls
	eventually(t, "the counters of clients add up to those of the export", func() bool {
		e, sum = r.export("data"), status.Calls{}
		for _, c := range e.Clients {
			sum.RPCs += c.Counters.RPCs
			sum.Errors += c.Counters.Errors
			sum.BytesIn += c.Counters.BytesIn
			sum.BytesOut += c.Counters.BytesOut
		}
		want := e.Counters.Calls
		want.Seconds = 0
		return sum == want
	})
	for _, c := range e.Clients {
		n := c.Counters
		if n.RPCs < 5 || n.Errors != 1 || n.BytesIn < size || n.BytesOut < size || n.BytesIn > 2*size || n.BytesOut > 2*size || n.Seconds <= 0 {
			t.Errorf("%s: %+v", c.Network, n)
		}
	}
	var calls uint64
	for i, b := range e.Counters.Latency {
		calls += b.RPCs
		if i > 0 && b.UpTo <= e.Counters.Latency[i-1].UpTo {
			t.Errorf("buckets: %v", e.Counters.Latency)
		}
	}
	if calls != sum.RPCs {
		t.Errorf("%d calls in buckets, want %d", calls, sum.RPCs)
	}
}

func TestProbes(t *testing.T) {
	r := newEnv(t)
	g := r.start(r.yaml())
	expect := func(path string, code int, text string) {
		t.Helper()
		if c, body := r.get(path); c != code || !strings.Contains(body, text) {
			t.Errorf("%s: %d %q, want %d %q", path, c, body, code, text)
		}
	}
	expect("/healthz", 200, "ok")
	expect("/readyz", 200, "ok") // ready without exports
	r.apply(r.yaml(exportYAML{name: "a", path: filepath.Join(r.vols, "missing")}))
	expect("/readyz", 503, "no listener serves")
	r.apply(r.yaml(exportYAML{name: "b"}))
	expect("/readyz", 200, "ok")
	expect("/", 200, "/status")
	expect("/nothing", 404, "")
	expect("/debug/pprof/", 404, "") // only with --pprof

	// The page moves with its address, and stays after an error.
	old := g.Admin()
	other := freeAddress(t)
	r.apply(strings.Replace(r.yaml(exportYAML{name: "b"}), `"127.0.0.1:0"`, `"`+other+`"`, 1))
	if g.Admin() != other {
		t.Errorf("the page is on %s, want %s", g.Admin(), other)
	}
	expect("/readyz", 200, "ok")
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	if resp, err := client.Get("http://" + old + "/healthz"); err == nil {
		resp.Body.Close()
		t.Error("the page is still on its old address")
	}
	s := r.apply(strings.Replace(r.yaml(exportYAML{name: "b"}), `"127.0.0.1:0"`, `"192.0.2.1:9180"`, 1))
	if !strings.HasPrefix(s.Config.Error, "admin.address: ") || g.Admin() != other {
		t.Errorf("on %s: %s", g.Admin(), s.Config.Error)
	}
	expect("/healthz", 200, "ok")
}

// TestAdminWildcard moves the page to all addresses on its own port.
func TestAdminWildcard(t *testing.T) {
	r := newEnv(t)
	_, port, _ := strings.Cut(freeAddress(t), ":")
	at := func(address string) string { return strings.Replace(r.yaml(), "127.0.0.1:0", address, 1) }
	r.start(at("127.0.0.1:" + port))
	if s := r.apply(at(":" + port)); s.Config.Error != "" {
		t.Fatal(s.Config.Error)
	}
	if code, _ := r.get("/healthz"); code != 200 {
		t.Error(code)
	}
}

func TestProfiles(t *testing.T) {
	c := config.Default()
	c.APIVersion, c.Kind, c.StateDir = config.APIVersion, config.Kind, t.TempDir()
	c.Admin.Address, c.Exports = "127.0.0.1:0", []config.Export{}
	g, err := New(Options{Config: &c, Profile: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := g.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := g.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	r := &env{t: t, g: g}
	if code, body := r.get("/debug/pprof/goroutine?debug=1"); code != 200 || !strings.Contains(body, "goroutine profile") {
		t.Error(code, body)
	}
	if err := g.admin.Serve(":0"); err == nil || !strings.Contains(err.Error(), "profiles need a loopback address") {
		t.Error(err)
	}
}

// TestMetrics checks all metrics after traffic of each kind.
func TestMetrics(t *testing.T) {
	r := newEnv(t)
	far := newEnv(t)
	far.start(far.yaml(exportYAML{name: "far"}))
	r.start(r.yaml(exportYAML{name: "data"}, exportYAML{
		name: "nfs", backend: inFrontOf(t, config.TCP, far.address("far", config.TCP)),
		transport: "{credits: {policy: Adaptive, min: 2, memory: 1Mi}}",
	}))
	rdma, tcp := r.connect("data", config.RDMA), r.connect("data", config.TCP)
	proxied := r.connect("nfs", config.RDMA)
	for range 10 {
		proxied.works()
	}
	const size = 300_000
	for _, c := range []*testClient{rdma, tcp} {
		h := c.put("file", size)
		b := make([]byte, size)
		if n, err := c.ReadAt(context.Background(), h, b, 0); err != nil || n != size {
			t.Fatal(n, err)
		}
		if _, err := c.Lookup(context.Background(), c.root, "missing"); err == nil {
			t.Fatal("found")
		}
	}
	// A long directory needs a Reply chunk.
	for i := range 40 {
		rdma.put(fmt.Sprintf("%s-%d", strings.Repeat("x", 200), i), 0)
	}
	for _, err := range rdma.ReadDirPlus(context.Background(), rdma.root) {
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, "no call is in flight", func() bool {
		return !slices.ContainsFunc(r.export("data").Clients, func(c status.Client) bool { return c.RDMA != nil && c.RDMA.InUse > 0 })
	})
	_, body := r.get("/metrics")
	values := map[string]float64{}
	for l := range strings.Lines(body) {
		l = strings.TrimSpace(l)
		if i := strings.LastIndexByte(l, ' '); i > 0 && strings.HasPrefix(l, "sluice_") {
			v, err := strconv.ParseFloat(l[i+1:], 64)
			if err != nil {
				t.Errorf("%s: %v", l, err)
			}
			values[l[:i]] = v
		}
	}
	for name, least := range map[string]float64{
		`sluice_rpcs_total{export="data",procedure="WRITE",program="nfs3",result="ok"}`:       2,
		`sluice_rpcs_total{export="data",procedure="READ",program="nfs3",result="ok"}`:        2,
		`sluice_rpcs_total{export="data",procedure="LOOKUP",program="nfs3",result="error"}`:   2,
		`sluice_rpcs_total{export="data",procedure="MNT",program="mount3",result="ok"}`:       2,
		`sluice_errors_total{code="NFS3ERR_NOENT",export="data",layer="nfs"}`:                 2,
		`sluice_rpc_duration_seconds_count{export="data",procedure="WRITE",program="nfs3"}`:   2,
		`sluice_rpc_duration_seconds_sum{export="data",procedure="WRITE",program="nfs3"}`:     1e-6,
		`sluice_bytes_total{direction="in",export="data",network="rdma",path="inline"}`:       1000,
		`sluice_bytes_total{direction="out",export="data",network="rdma",path="inline"}`:      1000,
		`sluice_bytes_total{direction="in",export="data",network="rdma",path="read_chunk"}`:   size,
		`sluice_bytes_total{direction="out",export="data",network="rdma",path="write_chunk"}`: size,
		`sluice_bytes_total{direction="out",export="data",network="rdma",path="reply_chunk"}`: 8000,
		`sluice_bytes_total{direction="in",export="data",network="tcp",path="stream"}`:        size,
		`sluice_bytes_total{direction="out",export="data",network="tcp",path="stream"}`:       size,
		`sluice_connections{export="data",network="rdma"}`:                                    1,
		`sluice_connections{export="data",network="tcp"}`:                                     1,
		`sluice_connections_opened_total{export="data",network="rdma"}`:                       1,
		`sluice_connections_opened_total{export="data",network="tcp"}`:                        1,
		`sluice_credits_granted{export="data"}`:                                               128,
		`sluice_credit_memory_bytes{export="data",state="promised"}`:                          128 * 4096,
		`sluice_credit_memory_bytes{export="nfs",state="limit"}`:                              1 << 20,
		`sluice_credit_ceiling{export="data"}`:                                                128,
		`sluice_credit_changes_total{direction="raised",export="nfs",reason="use"}`:           1,
		`sluice_memory_bytes{export="data",state="mapped"}`:                                   size,
		`sluice_memory_bytes{export="data",state="in_use"}`:                                   4096,
		`sluice_memory_bytes{export="data",state="limit"}`:                                    256 << 20,
		`sluice_transport_syscalls_total{call="read",export="data",network="rdma"}`:           4,
		`sluice_transport_syscalls_total{call="write",export="data",network="rdma"}`:          4,
		`sluice_transport_syscalls_total{call="read",export="data",network="tcp"}`:            4,
		`sluice_transport_syscalls_total{call="write",export="data",network="tcp"}`:           4,
		`sluice_transport_messages_total{direction="in",export="data",network="rdma"}`:        4,
		`sluice_transport_messages_total{direction="out",export="data",network="tcp"}`:        4,
		`sluice_transport_bytes_total{direction="in",export="data",network="rdma"}`:           size,
		`sluice_rdma_operations_total{export="data",operation="read"}`:                        1,
		`sluice_rdma_operations_total{export="data",operation="write"}`:                       1,
		`sluice_rdma_operations_total{export="data",operation="send"}`:                        4,
		`sluice_export_state{export="data",state="Serving"}`:                                  1,
		`sluice_listener_up{address="127.0.0.1:0",export="data",network="rdma"}`:              1,
		`sluice_backend_healthy{export="data"}`:                                               1,
		`sluice_backend_healthy{export="nfs"}`:                                                1,
		`sluice_backend_connections{export="nfs"}`:                                            1,
		`sluice_backend_dials_total{export="nfs",result="ok"}`:                                1,
		`sluice_config_loaded_timestamp_seconds`:                                              1e9,
		`sluice_runtime_allocations_total`:                                                    1000,
		`sluice_runtime_allocated_bytes_total`:                                                1000,
	} {
		if v, ok := values[name]; !ok || v < least {
			t.Errorf("%s is %g (there: %v), want at least %g", name, v, ok, least)
		}
	}
	for _, name := range []string{
		`sluice_config_error`, `sluice_protocol_errors_total{export="data",kind="bad_header",network="rdma"}`,
		`sluice_credit_changes_total{direction="lowered",export="data",reason="latency"}`,
		`sluice_credits_in_use{export="data"}`, `sluice_memory_waiting_calls{export="data"}`,
		`sluice_connections_refused_total{export="data",network="rdma",reason="access"}`,
		`sluice_connections_ended_total{export="data",network="tcp",reason="idle_after_call"}`,
	} {
		if v, ok := values[name]; !ok || v != 0 {
			t.Errorf("%s is %g (there: %v), want 0", name, v, ok)
		}
	}
	// The documentation names each metric, and no other.
	doc, err := os.ReadFile("../../docs/gateway.md")
	if err != nil {
		t.Fatal(err)
	}
	named := map[string]bool{}
	for _, n := range regexp.MustCompile("`(sluice_[a-z_]+)`").FindAllStringSubmatch(string(doc), -1) {
		named[n[1]] = true
	}
	// see TestDeviceMetrics
	there := map[string]bool{"sluice_rdma_device_events_total": true, "sluice_rdma_port_counter": true}
	for _, n := range regexp.MustCompile(`(?m)^# TYPE (sluice_[a-z_]+) `).FindAllStringSubmatch(body, -1) {
		there[n[1]] = true
	}
	if d := cmp.Diff(named, there); d != "" {
		t.Errorf("documented (-) and there (+): %s", d)
	}

	// Counters include closed connections.
	before := values[`sluice_transport_bytes_total{direction="in",export="data",network="rdma"}`]
	_ = rdma.rdma.Close()
	eventually(t, "the connection is gone", func() bool { return len(r.export("data").Clients) == 1 })
	_, body = r.get("/metrics")
	if want := fmt.Sprintf(`sluice_transport_bytes_total{direction="in",export="data",network="rdma"} %g`, before); !strings.Contains(body, want) {
		t.Errorf("want %s still", want)
	}
}
