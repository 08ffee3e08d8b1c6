package group

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// TestTable1 checks the permitted positions of each placement: item or direction of a request, item
// of a reply.
func TestTable1(t *testing.T) {
	segs := []wire.Segment{{Handle: 1, Length: 100, Offset: 1000}}
	item := func(p wire.Placement) func(*wire.Transmit) {
		return func(t *wire.Transmit) {
			switch p {
			case wire.Explicit:
				t.AddExplicit(20, 10, segs)
			case wire.SendBased:
				t.AddSendBased(20, 10, 0, 0)
			default:
				t.AddAbsent(20, 10, p)
			}
		}
	}
	direction := func(p wire.Placement) func(*wire.Transmit) {
		return func(t *wire.Transmit) {
			t.AddSet(0, 100)
			t.AddResult(1, p, 1, segs)
		}
	}
	for _, c := range []struct {
		placement                         wire.Placement
		itemInCall, direction, itemInBack bool
	}{
		{wire.Explicit, true, true, true},
		{wire.SendBased, true, true, true},
		{wire.BySize, false, true, false},
		{wire.Choice, false, true, false},
		{wire.TooShort, false, false, true},
		{wire.NoItem, false, false, true},
	} {
		for _, x := range []struct {
			name  string
			send  []byte
			valid bool
		}{
			{"item in a request", request(1, 40, 40, item(c.placement)), c.itemInCall},
			{"direction in a request", request(1, 40, 40, direction(c.placement)), c.direction},
			{"item in a reply", reply(1, 40, item(c.placement)), c.itemInBack},
		} {
			t.Run(fmt.Sprint(c.placement, " as ", x.name), func(t *testing.T) {
				l := lay(t, 200, -100)
				r, err := arrive(l, pad(x.send, 200, 50))
				if err != nil {
					var pe *wire.ParseError
					if x.valid || !errors.As(err, &pe) || pe.Code2 != wire.BadXDR {
						t.Fatalf("%v", err)
					}
					return
				}
				if got := NewAssembler(l).Add(&r.hdr, r.segs, r.n, nil, 1); (got == Whole) != x.valid {
					t.Fatalf("outcome %d, valid is %v", got, x.valid)
				}
			})
		}
	}
}

// TestTable2 checks table 2 of the draft, cell by cell, and the behaviour of Check and of a
// responder's choice.
func TestTable2(t *testing.T) {
	const (
		inv = iota
		ndr
		dr
	)
	got := []wire.Placement{wire.Explicit, wire.SendBased, wire.TooShort, wire.NoItem}
	segs := []wire.Segment{{Handle: 1, Length: 100, Offset: 1000}}
	for _, row := range []struct {
		asked wire.Placement
		cells [4]int
	}{
		{wire.Explicit, [4]int{dr, inv, dr, dr}},
		{wire.SendBased, [4]int{inv, ndr, ndr, ndr}},
		{wire.Choice, [4]int{dr, ndr, dr, dr}},
		{wire.BySize, [4]int{dr, ndr, dr, dr}},
	} {
		for i, cell := range row.cells {
			valid, deregister := Allowed(row.asked, got[i])
			if valid != (cell != inv) || valid && deregister != (cell == dr) {
				t.Errorf("%v answered %v: valid %v, deregister %v", row.asked, got[i], valid, deregister)
			}
			var asked, answer wire.Transmit
			asked.AddSet(0, 100)
			asked.AddResult(1, row.asked, 50, segs)
			switch got[i] {
			case wire.Explicit:
				answer.AddExplicit(20, 100, segs)
			case wire.SendBased:
				answer.AddSendBased(20, 100, 0, 0)
			default:
				answer.AddAbsent(20, 10, got[i])
			}
			if err := Check(&asked, &answer); (err == nil) != valid {
				t.Errorf("%v answered %v: %v", row.asked, got[i], err)
			}
		}
		for _, p := range []wire.Placement{wire.Choice, wire.BySize, 0, 7} {
			if valid, _ := Allowed(row.asked, p); valid {
				t.Errorf("%v answered %v is allowed", row.asked, p)
			}
		}
	}
	for _, p := range []wire.Placement{wire.TooShort, wire.NoItem, 0, 7} {
		if valid, _ := Allowed(p, wire.NoItem); valid {
			t.Errorf("%v is allowed as a direction", p)
		}
	}
}

