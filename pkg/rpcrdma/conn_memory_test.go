//go:build !race

package rpcrdma

import (
	"fmt"
	"runtime"
	"testing"

	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// heap is the number of bytes in use, without garbage.
func heap() int {
	var m runtime.MemStats
	for range 3 { // sync.Pool keeps for two collections
		runtime.GC()
	}
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

// TestIdleMemory bounds the bytes on the Go heap of a connection that has made a call and is idle,
// both ends together: some for the connection, some for each credit. The receives themselves lie
// outside.
func TestIdleMemory(t *testing.T) {
	for _, c := range []struct {
		name        string
		change      func(*Config)
		most, grant int
	}{
		{"version 1", func(*Config) {}, 32 << 10, 600},
		{"all extensions", extended(allExtensions), 36 << 10, 900},
	} {
		for _, credits := range []int{8, 72} {
			t.Run(fmt.Sprintf("%s,%d credits", c.name, credits), func(t *testing.T) {
				change := func(cfg *Config) {
					c.change(cfg)
					cfg.Credits = credit.Static(credits)
				}
				p, err := iwarp.New(iwarp.Config{})
				if err != nil {
					t.Fatal(err)
				}
				w := newEnvOn(t, p, change)
				idle := func() {
					w.server.mu.Lock()
					defer w.server.mu.Unlock()
					for s := range w.server.conns {
						s.trimIfIdle()
						s.trimIfIdle()
					}
				}
				dial := func() *Client {
					cl := w.dial(change)
					if err := null(cl, w.cpool, procNull); err != nil {
						t.Fatal(err)
					}
					return cl
				}
				first := dial() // makes everything that connections share
				idle()
				const n = 200 // so that a buffer more or less in a sync.Pool does not matter
				before := heap()
				var clients []*Client
				for range n {
					clients = append(clients, dial())
				}
				idle()
				each := (heap() - before) / n
				t.Logf("%d bytes", each)
				if most := c.most + credits*c.grant; each > most {
					t.Errorf("%d bytes for each connection, want %d at most", each, most)
				}
				w.close(append(clients, first)...)
			})
		}
	}
}
