package group

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

func TestTypical(t *testing.T) {
	for _, c := range []struct {
		name    string
		payload int
		items   []int
		want    int
		numbers int
	}{
		{"GETATTR", 120, nil, 1, 0},
		{"WRITE of 4 KiB", 160, []int{4096}, 1, 1},
		{"WRITE of 64 KiB", 160, []int{65536}, 1, 1},
		{"WRITE of 64 KiB and 1 byte", 160, []int{65537}, 2, 2},
		{"WRITE of 256 KiB", 160, []int{262144}, 4, 4},
		{"WRITE of 1 MiB", 160, []int{1 << 20}, 16, 16},
		{"WRITE of 1 MiB in a long COMPOUND", 8000, []int{1 << 20}, 16, 16},
		{"two WRITEs of 64 KiB", 300, []int{65536, 65536}, 2, 2},
		{"two WRITEs of 4 KiB", 300, []int{4096, 4096}, 2, 2},
		{"SETACL of 32 KiB", 32768, nil, 1, 0},
		{"READDIR of 64 KiB", 65536, nil, 1, 0},
		{"a payload of 70000 bytes", 70000, nil, 2, 0},
		{"a payload of 8 KiB and 64 KiB of data", 8192, []int{65536}, 2, 1},
	} {
		for _, taken := range []bool{false, true} {
			t.Run(fmt.Sprint(c.name, taken), func(t *testing.T) {
				m, bulk := rpc(c.payload, c.items, taken)
				var p Planner
				n, err := transport(&p, typical(t), m, bulk, Limits{Transmissions: 17, Gather: 8})
				if err != nil || n != c.want {
					t.Fatalf("%d transmissions, %v, must be %d", n, err, c.want)
				}
				if len(p.numbers) != c.numbers {
					t.Errorf("%d buffer segments, must be %d", len(p.numbers), c.numbers)
				}
			})
		}
	}
}

// TestWrite64K checks the Send of a WRITE of 64 KiB byte by byte.
func TestWrite64K(t *testing.T) {
	m, bulk := rpc(160, []int{65536}, true)
	var p Planner
	if err := p.Split(m, zeros, bulk); err != nil {
		t.Fatal(err)
	}
	head := wire.Transmit{ReplyBuffers: 1}
	if err := p.Lay(typical(t), wire.XmtReq, &head, Limits{17, 8}); err != nil {
		t.Fatal(err)
	}
	group := p.Write(make([]byte, p.Memory()), 0x01020304, 32)
	want := []byte{
		1, 2, 3, 4, 0, 0, 0, 2, 0, 0, 0, 32, 0, 0, 0, 5, // XID, version, credits, RDMA2_OPTIONAL
		0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 44, // call, XMTREQ, length of optinfo
		0, 0, 0, 1, 0, 0, 0, 80, 0, 1, 0, 0, // one item: position, length
		0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, // TBSN, offset, one buffer segment: 0
		0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 160, // no directions, count, rsbuf, pslen
	}
	x := group[0]
	if len(group) != 1 || !bytes.Equal(x.Gather[0], want) {
		t.Fatalf("%d transmissions, header\n%x, must be\n%x", len(group), x.Gather[0], want)
	}
	if send := join(x.Gather); len(send) != 4096+65536 || !bytes.Equal(send[4096:], text(65536, 100)) {
		t.Errorf("the Send has %d bytes, or its data are elsewhere", len(send))
	}
	if last := x.Gather[len(x.Gather)-1]; &last[0] != &m.Items[0].Data[0][0] {
		t.Error("the data were copied")
	}
}

