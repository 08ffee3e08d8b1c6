package wire

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// linux returns the messages of testdata/linux-headers.txt, and the lengths of their headers.
func linux(t testing.TB) (msgs [][]byte, sizes []int) {
	t.Helper()
	b, err := os.ReadFile("testdata/linux-headers.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(b)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var size int
		var text string
		if _, err := fmt.Sscan(line, &size, &text); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		msg, err := hex.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		msgs, sizes = append(msgs, msg), append(sizes, size)
	}
	if len(msgs) < 15 {
		t.Fatalf("only %d messages", len(msgs))
	}
	return msgs, sizes
}

// TestLinuxHeaders parses Linux's messages, with the receive cut at every place, and encodes them
// to the same bytes.
func TestLinuxHeaders(t *testing.T) {
	msgs, sizes := linux(t)
	var h Header
	for i, msg := range msgs {
		for step := 1; step <= len(msg); step++ {
			var cut [][]byte
			for at := 0; at < len(msg); at += step {
				cut = append(cut, msg[at:min(at+step, len(msg))])
			}
			if err := h.Parse(cut, &DefaultLimits); err != nil {
				t.Fatalf("message %d in pieces of %d: %v", i, step, err)
			}
			if h.Size != sizes[i] {
				t.Fatalf("message %d in pieces of %d: header of %d bytes, want %d", i, step, h.Size, sizes[i])
			}
			if got := h.Append(nil); !bytes.Equal(got, msg[:h.Size]) {
				t.Fatalf("message %d in pieces of %d: appended\n%x, want\n%x", i, step, got, msg[:h.Size])
			}
			if got := bytes.Join(Payload(nil, cut, h.Size), nil); !bytes.Equal(got, msg[h.Size:]) {
				t.Fatalf("message %d in pieces of %d: payload %x", i, step, got)
			}
		}
	}
}

func TestParse(t *testing.T) {
	// A WRITE as Linux sends it: a Read chunk behind 0x70 bytes of an unreduced stream.
	msg, _ := hex.DecodeString("8046de0b0000000100000080000000000000000100000070560ea901000013898046de0b09150000" + "0000000000000000" + "00000000")
	var h Header
	if err := h.Parse([][]byte{msg}, &DefaultLimits); err != nil {
		t.Fatal(err)
	}
	want := []ReadSegment{{0x70, Segment{0x560ea901, 5001, 0x8046de0b09150000}}}
	if diff := cmp.Diff(want, h.Reads); diff != "" {
		t.Error(diff)
	}
	if h.XID != 0x8046de0b || h.Credits != 128 || h.Procedure != Msg || h.Writes() != 0 || h.HasReply || !h.Chunks() {
		t.Errorf("%+v", &h)
	}
}

// TestErrVersVector is the answer of a server with version 1 alone to a probe of version 2.
func TestErrVersVector(t *testing.T) {
	b := AppendError(nil, 0xaabbccdd, 2, 32, ErrVers, 1, 1)
	if got, want := hex.EncodeToString(b), "aabbccdd"+"00000002"+"00000020"+"00000004"+"00000001"+"00000001"+"00000001"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	var h Header
	if err := h.Parse([][]byte{b}, &DefaultLimits); err != nil || h.Code != ErrVers || h.Low != 1 || h.High != 1 || h.Version != 2 || h.Size != ErrVersSize {
		t.Errorf("%v %+v", err, &h)
	}
	b = AppendError(nil, 1, 1, 1, ErrChunk, 1, 1)
	if err := h.Parse([][]byte{b}, &DefaultLimits); err != nil || h.Code != ErrChunk || h.Size != ErrChunkSize {
		t.Errorf("%v %+v", err, &h)
	}
}

func TestReturned(t *testing.T) {
	segs := []Segment{{1, 100, 1000}, {2, 0, 2000}, {3, 50, 3000}, {4, 50, 4000}}
	for _, c := range []struct {
		n    int
		want []uint32
	}{
		{0, []uint32{0, 0, 0, 0}}, {1, []uint32{1, 0, 0, 0}}, {100, []uint32{100, 0, 0, 0}},
		{101, []uint32{100, 0, 1, 0}}, {199, []uint32{100, 0, 50, 49}}, {200, []uint32{100, 0, 50, 50}},
	} {
		b := AppendFixed(nil, 1, 1, 1, Msg)
		b = AppendEnd(b)
		b = AppendReturned(b, segs, c.n)
		b = AppendEnd(AppendEnd(b))
		var h Header
		if err := h.Parse([][]byte{b}, &DefaultLimits); err != nil {
			t.Fatal(err)
		}
		for i, s := range h.Write(0) {
			if s.Length != c.want[i] || s.Handle != segs[i].Handle || s.Offset != segs[i].Offset {
				t.Errorf("%d bytes: segment %d is %+v", c.n, i, s)
			}
		}
		if Length(h.Write(0)) != uint64(c.n) {
			t.Errorf("%d bytes: length %d", c.n, Length(h.Write(0)))
		}
	}
}

