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

// relay passes TCP connections on to a server, and cuts each when some of the server's bytes have passed: what the server said last does
// not arrive. The client has to ask again on a new connection, and the server to know that it has answered.
type relay struct {
	listener net.Listener
	server   string
	cuts     atomic.Int64 // made
	limit    int64        // of cuts: later connections last
	wg       sync.WaitGroup
}

func startRelay(t *testing.T, server string, limit int64) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, server: server, limit: limit}
	r.wg.Go(r.accept)
	t.Cleanup(func() { _ = l.Close(); r.wg.Wait() })
	return r
}

func (r *relay) port() int { return r.listener.Addr().(*net.TCPAddr).Port }

func (r *relay) accept() {
	random := rand.New(rand.NewPCG(1, 2))
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", r.server)
		if err != nil { // the gateway is being restarted
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
			defer client.Close()
			defer server.Close()
			if budget < 0 {
				_, _ = io.Copy(client, server)
				return
			}
			if _, err := io.CopyN(client, server, budget); err != nil {
				return
			}
			if _, err := server.Read(make([]byte, 1)); err == nil { // said, but not heard
				r.cuts.Add(1)
			}
		})
	}
}