func results(ranges ...int) (r []oncrpc.Result) {
	for i := 0; i < len(ranges); i += 2 {
		r = append(r, oncrpc.Result{Max: 1000, Begin: ranges[i], End: ranges[i+1]})
	}
	return r
}

func TestDirect(t *testing.T) {
	segs := []wire.Segment{{Handle: 1, Length: 1000}}
	for _, c := range []struct {
		name  string
		plan  []oncrpc.Result
		wants []Want
		sets  string // begin-end:placements
		fails bool
	}{
		{"nothing", nil, nil, "", false},
		{"all inline", results(0, 40, 40, 80), make([]Want, 2), "", false},
		{"one", results(44, 80), []Want{{Placement: wire.SendBased, MinLength: 10}}, "44-80:TBSN/10", false},
		{"several sets", results(44, 80, 80, 100, 120, 140), []Want{{Placement: wire.SendBased}, {Placement: wire.Explicit, Segments: segs}, {Placement: wire.BySize, Threshold: 5, Segments: segs}},
			"44-80:TBSN/0 80-100:EXRW/0 120-140:BYSIZE/0", false},
		{"several in a set", results(44, 80, 44, 80, 90, 95), []Want{{Placement: wire.Choice, Segments: segs}, {Placement: wire.SendBased}, {Placement: wire.SendBased}},
			"44-80:CHOICE/0,TBSN/0 90-95:TBSN/0", false},
		{"one inline", results(44, 80, 44, 80), []Want{{}, {Placement: wire.SendBased}}, "44-80:TBSN/4294967295,TBSN/0", false},
		{"overlap", results(44, 80, 76, 90), make([]Want, 2), "", true},
		{"order", results(44, 80, 20, 40), make([]Want, 2), "", true},
		{"backwards", results(80, 44), make([]Want, 1), "", true},
		{"negative", results(-4, 44), make([]Want, 1), "", true},
		{"too far", results(0, math.MaxUint32+1), make([]Want, 1), "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			var head wire.Transmit
			if err := Direct(&head, c.plan, c.wants); (err != nil) != c.fails {
				t.Fatal(err)
			}
			var sets []string
			for i := range head.Sets {
				s := &head.Sets[i]
				var items []string
				for _, r := range head.Results(s) {
					items = append(items, fmt.Sprintf("%v/%d", r.Placement, r.MinLength))
				}
				sets = append(sets, fmt.Sprintf("%d-%d:%s", s.Begin, s.End, strings.Join(items, ",")))
			}
			if got := strings.Join(sets, " "); got != c.sets {
				t.Errorf("sets %s, must be %s", got, c.sets)
			}
		})
	}
}

