package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// limits2 are those of an endpoint with both versions.
var limits2 = func() Limits { l := DefaultLimits; l.Version2 = true; return l }()

// setDefault adds a property with an empty value, which stands for its default.
func (p *Properties) setDefault(id PropertyID) { p.add(id, len(p.values)) }

// vector is a message of testdata/v2-headers.txt.
type vector struct {
	name string
	size int // of the header
	msg  []byte
}

func vectors(t testing.TB) []vector { return vectorsOf(t, "v2-headers.txt") }

func vectorsOf(t testing.TB, file string) (all []vector) {
	t.Helper()
	b, err := os.ReadFile("testdata/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		switch {
		case strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "="):
			var v vector
			if _, err := fmt.Sscanf(line, "= %s %d", &v.name, &v.size); err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			all = append(all, v)
		case len(all) > 0:
			v := &all[len(all)-1]
			v.msg = append(v.msg, words(t, line)...)
		}
	}
	return all
}

// words reads the hex words at the beginning of a line; two spaces begin a comment.
func words(t testing.TB, line string) []byte {
	t.Helper()
	text, _, _ := strings.Cut(strings.TrimSpace(line), "  ")
	b, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil || len(b)%4 != 0 {
		t.Fatalf("%q is not made of words: %v", line, err)
	}
	return b
}

func message(t testing.TB, name string) []byte { return messageOf(t, "v2-headers.txt", name) }

func messageOf(t testing.TB, file, name string) []byte {
	t.Helper()
	for _, v := range vectorsOf(t, file) {
		if v.name == name {
			return slices.Clone(v.msg)
		}
	}
	t.Fatalf("there is no vector %s", name)
	return nil
}

func pieces(msg []byte, step int) (cut [][]byte) {
	for at := 0; at < len(msg); at += step {
		cut = append(cut, msg[at:min(at+step, len(msg))])
	}
	return cut
}

// TestVectors parses each vector, with the receive cut at every place, and encodes it to the same
// bytes.
func TestVectors(t *testing.T) { checkVectors(t, vectors(t), &limits2) }

func checkVectors(t *testing.T, all []vector, lim *Limits) {
	var h Header
	for _, v := range all {
		for step := 1; step <= len(v.msg); step++ {
			cut := pieces(v.msg, step)
			if err := h.Parse(cut, lim); err != nil {
				t.Fatalf("%s in pieces of %d: %v", v.name, step, err)
			}
			if h.Size != v.size {
				t.Fatalf("%s in pieces of %d: header of %d bytes, want %d", v.name, step, h.Size, v.size)
			}
			if got := h.Append(nil); !bytes.Equal(got, v.msg[:v.size]) {
				t.Fatalf("%s in pieces of %d: appended\n%x, want\n%x", v.name, step, got, v.msg[:v.size])
			}
			if got := bytes.Join(Payload(nil, cut, h.Size), nil); !bytes.Equal(got, v.msg[v.size:]) {
				t.Fatalf("%s in pieces of %d: payload %x", v.name, step, got)
			}
		}
	}
}

// TestVectorsCut cuts each header short at every byte: the error is detected.
func TestVectorsCut(t *testing.T) {
	var h Header
	for _, v := range vectors(t) {
		for n := range v.size {
			err := h.Parse([][]byte{v.msg[:n]}, &limits2)
			var pe *ParseError
			if !errors.As(err, &pe) {
				t.Fatalf("%s cut to %d bytes: %v", v.name, n, err)
			}
			want := BadXDR
			if n < ErrChunkSize || h.Procedure == Error {
				want = 0
			}
			if answer(pe) != want {
				t.Errorf("%s cut to %d bytes: %v (%v)", v.name, n, pe, answer(pe))
			}
		}
	}
}

// answer is the code of version 2 for a parse error, 0 for none.
func answer(e *ParseError) ErrorCode {
	if e.Code == 0 || e.Code == ErrVers {
		return e.Code
	}
	return e.Code2
}

