package rpcrdma

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sluice.dev/sluice/pkg/bufpool"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// extended offers version 2 with some extensions.
func extended(ext Extensions) func(*Config) {
	return func(cfg *Config) { cfg.Versions, cfg.Extensions = []int{2}, TransportProperties|ext }
}

// TestExtensions runs all shapes with every set of extensions on either side.
func TestExtensions(t *testing.T) {
	sets := []Extensions{0, MessageContinuation, SendBasedPlacement, MessageContinuation | SendBasedPlacement}
	for _, server := range sets {
		for _, client := range sets {
			t.Run(fmt.Sprintf("server%d,client%d", server, client), func(t *testing.T) {
				w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, extended(server))
				w.handler.async = server == client
				c := w.dial(extended(client))
				testShapes(w, c)
				w.waitIdle()
				want := TransportProperties | server&client
				if n := c.Negotiated(); n.Extensions != want {
					t.Errorf("client: %+v, want extensions %d", n, want)
				}
				if n := w.server.only().Negotiated(); n.Extensions != want {
					t.Errorf("server: %+v, want extensions %d", n, want)
				}
				w.close(c)
			})
		}
	}
}

// TestExtensionsIWARP runs all shapes with all extensions over software iWARP.
func TestExtensionsIWARP(t *testing.T) {
	p, err := iwarp.New(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := newEnvOn(t, p, extended(allExtensions))
	c := w.dial(extended(allExtensions))
	testShapes(w, c)
	w.waitIdle()
	w.close(c)
}

// TestOneRoundTrip counts the operations that move data with all extensions: no RDMA operation, and
// one Send each way where 64 KiB are enough.
func TestOneRoundTrip(t *testing.T) {
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
		extended(allExtensions)(cfg)
		cfg.Continuation = Continuation{17, 17}
		cfg.Credits = credit.Static(32)
	})
	c := w.dial(func(cfg *Config) {
		extended(allExtensions)(cfg)
		cfg.Continuation = Continuation{17, 17}
		cfg.Credits = credit.Static(32)
	})
	for _, s := range []struct {
		m            move
		sent, answer uint64
	}{
		{move{args: []int{65536}}, 1, 1},
		{move{args: []int{65535}, split: 3}, 1, 1},
		{move{args: []int{5000}, inline: true}, 1, 1},
		{move{results: []int{65536}}, 1, 1},
		{move{results: []int{65535}, how: []int{2}}, 1, 1},
		{move{results: []int{65536}, how: []int{1}}, 1, 1},
		{move{args: []int{65536}, results: []int{65536}}, 1, 1},
		{move{args: []int{256 << 10}}, 4, 1},
		{move{results: []int{256 << 10}}, 1, 4},
		{move{args: []int{1 << 20}, results: []int{1 << 20}}, 16, 16},
		{move{args: []int{100, 5000, 65536}, results: []int{100, 5000, 65536}}, 2, 2},
	} {
		mine, theirs := c.Stats(), w.server.only().Stats()
		if err := s.m.do(c, w.cpool); err != nil {
			t.Errorf("%+v: %v", s.m, err)
			continue
		}
		now, then := c.Stats(), w.server.only().Stats()
		if n := now.Sends - mine.Sends; n != s.sent {
			t.Errorf("%+v: the call took %d Sends, want %d", s.m, n, s.sent)
		}
		if n := then.Sends - theirs.Sends; n != s.answer {
			t.Errorf("%+v: the reply took %d Sends, want %d", s.m, n, s.answer)
		}
		if then.Reads != theirs.Reads || then.Writes != theirs.Writes {
			t.Errorf("%+v: RDMA operations: %+v, before %+v", s.m, then, theirs)
		}
	}
	w.waitIdle()
	w.close(c)
}

