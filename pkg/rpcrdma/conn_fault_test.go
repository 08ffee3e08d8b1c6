package rpcrdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
)

// workload submits all shapes at once, and counts the ends of each request.
func workload(w *env, c *Client) (failed int) {
	w.t.Helper()
	var mu sync.Mutex
	ends := map[*oncrpc.Request]int{}
	var wg sync.WaitGroup
	moves := map[*oncrpc.Request]*move{}
	for i := range shapes {
		m := &shapes[i].m
		if m.results != nil && m.results[0] > 1<<20 || m.args != nil && m.args[0] > 1<<20 {
			continue
		}
		r, err := m.build(w.cpool)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := r.Seal(); err != nil {
			w.t.Fatal(err)
		}
		moves[r] = m
		wg.Add(1)
		r.Done = func(r *oncrpc.Request) {
			mu.Lock()
			ends[r]++
			first := ends[r] == 1
			mu.Unlock()
			if first {
				wg.Done()
			}
		}
		oncrpc.Submit(c, r)
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute):
		w.t.Fatal("requests are stuck")
	}
	mu.Lock()
	defer mu.Unlock()
	for r, m := range moves {
		if ends[r] != 1 {
			w.t.Errorf("a request ended %d times", ends[r])
		}
		if r.Err != nil {
			failed++
			var lost *LostError
			if !errors.As(r.Err, &lost) {
				w.t.Errorf("request failed with %v, want a LostError", r.Err)
			}
		} else if err := m.check(r); err != nil {
			w.t.Error(err)
		}
		r.Free()
	}
	return failed
}

// TestFaults loses the connection at every step, in every way.
func TestFaults(t *testing.T) {
	for _, f := range []struct {
		name string
		do   rdmatest.Action
		op   rdma.Opcode
	}{
		{"before send", rdmatest.LoseBeforeSend, rdmatest.AnyOp},
		{"before delivery", rdmatest.LoseBeforeDelivery, rdmatest.AnyOp},
		{"after delivery", rdmatest.LoseAfterDelivery, rdmatest.AnyOp},
		{"Read refused", rdmatest.RefuseAccess, rdma.Read},
		{"Write refused", rdmatest.RefuseAccess, rdma.Write},
		{"Send overruns", rdmatest.Overrun, rdma.Send},
	} {
		for _, side := range []rdmatest.Side{rdmatest.Dialer, rdmatest.Acceptor} {
			for _, async := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s,%v,async=%v", f.name, side, async), func(t *testing.T) {
					for n := 1; n < 200; n++ {
						w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, nil)
						w.handler.async = async
						c := w.dial(nil)
						a := w.fabric.Inject(rdmatest.Fault{Do: f.do, Op: f.op, From: side, Nth: n})
						failed := workload(w, c)
						struck := a.Fired()
						if struck && f.do != rdmatest.LoseAfterDelivery && failed == 0 && f.op != rdmatest.AnyOp {
							t.Errorf("step %d: the connection was lost and no request failed", n)
						}
						w.close(c)
						if !struck {
							return
						}
						n += n / 12 // later messages repeat earlier ones, in other orders
					}
					t.Error("the fault still strikes at step 200")
				})
			}
		}
	}
}

// TestServerGone closes the server while calls hang in the handler.
func TestServerGone(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, nil)
	c := w.dial(nil)
	if err := null(c, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	var failed atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := null(c, w.cpool, procHang); err != nil {
				failed.Add(1)
			}
		}()
	}
	eventually(t, "8 calls hang", func() bool { return w.handler.hanging() == 8 })
	w.server.Close()
	wg.Wait()
	if failed.Load() != 8 {
		t.Errorf("%d of 8 requests failed", failed.Load())
	}
	if err := null(c, w.cpool, procNull); err == nil {
		t.Error("a request on a lost connection succeeded")
	}
	w.close(c)
}

// TestShutdown lets calls in flight finish, and refuses new connections.
func TestShutdown(t *testing.T) { synctest.Test(t, testShutdown) }

func testShutdown(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, nil)
	busy, idle := w.dial(nil), w.dial(nil)
	if err := null(idle, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- null(busy, w.cpool, procHang) }()
	eventually(t, "a call hangs", func() bool { return w.handler.hanging() == 1 })
	down := make(chan error, 1)
	go func() { down <- w.server.Shutdown(context.Background()) }()
	<-idle.Done() // it has nothing in flight
	if _, err := Dial(context.Background(), w.p, w.address, w.clientConfig()); err == nil {
		t.Error("a connection was made during shutdown")
	}
	synctest.Wait()
	select {
	case err := <-down:
		t.Fatalf("Shutdown returned %v with a call in flight", err)
	default:
	}
	w.handler.release()
	if err := <-got; err != nil {
		t.Errorf("the call in flight failed: %v", err)
	}
	if err := <-down; err != nil {
		t.Error(err)
	}
	<-busy.Done()
	w.close(busy, idle)
}

// TestShutdownDeadline ends unfinished work at the deadline.
func TestShutdownDeadline(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, nil)
	c := w.dial(nil)
	got := make(chan error, 1)
	go func() { got <- null(c, w.cpool, procHang) }()
	eventually(t, "a call hangs", func() bool { return w.handler.hanging() == 1 })
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := w.server.Shutdown(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Shutdown: %v", err)
	}
	if err := <-got; err == nil {
		t.Error("the call succeeded")
	}
	w.close(c)
}
