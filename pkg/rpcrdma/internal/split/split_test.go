package split

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// cut cuts b at random.
func cut(t *rapid.T, b []byte) (list [][]byte) {
	for len(b) > 0 {
		n := rapid.IntRange(0, len(b)).Draw(t, "piece")
		list, b = append(list, b[:n:n]), b[n:]
	}
	return list
}

// TestSplit takes opaques out of random messages, some of which are items already: the remaining
// and the taken bytes are the message.
func TestSplit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var m oncrpc.Message
		var stream, left []byte
		var data [][]byte
		var at []int
		pos := 0
		word := func() {
			w := rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "word")
			stream, left, pos = append(stream, w...), append(left, w...), pos+4
		}
		for range rapid.IntRange(0, 4).Draw(t, "opaques") {
			word()
			d := rapid.SliceOfN(rapid.Byte(), 1, 20).Draw(t, "opaque")
			whole := append(bytes.Clone(d), make([]byte, xdr.Pad(len(d)))...)
			item, taken := rapid.Bool().Draw(t, "item"), rapid.Bool().Draw(t, "taken")
			if item {
				m.Items = append(m.Items, xdr.Item{Position: pos, Length: len(d), Data: cut(t, d)})
			} else {
				stream = append(stream, whole...)
			}
			if taken {
				at, data = append(at, pos), append(data, d)
			} else {
				left = append(left, whole...)
			}
			pos += len(whole)
		}
		word()
		m.Stream = cut(t, stream)

		var w Splitter
		w.Reset(&m, make([]byte, 4))
		var out [][]byte
		for i, p := range at {
			var ok bool
			if out, ok = w.Until(out, p); !ok {
				t.Fatalf("position %d is not found", p)
			}
			got, ok := w.Take(nil, len(data[i]))
			if !ok || !bytes.Equal(bytes.Join(got, nil), data[i]) {
				t.Fatalf("at %d: %x, must be %x", p, got, data[i])
			}
		}
		out, ok := w.Rest(out)
		if got := bytes.Join(out, nil); !ok || !bytes.Equal(got, left) || Length(out) != len(left) {
			t.Fatalf("%x is left, must be %x", got, left)
		}
	})
}

// TestRefused requests missing bytes.
func TestRefused(t *testing.T) {
	m := oncrpc.Message{Stream: [][]byte{make([]byte, 8)}, Items: []xdr.Item{{Position: 4, Length: 5, Data: [][]byte{make([]byte, 5)}}}}
	for name, ask := range map[string]func(w *Splitter) bool{
		"a position in an item":     func(w *Splitter) bool { _, ok := w.Until(nil, 8); return ok },
		"a position behind the end": func(w *Splitter) bool { _, ok := w.Until(nil, 20); return ok },
		"more than an item has":     func(w *Splitter) bool { _, _ = w.Until(nil, 4); _, ok := w.Take(nil, 6); return ok },
		"bytes that reach into an item": func(w *Splitter) bool {
			_, ok := w.Take(nil, 8)
			return ok
		},
		"what is behind the end": func(w *Splitter) bool { _, _ = w.Until(nil, 16); _, ok := w.Take(nil, 4); return ok },
	} {
		var w Splitter
		w.Reset(&m, make([]byte, 4))
		if ask(&w) {
			t.Errorf("%s is there", name)
		}
	}
	m.Items[0].Data = [][]byte{make([]byte, 4)}
	var w Splitter
	w.Reset(&m, make([]byte, 4))
	if _, ok := w.Rest(nil); ok {
		t.Error("an item of 5 bytes with 4 of them is whole")
	}
	if got := Prefix(nil, [][]byte{{1, 2}, {3}}, 9); Length(got) != 3 {
		t.Errorf("%x", got)
	}
}