func TestAnswer(t *testing.T) {
	segs := []wire.Segment{{Handle: 1, Length: 1000}}
	found := func(places ...int) (f []oncrpc.Found) {
		for i := 0; i < len(places); i += 2 {
			f = append(f, oncrpc.Found{State: oncrpc.Inline, Position: places[i], Length: places[i+1]})
		}
		return f
	}
	type dir = struct {
		begin, end uint32
		wants      []Want
	}
	set := func(begin, end uint32, wants ...Want) dir { return dir{begin, end, wants} }
	tbsn := func(least uint32) Want { return Want{Placement: wire.SendBased, MinLength: least} }
	exrw := func(least uint32) Want { return Want{Placement: wire.Explicit, MinLength: least, Segments: segs} }
	choice := Want{Placement: wire.Choice, Segments: segs}
	bySize := Want{Placement: wire.BySize, Threshold: 500, Segments: segs}
	for _, c := range []struct {
		name   string
		sets   []dir
		plan   []oncrpc.Result
		found  []oncrpc.Found
		prefer wire.Placement
		want   string
		fails  bool
	}{
		{"no directions", nil, results(0, 40), found(100, 50), wire.SendBased, "[]", false},
		{"send-based", []dir{set(0, 40, tbsn(10))}, results(0, 40), found(100, 50), wire.Explicit, "[TBSN 100+50]", false},
		{"a range beyond the call", []dir{set(0, math.MaxUint32, tbsn(10))}, results(44, 80), found(100, 50), wire.Explicit, "[TBSN 100+50]", false},
		{"explicit", []dir{set(0, 40, exrw(10))}, results(0, 40), found(100, 50), wire.SendBased, "[EXRW 100+50]", false},
		{"too short", []dir{set(0, 40, tbsn(51))}, results(0, 40), found(100, 50), wire.SendBased, "[TOOSHORT 100+50]", false},
		{"just long enough", []dir{set(0, 40, exrw(50))}, results(0, 40), found(100, 50), wire.SendBased, "[EXRW 100+50]", false},
		{"empty", []dir{set(0, 40, tbsn(0))}, results(0, 40), found(100, 0), wire.SendBased, "[NOITEM 0+0]", false},
		{"no results at all", []dir{set(0, 40, tbsn(0), exrw(0))}, nil, nil, wire.SendBased, "[NOITEM 0+0 NOITEM 0+0]", false},
		{"too long for its memory", []dir{set(0, 40, exrw(10))}, results(0, 40), found(100, 1001), wire.SendBased, "[]", true},
		{"choice of send-based", []dir{set(0, 40, choice)}, results(0, 40), found(100, 50), wire.SendBased, "[TBSN 100+50]", false},
		{"choice of explicit", []dir{set(0, 40, choice)}, results(0, 40), found(100, 50), wire.Explicit, "[EXRW 100+50]", false},
		{"no choice", []dir{set(0, 40, choice)}, results(0, 40), found(100, 1001), wire.Explicit, "[TBSN 100+1001]", false},
		{"small", []dir{set(0, 40, bySize)}, results(0, 40), found(100, 499), wire.Explicit, "[TBSN 100+499]", false},
		{"large", []dir{set(0, 40, bySize)}, results(0, 40), found(100, 500), wire.SendBased, "[EXRW 100+500]", false},
		{"large, too long for its memory", []dir{set(0, 40, bySize)}, results(0, 40), found(100, 1001), wire.SendBased, "[]", true},
		{"two in two ranges", []dir{set(0, 40, tbsn(0)), set(60, 80, exrw(0))}, results(0, 40, 60, 80), found(100, 50, 200, 60), wire.SendBased,
			"[TBSN 100+50 EXRW 200+60]", false},
		{"the first failed", []dir{set(0, 40, tbsn(0)), set(60, 80, exrw(0))}, results(0, 40, 60, 80), found(0, 0, 200, 60), wire.SendBased,
			"[NOITEM 0+0 EXRW 200+60]", false},
		{"two in a range, the first is empty", []dir{set(0, 80, tbsn(0), exrw(0))}, results(0, 40, 60, 80), found(0, 0, 200, 60), wire.SendBased,
			"[TBSN 200+60 NOITEM 0+0]", false},
		{"a short one is used up", []dir{set(0, 80, tbsn(100), exrw(0))}, results(0, 40, 60, 80), found(100, 50, 200, 60), wire.SendBased,
			"[TOOSHORT 100+50 EXRW 200+60]", false},
		{"an operation without direction", []dir{set(60, 80, tbsn(0))}, results(0, 40, 60, 80), found(100, 50, 200, 60), wire.SendBased,
			"[TBSN 200+60]", false},
		{"fewer directions than results", []dir{set(0, 50, tbsn(0)), set(60, 80, exrw(0))}, results(0, 40, 0, 40, 60, 80), found(100, 50, 160, 20, 200, 60), wire.SendBased,
			"[TBSN 100+50 EXRW 200+60]", false},
		{"a range of no operation", []dir{set(40, 60, tbsn(0)), set(60, 80, exrw(0))}, results(0, 40, 60, 80), found(100, 50, 200, 60), wire.SendBased,
			"[NOITEM 0+0 EXRW 200+60]", false},
		{"an empty range", []dir{set(60, 60, tbsn(0)), set(60, 80, exrw(0))}, results(0, 40, 60, 80), found(100, 50, 200, 60), wire.SendBased,
			"[NOITEM 0+0 EXRW 200+60]", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			var head wire.Transmit
			for _, s := range c.sets {
				head.AddSet(s.begin, s.end)
				for _, w := range s.wants {
					head.AddResult(w.MinLength, w.Placement, w.Threshold, w.Segments)
				}
			}
			bulk, err := Answer(nil, &head, c.plan, c.found, c.prefer)
			var room *RoomError
			if c.fails && (!errors.As(err, &room) || room.Needed != 1001 || room.Room != 1000 || room.Index != 0 || room.Error() == "") || !c.fails && err != nil {
				t.Fatal(err)
			}
			got := make([]string, 0, len(bulk))
			for _, b := range bulk {
				got = append(got, fmt.Sprintf("%v %d+%d", b.Placement, b.Position, b.Length))
			}
			if fmt.Sprint(got) != c.want {
				t.Errorf("%v, must be %s", got, c.want)
			}
		})
	}
}