// TestExhaustive plans a small set of messages for a small set of layouts, and compares the number
// of transmissions with the minimum over all choices of targets.
func TestExhaustive(t *testing.T) {
	var layouts [][]int
	sizes := []int{20, -20, 52, -52, 110, -110, -64}
	for _, a := range sizes {
		layouts = append(layouts, []int{a})
		for _, b := range sizes {
			layouts = append(layouts, []int{a, b})
			for _, c := range sizes {
				layouts = append(layouts, []int{a, b, c})
			}
		}
	}
	var p Planner
	plans := 0
	for _, lengths := range layouts {
		l := lay(t, lengths...)
		for _, items := range [][]int{nil, {1}, {60}, {64, 64}, {150}, {40, 7, 90}} {
			for _, payload := range []int{16, 40, 100, 260} {
				plans++
				m, bulk := rpc(payload, items, payload%3 == 0)
				const most = 9
				n, err := transport(&p, l, m, bulk, Limits{Transmissions: most, Gather: 64})
				var fit *FitError
				if err != nil && !errors.As(err, &fit) {
					t.Fatalf("%v, items %v, payload %d: %v", lengths, items, payload, err)
				}
				if fit != nil && fit.Needed > 0 && fit.Needed <= most {
					t.Fatalf("%v, items %v, payload %d: %v", lengths, items, payload, err)
				}
				least := brute(l, items, payload, 4)
				if fit == nil && n != least && (n <= 4 || least > 0) || fit != nil && least > 0 {
					t.Fatalf("%v, items %v, payload %d: %d transmissions, %v; %d are enough", lengths, items, payload, n, err, least)
				}
				// One less is too few.
				var head wire.Transmit
				if fit == nil && p.Lay(l, wire.XmtReq, &head, Limits{Transmissions: n - 1, Gather: 64}) == nil {
					t.Fatalf("%v, items %v, payload %d: %d transmissions, at most %d are allowed", lengths, items, payload, p.Transmissions(), n-1)
				}
			}
		}
	}
	t.Log(plans, "plans")
}

// brute tries all choices of targets, and returns the length of the shortest group up to most, 0 if
// none.
func brute(l *Layout, items []int, payload, most int) int {
	first := 48
	for range items {
		first += 20
	}
	var try func(choice []int, n int) bool
	try = func(choice []int, n int) bool {
		if len(choice) < n {
			for k := range len(l.Targets) + 1 {
				if try(append(choice, k), n) {
					return true
				}
			}
			return false
		}
		numbers, item, done := 0, 0, 0
		for _, k := range choice {
			for ; k < len(l.Targets) && item < len(items); k++ {
				numbers++
				if done += l.Segments[l.Targets[k]].Length; done >= items[item] {
					item, done = item+1, 0
				}
			}
		}
		room := 0
		for t, k := range choice {
			end := l.Size
			if k < len(l.Targets) {
				end = l.Segments[l.Targets[k]].At
			}
			header := 40
			if t == 0 {
				header = first + 4*numbers
			}
			if end < header {
				return false
			}
			room += (end - header) / 4 * 4
		}
		return item == len(items) && room >= payload
	}
	for n := 1; n <= most; n++ {
		if try(nil, n) {
			return n
		}
	}
	return 0
}

// TestExplore: bulk data yield to the payload stream if that saves a transmission.
func TestExplore(t *testing.T) {
	l := lay(t, 1024, -4096, -4096, -4096)
	for _, c := range []struct{ payload, item, want int }{
		{800, 4096, 1}, {3000, 4096, 1}, {8000, 4096, 1}, {8000, 4097, 2}, {4000, 8192, 1}, {9400, 4096, 2}, {2000, 12288, 2},
		{752 + 16*984, 17 * 12288, 17}, {756 + 16*984, 17 * 12288, 18}, {17 * 3000, 17 * 8192, 15},
	} {
		m, bulk := rpc(c.payload, []int{c.item}, true)
		var p Planner
		if n, err := transport(&p, l, m, bulk, Limits{Transmissions: 40, Gather: 16}); err != nil || n != c.want {
			t.Errorf("payload %d, item %d: %d transmissions, %v, must be %d", c.payload, c.item, n, err, c.want)
		}
	}
}

// TestManyTargets is TestExplore with many targets, and with a layout that exhausts the search.
func TestManyTargets(t *testing.T) {
	pages := []int{4096}
	odd := []int{200}
	for i := range 63 {
		if i < 16 {
			pages = append(pages, -4096)
		}
		odd = append(odd, -(30 + i*i*37%401))
	}
	for _, c := range []struct {
		layout        []int
		payload, item int
		least, most   int
	}{
		{pages, 100000, 246 * 4096, 16, 16},
		{pages, 104844, 246 * 4096, 16, 16},
		{pages, 104848, 246 * 4096, 17, 17},
		{odd, 4000, 205390, 16, 17},
	} {
		m, bulk := rpc(c.payload, []int{c.item}, true)
		var p Planner
		if n, err := transport(&p, lay(t, c.layout...), m, bulk, Limits{Transmissions: 40, Gather: 64}); err != nil || n < c.least || n > c.most {
			t.Errorf("payload %d, item %d: %d transmissions, %v, must be %d to %d", c.payload, c.item, n, err, c.least, c.most)
		}
	}
}

