package wire

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

// pages is a structure of 4 KiB for headers and payload, 2 pages for bulk items, an odd rest, and
// one page more.
func pages() *BufferStructure {
	return &BufferStructure{4096 + 8192 + 100 + 4096, []BufferGroup{
		{1, BufferSegment{4096, 1, 0}}, {2, BufferSegment{4096, 4096, Targetable}}, {4, BufferSegment{25, 1, 2}}, {1, BufferSegment{4096, 4096, Targetable | 4}},
	}}
}

func TestStructure(t *testing.T) {
	b := pages()
	if err := b.Check(); err != nil {
		t.Fatal(err)
	}
	value := b.Append(nil)
	var got BufferStructure
	if err := got.Parse(value); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(b, &got); diff != "" {
		t.Error(diff)
	}
	for n := range value {
		if err := got.Parse(value[:n]); err == nil {
			t.Errorf("%d bytes are parsed", n)
		}
	}
	if err := got.Parse(append(value, 0)); err == nil || !strings.Contains(err.Error(), "1 bytes follow") {
		t.Error(err)
	}
	if n := testing.AllocsPerRun(100, func() {
		if got.Parse(value) != nil || len(got.Append(value[:0])) != len(value) {
			t.Fatal("parse")
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestBadStructure(t *testing.T) {
	for _, c := range []struct {
		spoil func(b *BufferStructure)
		field string
	}{
		{func(b *BufferStructure) { b.Groups[1].Count = 0 }, "xmrgrp_count"},
		{func(b *BufferStructure) { b.Groups[2].Count = 61 }, "xmrgrp_count"},
		{func(b *BufferStructure) { b.Groups[2].Count = 1<<32 - 1 }, "xmrgrp_count"},
		{func(b *BufferStructure) { b.Groups = make([]BufferGroup, 65) }, "xmrbuf_groups"},
		{func(b *BufferStructure) { b.Groups[2].Length = 0 }, "xmrseg_length"},
		{func(b *BufferStructure) { b.Groups[2].Length = MaxBufferSize + 1 }, "xmrseg_length"},
		{func(b *BufferStructure) { b.Groups[1].Align = 3 }, "xmrseg_align"},
		{func(b *BufferStructure) { b.Groups[1].Align = 4097 }, "xmrseg_align"},
		{func(b *BufferStructure) { b.Groups[1].Length++ }, "xmrbuf_length"},
		{func(b *BufferStructure) { b.Length-- }, "xmrbuf_length"},
		{func(b *BufferStructure) { b.Groups = nil }, "xmrbuf_length"},
		{func(b *BufferStructure) { b.plain(MinBufferSize - 1) }, "xmrbuf_length"},
		{func(b *BufferStructure) {
			b.Length, b.Groups = 2*MaxBufferSize, []BufferGroup{{2, BufferSegment{MaxBufferSize, 1, 0}}}
		}, "xmrbuf_length"},
	} {
		b := pages()
		c.spoil(b)
		var pe *ParseError
		err := new(BufferStructure).Parse(b.Append(nil))
		if !errors.As(err, &pe) || pe.Field != c.field || answer(pe) != BadXDR {
			t.Errorf("%+v: %v, want one of %s", b, err, c.field)
		}
	}
}

// TestSegments: the segments of a structure follow one another and fill it.
func TestSegments(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := structures().Draw(t, "structure")
		var got BufferStructure
		if err := got.Parse(b.Append(nil)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(b, &got); diff != "" {
			t.Fatal(diff)
		}
		var end uint32
		for at, seg := range b.Segments() {
			if at != end {
				t.Fatalf("a segment at %d, the one before ends at %d", at, end)
			}
			end += seg.Length
		}
		if end != b.Length {
			t.Fatalf("segments of %d bytes, want %d", end, b.Length)
		}
		n := 0
		for at := range b.Segments() {
			if n++; at > 0 {
				break
			}
		}
		if n > 2 {
			t.Fatalf("%d segments behind the end", n)
		}
	})
}

func structures() *rapid.Generator[*BufferStructure] {
	return rapid.Custom(func(t *rapid.T) *BufferStructure {
		b := &BufferStructure{}
		b.plain(rapid.Uint32Range(MinBufferSize, 8192).Draw(t, "first"))
		for range rapid.IntRange(0, 6).Draw(t, "groups") {
			g := BufferGroup{rapid.Uint32Range(1, 10).Draw(t, "count"), BufferSegment{
				rapid.Uint32Range(1, 9000).Draw(t, "length"), 1 << rapid.IntRange(0, 32).Draw(t, "align"), rapid.Uint32Range(0, 3).Draw(t, "flags"),
			}}
			b.Groups = append(b.Groups, g)
			b.Length += g.Count * g.Length
		}
		return b
	})
}

func TestValues(t *testing.T) {
	var v Values
	if v.ReceiveSize() != 4096 || v.Backward() != BackwardInline || v.Support() != 0 || v.RequestLimit() != 1 || v.ResponseLimit() != 1 {
		t.Errorf("the defaults are %+v", &v)
	}
	plain := func(size uint32) *BufferStructure {
		return &BufferStructure{size, []BufferGroup{{1, BufferSegment{size, 1, 0}}}}
	}
	check := func(size uint32, b *BufferStructure) {
		t.Helper()
		if v.ReceiveSize() != size {
			t.Errorf("a size of %d, want %d", v.ReceiveSize(), size)
		}
		if diff := cmp.Diff(b, v.Structure()); diff != "" {
			t.Error(diff)
		}
	}
	set := func(f func(p *Properties)) {
		t.Helper()
		var p Properties
		f(&p)
		if err := v.Set(p.Set); err != nil {
			t.Error(err)
		}
	}
	check(4096, plain(4096))
	set(func(p *Properties) { p.SetUint32(ReceiveBufferSize, 5000) })
	check(5000, plain(5000))
	set(func(p *Properties) { p.SetStructure(pages()) })
	check(5000, pages()) // the smaller
	set(func(p *Properties) { p.SetUint32(ReceiveBufferSize, 1<<20) })
	check(pages().Length, pages())
	set(func(p *Properties) { p.setDefault(ReceiveBufferSize) })
	check(pages().Length, pages())
	set(func(p *Properties) { p.setDefault(ReceiveBufferStructure) })
	check(4096, plain(4096))
	set(func(p *Properties) {
		p.SetUint32(BackwardRequestSupport, BackwardNone)
		p.SetUint32(RTRSupport, 0xff)
		p.SetUint32(RequestReceiveLimit, 3)
		p.SetUint32(ResponseSendLimit, 1<<32-1)
		p.Set = append(p.Set, Property{ID: 0, Value: []byte("?")}, Property{ID: 7}, Property{ID: 7}, Property{ID: ExperimentalProperty, Value: []byte("?")})
	})
	if v.Backward() != BackwardNone || v.Support() != 7 || v.RequestLimit() != 3 || v.ResponseLimit() != 1<<32-1 {
		t.Errorf("%+v", &v)
	}
	set(func(p *Properties) {
		for id := ReceiveBufferSize; id <= ResponseSendLimit; id++ {
			p.setDefault(id)
		}
	})
	if diff := cmp.Diff(&Values{}, &v, cmp.AllowUnexported(Values{}), cmpopts.IgnoreFields(Values{}, "structure")); diff != "" {
		t.Error(diff)
	}
	set(func(p *Properties) { p.SetStructure(pages()) })
	v.Reset()
	check(4096, plain(4096))
}

// TestBadValues spoils one property; the others of the set are not taken over either.
func TestBadValues(t *testing.T) {
	u32 := func(n byte) []byte { return []byte{0, 0, 0, n} }
	for _, c := range []struct {
		id    PropertyID
		value []byte
		says  string
	}{
		{ReceiveBufferSize, []byte{0, 0, 3, 0xff}, "RBSIZ at byte 0: it is 1023, must be 1024 to 16777216"},
		{ReceiveBufferSize, []byte{1, 0, 0, 1}, "it is 16777217"},
		{ReceiveBufferSize, []byte{0, 0, 4}, "it has 3 bytes, must be 4"},
		{ReceiveBufferSize, []byte{0, 0, 4, 0, 0}, "it has 5 bytes"},
		{BackwardRequestSupport, u32(3), "it is 3, must be 0, 1 or 2"},
		{RTRSupport, []byte{1}, "it has 1 bytes"},
		{ReceiveBufferStructure, u32(1), "xmrbs_buf ends after 0 more bytes, 4 are needed"},
		{RequestReceiveLimit, u32(0), "REQRXLIM at byte 0: it is 0, must be 1 at least"},
		{ResponseSendLimit, u32(0), "RESPSXLIM at byte 0: it is 0"},
	} {
		var v Values
		err := v.Set([]Property{{RTRSupport + 10, u32(5)}, {ResponseSendLimit - 1, u32(5)}, {c.id, c.value}})
		if c.id == RequestReceiveLimit {
			err = v.Set([]Property{{RTRSupport, u32(5)}, {c.id, c.value}})
		}
		var pe *ParseError
		if !errors.As(err, &pe) || answer(pe) != BadXDR || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%v = %x: %v", c.id, c.value, err)
		}
		if v.RequestLimit() != 1 || v.Support() != 0 {
			t.Errorf("%v = %x: %+v", c.id, c.value, &v)
		}
	}
	var v Values
	if err := v.Set([]Property{{RTRSupport, u32(5)}, {RTRSupport, nil}}); err == nil || v.Support() != 0 || !strings.Contains(err.Error(), "RTRSUPP at byte 0: it is there twice") {
		t.Error(err)
	}
}

// TestOutcome checks the rules of draft -05 section 6.3.3 for missing and repeated results.
func TestOutcome(t *testing.T) {
	want := []Property{{1, []byte("a")}, {2, []byte("b")}, {5, []byte("c")}}
	for _, c := range []struct {
		what   string
		answer Properties
		now    [3]string // "" is rejected
	}{
		{"nothing", Properties{}, [3]string{}},
		{"all done", Properties{Done: []uint32{7}}, [3]string{"a", "b", "c"}},
		{"all rejected", Properties{Rejected: []uint32{7}}, [3]string{}},
		{"one of each", Properties{Done: []uint32{1}, Rejected: []uint32{2}, Set: []Property{{5, []byte("x")}}}, [3]string{"a", "", "x"}},
		{"done and rejected", Properties{Done: []uint32{3}, Rejected: []uint32{2}}, [3]string{"a", "", ""}},
		{"done and another", Properties{Done: []uint32{3}, Set: []Property{{1, []byte("x")}}}, [3]string{"", "b", ""}},
		{"rejected and another", Properties{Rejected: []uint32{1}, Set: []Property{{1, []byte("x")}}}, [3]string{}},
		{"two others", Properties{Set: []Property{{1, []byte("x")}, {1, []byte("y")}, {2, []byte("z")}}}, [3]string{"", "z", ""}},
		{"what was not asked for", Properties{Done: []uint32{0xfffffff9, 1}, Set: []Property{{6, []byte("x")}}}, [3]string{"a", "", ""}},
	} {
		for n := range want {
			now, ok := c.answer.Outcome(want, n)
			if ok != (c.now[n] != "") || ok && (string(now.Value) != c.now[n] || now.ID != want[n].ID) {
				t.Errorf("%s: property %d is %v %q, want %q", c.what, n, ok, now.Value, c.now[n])
			}
		}
	}
}

// TestRoundTrip2 appends drawn bodies, parses them in pieces, and appends them again.
func TestRoundTrip2(t *testing.T) {
	u32 := rapid.Uint32()
	segs := func(t *rapid.T, least uint32) []Segment {
		s := []Segment{{Handle(u32.Draw(t, "handle")), least, uint64(u32.Draw(t, "offset"))}}
		return append(s, make([]Segment, rapid.IntRange(0, 3).Draw(t, "segments"))...)
	}
	few := rapid.SliceOfN(u32, 0, 4)
	draw := func(t *rapid.T) []byte {
		xid, credits := XID(u32.Draw(t, "xid")), Credits(u32.Draw(t, "credits"))
		d := Direction(rapid.Uint32Range(0, 1).Draw(t, "direction"))
		if rapid.Bool().Draw(t, "properties") {
			p := Properties{Fixed: few.Draw(t, "fixed")[:0]}
			for range rapid.IntRange(0, MaxProperties).Draw(t, "count") {
				p.Set = append(p.Set, Property{PropertyID(u32.Draw(t, "id")), rapid.SliceOfN(rapid.Byte(), 0, 40).Draw(t, "value")})
				p.Fixed = Mark(p.Fixed, rapid.IntRange(0, 31).Draw(t, "fixed"))
			}
			p.Done, p.Rejected = p.Fixed, p.Fixed
			return AppendProperties(nil, xid, credits, d, ConnProp+Procedure(rapid.IntRange(0, 3).Draw(t, "proc")), &p, rapid.Bool().Draw(t, "alias"))
		}
		op := XmtReq + Operation(rapid.IntRange(0, 3).Draw(t, "operation"))
		x := Transmit{Count: max(u32.Draw(t, "count"), 1), ReplyBuffers: u32.Draw(t, "buffers"), Number: u32.Draw(t, "number"), PayloadLength: u32.Draw(t, "payload")}
		at := uint32(4)
		for range rapid.IntRange(0, 5).Draw(t, "items") {
			n := rapid.Uint32Range(0, 1<<20).Draw(t, "length")
			switch p := Placement(rapid.Uint32Range(1, 4).Draw(t, "placement")); {
			case p == Explicit:
				x.AddExplicit(at, n, segs(t, n))
			case p == SendBased || op == XmtReq:
				x.AddSendBased(at, n, u32.Draw(t, "offset"), few.Draw(t, "numbers")...)
			case p == Choice:
				x.AddAbsent(at, n, TooShort)
			default:
				x.AddAbsent(0, 0, NoItem)
			}
			at += (n+3)&^3 + 4*rapid.Uint32Range(0, 1<<20).Draw(t, "between")
		}
		for i := range rapid.Uint32Range(0, 4).Draw(t, "sets") {
			x.AddSet(i*100, i*100+rapid.Uint32Range(1, 100).Draw(t, "end"))
			for range rapid.IntRange(0, 3).Draw(t, "results") {
				switch p := Placement(rapid.Uint32Range(1, 4).Draw(t, "placement")); p {
				case SendBased:
					x.AddResult(u32.Draw(t, "least"), p, 0, nil)
				case BySize:
					x.AddResult(u32.Draw(t, "least"), p, u32.Draw(t, "threshold"), segs(t, 1))
				default:
					x.AddResult(u32.Draw(t, "least"), p, 0, segs(t, 1))
				}
			}
		}
		x.Report = Report{Bad: MessageID{xid, d, at}, HasLead: rapid.Bool().Draw(t, "lead"), Lead: MessageID{xid, Reply, 0},
			Code: ReportCode(rapid.Uint32Range(1, 8).Draw(t, "report")), Expected: at, Current: at, Min: at, Max: at}
		return option(xid, credits, d, op, &x)
	}
	var h Header
	rapid.Check(t, func(t *rapid.T) {
		msg := draw(t)
		for step := 1; step <= len(msg); step += 1 + step/8 {
			if err := h.Parse(pieces(msg, step), &limits2); err != nil {
				t.Fatalf("%x in pieces of %d: %v", msg, step, err)
			}
			if got := h.Append(nil); h.Size != len(msg) || !bytes.Equal(got, msg) {
				t.Fatalf("%x in pieces of %d: appended %x", msg, step, got)
			}
		}
	})
}
