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
	r.g.admin.crowd.mu.Lock()
	n := len(r.g.admin.crowd.conns)
	r.g.admin.crowd.mu.Unlock()
	if n > adminConns {
		t.Errorf("%d connections are there, want %d at most", n, adminConns)
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

// TestCrowd: the address with the most connections loses its oldest one.
func TestCrowd(t *testing.T) {
	var k crowd
	var quiet, loud []*fakeConn
	add := func(list *[]*fakeConn, host string) {
		c := &fakeConn{from: net.TCPAddr{IP: net.ParseIP(host), Port: 1 + len(*list)}}
		*list = append(*list, c)
		k.changed(c, http.StateNew)
	}
	add(&quiet, "192.0.2.1")
	for range adminConns + 10 {
		add(&loud, "192.0.2.2")
	}
	if quiet[0].closed || len(k.conns) != adminConns {
		t.Errorf("the other address lost its connection: %v; %d are there", quiet[0].closed, len(k.conns))
	}
	for i, c := range loud {
		if c.closed != (i < 11) {
			t.Errorf("connection %d is closed: %v", i, c.closed)
		}
		k.changed(c, http.StateClosed)
	}
	k.changed(quiet[0], http.StateClosed)
	if len(k.conns) != 0 || len(k.byIP) != 0 {
		t.Errorf("left: %v, %v", k.conns, k.byIP)
	}
}

type fakeConn struct {
	net.Conn
	from   net.TCPAddr
	closed bool
}

func (c *fakeConn) RemoteAddr() net.Addr { return &c.from }
func (c *fakeConn) Close() error {
	c.closed = true
	return nil
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
