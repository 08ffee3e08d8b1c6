//go:build !race

package rpcrdma

import (
	"fmt"
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
		{"several transmissions", move{args: []int{200000}, results: []int{200000}}},
		{"two of both", move{args: []int{65536, 20000}, results: []int{65536, 20000}}},
	} {
		for i, ext := range []Extensions{0, TransportProperties, allExtensions} {
			t.Run(fmt.Sprintf("%s,version%d,extensions%d", c.name, min(i+1, 2), ext), func(t *testing.T) {
				change := func(cfg *Config) { cfg.Versions, cfg.Extensions = []int{min(i+1, 2)}, ext }
				w := newEnv(t, rdmatest.Options{}, change)
				cl := w.dial(change)
				steady(t, w, cl, &c.m)
				w.close(cl)
			})
		}
		t.Run(c.name+",working group", func(t *testing.T) {
			w := newEnv(t, rdmatest.Options{}, workingGroup)
			cl := w.dial(workingGroup)
			steady(t, w, cl, &c.m)
			w.close(cl)
		})
	}
}

// steady makes calls until nothing is allocated for one any more.
func steady(t *testing.T, w *env, cl *Client, m *move) {
	r, err := m.build(w.cpool)
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
	r.Free()
	if err := m.do(cl, w.cpool); err != nil {
		t.Error(err)
	}
}

// TestBackAllocations makes calls of the reverse direction of which each takes two of three
// credits, so that all but one wait for them.
func TestBackAllocations(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
		extended(MessageContinuation)(cfg)
		cfg.ReverseCredits = 3
	})
	c := w.dial(func(cfg *Config) {
		extended(MessageContinuation)(cfg)
		cfg.Handler, cfg.ReverseCredits = new(testHandler), 3
	})
	if err := null(c, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	back := w.back()
	done := make(chan *oncrpc.Request, 4)
	var rs []*oncrpc.Request
	for range cap(done) {
		m := move{args: []int{5000}}
		r, err := m.build(w.pool)
		if err == nil {
			err = r.Seal()
		}
		if err != nil {
			t.Fatal(err)
		}
		r.Done = func(r *oncrpc.Request) { done <- r }
		rs = append(rs, r)
	}
	calls := func() {
		for _, r := range rs {
			oncrpc.Submit(back, r)
		}
		for range rs {
			r := <-done
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			r.Reply.Release()
		}
	}
	for range 100 {
		calls()
	}
	if n := testing.AllocsPerRun(200, calls); n > 0 {
		t.Errorf("%v allocations for %d calls", n, len(rs))
	}
	for _, r := range rs {
		r.Free()
	}
	w.close(c)
}
