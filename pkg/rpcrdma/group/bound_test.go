package group

import (
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// TestBound holds what is reserved for replies, with the usual receives.
func TestBound(t *testing.T) {
	segs := []wire.Segment{{Handle: 1, Length: 1 << 20}}
	sendBased := Want{Placement: wire.SendBased, MinLength: 4096}
	for _, c := range []struct {
		name  string
		max   int
		sizes []int
		want  Want
		count int
	}{
		{"GETATTR", 300, nil, Want{}, 1},
		{"READDIR of 64 KiB", 65536 + 100, nil, Want{}, 1},
		{"1 MiB without results", 1 << 20, nil, Want{}, 16},
		{"READ of 4 KiB", 4096 + 200, []int{4096}, sendBased, 1},
		{"READ of 64 KiB", 65536 + 200, []int{65536}, sendBased, 1},
		{"READ of 256 KiB", 262144 + 200, []int{262144}, sendBased, 4},
		{"READ of 1 MiB", 1<<20 + 200, []int{1 << 20}, sendBased, 16},
		{"READ of 1 MiB with an ACL of 64 KiB", 1<<20 + 65536, []int{1 << 20}, sendBased, 17},
		{"two of 64 KiB", 131072 + 200, []int{65536, 65536}, sendBased, 2},
		{"inline", 65536 + 200, []int{65536}, Want{}, 1},
		{"explicit", 1<<20 + 200, []int{1 << 20}, Want{Placement: wire.Explicit, MinLength: 4096, Segments: segs}, 1},
		{"either", 1<<20 + 200, []int{1 << 20}, Want{Placement: wire.Choice, Segments: segs}, 16},
		{"short ones are as long as two targets", 131072 + 200, []int{131072}, Want{Placement: wire.SendBased, MinLength: 131073}, 4},
		{"nothing", 200, []int{0}, sendBased, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			plan := oncrpc.Plan{MaxReply: c.max}
			var wants []Want
			for _, n := range c.sizes {
				plan.Results = append(plan.Results, oncrpc.Result{Max: n, Begin: 40, End: 80})
				wants = append(wants, c.want)
			}
			var p Planner
			if n, err := p.Bound(typical(t), &plan, wants, 17); n != c.count || err != nil {
				t.Errorf("%d transmissions, %v, must be %d", n, err, c.count)
			}
			var fit *FitError
			if n, err := p.Bound(typical(t), &plan, wants, c.count-1); !errors.As(err, &fit) || fit.Needed != c.count {
				t.Errorf("%d transmissions, %v; %d are allowed", n, err, c.count-1)
			}
		})
	}
}

