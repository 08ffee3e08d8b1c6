package rpcrdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// TestExposed makes calls that expose more together than the provider can: they wait for each
// other. One that alone is too much fails.
func TestExposed(t *testing.T) {
	for _, async := range []bool{false, true} {
		for _, explicit := range []bool{false, true} {
			t.Run(fmt.Sprintf("async=%v,groups=%v", async, explicit), func(t *testing.T) {
				change := func(cfg *Config) {
					if explicit {
						extended(MessageContinuation)(cfg)
						cfg.Placement = Placement{Results: wire.Explicit, Threshold: 1}
					}
				}
				w := newEnv(t, rdmatest.Options{MaxExposed: 3, ScribbleReceives: true}, change)
				w.handler.async = async
				c := w.dial(change)
				var wg sync.WaitGroup
				for g := range 8 {
					wg.Go(func() {
						for i := range 20 {
							m := move{args: []int{9000 + i}, results: []int{9000 + g}}
							if (g+i)%4 == 0 {
								m.results = append(m.results, 5000)
							}
							if err := m.do(c, w.cpool); err != nil {
								t.Errorf("%+v: %v", m, err)
							}
						}
					})
				}
				wg.Wait()
				large := move{args: []int{9000, 9000}, results: []int{9000, 9000}}
				if err := large.do(c, w.cpool); !errors.Is(err, rdma.ErrExposed) {
					t.Errorf("a call that exposes more than there can be: %v", err)
				}
				if err := (&move{args: []int{9000}, results: []int{9000, 9000}}).do(c, w.cpool); err != nil {
					t.Error(err)
				}
				w.waitIdle()
				out := &c.conn.requester
				out.mu.Lock()
				if out.exposing != 0 || out.inFlight != 0 || out.retrying != 0 {
					t.Errorf("%d calls expose memory, %d credits are in use, %d by calls to be sent again", out.exposing, out.inFlight, out.retrying)
				}
				out.mu.Unlock()
				w.close(c)
			})
		}
	}
}

// TestExposedEnds cancels a call that waits for others to expose less, and loses the connection
// under another one.
func TestExposedEnds(t *testing.T) {
	w := newEnv(t, rdmatest.Options{MaxExposed: 2}, nil)
	c := w.dial(nil)
	if err := null(c, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	call := func(procedure uint32) (*oncrpc.Request, chan struct{}) {
		// no arguments, since the procedure that hangs has none
		m := move{results: []int{9000, 9000}}
		r, err := m.build(w.cpool)
		if err == nil {
			err = r.Seal()
		}
		if err != nil {
			t.Fatal(err)
		}
		if procedure == procHang { // in place of its procedure
			copy(r.Call.Stream[0][20:24], words(procHang))
			r.Procedure = procHang
		}
		return r, submit(c, r)
	}
	starved := func() bool {
		out := &c.conn.requester
		out.mu.Lock()
		defer out.mu.Unlock()
		return out.first != nil && out.first.starved
	}
	first, firstDone := call(procMove)
	<-firstDone
	hang, hangDone := call(procHang)
	eventually(t, "a call hangs", func() bool { return w.handler.hanging() == 1 })
	waits, waitsDone := call(procMove)
	eventually(t, "a call waits", starved)
	c.Cancel(waits, context.Canceled)
	if <-waitsDone; !errors.Is(waits.Err, context.Canceled) {
		t.Errorf("cancelled: %v", waits.Err)
	}
	lost, lostDone := call(procMove)
	eventually(t, "another call waits", starved)
	c.Close()
	<-hangDone
	if <-lostDone; !errors.Is(lost.Err, ErrClosed) {
		t.Errorf("after the end: %v", lost.Err)
	}
	w.handler.release()
	for _, r := range []*oncrpc.Request{first, hang, waits, lost} {
		r.Free()
	}
	w.close(c)
}
