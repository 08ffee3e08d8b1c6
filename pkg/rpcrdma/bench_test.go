package rpcrdma

import (
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
				w := newWorldOn(t, p, nil)
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
				free := make(chan *oncrpc.Request, c.depth)
				for range c.depth {
					r, err := c.m.build(w.cpool)
					if err != nil {
						b.Fatal(err)
					}
					if err := r.Seal(); err != nil {
						b.Fatal(err)
					}
					r.Done = func(r *oncrpc.Request) { free <- r }
					free <- r
				}
				b.SetBytes(int64(n))
				b.ReportAllocs()
				for b.Loop() {
					r := <-free
					if r.Err != nil {
						b.Fatal(r.Err)
					}
					r.Reply.Release()
					oncrpc.Submit(cl, r)
				}
				for range c.depth {
					r := <-free
					r.Free()
				}
				w.close(cl)
			})
		}
	}
}
