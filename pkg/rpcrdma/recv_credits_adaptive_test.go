package rpcrdma

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// posted sums up, at one moment, the receives of all connections that stand for credits, in bytes,
// and the bytes that the policy accounts for.
func (w *env) posted(p *credit.Adaptive) (there, promised int64) {
	w.server.mu.Lock()
	defer w.server.mu.Unlock()
	for c := range w.server.conns {
		r := &c.receives
		r.mu.Lock()
		defer r.mu.Unlock()
		there += int64(max(0, r.posted+r.held-r.extra)) * int64(c.cfg.InlineCall)
	}
	return there, p.Stats().Promised
}

// TestAdaptiveManyClients has 20 busy clients and 5 almost idle ones share memory for 200 receives.
// Posted receives stay within that, and all clients make progress; the busy ones get equal parts.
// Then some leave, and the others get their shares.
func TestAdaptiveManyClients(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprintf("async=%v", async), func(t *testing.T) {
			const busy, idle, low, memory = 20, 5, 4, 200 * 4096
			var ticks atomic.Int64 // time passes by calls: how fast the machine is does not matter
			clock := func() time.Duration { return time.Duration(ticks.Add(1)) * time.Microsecond }
			p, err := credit.NewAdaptive(credit.Limits{Min: low, Max: 64, Memory: memory, ReceiveSize: 4096}, clock)
			if err != nil {
				t.Fatal(err)
			}
			w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.Credits = p })
			w.handler.async = async
			var clients []*Client
			for range busy + idle {
				c := w.dial(nil)
				clients = append(clients, c)
				// all of them are there before any is busy
				if err := null(c, w.cpool, procNull); err != nil {
					t.Fatal(err)
				}
			}
			var calls [busy]atomic.Int64
			var stop [busy]atomic.Bool
			var workers [busy]sync.WaitGroup
			for i := range busy {
				for range 3 {
					workers[i].Go(func() {
						for !stop[i].Load() {
							if err := null(clients[i], w.cpool, procNull); err != nil {
								t.Error(err)
								return
							}
							calls[i].Add(1)
							runtime.Gosched() // one after the other
						}
					})
				}
			}
			granted := func(from, to, want int) func() bool {
				return func() bool {
					there, promised := w.posted(p)
					if there > promised || promised > memory {
						t.Fatalf("receives of %d bytes are there, %d are promised, the budget is %d", there, promised, memory)
					}
					return !slices.ContainsFunc(clients[from:to], func(c *Client) bool { return c.Negotiated().Granted != want })
				}
			}
			// The idle ones need 4 each, which leaves 180.
			eventually(t, "busy clients have equal parts", granted(0, busy, 9))
			var before [busy]int64
			for i := range before {
				before[i] = calls[i].Load()
			}
			for range 2 {
				for _, c := range clients[busy:] {
					if err := null(c, w.cpool, procNull); err != nil {
						t.Error(err)
					}
				}
			}
			eventually(t, "all get on", func() bool {
				granted(0, busy, 9)()
				for i := range before {
					if calls[i].Load() < before[i]+20 {
						return false
					}
				}
				return true
			})
			for i, c := range clients[:busy/2] {
				stop[i].Store(true)
				workers[i].Wait()
				c.Close()
				<-c.Done()
			}
			eventually(t, "the others share what they had", granted(busy/2, busy, 18))
			for i := busy / 2; i < busy; i++ {
				stop[i].Store(true)
				workers[i].Wait()
			}
			w.close(clients[busy/2:]...)
			if s := p.Stats(); s.Promised != 0 || s.Connections != 0 {
				t.Errorf("after all clients are gone: %+v", s)
			}
		})
	}
}

// TestAdaptiveVersions: receives of version 2 that bulk data are placed in take more than those of
// version 1, and count as much.
func TestAdaptiveVersions(t *testing.T) {
	var ticks atomic.Int64
	clock := func() time.Duration { return time.Duration(ticks.Add(1)) * time.Microsecond }
	const small, large = 4096, 4096 + 64<<10
	p, err := credit.NewAdaptive(credit.Limits{Min: 2, Max: 64, Memory: 20 * large, ReceiveSize: large}, clock)
	if err != nil {
		t.Fatal(err)
	}
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
		cfg.Credits, cfg.Versions, cfg.Extensions = p, []int{1, 2}, allExtensions
	})
	one := w.dial(nil)
	two := w.dial(func(cfg *Config) { cfg.Versions, cfg.Extensions = []int{1, 2}, allExtensions })
	for range 300 {
		for _, c := range []*Client{one, two} {
			if err := null(c, w.cpool, procNull); err != nil {
				t.Fatal(err)
			}
		}
	}
	// Version 1 has all that it asks for, 256 KiB, and version 2 the rest.
	a, b := one.Negotiated(), two.Negotiated()
	if a.Version != 1 || b.Version != 2 || a.Granted != 64 || b.Granted != 16 {
		t.Errorf("version %d has %d credits, version %d has %d; want 64 and 16", a.Version, a.Granted, b.Version, b.Granted)
	}
	if s := p.Stats(); s.Promised != 64*small+16*large {
		t.Errorf("%d bytes are promised, want %d", s.Promised, 64*small+16*large)
	}
	w.close(one, two)
}
