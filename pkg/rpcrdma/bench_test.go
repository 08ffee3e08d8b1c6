package rpcrdma

import (
	"sync"
	"sync/atomic"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
)

// Both roles in one process, so a call's cost is that of client and server together.
func BenchmarkCalls(b *testing.B) {
	soft, err := iwarp.New(iwarp.Config{})
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range []rdma.Provider{rdmatest.NewFabric(rdmatest.Options{}), soft} {
		for _, c := range []struct {
			name  string
			m     move
			depth int
		}{
			{"null", move{}, 1}, {"null", move{}, 16}, {"read64K", move{results: []int{65536}}, 16}, {"write64K", move{args: []int{65536}}, 16},
			{"read1M", move{results: []int{1 << 20}}, 16}, {"write1M", move{args: []int{1 << 20}}, 16},
		} {
			b.Run(p.Name()+"/"+c.name+"/"+map[int]string{1: "1", 16: "16"}[c.depth], func(b *testing.B) {
				t := &testing.T{}
				w := newEnvOn(t, p, nil)
				w.handler.cheap = true
				cl := w.dial(nil)
				if err := null(cl, w.cpool, procNull); err != nil {
					b.Fatal(err)
				}
				n := 0
				for _, l := range c.m.args {
					n += l
				}
				for _, l := range c.m.results {
					n += l
				}
				b.SetBytes(int64(n))
				b.ReportAllocs()
				b.ResetTimer()
				// The next call answers each reply on the requester's receive loop, so that the
				// replies of one read cause one write.
				var left, failed atomic.Int64
				left.Store(int64(b.N))
				var wg sync.WaitGroup
				wg.Add(c.depth)
				before := cl.Stats()
				for range c.depth {
					r, err := c.m.build(w.cpool)
					if err != nil {
						b.Fatal(err)
					}
					if err := r.Seal(); err != nil {
						b.Fatal(err)
					}
					r.Done = func(r *oncrpc.Request) {
						if r.Err != nil {
							failed.Add(1)
						}
						r.Reply.Release()
						if left.Add(-1) < 0 || r.Err != nil {
							r.Free()
							wg.Done()
							return
						}
						oncrpc.Submit(cl, r)
					}
					oncrpc.Submit(cl, r)
				}
				wg.Wait()
				after := cl.Stats()
				b.ReportMetric(float64(after.ReadCalls+after.WriteCalls-before.ReadCalls-before.WriteCalls)/float64(b.N), "clientcalls/op")
				if failed.Load() > 0 {
					b.Errorf("%d requests failed", failed.Load())
				}
				w.close(cl)
			})
		}
	}
}