// built has each vector as the sender's functions build it.
var built = map[string]func() []byte{
	"msg-call": func() []byte {
		return AppendEnd(AppendEnd(AppendEnd(AppendMessage(nil, 0x11, 32, Msg, Call, 0))))
	},
	"msg-reply": func() []byte {
		return AppendEnd(AppendEnd(AppendEnd(AppendMessage(nil, 0x11, 16, Msg, Reply, 0))))
	},
	"msg-chunks": func() []byte {
		b := AppendMessage(nil, 0x12, 32, Msg, Call, 0xa1b2)
		b = AppendReadSegment(b, ReadSegment{0x60, Segment{0x101, 0x1000, 0x10000}})
		b = AppendReadSegment(b, ReadSegment{0x60, Segment{0x102, 0x800, 0x7ffffff00}})
		b = AppendChunk(AppendEnd(b), 2)
		b = AppendSegment(b, Segment{0xa1b2, 0x8000, 0x20000})
		b = AppendSegment(b, Segment{0xa1b2, 0x8000, 0x28000})
		return AppendSegment(AppendChunk(AppendEnd(b), 1), Segment{0xa1b3, 0x1000, 1 << 32})
	},
	"nomsg-call": func() []byte {
		b := AppendMessage(nil, 0x13, 32, NoMsg, Call, 0)
		b = AppendEnd(AppendEnd(AppendReadSegment(b, ReadSegment{0, Segment{0x103, 0x2000, 0x40000}})))
		return AppendSegment(AppendChunk(b, 1), Segment{0x104, 0x2000, 0x50000})
	},
	"nomsg-reply": func() []byte {
		b := AppendEnd(AppendEnd(AppendMessage(nil, 0x13, 16, NoMsg, Reply, 0)))
		return AppendReturned(b, []Segment{{0x104, 0x2000, 0x50000}}, 0x1ff0)
	},
	"err-vers":             fault(Fault2{Code: ErrVers, Low: 1, High: 1}),
	"err-bad-xdr":          fault(Fault2{Code: BadXDR}),
	"err-invalid-option":   fault(Fault2{Code: InvalidOption}),
	"err-read-chunks":      fault(Fault2{Code: ReadChunks, Max: 2}),
	"err-write-chunks":     fault(Fault2{Code: WriteChunks, Max: 1}),
	"err-segments":         fault(Fault2{Code: Segments, Max: 32}),
	"err-write-resource":   fault(Fault2{Code: WriteResource, Index: 1, Needed: 65536}),
	"err-reply-resource":   fault(Fault2{Code: ReplyResource, Needed: 0x12345}),
	"err-invalid-option-9": fault(Fault2{Code: InvalidOption9}),
	"err-system":           fault(Fault2{Code: System}),
	"connprop": func() []byte {
		var p Properties
		p.SetUint32(ReceiveBufferSize, 69632)
		p.setDefault(BackwardRequestSupport)
		p.SetUint32(RTRSupport, AcceptsRequest|AcceptsResponse|AcceptsContinue)
		p.SetStructure(&BufferStructure{69632, []BufferGroup{{1, BufferSegment{4096, 1, 0}}, {16, BufferSegment{4096, 4096, Targetable}}}})
		p.SetUint32(RequestReceiveLimit, 17)
		p.SetUint32(ResponseSendLimit, 17)
		p.Set = append(p.Set, Property{0xffffff07, []byte("hello")})
		for n := range p.Set {
			if n != 1 {
				p.Fixed = Mark(p.Fixed, n)
			}
		}
		return AppendProperties(nil, 1, 32, Call, ConnProp, &p, false)
	},
	"connprop-empty": func() []byte { return AppendProperties(nil, 1, 1, Call, ConnProp, &Properties{}, false) },
	"connprop-alias": func() []byte {
		var p Properties
		p.SetUint32(ReceiveBufferSize, 8192)
		return AppendProperties(nil, 1, 32, Call, ConnProp, &p, true)
	},
	"reqprop": func() []byte {
		var p Properties
		p.SetUint32(ReceiveBufferSize, 8192)
		p.setDefault(RTRSupport)
		return AppendProperties(nil, 2, 32, Call, ReqProp, &p, false)
	},
	"reqprop-empty": func() []byte { return AppendProperties(nil, 3, 32, Call, ReqProp, &Properties{}, false) },
	"reqprop-alias": func() []byte {
		var p Properties
		p.SetUint32(BackwardRequestSupport, BackwardGeneral)
		return AppendProperties(nil, 2, 32, Call, ReqProp, &p, true)
	},
	"resprop": func() []byte {
		p := Properties{Done: Mark(nil, 0), Rejected: Mark(nil, 1)}
		p.SetUint32(RequestReceiveLimit, 8)
		return AppendProperties(nil, 2, 32, Reply, RespProp, &p, false)
	},
	"resprop-empty": func() []byte { return AppendProperties(nil, 3, 32, Reply, RespProp, &Properties{}, false) },
	"resprop-alias": func() []byte {
		p := Properties{Rejected: Mark(nil, 0)}
		p.setDefault(BackwardRequestSupport)
		return AppendProperties(nil, 2, 32, Reply, RespProp, &p, true)
	},
	"updprop": func() []byte {
		var p Properties
		p.SetUint32(ResponseSendLimit, 32)
		return AppendProperties(nil, 4, 32, Call, UpdProp, &p, false)
	},
	"updprop-alias": func() []byte {
		var p Properties
		p.SetUint32(ResponseSendLimit, 32)
		return AppendProperties(nil, 4, 32, Call, UpdProp, &p, true)
	},
	"xmtreq-smallest": func() []byte {
		return option(0x21, 32, Call, XmtReq, &Transmit{Count: 1, ReplyBuffers: 1, PayloadLength: 40})
	},
	"xmtreq-write": func() []byte {
		x := Transmit{Count: 1, ReplyBuffers: 1, PayloadLength: 96}
		x.AddSendBased(0x60, 65536, 0, 0)
		return option(0x22, 32, Call, XmtReq, &x)
	},
	"xmtreq-results": func() []byte {
		x := Transmit{Count: 3, ReplyBuffers: 5, PayloadLength: 2048}
		x.AddExplicit(0x60, 0xffd, []Segment{{0x105, 0xffd, 0x60000}})
		x.AddSet(0x28, 0xa0)
		x.AddResult(1024, SendBased, 0, nil)
		x.AddResult(4096, Choice, 0, []Segment{{0x106, 0x1000, 0x70000}})
		x.AddResult(4096, BySize, 16384, []Segment{{0x107, 0x10000, 0x80000}})
		x.AddSet(0xa0, 0xffffffff)
		x.AddResult(0, Explicit, 0, []Segment{{0x108, 0x1000, 0x90000}})
		return option(0x23, 32, Call, XmtReq, &x)
	},
	"xmtresp": func() []byte {
		x := Transmit{Count: 2, PayloadLength: 1024}
		x.AddSendBased(0x80, 0x1ff0, 16, 1, 3)
		x.AddAbsent(0x2100, 0x800, TooShort)
		x.AddAbsent(0, 0, NoItem)
		x.AddExplicit(0x2a00, 0x1000, []Segment{{0x108, 0x1000, 0x90000}})
		return option(0x23, 16, Reply, XmtResp, &x)
	},
	"xmtresp-read": func() []byte {
		x := Transmit{Count: 1, PayloadLength: 128}
		x.AddSendBased(0x80, 65536, 0, 0)
		return option(0x24, 16, Reply, XmtResp, &x)
	},
	"xmtcont": func() []byte {
		return option(0x23, 32, Call, XmtCont, &Transmit{Number: 1, Initial: XmtReq, PayloadLength: 8})
	},
	"xmtcont-empty": func() []byte { return option(0x23, 16, Reply, XmtCont, &Transmit{Number: 1, Initial: XmtResp}) },
	"report-badhmt": report(Report{Bad: MessageID{0x23, Call, 1}, HasLead: true, Lead: MessageID{0x23, Call, 0},
		Code: BadHeaderType, Expected: uint32(Optional), Current: uint32(Msg)}),
	"report-badomt":  report(Report{Bad: MessageID{0x23, Call, 1}, Code: BadOptionType, Expected: uint32(XmtCont), Current: uint32(XmtReq)}),
	"report-badcont": report(Report{Bad: MessageID{0x23, Call, 1}, Code: BadContinuation}),
	"report-badseq": report(Report{Bad: MessageID{0x23, Call, 2}, HasLead: true, Lead: MessageID{0x23, Call, 0},
		Code: BadSequence, Expected: 1, Current: 2}),
	"report-badxid": report(Report{Bad: MessageID{0x29, Call, 1}, HasLead: true, Lead: MessageID{0x23, Call, 0},
		Code: BadXID, Expected: 0x23, Current: 0x29}),
	"report-badoff":  report(Report{Bad: MessageID{0x23, Reply, 0}, Code: BadOffset, Current: 4096, Max: 4095}),
	"report-badtbsn": report(Report{Bad: MessageID{0x23, Reply, 0}, Code: BadBuffer, Current: 16, Max: 15}),
	"report-badpl":   report(Report{Bad: MessageID{0x23, Call, 0}, Code: BadPayload, Current: 2050, Max: 4096}),
}

