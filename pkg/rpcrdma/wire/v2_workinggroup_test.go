package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const wgFile = "v2-wg-headers.txt"

// limitsWG are those of an endpoint with both versions, and the working group's dialect.
var limitsWG = func() Limits { l := limits2; l.V2 = V2WorkingGroup; return l }()

// TestWGVectors parses each vector, with the receive cut at every place, and encodes it to the same
// bytes.
func TestWGVectors(t *testing.T) { checkVectors(t, vectorsOf(t, wgFile), &limitsWG) }

// TestWGVectorsCut cuts each header short at every byte: the error is detected.
func TestWGVectorsCut(t *testing.T) {
	var h Header
	for _, v := range vectorsOf(t, wgFile) {
		for n := range v.size {
			err := h.Parse([][]byte{v.msg[:n]}, &limitsWG)
			var pe *ParseError
			if !errors.As(err, &pe) {
				t.Fatalf("%s cut to %d bytes: %v", v.name, n, err)
			}
			want := BadXDR
			if n < ErrChunkSize && n != FixedSize || h.Procedure == Error {
				want = 0
			}
			if answer(pe) != want {
				t.Errorf("%s cut to %d bytes: %v (%v)", v.name, n, pe, answer(pe))
			}
		}
	}
}

// TestWGBuilt builds vectors with the sender's functions.
func TestWGBuilt(t *testing.T) {
	d := V2WorkingGroup
	fault := func(f Fault2) []byte { return d.AppendFault(nil, &Header{XID: 0x29, Version: 2}, 0x10, f) }
	var p Properties
	p.SetUint32(WGSendSize, 8192)
	p.SetUint32(WGReceiveSize, 8192)
	p.setDefault(WGSegmentCount)
	p.SetUint32(WGReverse, WGReverseCont)
	var auth Properties
	auth.SetOpaque(WGHostAuth, []byte("hello"))
	var call Header
	if err := call.Parse([][]byte{messageOf(t, wgFile, "call-external")}, &limitsWG); err != nil {
		t.Fatal(err)
	}
	chunks := d.AppendCall(nil, 0x12, 0x22, Msg)
	d.SetInvalidate(chunks, 0xa1b2)
	chunks = AppendReadSegment(chunks, ReadSegment{0x60, Segment{0x101, 0x1000, 0x10000}})
	chunks = AppendReadSegment(chunks, ReadSegment{0x60, Segment{0x102, 0x800, 0x7ffffff00}})
	chunks = AppendChunk(AppendEnd(chunks), 2)
	chunks = AppendSegment(chunks, Segment{0xa1b2, 0x8000, 0x20000})
	chunks = AppendSegment(chunks, Segment{0xa1b2, 0x8000, 0x28000})
	chunks = AppendSegment(AppendChunk(AppendEnd(chunks), 1), Segment{0xa1b3, 0x1000, 1 << 32})
	external := AppendReadSegment(d.AppendCall(nil, 0x13, 0x23, NoMsg), ReadSegment{0, Segment{0x103, 0x2000, 0x40000}})
	external = AppendReadSegment(d.EndBody(external), ReadSegment{0xa0, Segment{0x105, 0x400, 0x60000}})
	external = AppendSegment(AppendChunk(AppendEnd(AppendEnd(external)), 1), Segment{0x104, 0x2000, 0x50000})
	for name, got := range map[string][]byte{
		"call-inline":   AppendEnd(AppendEnd(AppendEnd(d.AppendCall(nil, 0x11, 0x21, Msg)))),
		"reply-inline":  d.AppendReplyChunk(AppendEnd(d.AppendReply(nil, 0x11, 0x30, Msg)), &call, 0),
		"call-chunks":   chunks,
		"call-external": external,
		"reply-external": d.AppendReplyChunk(AppendEnd(
			AppendReturned(d.AppendReply(nil, 0x13, 0x31, NoMsg), []Segment{{0xa1b2, 0x10, 0x20000}}, 7)), &call, 0x1ff0),
		"connprop":           AppendConnProp(nil, 1, 0x81, &p, false),
		"connprop-empty":     AppendConnProp(nil, 1, 2, new(Properties), false),
		"connprop-more":      AppendConnProp(nil, 2, 3, &auth, true),
		"err-write-resource": fault(Fault2{Code: WriteResource, Index: 1, Needed: 65536}),
	} {
		want := messageOf(t, wgFile, name)
		var h Header
		if err := h.Parse([][]byte{want}, &limitsWG); err != nil {
			t.Fatal(name, err)
		}
		if !bytes.Equal(got, want[:h.Size]) {
			t.Errorf("%s is built as\n%x, want\n%x", name, got, want[:h.Size])
		}
	}
	for name, build := range map[string]func() []byte{
		"call-middle":  func() []byte { return AppendMiddle(nil, 0x14, Call, 8) },
		"reply-middle": func() []byte { return AppendMiddle(nil, 0x14, Reply, 0x1000) },
		"grant":        func() []byte { return AppendGrant(nil) },
	} {
		want, got := messageOf(t, wgFile, name), build()
		SetLimit(got, binary.BigEndian.Uint32(want[8:]))
		if !bytes.HasPrefix(want, got) {
			t.Errorf("%s is built as\n%x, want\n%x", name, got, want)
		}
	}
	for _, p := range []Procedure{Msg, NoMsg} {
		b := d.AppendCall(nil, 1, 1, p)
		if p == NoMsg {
			b = d.EndBody(b)
		}
		if b = AppendEnd(AppendEnd(AppendEnd(b))); len(b) != d.CallSize(p) {
			t.Errorf("a call of %v without chunks has %d bytes, said to be %d", p, len(b), d.CallSize(p))
		}
	}
}

