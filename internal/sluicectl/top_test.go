package sluicectl

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
)

// topStatus is the status of a gateway with two clients after some calls of one.
func topStatus(calls uint64) status.Status {
	client := func(address string, network config.Network, n uint64) status.Client {
		c := status.Client{Network: network, Remote: netip.MustParseAddrPort(address)}
		c.Counters = status.Calls{RPCs: n, BytesIn: n * 1024, BytesOut: n * 2048, Seconds: float64(n) * 0.00025}
		if network == config.RDMA {
			c.RDMA = &status.RDMA{Provider: "iwarp", Version: 2, Credits: 64, InUse: 3}
		}
		return c
	}
	e := status.Export{Name: "data", State: status.Serving, ClientsOmitted: 1, Clients: []status.Client{
		client("192.0.2.8:700", config.TCP, 5), client("192.0.2.7:701", config.RDMA, calls),
	}}
	e.Credits = &status.Credits{Granted: 64}
	e.Counters.Calls = status.Calls{RPCs: calls + 5, Errors: calls / 10, BytesIn: calls * 1024, BytesOut: calls * 2048, Seconds: float64(calls) * 0.00025}
	return status.Status{Build: status.Build{Version: "v1"}, Ready: true, Exports: []status.Export{e}}
}

// lines returns the words of each line.
func lines(s string) (list []string) {
	for line := range strings.Lines(s) {
		list = append(list, strings.Join(strings.Fields(line), " "))
	}
	return list
}

// TestShow prints the rates between two samples, the busiest client first.
func TestShow(t *testing.T) {
	at := time.Unix(1e9, 0)
	before, now := &sample{topStatus(1000), at}, &sample{topStatus(3000), at.Add(2 * time.Second)}
	var b bytes.Buffer
	must(t, show(&b, before, now))
	got := lines(b.String())
	want := []string{
		"EXPORT CLIENTS CALLS/s ERRORS/s IN/s OUT/s LATENCY CREDITS STATE",
		"data 3 1000 100 1000 KiB 2 MiB 250µs 64 Serving",
		"",
		"CLIENT EXPORT NETWORK CALLS/s ERRORS/s IN/s OUT/s LATENCY CREDITS AGE",
		"192.0.2.7:701 data iwarp v2 1000 0 1000 KiB 2 MiB 250µs 3/64",
		"192.0.2.8:700 data tcp 0 0 0 B 0 B - -",
	}
	if len(got) != len(want)+2 || !strings.HasPrefix(got[0], "gateway v1, up ") {
		t.Fatalf("%q", got)
	}
	for i, w := range want {
		if !strings.HasPrefix(got[i+2], w) {
			t.Errorf("%q, want %q", got[i+2], w)
		}
	}
	// A process that started anew begins at 0.
	now = &sample{topStatus(100), at.Add(time.Second)}
	now.Started = at
	b.Reset()
	must(t, show(&b, before, now))
	if got := lines(b.String())[3]; !strings.HasPrefix(got, "data 3 105 10 100 KiB ") {
		t.Errorf("%q", got)
	}
	if got := cut("a\nb\nc\n", 2); got != "a\nb\n" {
		t.Errorf("%q", got)
	}
}

// TestTop asks a gateway a number of times.
func TestTop(t *testing.T) {
	calls := uint64(0)
	page := http.NewServeMux()
	page.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) {
		calls += 500
		_ = json.NewEncoder(w).Encode(topStatus(calls))
	})
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	run := func(args ...string) (code int, out string) {
		var b bytes.Buffer
		code = Run(t.Context(), "test", append([]string{"top"}, args...), Streams{Out: &b, Err: &b})
		return code, b.String()
	}
	address := server.Listener.Addr().String()
	code, out := run("--admin", address, "--interval", "100ms", "-n", "3")
	if code != 0 || strings.Count(out, "EXPORT") != 6 || strings.Count(out, "192.0.2.7:701") != 3 {
		t.Errorf("exit %d:\n%s", code, out)
	}
	if code, out := run("--admin", address, "--interval", "1ms"); code != 1 || out != "sluicectl: --interval is 1ms, must be at least 100ms.\n" {
		t.Errorf("exit %d: %s", code, out)
	}
	if code, out := run("--admin", "127.0.0.1:1"); code != 1 || out != "sluicectl: cannot ask http://127.0.0.1:1/status: nothing listens there (connection refused).\n" {
		t.Errorf("exit %d: %s", code, out)
	}
}