func TestUnfit(t *testing.T) {
	for _, c := range []struct {
		name    string
		layout  *Layout
		payload int
		items   []int
		limit   int
		needed  int
	}{
		{"too many transmissions", typical(t), 100, []int{1 << 20}, 15, 16},
		{"too long a stream", Plain(4096), 10000, nil, 2, 3},
		{"no target", Plain(4096), 100, []int{100}, 17, 0},
		{"the target is too early", lay(t, -32, 4096), 100, []int{100}, 17, 0},
		{"header longer than a buffer", lay(t, -44), 100, nil, 17, 0},
		{"header with numbers longer than a buffer", lay(t, 100, -1), 100, []int{100}, 17, 0},
		{"nothing but headers", lay(t, 40), 100, nil, 17, 0},
		{"hardly room for payload", lay(t, 60), 100000, nil, 17, 0},
		{"endless", lay(t, 120, -1), 4, []int{5000}, 17, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			m, bulk := rpc(c.payload, c.items, true)
			var p Planner
			if err := p.Split(m, zeros, bulk); err != nil {
				t.Fatal(err)
			}
			var head wire.Transmit
			err := p.Lay(c.layout, wire.XmtReq, &head, Limits{c.limit, 8})
			var fit *FitError
			if !errors.As(err, &fit) || fit.Needed != c.needed || fit.Limit != c.limit || fit.Error() == "" {
				t.Errorf("%v, must need %d", err, c.needed)
			}
			if len(head.Items) > 0 || head.Count != 0 {
				t.Error("the header was changed")
			}
		})
	}
}

// TestSplitRefuses: Split refuses an item that is not at its position.
func TestSplitRefuses(t *testing.T) {
	at := func(position, length int, p wire.Placement) []Bulk {
		return []Bulk{{Position: position, Length: length, Placement: p}}
	}
	m, _ := rpc(400, []int{100, 60}, true) // items at 132 and 364
	open := &oncrpc.Message{Stream: [][]byte{text(40, 0)}, Items: []xdr.Item{{Position: 20, Length: 8}}}
	short := &oncrpc.Message{Stream: [][]byte{text(40, 0)}, Items: []xdr.Item{{Position: 20, Length: 8, Data: [][]byte{{1}}}}}
	far := &oncrpc.Message{Stream: [][]byte{text(40, 0)}, Items: []xdr.Item{{Position: 60, Length: 8, Data: [][]byte{text(8, 0)}}}}
	for i, c := range []struct {
		m    *oncrpc.Message
		bulk []Bulk
		ok   bool
	}{
		{m, at(132, 100, wire.SendBased), true},
		{m, at(132, 99, wire.SendBased), false},
		{m, at(128, 100, wire.SendBased), false},
		{m, at(136, 60, wire.SendBased), false},
		{m, at(130, 2, wire.Explicit), false},
		{m, at(0, 0, wire.SendBased), false},
		{m, at(556, 4, wire.SendBased), true},
		{m, at(556, 8, wire.SendBased), false},
		{m, at(900, 8, wire.SendBased), false},
		{m, at(900, 8, wire.TooShort), true},
		{m, append(at(364, 60, wire.SendBased), at(132, 100, wire.SendBased)...), false},
		{open, at(20, 8, wire.SendBased), false},
		{open, at(20, 8, wire.Explicit), true},
		{open, nil, false},
		{short, nil, false},
		{short, at(32, 4, wire.SendBased), false},
		{short, at(20, 8, wire.SendBased), false},
		{far, nil, false},
		{far, at(80, 4, wire.SendBased), false},
		{m, append(at(132, 100, wire.SendBased), at(0, 4, wire.SendBased)...), false},
	} {
		var p Planner
		if err := p.Split(c.m, zeros, c.bulk); (err == nil) != c.ok {
			t.Errorf("case %d: %v", i, err)
		}
	}
}