// TestWGBad has headers that are refused, with the answers.
func TestWGBad(t *testing.T) {
	change := func(name string, at int, word uint32) []byte {
		b := messageOf(t, wgFile, name)
		binary.BigEndian.PutUint32(b[at:], word)
		return b
	}
	for name, c := range map[string]struct {
		b    []byte
		want ErrorCode
	}{
		"a type below":               {change("call-inline", 12, 3), InvalidType},
		"a type above":               {change("call-inline", 12, 14), InvalidType},
		"another version":            {change("call-inline", 4, 3), ErrVers},
		"positions fall":             {change("call-chunks", 48, 0x40), BadXDR},
		"position 0 inline":          {change("call-chunks", 24, 0), BadXDR},
		"a Call chunk elsewhere":     {change("call-external", 24, 4), BadXDR},
		"no Call chunk":              {change("call-external", 20, 0), BadXDR},
		"an external reply, no room": {append(messageOf(t, wgFile, "reply-external")[:40:40], 0, 0, 0, 0, 0, 0, 0, 0), BadXDR},
		"an unknown error":           {change("err-system", 16, 12), 0},
	} {
		var h Header
		err := h.Parse([][]byte{c.b}, &limitsWG)
		var pe *ParseError
		if !errors.As(err, &pe) || answer(pe) != c.want {
			t.Errorf("%s: %v, want the answer %v", name, err, c.want.Name(Version2))
		}
	}
}

