package adminpage

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
)

// TestHistory checks rates of growing counters, of a replaced export, and of one that is gone.
func TestHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h history
		var exports atomic.Pointer[[]status.Export]
		set := func(n uint64) {
			e := status.Export{Name: "data"}
			e.Counters.Calls = status.Calls{RPCs: 10 * n, BytesIn: 5000 * n, BytesOut: 100 * n}
			exports.Store(&[]status.Export{e})
		}
		set(0)
		ctx, cancel := context.WithCancel(t.Context())
		go h.run(ctx, func() []status.Export { return *exports.Load() })
		for i := range uint64(2 * maxSamples) {
			synctest.Wait()
			set(i + 1)
			time.Sleep(sampleInterval)
		}
		synctest.Wait()
		got := h.rates("data")
		if len(got) != maxSamples-1 || got[0] != (rate{2, 1000, 20}) || got[len(got)-1] != got[0] {
			t.Errorf("%d rates: %v", len(got), got)
		}
		set(0)
		time.Sleep(sampleInterval)
		synctest.Wait()
		if got := h.rates("data"); got[len(got)-1] != (rate{}) {
			t.Errorf("of a new export: %v", got[len(got)-1])
		}
		exports.Store(new([]status.Export))
		time.Sleep(sampleInterval)
		synctest.Wait()
		if got := h.rates("data"); got != nil {
			t.Errorf("of an export that is gone: %v", got)
		}
		cancel()
		synctest.Wait()
	})
}

func TestLines(t *testing.T) {
	var l Lines
	for i := range 3 * maxLines {
		fmt.Fprint(&l, i)
	}
	if got := l.newestFirst(); len(got) != maxLines || got[0] != fmt.Sprint(3*maxLines-1) {
		t.Errorf("%d lines: %q", len(got), got)
	}
}

// TestPages checks that the pages show fields of /status and log lines, with markup escaped.
func TestPages(t *testing.T) {
	const hostile = `</td><script>alert("1")</script>`
	e := status.Export{
		Name: "data", State: status.Outdated, Error: hostile,
		Listeners: []status.Listener{{Network: config.RDMA, Address: "192.0.2.1:20049", State: status.Retrying, Error: "address in use"}},
		Backend:   status.Backend{Kind: "volume", Path: "/srv/" + hostile, Healthy: true},
		Credits:   &status.Credits{Granted: 137, Max: 128},
		Counters: status.Counters{
			Calls:   status.Calls{RPCs: 4, Seconds: 0.01},
			Latency: []status.Bucket{{UpTo: 0.0025, RPCs: 3}, {RPCs: 1}},
		},
	}
	for i := range maxRows + 5 {
		c := status.Client{Network: config.RDMA, Remote: netip.AddrPortFrom(netip.MustParseAddr("192.0.2.9"), uint16(1000+i)), RDMA: &status.RDMA{Version: 2, Credits: 77, InUse: 1}}
		c.Counters = status.Calls{RPCs: 2, BytesIn: 1_500_000, Seconds: 0.003}
		e.Clients = append(e.Clients, c)
	}
	recent := new(Lines)
	slog.New(slog.NewTextHandler(recent, nil)).Warn("client refused", "reason", hostile)
	g := Gateway{
		Status: func(bool) status.Status {
			return status.Status{Build: status.Build{Version: "v7"}, Exports: []status.Export{e}}
		},
		Metrics: prometheus.NewRegistry(), Recent: recent,
	}
	s := New(slog.New(slog.DiscardHandler), g, false, nil)
	s.page.history.add(time.Unix(0, 0), []status.Export{{Name: "data"}})
	moved := e
	moved.Counters.BytesOut = 10_000_000
	s.page.history.add(time.Unix(5, 0), []status.Export{moved})
	for path, want := range map[string][]string{
		"/": {
			`href="/exports/data"`, "v7", "Outdated", "137", ">205<", "2 MB/s", "data: rdma : address in use", "data: &lt;/td&gt;&lt;script&gt;", "client refused", `href="/status"`, `href="/metrics"`, "<polyline",
		},
		"/exports/data": {
			"192.0.2.9:1000", ">77<", "1.5 MB", "1.5 ms", "5 more connections", "2 MB/s", "≤ 2.5 ms: 3 calls", "more: 1 calls", `href="/exports/data/status"`, `http-equiv="refresh"`,
		},
		"/style.css": {"color-scheme"},
	} {
		code, header, body := fetch(t, s, path)
		for _, w := range want {
			if !strings.Contains(body, w) {
				t.Errorf("%s: no %q in\n%s", path, w, body)
			}
		}
		if code != http.StatusOK || strings.Contains(body, "<script") || strings.Contains(body, "ZgotmplZ") {
			t.Errorf("%s: %d\n%s", path, code, body)
		}
		if path != "/style.css" && !strings.Contains(header.Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s: %v", path, header)
		}
	}
	if code, header, body := fetch(t, s, "/exports/data/status"); code != http.StatusOK || header.Get("Content-Type") != "application/json" || !strings.Contains(body, `"name": "data"`) {
		t.Errorf("%d %v\n%s", code, header, body)
	}
	for _, path := range []string{"/exports/other", "/exports/other/status"} {
		if code, _, _ := fetch(t, s, path); code != http.StatusNotFound {
			t.Errorf("%s: %d", path, code)
		}
	}
}

// TestNoErrors checks that the page says so when there are none.
func TestNoErrors(t *testing.T) {
	g := Gateway{Status: func(bool) status.Status { return status.Status{} }, Metrics: prometheus.NewRegistry(), Recent: new(Lines)}
	_, _, body := fetch(t, New(slog.New(slog.DiscardHandler), g, false, nil), "/")
	if n := strings.Count(body, `<p class="dim">none</p>`); n != 2 {
		t.Errorf("want none of two kinds of errors, have %d in\n%s", n, body)
	}
}

func fetch(t *testing.T, s *Server, path string) (int, http.Header, string) {
	t.Helper()
	w := httptest.NewRecorder()
	s.handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	b, err := io.ReadAll(w.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.Code, w.Result().Header, string(b)
}
