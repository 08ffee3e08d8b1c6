package adminpage

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	status "sluice.dev/sluice/api/status/v1alpha1"
)

// noStatus panics for /status only.
func noStatus(clients bool) (s status.Status) {
	if clients {
		panic("no status")
	}
	return s
}

// TestLog checks that errors of net/http reach the gateway's log.
func TestLog(t *testing.T) {
	lines, w := io.Pipe()
	a := New(slog.New(slog.NewJSONHandler(w, nil)), Gateway{Status: noStatus, Metrics: prometheus.NewRegistry()}, false, nil)
	if err := a.Serve("127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	defer a.Stop()
	failed := make(chan error, 1)
	go func() {
		client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := client.Get("http://" + a.Address() + "/status")
		if err == nil {
			_ = resp.Body.Close()
		}
		failed <- err
		_ = w.Close()
	}()
	b, err := io.ReadAll(lines)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-failed; err == nil {
		t.Error("there was an answer")
	}
	var line struct{ Level, Msg string }
	if err := json.Unmarshal(b, &line); err != nil || line.Level != "ERROR" || !strings.Contains(line.Msg, "no status") {
		t.Errorf("%q: %v", b, err)
	}
}
