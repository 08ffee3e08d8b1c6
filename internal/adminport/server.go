package adminport

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

const (
	// MaxConns is the limit on connections of a server.
	MaxConns = 256
	// timeout bounds the time to read a request, and the time to write a response.
	timeout = 10 * time.Second
)

// NewServer returns a server of admin pages. It limits connections by limit, bounds the time to
// read a request to 10 s, and closes a connection that is idle for 2 min. It logs errors to log.
// Wrap handlers in WriteTimeout.
func NewServer(h http.Handler, limit *ConnLimit, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelError), ConnState: limit.ConnState,
		ReadHeaderTimeout: timeout / 2, ReadTimeout: timeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10,
	}
}

// WriteTimeout bounds the time to compute and write a response of h to 10 s. A handler that takes
// longer to compute calls SetWriteDeadline before it writes.
func WriteTimeout(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		SetWriteDeadline(w)
		h.ServeHTTP(w, r)
	})
}

// SetWriteDeadline bounds the time to write the response to 10 s from now.
func SetWriteDeadline(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(timeout))
}

// ConnLimit limits the connections of a server to MaxConns. Above that it closes the oldest
// connection of the IP address with the most connections. The zero value is ready for use.
type ConnLimit struct {
	mu    sync.Mutex
	conns []net.Conn // the oldest first
	byIP  map[string]int
}

// Len returns the number of connections.
func (l *ConnLimit) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.conns)
}

// ConnState is the server's hook for state changes of connections.
func (l *ConnLimit) ConnState(c net.Conn, s http.ConnState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch s {
	case http.StateNew:
		if l.byIP == nil {
			l.byIP = map[string]int{}
		}
		l.conns = append(l.conns, c)
		l.byIP[hostOf(c)]++
		if len(l.conns) > MaxConns {
			l.evictLocked()
		}
	case http.StateClosed, http.StateHijacked:
		for i := range l.conns {
			if l.conns[i] == c {
				l.removeLocked(i)
				return
			}
		}
	}
}

func (l *ConnLimit) evictLocked() {
	most := 0
	for _, n := range l.byIP {
		most = max(most, n)
	}
	for i, c := range l.conns {
		if l.byIP[hostOf(c)] == most {
			_ = c.Close()
			l.removeLocked(i)
			return
		}
	}
}

func (l *ConnLimit) removeLocked(i int) {
	host := hostOf(l.conns[i])
	l.conns = append(l.conns[:i], l.conns[i+1:]...)
	if l.byIP[host]--; l.byIP[host] == 0 {
		delete(l.byIP, host)
	}
}

func hostOf(c net.Conn) string {
	host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
	return host
}