func fault(f Fault2) func() []byte { return func() []byte { return AppendError2(nil, 0x14, 32, f) } }

// report goes to the sender of the bad message, in the direction opposite to that of the message.
func report(r Report) func() []byte {
	d, credits := Reply, Credits(16)
	if r.Bad.Direction == Reply {
		d, credits = Call, 32
	}
	return func() []byte { return option(0x23, credits, d, ReptErr, &Transmit{Report: r}) }
}

func option(xid XID, credits Credits, d Direction, op Operation, x *Transmit) []byte {
	return EndOption(x.Append(BeginOption(nil, xid, credits, d, op), op), 0)
}

// TestBuilt compares the output of the append functions with the vectors written by hand.
func TestBuilt(t *testing.T) {
	seen := 0
	for _, v := range vectors(t) {
		f := built[v.name]
		if f == nil {
			t.Errorf("nothing builds %s", v.name)
			continue
		}
		seen++
		if got := f(); !bytes.Equal(got, v.msg[:v.size]) {
			t.Errorf("%s:\n%x, want\n%x", v.name, got, v.msg[:v.size])
		}
	}
	if seen != len(built) {
		t.Errorf("%d vectors, %d are built", seen, len(built))
	}
}

// TestParse2 checks the parsed fields of the longest vectors.
func TestParse2(t *testing.T) {
	var h Header
	if err := h.Parse([][]byte{message(t, "msg-chunks")}, &limits2); err != nil {
		t.Fatal(err)
	}
	if h.Version != 2 || h.Direction != Call || h.Invalidate != 0xa1b2 || len(h.Reads) != 2 || h.Writes() != 1 || len(h.Write(0)) != 2 || len(h.Reply()) != 1 {
		t.Errorf("%+v", &h)
	}
	if err := h.Parse([][]byte{message(t, "connprop")}, &limits2); err != nil {
		t.Fatal(err)
	}
	if len(h.Props.Set) != 7 || Bit(h.Props.Fixed, 1) || !Bit(h.Props.Fixed, 6) || Bit(h.Props.Fixed, 7) || Bit(h.Props.Fixed, 32) {
		t.Errorf("%+v", &h.Props)
	}
	if v := h.Props.Set[6]; v.ID != 0xffffff07 || string(v.Value) != "hello" {
		t.Errorf("%+v", v)
	}
	if err := h.Parse([][]byte{message(t, "reqprop-alias")}, &limits2); err != nil || h.Procedure != ReqProp || !h.Alias || h.Operation != OptReqProp {
		t.Errorf("%v %+v", err, &h)
	}

	if err := h.Parse([][]byte{message(t, "xmtreq-results")}, &limits2); err != nil {
		t.Fatal(err)
	}
	x := &h.Transmit
	if h.Procedure != Optional || h.Operation != XmtReq || x.Count != 3 || x.ReplyBuffers != 5 || x.PayloadLength != 2048 || len(x.Items) != 1 || len(x.Sets) != 2 {
		t.Errorf("%+v", x)
	}
	if diff := cmp.Diff([]Segment{{0x105, 0xffd, 0x60000}}, x.Segments(&x.Items[0])); diff != "" {
		t.Error(diff)
	}
	first, second := x.Results(&x.Sets[0]), x.Results(&x.Sets[1])
	if len(first) != 3 || len(second) != 1 || first[0].Placement != SendBased || first[0].MinLength != 1024 || first[1].Placement != Choice ||
		first[2].Threshold != 16384 || x.ResultSegments(&first[2])[0].Handle != 0x107 || x.ResultSegments(&second[0])[0].Handle != 0x108 {
		t.Errorf("%+v %+v", first, second)
	}

	if err := h.Parse([][]byte{message(t, "xmtresp")}, &limits2); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]uint32{1, 3}, x.Numbers(&x.Items[0])); diff != "" || x.Items[0].Offset != 16 || len(x.Items) != 4 {
		t.Error(diff, x.Items)
	}
	if err := h.Parse([][]byte{message(t, "report-badseq")}, &limits2); err != nil {
		t.Fatal(err)
	}
	want := Report{Bad: MessageID{0x23, Call, 2}, Lead: MessageID{0x23, Call, 0}, HasLead: true, Code: BadSequence, Expected: 1, Current: 2}
	if diff := cmp.Diff(want, x.Report); diff != "" {
		t.Error(diff)
	}
}

