package speaker

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/internal/speaker/api"
	"sluice.dev/sluice/internal/speaker/fsm"
)

func TestFlags(t *testing.T) {
	all := []string{"--config", "x", "--pod", "gw-0", "--pod-uid", "1", "--namespace", "storage"}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{nil, exitUsage, "--config is missing"},
		{all[:4], exitUsage, "--pod-uid is missing"},
		{append([]string{"--lease-duration", "1500ms"}, all...), exitUsage, "--lease-duration: 1.5s, want whole seconds"},
		{append([]string{"--lease-duration", "2s"}, all...), exitUsage, "want whole seconds from 3s"},
		{append([]string{"--lease-duration", "1h"}, all...), exitUsage, "want whole seconds"},
		{append(all[:8:8], "more"), exitUsage, `"more": want flags alone`},
		{[]string{"--what"}, exitUsage, "not defined: -what"},
		{[]string{"--help"}, exitOK, "-lease-duration"},
		{[]string{"--version"}, exitOK, "Sluice speaker 1.2.3"},
		{append([]string{"--kubeconfig", filepath.Join(t.TempDir(), "none")}, all...), exitError, "how the API server is reached"},
	} {
		for _, env := range []string{"POD_NAME", "POD_UID", "POD_NAMESPACE"} {
			t.Setenv(env, "")
		}
		var out bytes.Buffer
		if code := Main(c.args, "1.2.3", &out, &out); code != c.code || !strings.Contains(out.String(), c.want) {
			t.Errorf("%v: code %d, want %d with %q:\n%s", c.args, code, c.code, c.want, &out)
		}
	}
	t.Setenv("POD_NAME", "gw-7")
	t.Setenv("POD_UID", "4711")
	t.Setenv("POD_NAMESPACE", "storage")
	o, _, done := parse([]string{"--config", "x", "--lease-duration", "1m0s"}, "", nil, nil)
	if done || o.pod != "gw-7" || o.uid != "4711" || o.namespace != "storage" || o.timing.Renew != 18*time.Second {
		t.Errorf("%+v", o)
	}
}

// TestPage checks the page before there is a configuration, and while the loop hangs.
func TestPage(t *testing.T) {
	s := newSpeaker(options{pod: "gw-0", uid: "1", timing: fsm.Default, gateway: "http://127.0.0.1:1/readyz"}, slog.New(slog.DiscardHandler), nil)
	get := func(path string) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		s.page().ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
		return w
	}
	if w := get("/metrics"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `sluice_build_info{`) || !strings.Contains(w.Body.String(), `sluice_speaker_interface_up 0`) {
		t.Errorf("/metrics: %d %s", w.Code, w.Body)
	}
	if w := get("/healthz"); w.Code != http.StatusOK {
		t.Errorf("/healthz: %d %s", w.Code, w.Body)
	}
	if w := get("/readyz"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "no configuration") {
		t.Errorf("/readyz: %d %s", w.Code, w.Body)
	}
	if w := get("/status"); w.Code != http.StatusOK || !strings.Contains(w.Body.String(), api.GatewayNotReady) || !strings.Contains(w.Body.String(), `"groups": []`) {
		t.Errorf("/status: %d %s", w.Code, w.Body)
	}
	s.config = new(api.Config)
	if w := get("/readyz"); w.Code != http.StatusOK {
		t.Errorf("/readyz: %d %s", w.Code, w.Body)
	}
	s.looked -= aliveMost + time.Second
	if w := get("/healthz"); w.Code != http.StatusServiceUnavailable {
		t.Errorf("/healthz of a loop that hangs: %d", w.Code)
	}
	w := httptest.NewRecorder()
	s.page().ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/status", nil))
	if w.Code != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d", w.Code)
	}
}
