//go:build !race

package group

import (
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// TestAllocations: in the steady state, planner, assembler and directions allocate nothing per
// message.
func TestAllocations(t *testing.T) {
	l := lay(t, 4096, -32768, -32768)
	for _, c := range []struct {
		name    string
		payload int
		items   []int
	}{
		{"inline", 200, nil},
		{"one", 200, []int{65536}},
		{"many", 9000, []int{500000, 70000}},
		{"explored", 40000, []int{32768}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, bulk := rpc(c.payload, c.items, true)
			pool := bufpool.New(0)
			var p Planner
			var head wire.Transmit
			mem := make([]byte, 1<<16)
			buffers := make([]byte, 40*l.Size)
			hdrs := make([]wire.Header, 40)
			a := NewAssembler(l)
			var got oncrpc.Message
			segs := make([][]byte, len(l.Segments))
			var message [2][]byte
			run := func() {
				head.Reset()
				if err := p.Split(m, zeros, bulk); err != nil {
					t.Fatal(err)
				}
				if err := p.Lay(l, wire.XmtReq, &head, Limits{40, 8}); err != nil {
					t.Fatal(err)
				}
				for i, x := range p.Write(mem[:p.Memory()], 7, 1) {
					buf := buffers[i*l.Size : (i+1)*l.Size]
					n := 0
					for _, s := range x.Gather {
						n += copy(buf[n:], s)
					}
					for k, s := range l.Segments {
						segs[k] = buf[s.At : s.At+s.Length]
					}
					message[0], message[1] = buf[:100], buf[100:n]
					if err := hdrs[i].Parse(message[:], &limits); err != nil {
						t.Fatal(err)
					}
					b, err := pool.Get(256)
					if err != nil {
						t.Fatal(err)
					}
					if o := a.Add(&hdrs[i], segs, n, b, 40); o != More && o != Whole {
						t.Fatalf("outcome %d, %+v", o, *a.Report())
					}
				}
				a.Message(&got)
				if len(got.Items) != len(c.items) || got.StreamLen() != c.payload {
					t.Fatalf("%d items, a stream of %d", len(got.Items), got.StreamLen())
				}
				got.Release()
			}
			if n := testing.AllocsPerRun(100, run); n > 0 {
				t.Errorf("%v allocations a message", n)
			}
			if n := pool.Stats().Bufs; n > 0 {
				t.Errorf("%d buffers are left", n)
			}
		})
	}
	t.Run("directions", func(t *testing.T) {
		plan := results(44, 80, 80, 120)
		wants := []Want{{Placement: wire.SendBased, MinLength: 10}, {Placement: wire.Choice, Segments: []wire.Segment{{Handle: 1, Length: 5000}}}}
		found := []oncrpc.Found{{State: oncrpc.Inline, Position: 40, Length: 100}, {State: oncrpc.Inline, Position: 160, Length: 4000}}
		var head, answer wire.Transmit
		var bulk []Bulk
		var p Planner
		m := &oncrpc.Message{Stream: [][]byte{text(160, 0)}, Items: []xdr.Item{
			{Position: 40, Length: 100, Data: [][]byte{text(100, 1)}}, {Position: 160, Length: 4000, Data: [][]byte{text(4000, 2)}}}}
		run := func() {
			head.Reset()
			answer.Reset()
			if err := Direct(&head, plan, wants); err != nil {
				t.Fatal(err)
			}
			var err error
			if bulk, err = Answer(bulk[:0], &head, plan, found, wire.Explicit); err != nil {
				t.Fatal(err)
			}
			if err := p.Split(m, zeros, bulk); err != nil {
				t.Fatal(err)
			}
			if err := p.Lay(l, wire.XmtResp, &answer, Limits{1, 8}); err != nil {
				t.Fatal(err)
			}
			if err := Check(&head, &answer); err != nil {
				t.Fatal(err)
			}
		}
		if n := testing.AllocsPerRun(100, run); n > 0 {
			t.Errorf("%v allocations a reply", n)
		}
	})
}