// TestOptionTail has bytes in optinfo after the operation's body; the payload begins after them and
// their round-up.
func TestOptionTail(t *testing.T) {
	msg := message(t, "xmtcont")
	for tail := range 9 {
		var b []byte
		b = append(b, msg[:40]...)
		b[27] = byte(12 + tail)
		b = append(b, bytes.Repeat([]byte{0xee}, (tail+3)&^3)...)
		b = append(b, msg[40:]...)
		var h Header
		for step := 1; step < 9; step++ {
			if err := h.Parse(pieces(b, step), &limits2); err != nil || h.Size != 40+(tail+3)&^3 || h.Transmit.PayloadLength != 8 {
				t.Fatalf("%d bytes more: %v, size %d", tail, err, h.Size)
			}
		}
	}
}

// TestVersion1Only: an endpoint of version 1 sees version 2 as an unknown version, and understands
// the errors common to all versions.
func TestVersion1Only(t *testing.T) {
	var h Header
	for _, v := range vectors(t) {
		err := h.Parse([][]byte{v.msg}, &DefaultLimits)
		switch {
		case h.Procedure == Error && h.Code <= ErrChunk:
			if err != nil {
				t.Errorf("%s: %v", v.name, err)
			}
			continue
		case err == nil:
			t.Errorf("%s was parsed", v.name)
			continue
		}
		want := ErrVers
		if h.Procedure == Error || len(v.msg) < MinSize {
			want = 0
		}
		if pe := err.(*ParseError); pe.Code != want { //nolint:errorlint // it is documented to be one
			t.Errorf("%s: %v (%v)", v.name, pe, pe.Code)
		}
	}
	// An endpoint of version 2 alone answers so.
	lim := limits2
	lim.NoVersion1 = true
	msgs, _ := linux(t)
	if err := h.Parse([][]byte{msgs[0]}, &lim); err == nil || !regexp.MustCompile("version is 1, must be 2$").MatchString(err.Error()) {
		t.Error(err)
	}
	b := append(AppendFixed(nil, 1, 3, 1, Msg), make([]byte, 12)...)
	if err := h.Parse([][]byte{b}, &limits2); err == nil || !regexp.MustCompile("version is 3, must be 1 or 2$").MatchString(err.Error()) {
		t.Error(err)
	}
}

