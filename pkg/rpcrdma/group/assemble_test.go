package group

import (
	"fmt"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// sent returns a message of the extension: a header and tail bytes.
func sent(xid wire.XID, d wire.Direction, op wire.Operation, t *wire.Transmit, tail int) []byte {
	b := wire.BeginOption(nil, xid, 1, d, op)
	b = wire.EndOption(t.Append(b, op), 0)
	return append(b, text(tail, 3)...)
}

// pad extends a message with zeros to n bytes, then with tail bytes of data.
func pad(b []byte, n, tail int) []byte {
	return append(append(b, make([]byte, n-len(b))...), text(tail, 4)...)
}

type step struct {
	send    []byte
	outcome Outcome
	report  wire.Report
}

func request(count uint32, pslen, tail int, fill func(*wire.Transmit)) []byte {
	t := wire.Transmit{Count: count, PayloadLength: uint32(pslen)}
	if fill != nil {
		fill(&t)
	}
	return sent(7, wire.Call, wire.XmtReq, &t, tail)
}

func reply(count uint32, pslen int, fill func(*wire.Transmit)) []byte {
	t := wire.Transmit{Count: count, PayloadLength: uint32(pslen)}
	if fill != nil {
		fill(&t)
	}
	return sent(7, wire.Reply, wire.XmtResp, &t, pslen)
}

func continuation(xid wire.XID, d wire.Direction, number uint32, pslen, tail int) []byte {
	return sent(xid, d, wire.XmtCont, &wire.Transmit{Number: number, PayloadLength: uint32(pslen)}, tail)
}

func sendBased(position, length, offset uint32, numbers ...uint32) func(*wire.Transmit) {
	return func(t *wire.Transmit) { t.AddSendBased(position, length, offset, numbers...) }
}

func both(f, g func(*wire.Transmit)) func(*wire.Transmit) {
	return func(t *wire.Transmit) { f(t); g(t) }
}

// TestErrors provokes every report for each of its reasons.
func TestErrors(t *testing.T) {
	const all = 0xFFFFFFFF
	lead := wire.MessageID{XID: 7}
	at := func(seq uint32) wire.MessageID { return wire.MessageID{XID: 7, Sequence: seq} }
	first := func(r wire.Report) wire.Report { r.Bad = lead; return r }
	later := func(bad wire.MessageID, r wire.Report) wire.Report {
		r.Bad, r.Lead, r.HasLead = bad, lead, true
		return r
	}
	// The buffers have 200 bytes, a target of 100, and 50 more. The limit is 4 transmissions.
	long := func(fill func(*wire.Transmit)) []byte { return pad(request(1, 40, 40, fill), 200, 150) }
	offset := func(current, low, high uint32) wire.Report {
		return first(wire.Report{Code: wire.BadOffset, Current: current, Min: low, Max: high})
	}
	for _, c := range []struct {
		name  string
		steps []step
	}{
		{"BADHMT: another procedure in a group", []step{
			{request(3, 40, 40, nil), More, wire.Report{}},
			{wire.AppendEnd(wire.AppendEnd(wire.AppendEnd(wire.AppendMessage(nil, 9, 1, wire.Msg, wire.Call, 0)))), Broken,
				later(wire.MessageID{XID: 9}, wire.Report{Code: wire.BadHeaderType, Expected: 5, Current: 0})},
			{continuation(7, wire.Call, 1, 40, 40), Ignored, wire.Report{}},
			{continuation(7, wire.Call, 2, 40, 40), Ignored, wire.Report{}},
			{continuation(7, wire.Call, 3, 40, 40), Ignored, wire.Report{}},
			{continuation(8, wire.Call, 3, 40, 40), Bad, wire.Report{Bad: wire.MessageID{XID: 8, Sequence: 3}, Code: wire.BadContinuation}},
		}},
		{"BADOMT: another operation in a group", []step{
			{request(2, 40, 40, nil), More, wire.Report{}},
			{request(1, 40, 40, nil), Broken, later(lead, wire.Report{Code: wire.BadOptionType, Expected: 7, Current: 5})},
			{request(1, 40, 40, nil), Whole, wire.Report{}},
		}},
		{"BADOMT: a report in a group", []step{
			{request(2, 40, 40, nil), More, wire.Report{}},
			{sent(7, wire.Call, wire.ReptErr, &wire.Transmit{Report: wire.Report{Code: wire.BadContinuation}}, 0), Broken,
				later(lead, wire.Report{Code: wire.BadOptionType, Expected: 7, Current: 8})},
			{sent(7, wire.Call, wire.ReptErr, &wire.Transmit{Report: wire.Report{Code: wire.BadContinuation}}, 0), Other, wire.Report{}},
		}},
		{"BADCONT: a continuation of nothing", []step{
			{continuation(7, wire.Call, 1, 40, 40), Bad, wire.Report{Bad: at(1), Code: wire.BadContinuation}},
		}},
		{"BADCONT: one too many", []step{
			{request(2, 40, 40, nil), More, wire.Report{}},
			{continuation(7, wire.Call, 1, 40, 40), Whole, wire.Report{}},
			{continuation(7, wire.Call, 2, 40, 40), Bad, wire.Report{Bad: at(2), Code: wire.BadContinuation}},
		}},
		{"BADCONT: of the other direction", []step{
			{request(2, 40, 40, nil), More, wire.Report{}},
			{continuation(7, wire.Reply, 1, 40, 40), Bad,
				later(wire.MessageID{XID: 7, Direction: wire.Reply, Sequence: 1}, wire.Report{Code: wire.BadContinuation})},
			{continuation(7, wire.Call, 1, 40, 40), Ignored, wire.Report{}},
		}},
		{"BADSEQ: a number is left out", []step{
			{request(4, 40, 40, nil), More, wire.Report{}},
			{continuation(7, wire.Call, 2, 40, 40), Bad, later(at(2), wire.Report{Code: wire.BadSequence, Expected: 1, Current: 2})},
			{continuation(7, wire.Call, 3, 40, 40), Ignored, wire.Report{}},
			{continuation(7, wire.Call, 4, 40, 40), Ignored, wire.Report{}},
			{request(1, 40, 40, nil), Whole, wire.Report{}},
		}},
		{"BADSEQ: a number comes twice", []step{
			{request(4, 40, 40, nil), More, wire.Report{}},
			{continuation(7, wire.Call, 1, 40, 40), More, wire.Report{}},
			{continuation(7, wire.Call, 1, 40, 40), Bad, later(at(1), wire.Report{Code: wire.BadSequence, Expected: 2, Current: 1})},
			{continuation(7, wire.Call, 2, 40, 40), Ignored, wire.Report{}},
			{continuation(7, wire.Call, 3, 40, 40), Ignored, wire.Report{}},
			{continuation(7, wire.Reply, 3, 40, 40), Bad, wire.Report{Bad: wire.MessageID{XID: 7, Direction: wire.Reply, Sequence: 3}, Code: wire.BadContinuation}},
		}},
		{"BADSEQ: more transmissions than allowed", []step{
			{request(5, 40, 40, nil), Bad, first(wire.Report{Code: wire.BadSequence, Expected: 4, Current: 5})},
			{continuation(7, wire.Call, 1, 40, 40), Ignored, wire.Report{}},
			{request(4, 40, 40, nil), More, wire.Report{}},
		}},
		{"BADXID: another XID", []step{
			{request(2, 40, 40, nil), More, wire.Report{}},
			{continuation(8, wire.Call, 1, 40, 40), Bad,
				later(wire.MessageID{XID: 8, Sequence: 1}, wire.Report{Code: wire.BadXID, Expected: 7, Current: 8})},
			{continuation(7, wire.Call, 1, 40, 40), Ignored, wire.Report{}},
		}},
		{"BADPL: beyond the transmission", []step{
			{request(1, 44, 40, nil), Bad, first(wire.Report{Code: wire.BadPayload, Current: 44, Max: 40})},
		}},
		{"BADPL: no multiple of 4", []step{
			{request(1, 38, 40, nil), Bad, first(wire.Report{Code: wire.BadPayload, Current: 38, Max: 40})},
		}},
		{"BADPL: of a continuation", []step{
			{request(2, 40, 40, nil), More, wire.Report{}},
			{continuation(7, wire.Call, 1, all&^3, 40), Bad, later(at(1), wire.Report{Code: wire.BadPayload, Current: all &^ 3, Max: 40})},
		}},
		{"BADTBSN: beyond the group", []step{
			{long(sendBased(20, 10, 0, 2)), Bad, first(wire.Report{Code: wire.BadBuffer, Current: 2, Max: 1})},
		}},
		{"BADTBSN: far beyond the group", []step{
			{long(sendBased(20, 10, 0, 1, all)), Bad, first(wire.Report{Code: wire.BadBuffer, Current: all, Max: 1})},
		}},
		{"BADTBSN: data are nowhere", []step{
			{long(sendBased(20, 10, 0)), Bad, first(wire.Report{Code: wire.BadBuffer, Min: 1})},
		}},
		{"BADOFF: beyond the segment", []step{
			{long(sendBased(20, 10, 100, 0)), Bad, offset(100, 0, 99)},
		}},
		{"BADOFF: the end beyond the segment", []step{
			{long(sendBased(20, 10, 91, 0)), Bad, offset(101, 0, 100)},
		}},
		{"BADOFF: the end beyond the last segment", []step{
			{long(sendBased(20, 151, 0, 0, 1)), Bad, offset(51, 0, 50)},
		}},
		{"BADOFF: the longest item", []step{
			{long(sendBased(20, all, all, 0)), Bad, offset(all, 0, 99)},
			{long(sendBased(20, all, 99, 0)), Bad, offset(all, 0, 100)},
		}},
		{"BADOFF: beyond what came", []step{
			{pad(request(1, 40, 40, sendBased(20, 10, 0, 0)), 200, 9), Bad, offset(10, 0, 9)},
			{request(1, 40, 40, sendBased(20, 10, 0, 0)), Bad, offset(10, 0, 0)},
		}},
		{"BADOFF: beyond what came in a continuation", []step{
			{pad(request(2, 40, 40, sendBased(20, 160, 0, 0, 1, 2)), 200, 150), More, wire.Report{}},
			{pad(continuation(7, wire.Call, 1, 0, 0), 200, 9), Bad, later(at(1), wire.Report{Code: wire.BadOffset, Current: 10, Max: 9})},
		}},
		{"BADOFF: in the payload", []step{
			{request(1, 240, 240, sendBased(20, 10, 50, 0)), Bad, offset(50, 100, 99)},
			{request(1, 160, 160, sendBased(20, 10, 20, 0)), Bad, offset(20, 32, 99)},
		}},
		{"BADOFF: two items in the same bytes", []step{
			{long(both(sendBased(20, 10, 0, 0), sendBased(32, 10, 9, 0))), Bad, offset(9, 10, 99)},
			{long(both(sendBased(20, 10, 9, 0), sendBased(32, 10, 0, 0))), Bad, offset(9, 10, 99)},
			{long(both(sendBased(20, 140, 0, 0, 1), sendBased(160, 20, 20, 1))), Bad, offset(20, 40, 49)},
			{long(sendBased(20, 140, 0, 0, 0)), Bad, offset(0, 100, 99)},
		}},
		{"BADOFF: positions", []step{
			{long(sendBased(22, 10, 0, 0)), Bad, offset(22, 0, all)},
			{long(both(sendBased(20, 10, 0, 0), sendBased(28, 10, 20, 0))), Bad, offset(28, 32, all)},
			{long(sendBased(44, 10, 0, 0)), Bad, offset(44, 0, 40)},
			{long(both(sendBased(20, 10, 0, 0), sendBased(56, 10, 20, 0))), Bad, offset(56, 12, 52)},
		}},
		{"BADOFF: explicit segments too short", []step{
			{long(func(t *wire.Transmit) { t.AddExplicit(20, 10, []wire.Segment{{Length: 4}, {Length: 5}}) }), Bad, offset(10, 0, 9)},
		}},
		{"BADOFF: a short item behind the reply", []step{
			{reply(1, 40, func(t *wire.Transmit) { t.AddAbsent(32, 9, wire.TooShort) }), Bad,
				wire.Report{Code: wire.BadOffset, Bad: wire.MessageID{XID: 7, Direction: wire.Reply}, Current: 41, Min: 32, Max: 40}},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := lay(t, 200, -100, -50)
			a := NewAssembler(l)
			for i, s := range c.steps {
				r, err := arrive(l, s.send)
				if err != nil {
					t.Fatal(i, err)
				}
				if got := a.Add(&r.hdr, r.segs, r.n, nil, 4); got != s.outcome {
					t.Fatalf("step %d: outcome %d, %+v, must be %d", i, got, *a.Report(), s.outcome)
				}
				if (s.outcome == Bad || s.outcome == Broken) && *a.Report() != s.report {
					t.Fatalf("step %d: report\n%+v, must be\n%+v", i, *a.Report(), s.report)
				}
				if a.open != (s.outcome == More) {
					t.Fatalf("step %d: open is %v", i, a.open)
				}
			}
		})
	}
}

// TestNoTargets: buffers without targets accept no SendBased item.
func TestNoTargets(t *testing.T) {
	a := NewAssembler(Plain(4096))
	r, err := arrive(a.layout, request(1, 40, 40, sendBased(20, 10, 0, 0)))
	if err != nil {
		t.Fatal(err)
	}
	want := wire.Report{Bad: wire.MessageID{XID: 7}, Code: wire.BadBuffer, Min: 1}
	if got := a.Add(&r.hdr, r.segs, r.n, nil, 4); got != Bad || *a.Report() != want {
		t.Errorf("outcome %d, %+v", got, *a.Report())
	}
}

// TestForeignForms receives forms that our planner never sends: offsets, segments in any order, two
// items in one segment, surplus numbers, empty items, a first transmission without payload.
func TestForeignForms(t *testing.T) {
	l := lay(t, 200, -100, -50)
	a := NewAssembler(l)
	for i, s := range [][]byte{
		pad(request(2, 0, 0, both(both(sendBased(20, 60, 40, 3, 0, 1), sendBased(80, 30, 30, 2)), both(sendBased(112, 8, 60, 2), sendBased(120, 0, 0)))), 200, 150),
		pad(continuation(7, wire.Call, 1, 60, 60), 200, 150),
	} {
		r, err := arrive(l, s)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Add(&r.hdr, r.segs, r.n, nil, 4); got != Outcome(1+i) {
			t.Fatalf("outcome %d, %+v", got, *a.Report())
		}
	}
	var m oncrpc.Message
	a.Message(&m)
	data := text(150, 4)
	want := []string{string(data[140:150]) + string(data[:50]), string(data[30:60]), string(data[60:68])}
	if len(m.Items) != len(want) || m.StreamLen() != 60 {
		t.Fatalf("%d items, a stream of %d bytes", len(m.Items), m.StreamLen())
	}
	for i, w := range want {
		if got := string(join(m.Items[i].Data)); got != w || m.Items[i].Length != len(w) {
			t.Errorf("item %d is %x, must be %x", i, got, w)
		}
	}
}

// TestSkip: the rest of a group with a refused first header causes no report.
func TestSkip(t *testing.T) {
	l := lay(t, 200, -100)
	a := NewAssembler(l)
	add := func(send []byte, want Outcome) {
		t.Helper()
		r, err := arrive(l, send)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Add(&r.hdr, r.segs, r.n, nil, 4); got != want {
			t.Fatalf("outcome %d, must be %d", got, want)
		}
	}
	add(request(2, 40, 40, nil), More)
	a.Skip(7, wire.Call)
	add(continuation(7, wire.Call, 1, 40, 40), Ignored)
	add(continuation(7, wire.Call, 2, 40, 40), Ignored)
	add(continuation(7, wire.Reply, 3, 40, 40), Bad)
	add(continuation(7, wire.Call, 3, 40, 40), Bad)
	a.Skip(7, wire.Call)
	add(request(1, 40, 40, nil), Whole)
	add(continuation(7, wire.Call, 1, 40, 40), Bad)
}

// TestOther: messages outside groups are ignored and not retained.
func TestOther(t *testing.T) {
	a := NewAssembler(typical(t))
	for _, p := range []wire.Procedure{wire.Msg, wire.NoMsg, wire.Error, wire.ConnProp} {
		if got := a.Add(&wire.Header{Procedure: p}, nil, 100, nil, 1); got != Other {
			t.Errorf("%v: outcome %d", p, got)
		}
	}
	if got := a.Add(&wire.Header{Procedure: wire.Optional, Operation: wire.ReptErr}, nil, 100, nil, 1); got != Other {
		t.Errorf("ReptErr: outcome %d", got)
	}
}

// TestOtherReceives: receives of another structure count where they agree with the current one.
func TestOtherReceives(t *testing.T) {
	a := NewAssembler(lay(t, 200, -100))
	old := lay(t, 300)
	r, err := arrive(old, pad(request(1, 40, 40, sendBased(20, 10, 0, 0)), 200, 100))
	if err != nil {
		t.Fatal(err)
	}
	want := wire.Report{Bad: wire.MessageID{XID: 7}, Code: wire.BadOffset, Current: 10}
	if got := a.Add(&r.hdr, [][]byte{r.segs[0][:150]}, r.n, nil, 1); got != Bad || *a.Report() != want {
		t.Errorf("outcome %d, %+v", got, *a.Report())
	}
	a.layout = old
	if r, err = arrive(old, request(1, 40, 40, nil)); err != nil {
		t.Fatal(err)
	}
	if got := a.Add(&r.hdr, r.segs, r.n, nil, 1); got != Whole {
		t.Errorf("outcome %d", got)
	}
}

// TestBuffers checks the ownership of a receive's buffer for every outcome.
func TestBuffers(t *testing.T) {
	pool := bufpool.New(0)
	l := lay(t, 200, -100)
	a := NewAssembler(l)
	add := func(send []byte, want Outcome, inUse int64) *bufpool.Buf {
		t.Helper()
		r, err := arrive(l, send)
		if err != nil {
			t.Fatal(err)
		}
		b, err := pool.Get(1000)
		if err != nil {
			t.Fatal(err)
		}
		if got := a.Add(&r.hdr, r.segs, r.n, b, 8); got != want {
			t.Fatalf("outcome %d, must be %d", got, want)
		}
		if n := pool.Stats().Bufs; n != inUse {
			t.Fatalf("%d buffers are in use, must be %d", n, inUse)
		}
		return b
	}
	inUse := func(want int64) {
		t.Helper()
		if n := pool.Stats().Bufs; n != want {
			t.Fatalf("%d buffers are in use, must be %d", n, want)
		}
	}
	var m oncrpc.Message
	// Of four transmissions, one has payload, one has data, two are empty.
	add(pad(request(4, 40, 40, sendBased(20, 10, 0, 2)), 200, 0), More, 1)
	add(continuation(7, wire.Call, 1, 0, 0), More, 2)
	add(pad(continuation(7, wire.Call, 2, 0, 0), 200, 10), More, 3)
	add(continuation(7, wire.Call, 3, 0, 0), Whole, 4)
	a.Message(&m)
	inUse(2)
	m.Release()
	inUse(0)
	// Bad messages are released.
	add(request(3, 40, 40, nil), More, 1)
	add(continuation(7, wire.Call, 1, 40, 40), More, 2)
	add(continuation(7, wire.Call, 1, 40, 40), Bad, 0)
	add(continuation(7, wire.Call, 2, 40, 40), Ignored, 0)
	add(continuation(8, wire.Call, 2, 40, 40), Bad, 0)
	add(request(9, 40, 40, nil), Bad, 0)
	add(continuation(7, wire.Call, 1, 40, 40), Ignored, 0)
	add(request(1, 40, 40, sendBased(20, 10, 0, 0)), Bad, 0)
	// Messages outside the group stay with the caller.
	add(request(3, 40, 40, nil), More, 1)
	add(request(1, 40, 40, nil), Broken, 1).Release()
	add(request(1, 40, 40, nil), Whole, 1)
	a.GiveUp()
	inUse(0)
	add(request(3, 40, 40, nil), More, 1)
	a.GiveUp()
	inUse(0)
	add(continuation(7, wire.Call, 1, 40, 40), Ignored, 0)
	add(continuation(7, wire.Call, 2, 40, 40), Ignored, 0)
	add(continuation(7, wire.Reply, 3, 40, 40), Bad, 0)
	add(wire.AppendEnd(wire.AppendEnd(wire.AppendEnd(wire.AppendMessage(nil, 9, 1, wire.Msg, wire.Call, 0)))), Other, 1).Release()
	inUse(0)
}

func ExampleAssembler() {
	segs := []Segment{{Length: 4096}, {Length: 65536, Align: 4096, Target: true}}
	layout, _ := NewLayout(segs...)
	message, bulk := rpc(200, []int{100000}, true)

	var p Planner
	var head wire.Transmit
	if err := p.Split(message, zeros, bulk); err != nil {
		fmt.Println(err)
	}
	if err := p.Lay(layout, wire.XmtReq, &head, Limits{Transmissions: 17, Gather: 8}); err != nil {
		fmt.Println(err)
	}
	a := NewAssembler(layout)
	for _, x := range p.Write(make([]byte, p.Memory()), 1, 32) {
		r, err := arrive(layout, join(x.Gather))
		if err != nil {
			fmt.Println(err)
		}
		fmt.Println(r.hdr.Size, "bytes of header,", x.Payload, "of payload,", r.n, "in all, outcome", a.Add(&r.hdr, r.segs, r.n, nil, 17))
	}
	var m oncrpc.Message
	a.Message(&m)
	fmt.Println("item at", m.Items[0].Position, "with", m.Items[0].Length, "bytes in", len(m.Items[0].Data), "pieces")
	// Output:
	// 76 bytes of header, 200 of payload, 69632 in all, outcome 1
	// 40 bytes of header, 0 of payload, 38560 in all, outcome 2
	// item at 100 with 100000 bytes in 2 pieces
}
