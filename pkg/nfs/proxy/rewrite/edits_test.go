package rewrite

import (
	"bytes"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

func whole(m *oncrpc.Message) []byte { return bytes.Join(m.Gather(nil), nil) }

// pieces cuts b into slices, some of them empty.
func pieces(t *rapid.T, b []byte) (out [][]byte) {
	for len(b) > 0 {
		n := rapid.IntRange(0, len(b)).Draw(t, "slice")
		out, b = append(out, b[:n:n]), b[n:]
	}
	return out
}

// words draws up to n words.
func words(t *rapid.T, n int) []byte {
	b := rapid.SliceOfN(rapid.Byte(), 0, 4*n).Draw(t, "bytes")
	return b[:len(b)&^3]
}

// model is a message as a list of parts; edits replace some of them.
type model struct {
	before, after []byte
	stream        []byte // reduced
	items         []xdr.Item
	want          []xdr.Item // items after the edits
}

// item adds an item.
func (m *model) item(data []byte, kept bool) {
	it := xdr.Item{Position: len(m.before), Length: len(data), Data: [][]byte{data}}
	m.items = append(m.items, it)
	padded := append(bytes.Clone(data), make([]byte, xdr.Pad(len(data)))...)
	if kept {
		it.Position = len(m.after)
		m.want = append(m.want, it)
		m.after = append(m.after, padded...)
	}
	m.before = append(m.before, padded...)
}

func (m *model) text(b []byte, kept bool) {
	m.before, m.stream = append(m.before, b...), append(m.stream, b...)
	if kept {
		m.after = append(m.after, b...)
	}
}

// part adds words and items.
func (m *model) part(t *rapid.T, kept bool) {
	for range rapid.IntRange(0, 3).Draw(t, "parts") {
		if rapid.Bool().Draw(t, "item") {
			m.item(rapid.SliceOfN(rapid.Byte(), 1, 9).Draw(t, "data"), kept)
		} else {
			m.text(words(t, 6), kept)
		}
	}
}

func TestEdits(t *testing.T) {
	pool := bufpool.New(64 << 20)
	var e Edits
	var dst oncrpc.Message
	rapid.Check(t, func(t *rapid.T) {
		var m model
		e.Reset(pool)
		defer e.Release()
		defer dst.Release()
		for range rapid.IntRange(0, 20).Draw(t, "edits") {
			m.part(t, true)
			pos := len(m.before)
			m.part(t, false)
			with := words(t, 700)
			copy(e.Replace(pos, len(m.before)-pos, len(with)), with)
			m.after = append(m.after, with...)
		}
		m.part(t, true)
		src := &oncrpc.Message{Stream: pieces(t, m.stream), Items: m.items}
		if err := e.Apply(&dst, src); err != nil {
			t.Fatal(err)
		}
		if got := whole(&dst); !bytes.Equal(got, m.after) {
			t.Fatalf("edited, the message is\n%x, want\n%x", got, m.after)
		}
		if !slices.EqualFunc(dst.Items, m.want, func(a, b xdr.Item) bool {
			return a.Position == b.Position && a.Length == b.Length && bytes.Equal(a.Data[0], b.Data[0])
		}) {
			t.Fatalf("items are %+v, want %+v", dst.Items, m.want)
		}
		if got := whole(src); !bytes.Equal(got, m.before) {
			t.Fatal("the source was changed")
		}
		if e.Len() > 0 && len(dst.Stream) > manySlices+2*len(src.Stream) {
			t.Fatalf("the stream has %d slices of %d", len(dst.Stream), len(src.Stream))
		}
	})
	if n := pool.Stats().Bufs; n != 0 {
		t.Errorf("%d buffers are not released", n)
	}
}

// TestJoin checks that long slices stay in place.
func TestJoin(t *testing.T) {
	pool := bufpool.New(64 << 20)
	long := bytes.Repeat([]byte{1}, 64<<10)
	src := oncrpc.Message{Stream: [][]byte{make([]byte, 100), long, make([]byte, 100)}}
	var e Edits
	e.Reset(pool)
	want := whole(&src)
	for i := range manySlices {
		clear(e.Replace(4*i, 4, 4))
	}
	var dst oncrpc.Message
	if err := e.Apply(&dst, &src); err != nil {
		t.Fatal(err)
	}
	if len(dst.Stream) != 3 || &dst.Stream[1][0] != &long[0] || !bytes.Equal(whole(&dst), want) {
		t.Errorf("stream has %d slices", len(dst.Stream))
	}
	dst.Release()
	if n := pool.Stats().Bufs; n != 0 {
		t.Errorf("%d buffers are not released", n)
	}
}

func TestEditsRefused(t *testing.T) {
	type at struct{ pos, n int }
	tests := []struct {
		name  string
		edits []at
	}{
		{"overlap", []at{{0, 8}, {4, 4}}},
		{"out of order", []at{{8, 4}, {0, 4}}},
		{"begins beyond the end", []at{{44, 0}}},
		{"ends beyond the end", []at{{36, 8}}},
		{"begins inside an item", []at{{20, 0}}},
		{"ends inside an item", []at{{8, 12}}},
		{"takes less than nothing", []at{{8, -4}}},
	}
	pool := bufpool.New(64 << 20)
	for _, tt := range tests {
		src := oncrpc.Message{Stream: [][]byte{make([]byte, 28)}, Items: []xdr.Item{{Position: 16, Length: 10, Data: [][]byte{make([]byte, 10)}}}}
		var e Edits
		e.Reset(pool)
		for _, ed := range tt.edits {
			clear(e.Replace(ed.pos, ed.n, 4))
		}
		var dst oncrpc.Message
		if err := e.Apply(&dst, &src); err == nil {
			t.Errorf("%s: no error", tt.name)
		}
		dst.Release()
		e.Release()
	}
	if n := pool.Stats().Bufs; n != 0 {
		t.Errorf("%d buffers are not released", n)
	}
}

func TestEditsWithoutMemory(t *testing.T) {
	var e Edits
	e.Reset(bufpool.New(1))
	if b := e.Replace(0, 4, 8); len(b) != 8 || e.Len() != 1 {
		t.Errorf("room for %d bytes, want 8; %d edits, want 1", len(b), e.Len())
	}
	var dst oncrpc.Message
	if err := e.Apply(&dst, &oncrpc.Message{Stream: [][]byte{make([]byte, 8)}}); err == nil {
		t.Error("applied without memory")
	}
	e.Release()
}

func TestEditsAllocs(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	pool := bufpool.New(64 << 20)
	src := oncrpc.Message{
		Stream: [][]byte{make([]byte, 2000), make([]byte, 2000)},
		Items:  []xdr.Item{{Position: 1200, Length: 4096, Data: [][]byte{make([]byte, 4096)}}},
	}
	var e Edits
	var dst oncrpc.Message
	run := func() {
		e.Reset(pool)
		for i := range 40 {
			clear(e.Replace(8*i, 4, 64))
		}
		if err := e.Apply(&dst, &src); err != nil {
			t.Error(err)
		}
		dst.Release()
		e.Release()
	}
	run()
	if n := testing.AllocsPerRun(200, run); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