// TestErrors checks the content of errors.
func TestErrors(t *testing.T) {
	fixed := AppendFixed(nil, 1, 1, 1, Msg)
	var h Header
	for _, c := range []struct {
		msg    []byte
		field  string
		offset int
		code   ErrorCode
	}{
		{nil, "length", 0, 0},
		{make([]byte, 27), "length", 0, 0},
		{append(AppendFixed(nil, 1, 3, 1, Msg), make([]byte, 12)...), "rdma_vers", 4, ErrVers},
		{append(AppendFixed(nil, 1, 1, 1, 9), make([]byte, 12)...), "rdma_proc", 12, ErrChunk},
		{append(AppendFixed(nil, 1, 1, 1, MsgP), make([]byte, 20)...), "rdma_proc", 12, ErrChunk},
		{append(fixed[:16:16], 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0), "rdma_reads", 20, ErrChunk},
		{append(fixed[:16:16], 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 99), "rdma_writes", 28, ErrChunk},
	} {
		err := h.Parse([][]byte{c.msg}, &DefaultLimits)
		var pe *ParseError
		if !errors.As(err, &pe) {
			t.Fatalf("%x: %v", c.msg, err)
		}
		if pe.Field != c.field || pe.Offset != c.offset || pe.Code != c.code {
			t.Errorf("%x: %v (%v)", c.msg, pe, pe.Code)
		}
	}
}

// TestLimits reaches each limit and exceeds it by one.
func TestLimits(t *testing.T) {
	lim := Limits{ReadSegments: 6, WriteChunks: 3, SegmentsPerChunk: 4, WriteSegments: 7}
	build := func(reads []int, writes []int, reply int) []byte {
		b := AppendFixed(nil, 1, 1, 1, Msg)
		for i, n := range reads {
			for range n {
				b = AppendReadSegment(b, ReadSegment{Position(4 * i), Segment{1, 1, 1}})
			}
		}
		b = AppendEnd(b)
		for _, n := range writes {
			b = AppendChunk(b, n)
			for range n {
				b = AppendSegment(b, Segment{})
			}
		}
		b = AppendEnd(b)
		if reply < 0 {
			return AppendEnd(b)
		}
		b = AppendChunk(b, reply)
		for range reply {
			b = AppendSegment(b, Segment{})
		}
		return b
	}
	for _, c := range []struct {
		reads, writes []int
		reply         int
		ok            bool
	}{
		{[]int{4, 2}, []int{4, 0, 1}, 2, true},
		{[]int{5}, nil, -1, false},
		{[]int{4, 3}, nil, -1, false},
		{nil, []int{1, 1, 1, 1}, -1, false},
		{nil, []int{5}, -1, false},
		{nil, []int{4, 4}, -1, false},
		{nil, []int{4, 2}, 1, true},
		{nil, []int{4, 2}, 2, false},
		{nil, nil, 5, false},
		{nil, nil, 0, true},
	} {
		var h Header
		msg := build(c.reads, c.writes, c.reply)
		err := h.Parse([][]byte{msg}, &lim)
		if (err == nil) != c.ok {
			t.Errorf("%+v: %v", c, err)
		}
		if err == nil && !bytes.Equal(h.Append(nil), msg) {
			t.Errorf("%+v: appended %x", c, h.Append(nil))
		}
	}
}

// unsorted is a message of version 1 whose Read chunks are not in the order of their positions, and
// its parsed form.
func unsorted() (msg []byte, want []ReadSegment) {
	wire := []ReadSegment{{400, Segment{1, 10, 0}}, {400, Segment{2, 20, 0}}, {0, Segment{3, 30, 0}}, {48, Segment{4, 40, 0}}, {48, Segment{5, 50, 0}}}
	msg = AppendFixed(nil, 7, 1, 1, NoMsg)
	for _, s := range wire {
		msg = AppendReadSegment(msg, s)
	}
	return AppendEnd(AppendEnd(AppendEnd(msg))), []ReadSegment{wire[2], wire[3], wire[4], wire[0], wire[1]}
}