func TestWGValues(t *testing.T) {
	set := func(f func(p *Properties)) []Property {
		var p Properties
		f(&p)
		return p.Set
	}
	v := DefaultWGValues
	err := v.Set(set(func(p *Properties) {
		p.SetUint32(WGSendSize, 1024)
		p.SetUint32(WGReceiveSize, 8192)
		p.SetUint32(WGSegmentSize, 65536)
		p.SetUint32(WGSegmentCount, 3)
		p.SetUint32(WGReverse, WGReverseSimple)
		p.SetOpaque(WGHostAuth, []byte("hello"))
		p.SetUint32(77, 1)
	}))
	if d := cmp.Diff(WGValues{1024, 8192, 65536, 3, WGReverseSimple, []byte("hello")}, v); err != nil || d != "" {
		t.Error(err, d)
	}
	if err := v.Set(set(func(p *Properties) {
		for id := WGSendSize; id <= WGHostAuth; id++ {
			p.setDefault(id)
		}
	})); err != nil {
		t.Error(err)
	}
	if d := cmp.Diff(DefaultWGValues, v); d != "" {
		t.Error(d)
	}
	for name, f := range map[string]func(p *Properties){
		"SBSIZ below":     func(p *Properties) { p.SetUint32(WGSendSize, 1023) },
		"RBSIZ above":     func(p *Properties) { p.SetUint32(WGReceiveSize, MaxBufferSize+1) },
		"RSSIZ 0":         func(p *Properties) { p.SetUint32(WGSegmentSize, 0) },
		"BRS 4":           func(p *Properties) { p.SetUint32(WGReverse, 4) },
		"twice":           func(p *Properties) { p.SetUint32(WGReverse, 1); p.SetUint32(WGReverse, 1) },
		"a long RCSIZ":    func(p *Properties) { p.SetOpaque(WGSegmentCount, []byte("four")) },
		"a short opaque":  func(p *Properties) { p.Set = []Property{{WGHostAuth, []byte{0, 0}}} },
		"an empty opaque": func(p *Properties) { p.Set = []Property{{WGHostAuth, []byte{0, 0, 0, 9}}} },
	} {
		var pe *ParseError
		if err := v.Set(set(f)); !errors.As(err, &pe) || answer(pe) != InvalidProperty {
			t.Errorf("%s: %v", name, err)
		}
		if d := cmp.Diff(DefaultWGValues, v); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestWGSpecification walks through each vector according to docs/protocol-v2-wg.x, and compares
// its constants with ours.
func TestWGSpecification(t *testing.T) {
	s := readSpec(t, "protocol-v2-wg.x")
	for _, v := range vectorsOf(t, wgFile) {
		if n, err := s.walk("header", v.msg); err != nil || n != v.size {
			t.Errorf("%s: a header of %d bytes, want %d: %v", v.name, n, v.size, err)
		}
	}
	ours := map[string]uint32{
		"RDMA2_VERSION": Version2, "ERROR": typeError, "GRANT": typeGrant, "CONNPROP_MORE": typePropMiddle, "CONNPROP": typePropFinal,
		"CALL_EXTERNAL": typeCallExternal, "CALL_MIDDLE": typeCallMiddle, "CALL_INLINE": typeCallInline,
		"REPLY_EXTERNAL": typeReplyExternal, "REPLY_MIDDLE": typeReplyMiddle, "REPLY_INLINE": typeReplyInline,
		"PROP_SBSIZ": uint32(WGSendSize), "PROP_RBSIZ": uint32(WGReceiveSize), "PROP_RSSIZ": uint32(WGSegmentSize), "PROP_RCSIZ": uint32(WGSegmentCount),
		"PROP_BRS": uint32(WGReverse), "PROP_HOSTAUTH": uint32(WGHostAuth),
		"REVERSE_NONE": WGReverseNone, "REVERSE_SIMPLE": WGReverseSimple, "REVERSE_CONT": WGReverseCont, "REVERSE_GENERAL": WGReverseGeneral,
	}
	for n, e := range wgErrors {
		name := "ERR_" + e.name
		if e.code == ErrVers {
			name = e.name
		}
		ours[name] = n
	}
	if d := cmp.Diff(ours, s.consts); d != "" {
		t.Error(d)
	}
}

func FuzzHeaderWG(f *testing.F) {
	for _, v := range vectorsOf(f, wgFile) {
		f.Add(v.msg, uint8(3))
	}
	f.Fuzz(func(t *testing.T, msg []byte, step uint8) {
		if len(msg) >= 8 {
			copy(msg[4:], "\x00\x00\x00\x02")
		}
		var h, g Header
		err := h.Parse([][]byte{msg}, &limitsWG)
		if err2 := g.Parse(pieces(msg, int(step)+1), &limitsWG); (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("whole: %v, cut: %v", err, err2)
		}
		if err != nil {
			return
		}
		if h.Size > len(msg) || len(h.Props.Set) > MaxProperties || len(h.segs) > limitsWG.WriteSegments || len(h.Reads) > limitsWG.ReadSegments {
			t.Fatalf("%+v", &h)
		}
		first := g.Append(nil)
		if err := g.Parse([][]byte{first}, &limitsWG); err != nil {
			t.Fatalf("%x appended as %x: %v", msg, first, err)
		}
		if again := g.Append(nil); !bytes.Equal(again, first) || len(first) > h.Size {
			t.Fatalf("appended %x, then %x", first, again)
		}
		v := DefaultWGValues
		if err := v.Set(h.Props.Set); err == nil && (v.ReceiveSize < MinBufferSize || v.SendSize < MinBufferSize || v.SegmentSize == 0) {
			t.Fatalf("%+v", &v)
		}
	})
}

// TestWGExamples compares the examples of docs/protocol-v2-wg.md with the vectors.
func TestWGExamples(t *testing.T) { compareExamples(t, "protocol-v2-wg.md", wgFile, 7) }
