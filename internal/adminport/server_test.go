package adminport

import (
	"log/slog"
	"net"
	"net/http"
	"testing"
	"time"
)

// TestConnLimit checks that the address with the most connections loses its oldest one.
func TestConnLimit(t *testing.T) {
	var l ConnLimit
	var quiet, loud []*fakeConn
	add := func(list *[]*fakeConn, host string) {
		c := &fakeConn{from: net.TCPAddr{IP: net.ParseIP(host), Port: 1 + len(*list)}}
		*list = append(*list, c)
		l.ConnState(c, http.StateNew)
	}
	add(&quiet, "192.0.2.1")
	for range MaxConns + 10 {
		add(&loud, "192.0.2.2")
	}
	if quiet[0].closed || l.Len() != MaxConns {
		t.Errorf("connection of the other address closed: %v; %d connections left", quiet[0].closed, l.Len())
	}
	for i, c := range loud {
		if c.closed != (i < 11) {
			t.Errorf("connection %d closed: %v", i, c.closed)
		}
		l.ConnState(c, http.StateClosed)
	}
	l.ConnState(quiet[0], http.StateClosed)
	if len(l.conns) != 0 || len(l.byIP) != 0 {
		t.Errorf("left: %v, %v", l.conns, l.byIP)
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

// TestServerBounds checks that a server bounds every phase of a request.
func TestServerBounds(t *testing.T) {
	s := NewServer(http.NotFoundHandler(), &ConnLimit{}, slog.New(slog.DiscardHandler))
	if s.ReadHeaderTimeout <= 0 || s.ReadTimeout <= 0 || s.IdleTimeout <= 0 || s.MaxHeaderBytes <= 0 || s.ConnState == nil {
		t.Errorf("unbounded: %+v", s)
	}
	w := &deadlineWriter{}
	WriteTimeout(http.NotFoundHandler()).ServeHTTP(w, &http.Request{})
	if left := time.Until(w.deadline); left <= 0 || left > timeout {
		t.Errorf("write deadline in %v, want at most %v", left, timeout)
	}
}

type deadlineWriter struct{ deadline time.Time }

func (w *deadlineWriter) Header() http.Header         { return http.Header{} }
func (w *deadlineWriter) Write(b []byte) (int, error) { return len(b), nil }
func (w *deadlineWriter) WriteHeader(int)             {}
func (w *deadlineWriter) SetWriteDeadline(d time.Time) error {
	w.deadline = d
	return nil
}