// TestBothVersions: an endpoint of both versions parses version 1 as usual.
func TestBothVersions(t *testing.T) {
	msgs, sizes := linux(t)
	var h Header
	for i, msg := range msgs {
		if err := h.Parse([][]byte{msg}, &limits2); err != nil || h.Size != sizes[i] || !bytes.Equal(h.Append(nil), msg[:h.Size]) {
			t.Errorf("message %d: %v", i, err)
		}
	}
}

// TestNoAllocations2: parsing and appending allocate nothing once the memory exists.
func TestNoAllocations2(t *testing.T) {
	var h Header
	var cut [][][]byte
	for i, v := range vectors(t) {
		cut = append(cut, pieces(v.msg, 5+i))
	}
	dst := make([]byte, 0, 1024)
	run := func() {
		for i := range cut {
			if h.Parse(cut[i], &limits2) != nil {
				t.Fatal("parse")
			}
			dst = h.Append(dst[:0])
		}
	}
	run()
	if n := testing.AllocsPerRun(100, run); n > 0 {
		t.Errorf("%v allocations", n)
	}
	var x Transmit
	var p Properties
	segs := []Segment{{1, 2, 3}}
	numbers := []uint32{1, 2, 3}
	build := func() {
		x.Reset()
		x.AddExplicit(4, 2, segs)
		x.AddSendBased(8, 4, 0, numbers...)
		x.AddSet(0, 8)
		x.AddResult(1, Choice, 0, segs)
		dst = x.Append(dst[:0], XmtReq)
		p.Reset()
		p.SetUint32(ReceiveBufferSize, 5000)
		p.setDefault(RTRSupport)
		p.Done = Mark(p.Done, 1)
		dst = p.Append(dst, RespProp)
	}
	build()
	if n := testing.AllocsPerRun(100, build); n > 0 {
		t.Errorf("%v allocations to build", n)
	}
}

