package rpcrdma

import (
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/iwarp"
)

// TestIWARP runs all shapes over software iWARP.
func TestIWARP(t *testing.T) {
	p, err := iwarp.New(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := newEnvOn(t, p, nil)
	c := w.dial(nil)
	testShapes(w, c)
	w.close(c)
}

// TestIWARPLost ends connections at any time, from either side, while calls are under way in both
// directions.
func TestIWARPLost(t *testing.T) {
	t.Run("version 1", func(t *testing.T) { testIWARPLost(t, func(*Config) {}) })
	t.Run("all extensions", func(t *testing.T) { testIWARPLost(t, extended(allExtensions)) })
}

func testIWARPLost(t *testing.T, change func(*Config)) {
	p, err := iwarp.New(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	w := newEnvOn(t, p, change)
	w.handler.async = true
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 30 {
		c := w.dial(func(cfg *Config) {
			change(cfg)
			cfg.Handler = &testHandler{}
		})
		var wg sync.WaitGroup
		for g := range 6 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for n := 0; ; n++ {
					m := shapes[(n+g)%10].m
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
		wg.Add(1)
		go func() {
			defer wg.Done()
			if null(c, w.cpool, procNull) != nil {
				return
			}
			back := w.back()
			for null(back, w.pool, procNull) == nil {
				time.Sleep(100 * time.Microsecond)
			}
		}()
		time.Sleep(time.Duration(rnd.IntN(20)) * time.Millisecond)
		if i%3 == 0 {
			w.server.mu.Lock()
			for s := range w.server.conns {
				_ = oncrpc.Requester(&s.requester).Close()
			}
			w.server.mu.Unlock()
		} else {
			c.Close()
		}
		wg.Wait()
		<-c.Done()
		if n := w.cpool.Stats().Bufs; n != 0 {
			t.Fatalf("round %d: the client still has %d buffers", i, n)
		}
	}
	w.close()
}
