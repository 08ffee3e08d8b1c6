//go:build kernel

package kernel

import (
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// relay forwards TCP connections to a server and can move them to another. It cuts each early
// connection after some of the server's bytes, so that the last reply is lost: the client repeats
// the call on a new connection, and the server must answer from its reply cache.
type relay struct {
	listener net.Listener
	cuts     atomic.Int64
	limit    int64 // of cuts; later connections last
	wg       sync.WaitGroup

	mu     sync.Mutex
	server string
	open   map[net.Conn]bool // clients' connections
}

func startRelay(t *testing.T, server string, limit int64) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, server: server, limit: limit, open: map[net.Conn]bool{}}
	r.wg.Go(r.accept)
	t.Cleanup(func() { _ = l.Close(); r.move(server); r.wg.Wait() })
	return r
}

func (r *relay) port() int { return r.listener.Addr().(*net.TCPAddr).Port }

// move resets all connections, as a moved IP address does; new ones go to server. It returns the
// number of connections reset.
func (r *relay) move(server string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.server = server
	for c := range r.open {
		reset(c)
	}
	return len(r.open)
}

// dial connects a client's connection to the server.
func (r *relay) dial(client net.Conn) (net.Conn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	server, err := net.Dial("tcp", r.server)
	if err == nil {
		r.open[client] = true
	}
	return server, err
}

func reset(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

func (r *relay) end(client, server net.Conn) {
	_, _ = client.Close(), server.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.open, client)
}

func (r *relay) accept() {
	random := rand.New(rand.NewPCG(1, 2))
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := r.dial(client)
		if err != nil { // the gateway restarts
			_ = client.Close()
			continue
		}
		budget := int64(-1)
		if r.cuts.Load() < r.limit {
			budget = 2000 + random.Int64N(20000)
		}
		r.wg.Go(func() {
			_, _ = io.Copy(server, client)
			_ = server.(*net.TCPConn).CloseWrite()
		})
		r.wg.Go(func() {
			defer r.end(client, server)
			if budget < 0 {
				_, _ = io.Copy(client, server)
				return
			}
			if _, err := io.CopyN(client, server, budget); err != nil {
				return
			}
			if _, err := server.Read(make([]byte, 1)); err == nil { // sent, but not delivered
				r.cuts.Add(1)
				reset(client)
			}
		})
	}
}
