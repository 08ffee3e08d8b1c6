package rpcrdma

import (
	"errors"
	"fmt"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// drain takes all buffers of n bytes that a pool has, as other connections may do.
func drain(pool *bufpool.Pool, n int) (taken []*bufpool.Buf) {
	for {
		b, err := pool.Get(n)
		if err != nil {
			return taken
		}
		taken = append(taken, b)
	}
}

func releaseEach(bufs []*bufpool.Buf) {
	for _, b := range bufs {
		b.Release()
	}
}

// greedy takes all receive buffers that its pool has left while it has a call, but for the first,
// and gives them back when the next one comes.
type greedy struct {
	oncrpc.Handler
	pool  *bufpool.Pool
	size  int
	calls int
	taken []*bufpool.Buf
}

func (g *greedy) ServeRPC(c *oncrpc.Call) {
	releaseEach(g.taken)
	if g.taken = nil; g.calls > 0 {
		g.taken = drain(g.pool, g.size)
	}
	g.calls++
	g.Handler.ServeRPC(c)
}

// TestDryPool makes calls while there is no memory for further receives: from the time when a call
// comes to a server, or before. Calls are answered, and the server grants as many as ever, for
// calls that do not fill their receive.
func TestDryPool(t *testing.T) {
	for _, ext := range []Extensions{0, allExtensions} {
		for _, credits := range []int{1, 3} {
			for _, before := range []bool{false, true} {
				t.Run(fmt.Sprintf("extensions%d,credits%d,before=%v", ext, credits, before), func(t *testing.T) {
					pool := bufpool.New(24 << 20)
					g := &greedy{pool: pool, size: defaultInline}
					w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
						extended(ext)(cfg)
						cfg.Pool, cfg.Credits = pool, credit.Static(credits)
						if !before {
							g.Handler, cfg.Handler = cfg.Handler, g
						}
					})
					if err := w.domain.Register(pool); err != nil {
						t.Fatal(err)
					}
					c := w.dial(extended(ext))
					// in the extension's receives, zeros fill the segment of the header
					full := move{args: []int{5000}}
					if err := full.do(c, w.cpool); err != nil {
						t.Fatal(err)
					}
					if before {
						g.taken = drain(pool, g.size)
					}
					for i := range 20 {
						if err := null(c, w.cpool, procNull); err != nil {
							t.Fatalf("call %d: %v", i, err)
						}
						if n := w.counts.granted; n != credits {
							t.Fatalf("%d credits are granted, want %d", n, credits)
						}
					}
					for i := range 20 {
						if err := full.do(c, w.cpool); err != nil {
							t.Fatalf("long call %d: %v", i, err)
						}
					}
					releaseEach(g.taken)
					g.taken = nil
					if err := null(c, w.cpool, procNull); err != nil {
						t.Fatal(err)
					}
					releaseEach(g.taken)
					w.waitIdle()
					w.close(c)
					if n := pool.Stats().Bufs; n != 0 {
						t.Errorf("%d buffers remain", n)
					}
				})
			}
		}
	}
}

// TestDryReverse makes a reverse call while there is no memory for a receive for its reply: it
// fails, and takes none of the others.
func TestDryReverse(t *testing.T) {
	pool := bufpool.New(24 << 20)
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.Pool = pool })
	if err := w.domain.Register(pool); err != nil {
		t.Fatal(err)
	}
	c := w.dial(func(cfg *Config) { cfg.Handler = &testHandler{} })
	both := func() error {
		if err := null(c, w.cpool, procNull); err != nil {
			t.Fatal(err)
		}
		return null(w.back(), w.pool, procNull)
	}
	for range 2 { // the second one's reply takes the receive that the first one left
		if err := both(); err != nil {
			t.Fatal(err)
		}
	}
	if err := null(c, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	w.waitIdle()
	taken := drain(pool, defaultInline)
	if err := null(w.back(), w.pool, procNull); !errors.Is(err, errNoReceive) {
		t.Errorf("a reverse call without memory: %v, want %v", err, errNoReceive)
	}
	releaseEach(taken)
	if err := both(); err != nil {
		t.Error(err)
	}
	if err := null(c, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	w.waitIdle()
	w.close(c)
	if n := pool.Stats().Bufs; n != 0 {
		t.Errorf("%d buffers remain", n)
	}
}
