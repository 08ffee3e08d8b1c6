package gateway

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/internal/adminport"
	"sluice.dev/sluice/pkg/oncrpc"
)

// TestAdminUnread: clients that send requests and never read the answers do not keep the page from others.
func TestAdminUnread(t *testing.T) {
	r := newRig(t)
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
	n := r.g.admin.limit.Len()
	if n > adminport.MaxConns {
		t.Errorf("%d connections are there, want %d at most", n, adminport.MaxConns)
	}
}

// TestPage: requests that come while an answer is made share the next one, so that it is not older than they are.
func TestPage(t *testing.T) { synctest.Test(t, testPage) }

func testPage(t *testing.T) {
	var made, at, most atomic.Int32
	begun, goOn := make(chan struct{}), make(chan struct{})
	p := &page{render: func(w http.ResponseWriter, _ *http.Request) {
		most.Store(max(most.Load(), at.Add(1)))
		defer at.Add(-1)
		n := made.Add(1)
		if n == 1 {
			close(begun)
			<-goOn
		}
		w.Header().Set("X", "y")
		fmt.Fprint(w, n)
	}}
	get := func(ctx context.Context) *httptest.ResponseRecorder {
		w := httptest.NewRecorder()
		p.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
		return w
	}
	var all sync.WaitGroup
	all.Go(func() {
		if got := get(t.Context()).Body.String(); got != "1" {
			t.Errorf("the first request got answer %s", got)
		}
	})
	<-begun
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	get(gone) // does not wait
	for range 100 {
		all.Go(func() {
			if w := get(t.Context()); w.Body.String() != "2" || w.Header().Get("X") != "y" || w.Code != http.StatusOK {
				t.Errorf("a request during the first one got answer %s, %v", w.Body, w.Header())
			}
		})
	}
	synctest.Wait()
	close(goOn)
	all.Wait()
	if made.Load() != 2 || most.Load() != 1 {
		t.Errorf("%d answers were made, %d at once", made.Load(), most.Load())
	}
}

// TestStatusBounded: /status lists so many connections that it can be read, and counts the others.
func TestStatusBounded(t *testing.T) {
	c := clients{byConn: map[*oncrpc.Conn]*peer{}}
	for range 100 {
		c.open(onTCP, &oncrpc.Conn{}, nil)
	}
	for most, want := range map[int]int{0: 0, 10: 10, 100: 100, 1000: 100} {
		list, omitted := c.list(most)
		if len(list) != want || omitted != 100-want {
			t.Errorf("at most %d: %d are listed, %d omitted, want %d", most, len(list), omitted, want)
		}
	}
	for _, exports := range []int{1, 10, 1000} {
		if most := clientsListed(exports); most < 1 || most*exports > 4096 {
			t.Errorf("%d exports list %d connections each", exports, most)
		}
	}
}