func FuzzHeader2(f *testing.F) {
	for _, v := range vectors(f) {
		f.Add(v.msg, uint8(3))
	}
	f.Fuzz(func(t *testing.T, msg []byte, step uint8) {
		if len(msg) >= 8 {
			copy(msg[4:], "\x00\x00\x00\x02")
		}
		var h, g Header
		err := h.Parse([][]byte{msg}, &limits2)
		if err2 := g.Parse(pieces(msg, int(step)+1), &limits2); (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("whole: %v, cut: %v", err, err2)
		}
		if err != nil {
			return
		}
		x := &h.Transmit
		if h.Size > len(msg) || len(h.Props.Set) > MaxProperties || len(x.Items) > limits2.Items || len(x.results) > limits2.Items ||
			len(x.segs) > limits2.WriteSegments || len(x.numbers) > limits2.Buffers {
			t.Fatalf("%+v", &h)
		}
		// Encoded again it parses to the same; bytes differ at most in round-up and in skipped
		// bytes of optinfo.
		first := g.Append(nil)
		if err := g.Parse([][]byte{first}, &limits2); err != nil {
			t.Fatalf("%x appended as %x: %v", msg, first, err)
		}
		if again := g.Append(nil); !bytes.Equal(again, first) || len(first) > h.Size {
			t.Fatalf("appended %x, then %x", first, again)
		}
		var v Values
		if err := v.Set(h.Props.Set); err == nil {
			if s := v.Structure(); s.Check() != nil || v.ReceiveSize() < MinBufferSize || v.RequestLimit() < 1 || v.ResponseLimit() < 1 {
				t.Fatalf("%+v", &v)
			}
		}
	})
}
