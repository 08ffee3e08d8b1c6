package gateway

import (
	"bytes"
	"net"
	"net/http"
	"testing"
	"time"

	"sluice.dev/sluice/internal/adminport"
)

// TestAdminUnread checks that clients that never read responses do not block the page.
func TestAdminUnread(t *testing.T) {
	r := newEnv(t)
	r.start(r.yaml(exportYAML{name: "data"}))
	requests := bytes.Repeat([]byte("GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), 2000)
	for range 600 {
		c, err := net.Dial("tcp", r.g.Admin())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		_ = c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, _ = c.Write(requests)
	}
	for _, path := range []string{"/readyz", "/metrics", "/status"} {
		if code, body := r.get(path); code != http.StatusOK || len(body) == 0 {
			t.Errorf("%s: %d, %d bytes", path, code, len(body))
		}
	}
	n := r.g.admin.Connections()
	if n > adminport.MaxConns {
		t.Errorf("%d connections are there, want %d at most", n, adminport.MaxConns)
	}
}
