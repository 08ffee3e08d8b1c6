//go:build !race

package rpcrdma

import (
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
)

// TestAllocations holds the steady state of both roles to zero allocations a call.
func TestAllocations(t *testing.T) {
	for _, c := range []struct {
		name string
		m    move
	}{
		{"inline", move{args: []int{100}, results: []int{100}}},
		{"read chunk", move{args: []int{65536}}},
		{"write chunk", move{results: []int{65536}}},
		{"two of both", move{args: []int{65536, 20000}, results: []int{65536, 20000}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, rdmatest.Options{}, nil)
			cl := w.dial(nil)
			r, err := c.m.build(w.cpool)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Seal(); err != nil {
				t.Fatal(err)
			}
			done := make(chan struct{}, 1)
			r.Done = func(*oncrpc.Request) { done <- struct{}{} }
			call := func() {
				r.SetXID(cl.NextXID())
				cl.Submit(r)
				<-done
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				r.Reply.Release()
			}
			for range 300 {
				call()
			}
			if n := testing.AllocsPerRun(200, call); n > 0 {
				t.Errorf("%v allocations a call", n)
			}
			call0 := c.m
			r.Free()
			if err := call0.do(cl, w.cpool); err != nil {
				t.Error(err)
			}
			w.close(cl)
		})
	}
}