// TestGather: no transmission exceeds the provider's number of slices, and the number of copied
// bytes is minimal.
func TestGather(t *testing.T) {
	var m oncrpc.Message
	whole := text(200, 1)
	for i := range 20 { // a fragmented stream
		m.Stream = append(m.Stream, whole[i*10:i*10+10])
	}
	data := text(65536, 2)
	it := xdr.Item{Position: 120, Length: 65536}
	for i := range 16 {
		it.Data = append(it.Data, data[i*4096:i*4096+4096])
	}
	m.Items = append(m.Items, it)
	bulk := []Bulk{{Position: 120, Length: 65536, Placement: wire.SendBased}}
	for _, gather := range []int{2, 3, 4, 6, 16, 17, 18, 19, 38, 64} {
		var p Planner
		n, err := transport(&p, typical(t), &m, bulk, Limits{Transmissions: 1, Gather: gather})
		if err != nil || n != 1 {
			t.Fatalf("gathering %d: %v", gather, err)
		}
		copied := p.group[0].copied
		if gather >= 19 && copied > 300 || gather == 64 && copied > 0 {
			t.Errorf("gathering %d: %d bytes are copied", gather, copied)
		}
	}
	// Zeros shorter than the padding need more slices.
	var p Planner
	if err := p.Split(&m, zeros[:1000], bulk); err != nil {
		t.Fatal(err)
	}
	var head wire.Transmit
	if err := p.Lay(typical(t), wire.XmtReq, &head, Limits{1, 64}); err != nil {
		t.Fatal(err)
	}
	got, _, err := carry(typical(t), p.Write(make([]byte, p.Memory()), 1, 1), 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	if err := same(&m, got); err != nil {
		t.Error(err)
	}
}

func TestRoundUp(t *testing.T) {
	m := &oncrpc.Message{Stream: [][]byte{text(101, 0)}}
	var p Planner
	if n, err := transport(&p, typical(t), m, nil, Limits{17, 8}); n != 1 || err != nil || p.payload != 104 {
		t.Errorf("%d transmissions, a payload of %d, %v", n, p.payload, err)
	}
}

// TestStay: items of the message that are not in bulk are written back into the payload stream.
func TestStay(t *testing.T) {
	m, bulk := rpc(400, []int{33, 5000, 2}, true)
	var p Planner
	if n, err := transport(&p, typical(t), m, bulk[1:2], Limits{17, 16}); n != 1 || err != nil || p.payload != 440 {
		t.Errorf("%d transmissions, a payload of %d, %v", n, p.payload, err)
	}
}

// TestMixed carries a reply with items of every kind.
func TestMixed(t *testing.T) {
	m, bulk := rpc(1000, []int{5000, 70000, 60, 9}, true)
	bulk[0].Placement = wire.Explicit
	bulk[2].Placement = wire.TooShort
	bulk = append(bulk[:3], Bulk{Placement: wire.NoItem}, bulk[3])
	var p Planner
	if err := p.Split(m, zeros, bulk); err != nil {
		t.Fatal(err)
	}
	if n := split.Length(p.Data(0)); n != 5000 {
		t.Fatalf("item 0 has %d bytes", n)
	}
	if len(p.Data(2)) > 0 || len(p.Data(3)) > 0 {
		t.Error("items that stay have data")
	}
	p.Expose(0, []wire.Segment{{Handle: 1, Length: 4096, Offset: 10}, {Handle: 2, Length: 4096, Offset: 20}, {Handle: 3, Length: 4096}})
	var head wire.Transmit
	l := lay(t, 2048, -32768, -32768)
	if err := p.Lay(l, wire.XmtResp, &head, Limits{17, 8}); err != nil {
		t.Fatal(err)
	}
	got, a, err := carry(l, p.Write(make([]byte, p.Memory()), 1, 1), 17, 8)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Items) != 3 || fmt.Sprint(a.Origins()) != "[0 1 4]" {
		t.Fatalf("%d items, origins %v", len(got.Items), a.Origins())
	}
	tr := &a.lead.Transmit
	if segs := tr.Segments(&tr.Items[0]); len(segs) != 2 || segs[1].Length != 904 || got.Items[0].Data != nil {
		t.Errorf("the explicit item is in %v", segs)
	}
	got.Items[0].Data = p.Data(0)
	if err := same(m, got); err != nil {
		t.Error(err)
	}
	if it := tr.Items[2]; it.Placement != wire.TooShort || int(it.Position) != bulk[2].Position || it.Length != 60 {
		t.Errorf("the short item is told as %+v", it)
	}
	if it := tr.Items[3]; it.Placement != wire.NoItem || it.Position != 0 || it.Length != 0 {
		t.Errorf("the missing item is told as %+v", it)
	}
	if a.lead.Direction != wire.Reply {
		t.Error("the group has the direction of a call")
	}
}