func TestCheck(t *testing.T) {
	offered := []wire.Segment{{Handle: 1, Length: 100, Offset: 10}, {Handle: 2, Length: 50, Offset: 20}}
	seg := func(k int, n uint32) wire.Segment { s := offered[k]; s.Length = n; return s }
	for _, c := range []struct {
		name  string
		reply func(*wire.Transmit)
		want  string
	}{
		{"none told", nil, "has 0 results"},
		{"one too few", func(t *wire.Transmit) { t.AddExplicit(20, 100, offered[:1]) }, "has 1 results"},
		{"fills the first", two(100, seg(0, 100)), ""},
		{"fills both", two(150, seg(0, 100), seg(1, 50)), ""},
		{"trailing empty ones", two(60, seg(0, 60), seg(1, 0)), ""},
		{"another handle", two(100, wire.Segment{Handle: 9, Length: 100, Offset: 10}), "another one"},
		{"another offset", two(100, wire.Segment{Handle: 1, Length: 100, Offset: 11}), "another one"},
		{"too long a segment", two(101, seg(0, 101)), "101 bytes, 100 were offered"},
		{"longer than the item", two(99, seg(0, 100)), "the item has 99 more"},
		{"more segments", two(150, seg(0, 100), seg(1, 50), seg(1, 0)), "2 were offered"},
		{"a gap", two(100, seg(0, 60), seg(1, 40)), "the one before is not full"},
		{"too few bytes", two(120, seg(0, 100)), "it has 120 bytes, its segments 100"},
		{"wrong type", func(t *wire.Transmit) { t.AddSendBased(20, 10, 0, 0); t.AddAbsent(0, 0, wire.NoItem) }, "EXRW was directed"},
		{"one too many", func(t *wire.Transmit) { two(100, seg(0, 100))(t); t.AddAbsent(0, 0, wire.NoItem) }, "has 3 results, the request directs 2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var asked, answer wire.Transmit
			asked.AddSet(0, 10)
			asked.AddResult(0, wire.Explicit, 0, offered)
			asked.AddSet(10, 20)
			asked.AddResult(0, wire.SendBased, 0, nil)
			if c.reply != nil {
				c.reply(&answer)
			}
			err := Check(&asked, &answer)
			if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
				t.Errorf("%v, must be %q", err, c.want)
			}
		})
	}
}

func two(length uint32, segs ...wire.Segment) func(*wire.Transmit) {
	return func(t *wire.Transmit) {
		t.AddExplicit(20, length, segs)
		t.AddAbsent(0, 0, wire.NoItem)
	}
}

func TestLayout(t *testing.T) {
	b := wire.BufferStructure{Length: 4096 + 3*65536, Groups: []wire.BufferGroup{
		{Count: 1, BufferSegment: wire.BufferSegment{Length: 4096, Align: 1}},
		{Count: 3, BufferSegment: wire.BufferSegment{Length: 65536, Align: 4096, Flags: wire.Targetable | 8}},
	}}
	want, err := NewLayout(Segment{Length: 4096, Align: 1}, Segment{Length: 65536, Align: 4096, Target: true},
		Segment{Length: 65536, Align: 4096, Target: true}, Segment{Length: 65536, Align: 4096, Target: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := Expand(&b); !reflect.DeepEqual(got, want) || got.Size != int(b.Length) || got.Segments[2].At != 4096+65536 || fmt.Sprint(got.Targets) != "[1 2 3]" {
		t.Errorf("%+v, must be %+v", got, want)
	}
	for _, segs := range [][]Segment{nil, make([]Segment, 65), {{Length: 0}}, {{Length: -1}}, {{Length: wire.MaxBufferSize}, {Length: 1}}} {
		if _, err := NewLayout(segs...); err == nil {
			t.Errorf("%d segments are accepted", len(segs))
		}
	}
	if l := Plain(1024); l.Size != 1024 || len(l.Targets) > 0 {
		t.Errorf("%+v", l)
	}
}