// TestGroupCredits mixes sizes, limits and credits. The fabric ends the connection when a message
// finds no receive; a wait for a message that never comes does not end.
func TestGroupCredits(t *testing.T) {
	for _, credits := range []int{1, 2, 3, 5} {
		for _, limit := range []int{1, 2, 4} {
			for _, replies := range []int{1, 3} {
				t.Run(fmt.Sprintf("credits%d,calls%d,replies%d", credits, limit, replies), func(t *testing.T) {
					change := func(cfg *Config) {
						extended(allExtensions)(cfg)
						cfg.Credits, cfg.Continuation = credit.Static(credits), Continuation{limit, replies}
						cfg.Placement = Placement{ReceiveBuffer: 8192, MinLength: 512}
					}
					w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, change)
					w.handler.async = limit == 2
					c := w.dial(change)
					var wg sync.WaitGroup
					for g := range 4 {
						wg.Add(1)
						go func() {
							defer wg.Done()
							r := rand.New(rand.NewPCG(uint64(g), uint64(credits)))
							for range 15 {
								m := move{args: []int{r.IntN(30000)}, results: []int{r.IntN(30000)}, how: []int{r.IntN(3)}, split: r.IntN(3)}
								if err := m.do(c, w.cpool); err != nil {
									t.Errorf("%+v: %v", m, err)
									return
								}
							}
						}()
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
}

// TestGroupsLost ends connections at any time while groups are under way.
func TestGroupsLost(t *testing.T) {
	for i := range 60 {
		w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, extended(allExtensions))
		w.handler.async = i%2 == 0
		c := w.dial(extended(allExtensions))
		var wg sync.WaitGroup
		for range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				m := move{args: []int{200000}, results: []int{300000}}
				for {
					if err := m.do(c, w.cpool); err != nil {
						var lost *LostError
						if !errors.As(err, &lost) && !errors.Is(err, ErrClosed) {
							t.Errorf("request failed with %v", err)
						}
						return
					}
				}
			}()
		}
		time.Sleep(time.Duration(i*50) * time.Microsecond)
		c.Close()
		wg.Wait()
		w.close(c)
	}
}

// TestGroupCancel cancels calls at any time.
func TestGroupCancel(t *testing.T) {
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, extended(allExtensions))
	w.handler.async = true
	c := w.dial(extended(allExtensions))
	for i := range 200 {
		m := move{args: []int{100000}, results: []int{200000}}
		r, err := m.build(w.cpool)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		done := submit(c, r)
		time.Sleep(time.Duration(i%100) * time.Microsecond)
		c.Cancel(r, context.Canceled)
		<-done
		r.Free()
	}
	for range 3 {
		m := move{args: []int{100000}, results: []int{200000}}
		if err := m.do(c, w.cpool); err != nil {
			t.Error(err)
		}
	}
	w.waitIdle()
	w.close(c)
}

// TestGroupMemory makes a call whose reply may have 8 transmissions, while there is memory for ever
// more receives: it is sent when there is enough.
func TestGroupMemory(t *testing.T) {
	change := func(cfg *Config) {
		extended(allExtensions)(cfg)
		cfg.Credits = credit.Static(8)
	}
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, change)
	small := bufpool.New(12 << 20)
	c := w.dial(func(cfg *Config) { change(cfg); cfg.Pool = small })
	if err := null(c, small, procNull); err != nil {
		t.Fatal(err)
	}
	var taken []*bufpool.Buf
	for {
		b, err := small.Get(65536)
		if err != nil {
			break
		}
		taken = append(taken, b)
	}
	for left := range 14 {
		m := move{results: []int{500000}}
		if err := m.do(c, small); err == nil && left < 6 || err != nil && left > 10 {
			t.Errorf("with %d buffers free: %v", left, err)
		}
		taken[0].Release()
		taken = taken[1:]
	}
	for _, b := range taken {
		b.Release()
	}
	w.waitIdle()
	w.close(c)
	if n := small.Stats().Bufs; n != 0 {
		t.Errorf("%d buffers remain", n)
	}
}

// TestGroupGrants changes the grant while groups are under way. The fabric ends the connection when
// a message finds no receive.
func TestGroupGrants(t *testing.T) {
	for _, async := range []bool{false, true} {
		t.Run(fmt.Sprintf("async=%v", async), func(t *testing.T) {
			p := new(wish)
			p.n.Store(32)
			w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
				extended(allExtensions)(cfg)
				cfg.Credits = p
			})
			w.handler.async = async
			c := w.dial(extended(allExtensions))
			var wg sync.WaitGroup
			var stop atomic.Bool
			for g := range 8 {
				wg.Add(1)
				go func() {
					defer wg.Done()
					m := move{args: []int{50000 * g}, results: []int{20000 * g}}
					for !stop.Load() {
						if err := m.do(c, w.cpool); err != nil {
							t.Error(err)
							return
						}
					}
				}()
			}
			for _, n := range []int32{1, 32, 0, 2, 64, 7, -5, 1, 33} {
				p.n.Store(n)
				time.Sleep(15 * time.Millisecond)
			}
			stop.Store(true)
			wg.Wait()
			// Receives beyond a reduced grant disappear only with messages.
			for range 64 {
				if err := (&move{args: []int{4}, results: []int{4}}).do(c, w.cpool); err != nil {
					t.Fatal(err)
				}
			}
			w.waitIdle()
			w.close(c)
		})
	}
}

// TestGroupDrain shuts a server down that retains replies: it does not wait for them.
func TestGroupDrain(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, extended(allExtensions))
	c := w.dial(extended(allExtensions))
	for range 3 {
		m := move{args: []int{100000}, results: []int{100000}}
		if err := m.do(c, w.cpool); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := w.server.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	w.close(c)
}
