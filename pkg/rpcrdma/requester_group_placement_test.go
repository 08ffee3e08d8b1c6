package rpcrdma

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// TestPlacements runs all shapes with every way in which a client may want results, and with
// arguments that are exposed from some length on. With MessageContinuation on one side and
// SendBasedPlacement on the other, calls go by XMTREQ with neither.
func TestPlacements(t *testing.T) {
	for _, sets := range [][2]Extensions{
		{MessageContinuation, SendBasedPlacement}, {SendBasedPlacement, MessageContinuation},
		{allExtensions, allExtensions}, {allExtensions, MessageContinuation}, {SendBasedPlacement, allExtensions},
	} {
		for _, p := range []Placement{
			{Results: wire.Explicit}, {Results: wire.Explicit, Threshold: 1}, {Results: wire.Choice, Threshold: 6000},
			{Results: wire.BySize, Threshold: 6000, MinLength: 100}, {Results: wire.BySize, Threshold: 100_000}, {Threshold: 6001},
		} {
			t.Run(fmt.Sprintf("server%d,client%d,%v,threshold%d", sets[0], sets[1], p.Results, p.Threshold), func(t *testing.T) {
				w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, extended(sets[0]))
				w.handler.async = p.Threshold > 1
				c := w.dial(func(cfg *Config) {
					extended(sets[1])(cfg)
					cfg.Placement = p
				})
				testShapes(w, c)
				before := c.Stats()
				for range 3 { // not the shapes' user memory
					m := move{args: []int{7000}, results: []int{7000}}
					if err := m.do(c, w.cpool); err != nil {
						t.Error(err)
					}
				}
				if n := c.Stats().Sends - before.Sends; n != 3 {
					t.Errorf("three calls took %d Sends", n)
				}
				w.waitIdle()
				w.close(c)
			})
		}
	}
}

// TestPlacementCredits mixes sizes, few credits, and memory that is exposed or is not. The fabric
// ends the connection when a message finds no receive.
func TestPlacementCredits(t *testing.T) {
	for _, credits := range []int{1, 2, 5} {
		for _, p := range []Placement{{Results: wire.Choice, Threshold: 9000}, {Results: wire.BySize, Threshold: 9000}, {Results: wire.Explicit, Threshold: 9000}} {
			t.Run(fmt.Sprintf("credits%d,%v", credits, p.Results), func(t *testing.T) {
				p.ReceiveBuffer, p.MinLength = 8192, 512
				change := func(cfg *Config) {
					extended(allExtensions)(cfg)
					cfg.Credits, cfg.Continuation, cfg.Placement = credit.Static(credits), Continuation{3, 3}, p
				}
				w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, change)
				c := w.dial(change)
				var wg sync.WaitGroup
				for g := range 4 {
					wg.Go(func() {
						r := rand.New(rand.NewPCG(uint64(g), uint64(credits)))
						for range 15 {
							m := move{args: []int{r.IntN(30000)}, results: []int{r.IntN(30000), r.IntN(3000)}, how: []int{r.IntN(3), r.IntN(3)}, split: r.IntN(3), memory: r.IntN(2)}
							if err := m.do(c, w.cpool); err != nil {
								t.Errorf("%+v: %v", m, err)
								return
							}
						}
					})
				}
				wg.Wait()
				w.waitIdle()
				r := &c.conn.receives
				eventually(t, "the client's receives are given back", func() bool {
					r.mu.Lock()
					defer r.mu.Unlock()
					return r.held == 0 && r.extra == spareReceives
				})
				w.close(c)
			})
		}
	}
}