// TestUnsorted parses Read lists that are not in the order of positions, which only version 2
// demands.
func TestUnsorted(t *testing.T) {
	msg, want := unsorted()
	var h Header
	if err := h.Parse([][]byte{msg}, &DefaultLimits); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, h.Reads); diff != "" {
		t.Error(diff)
	}
	again := AppendFixed(nil, 7, 1, 1, NoMsg)
	for _, position := range []Position{0, 400, 48, 400} {
		again = AppendReadSegment(again, ReadSegment{position, Segment{1, 10, 0}})
	}
	err := h.Parse([][]byte{AppendEnd(AppendEnd(AppendEnd(again)))}, &DefaultLimits)
	if err == nil || !strings.Contains(err.Error(), "position 400 comes again after 48") {
		t.Errorf("a position that comes again: %v", err)
	}
}

func TestNoAllocations(t *testing.T) {
	msgs, _ := linux(t)
	other, _ := unsorted()
	msgs = append(msgs, other)
	var h Header
	cut := make([][][]byte, len(msgs))
	for i, m := range msgs {
		n := rand.IntN(len(m))
		cut[i] = [][]byte{m[:n], m[n:]}
	}
	dst := make([]byte, 0, 512)
	if n := testing.AllocsPerRun(100, func() {
		for i := range cut {
			if h.Parse(cut[i], &DefaultLimits) != nil {
				t.Fatal("parse")
			}
			dst = h.Append(dst[:0])
		}
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// sortEntries sorts the entries of a Read list.
func sortEntries(list []byte) {
	entries := slices.Collect(slices.Chunk(slices.Clone(list), ReadSegmentSize))
	slices.SortFunc(entries, bytes.Compare)
	copy(list, bytes.Join(entries, nil))
}

func FuzzHeader(f *testing.F) {
	msgs, _ := linux(f)
	for _, m := range msgs {
		f.Add(m, uint8(3))
	}
	other, _ := unsorted()
	f.Add(other, uint8(7))
	f.Add(AppendError(nil, 1, 2, 3, ErrVers, 1, 1), uint8(1))
	f.Add(AppendError(nil, 1, 1, 3, ErrChunk, 0, 0), uint8(200))
	for _, align := range []byte{0, 3, 128} {
		padded := append(AppendPadding(AppendFixed(nil, 1, 1, 3, MsgP), uint32(align), 1000), make([]byte, 40)...)
		f.Add(padded, uint8(200))
		f.Add(padded[:30], align)
	}
	limits := DefaultLimits
	limits.Padded = true
	f.Fuzz(func(t *testing.T, msg []byte, step uint8) {
		var h, g Header
		err := h.Parse([][]byte{msg}, &limits)
		var cut [][]byte
		for at := 0; at < len(msg); at += int(step) + 1 {
			cut = append(cut, msg[at:min(at+int(step)+1, len(msg))], nil)
		}
		if err2 := g.Parse(cut, &limits); (err == nil) != (err2 == nil) || err != nil && err.Error() != err2.Error() {
			t.Fatalf("whole: %v, cut: %v", err, err2)
		}
		if err != nil {
			return
		}
		if h.Size > len(msg) || len(h.Reads) > DefaultLimits.ReadSegments || h.Writes() > DefaultLimits.WriteChunks {
			t.Fatalf("%+v", &h)
		}
		// The Read list of the message may be in another order.
		got, msg := g.Append(nil), bytes.Clone(msg)
		if len(got) == h.Size && len(h.Reads) > 1 {
			if !slices.IsSortedFunc(h.Reads, func(a, b ReadSegment) int { return int(int64(a.Position) - int64(b.Position)) }) {
				t.Fatalf("parsed %+v", h.Reads)
			}
			at := FixedSize + len(h.Reads)*ReadSegmentSize
			sortEntries(got[FixedSize:at])
			sortEntries(msg[FixedSize:at])
		}
		if h.Procedure != Done && !bytes.Equal(got, msg[:h.Size]) {
			t.Fatalf("appended %x, parsed %x", got, msg[:h.Size])
		}
	})
}