// TestBoundHolds lets a requester ask, and a responder answer with anything that the plan allows, and the requester read that: it is never
// more than was reserved.
func TestBoundHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		segs := []Segment{{Length: rapid.IntRange(400, 1500).Draw(t, "plain")}}
		target := rapid.IntRange(300, 3000).Draw(t, "target")
		for range rapid.IntRange(1, 3).Draw(t, "targets") {
			segs = append(segs, Segment{Length: target, Target: true})
		}
		own, err := NewLayout(segs...)
		if err != nil {
			t.Fatal(err)
		}
		var plan oncrpc.Plan
		var wants []Want
		var found []oncrpc.Found
		var reply oncrpc.Message
		stream := text(4*rapid.IntRange(1, 1000).Draw(t, "stream"), 0)
		plan.MaxReply = len(stream) + 4*rapid.IntRange(0, 50).Draw(t, "more")
		for i := range rapid.IntRange(0, 3).Draw(t, "results") {
			most := rapid.IntRange(1, 5000).Draw(t, "max")
			plan.MaxReply += xdr.Round(most)
			plan.Results = append(plan.Results, oncrpc.Result{Max: most, Begin: 40 + 40*i, End: 80 + 40*i})
			w := Want{
				Placement: wire.Placement(rapid.IntRange(0, 4).Draw(t, "placement")),
				MinLength: uint32(rapid.IntRange(0, 2000).Draw(t, "least")),
				Threshold: uint32(rapid.IntRange(0, 4000).Draw(t, "threshold")),
			}
			if w.Placement != 0 && w.Placement != wire.SendBased {
				w.Segments = []wire.Segment{{Handle: wire.Handle(i), Length: uint32(most)}}
			}
			wants = append(wants, w)
		}
		at := 0 // in stream
		for i := range plan.Results {
			n := rapid.IntRange(0, plan.Results[i].Max).Draw(t, "length")
			at += 4 * rapid.IntRange(1, 10).Draw(t, "gap")
			if at > len(stream) {
				at, n = len(stream), 0
			}
			pos := at
			for _, it := range reply.Items {
				pos += xdr.Round(it.Length)
			}
			found = append(found, oncrpc.Found{State: oncrpc.Inline, Position: pos, Length: n})
			if n > 0 {
				reply.Items = append(reply.Items, xdr.Item{Position: pos, Length: n, Data: [][]byte{text(n, i+1)}})
			}
		}
		reply.Stream = [][]byte{stream}

		var p Planner
		bound, err := p.Bound(own, &plan, wants, mostTransmissions)
		if err != nil {
			t.Fatal(err)
		}
		var request, answer wire.Transmit
		if err := Direct(&request, plan.Results, wants); err != nil {
			t.Fatal(err)
		}
		prefer := rapid.SampledFrom([]wire.Placement{wire.SendBased, wire.Explicit}).Draw(t, "prefer")
		bulk, err := Answer(nil, &request, plan.Results, found, prefer)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Split(&reply, zeros, bulk); err != nil {
			t.Fatal(err)
		}
		if err := p.Lay(own, wire.XmtResp, &answer, Limits{bound, 16}); err != nil {
			t.Fatalf("%v; %v", err, bulk)
		}
		if err := Check(&request, &answer); err != nil {
			t.Fatal(err)
		}
		var placed [][][]byte
		for i := range bulk {
			if bulk[i].Placement == wire.Explicit {
				placed = append(placed, p.Data(i))
			}
		}
		got, a, err := carry(own, p.Write(make([]byte, p.Memory()), 7, 1), bound, 16)
		if err != nil {
			t.Fatal(err)
		}
		for i, origin := range a.Origins() {
			if a.Lead().Transmit.Items[origin].Placement == wire.Explicit {
				got.Items[i].Data, placed = placed[0], placed[1:]
			}
		}
		if err := same(&reply, got); err != nil {
			t.Fatal(err)
		}
	})
}

func TestRestrict(t *testing.T) {
	segs := []wire.Segment{{Handle: 1, Length: 500}, {Handle: 2, Length: 100}}
	for _, c := range []struct {
		want Want
		max  int
	}{
		{Want{Placement: wire.SendBased}, 1000},
		{Want{Placement: wire.Choice, Segments: segs}, 1000},
		{Want{Placement: wire.Explicit, Segments: segs}, 600},
		{Want{Placement: wire.Explicit, MinLength: 701, Segments: segs}, 700},
		{Want{Placement: wire.Explicit, MinLength: 5000, Segments: segs}, 1000},
		{Want{Placement: wire.BySize, Threshold: 10, Segments: segs}, 600},
		{Want{Placement: wire.BySize, Threshold: 801, Segments: segs}, 800},
		{Want{Placement: wire.BySize, Threshold: 10, MinLength: 701, Segments: segs}, 700},
	} {
		var head wire.Transmit
		head.AddSet(40, 80)
		head.AddResult(c.want.MinLength, c.want.Placement, c.want.Threshold, c.want.Segments)
		head.AddResult(0, wire.Explicit, 0, nil) // for which there is no result
		head.AddSet(100, 120)
		head.AddResult(0, wire.Explicit, 0, segs[1:])
		plan := results(0, 40, 40, 80, 80, 100, 100, 120, 120, 140)
		Restrict(&head, plan)
		var got []int
		for _, r := range plan {
			got = append(got, r.Max)
		}
		if want := fmt.Sprint([]int{1000, c.max, 1000, 100, 1000}); fmt.Sprint(got) != want {
			t.Errorf("%+v: %v, must be %s", c.want, got, want)
		}
		if n, want := Capacity(typical(t), &head, 3), 3*(4096+65536-40)+int(wire.Length(c.want.Segments))+100; n != want {
			t.Errorf("capacity %d, must be %d", n, want)
		}
		if a, b := Capacity(typical(t), &head, 0), Capacity(typical(t), &head, 1); a != b {
			t.Errorf("capacity %d for no transmissions, %d for one", a, b)
		}
	}
}
