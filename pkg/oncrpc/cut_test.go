package oncrpc

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
	"sluice.dev/sluice/pkg/xdr"
)

// TestCutGather: Gather restores the stream that Cut reduced, however it lies in memory.
func TestCutGather(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var whole []byte
		var found []Found
		var data [][]byte
		for i := range rapid.IntRange(0, 6).Draw(t, "results") {
			whole = append(whole, fill(4*rapid.IntRange(0, 20).Draw(t, "inline"), i)...)
			f := Found{Inline, len(whole), rapid.IntRange(0, 50).Draw(t, "length")}
			if rapid.IntRange(0, 4).Draw(t, "absent") == 0 {
				f = Found{Absent, 0, 0}
			}
			found = append(found, f)
			if f.State == Absent || f.Length == 0 {
				continue
			}
			b := fill(f.Length, i+100)
			data = append(data, b)
			whole = append(append(whole, b...), make([]byte, xdr.Pad(f.Length))...)
		}
		whole = append(whole, fill(4*rapid.IntRange(0, 5).Draw(t, "end"), 50)...)

		var m Message
		for rest := whole; len(rest) > 0; {
			n := min(len(rest), rapid.IntRange(0, 60).Draw(t, "slice"))
			m.Stream, rest = append(m.Stream, rest[:n:n]), rest[n:]
		}
		for range 2 { // the second time in the arrays of the first
			if err := m.Cut(found); err != nil {
				t.Fatal(err)
			}
			if len(m.Items) != len(data) || m.Len() != len(whole) {
				t.Fatalf("%d items, want %d; length %d, want %d", len(m.Items), len(data), m.Len(), len(whole))
			}
			for i, it := range m.Items {
				if !bytes.Equal(bytes.Join(it.Data, nil), data[i]) {
					t.Fatalf("item %d is %x, want %x", i, it.Data, data[i])
				}
			}
			again := m.Gather(nil)
			if !bytes.Equal(bytes.Join(again, nil), whole) {
				t.Fatalf("written back: %x, want %x", again, whole)
			}
			m.Release()
			m.Stream = append(m.Stream, again...)
		}
	})
}

func TestCutBad(t *testing.T) {
	for name, found := range map[string][]Found{
		"outside":     {{Inline, 40, 10}},
		"beyond":      {{Inline, 4, 1 << 62}},
		"negative":    {{Inline, 4, -1}},
		"before":      {{Inline, -4, 4}},
		"unaligned":   {{Inline, 6, 4}},
		"overlapping": {{Inline, 4, 9}, {Inline, 12, 4}},
		"unordered":   {{Inline, 12, 4}, {Inline, 4, 4}},
	} {
		m := Message{Stream: [][]byte{make([]byte, 44)}}
		if err := m.Cut(found); err == nil || len(m.Items) != 0 || m.Len() != 44 {
			t.Errorf("%s: %v, %d items, %d bytes", name, err, len(m.Items), m.Len())
		}
	}
	m := Message{Stream: [][]byte{make([]byte, 44)}, Items: []xdr.Item{{Position: 4}}}
	if err := m.Cut(nil); err == nil {
		t.Error("a message with items was cut")
	}
	// Data at the very end, without their round-up.
	m = Message{Stream: [][]byte{fill(42, 1)}}
	if err := m.Cut([]Found{{Inline, 40, 2}}); err != nil || len(m.Items) != 1 {
		t.Errorf("without round-up: %v", err)
	}
}
