package oncrpc

import (
	"fmt"

	"sluice.dev/sluice/pkg/xdr"
)

var zeros [4]byte

// Gather appends the slices of the unreduced stream to dst: the stream with the items and their
// round-up in place. Nothing is copied. All items must have their data.
func (m *Message) Gather(dst [][]byte) [][]byte {
	w := cutter{rest: m.Stream}
	pos := 0 // in the unreduced stream
	for i := range m.Items {
		it := &m.Items[i]
		dst = w.move(dst, it.Position-pos)
		dst = append(dst, it.Data...)
		if pad := xdr.Pad(it.Length); pad > 0 {
			dst = append(dst, zeros[:pad])
		}
		pos = it.Position + xdr.Round(it.Length)
	}
	if len(w.cur) > 0 {
		dst = append(dst, w.cur)
	}
	return append(dst, w.rest...)
}

// Cut takes the found results out of a message's stream, which has no items yet: they become items
// that refer to the same memory. Absent and empty ones are skipped. The others must be in order,
// disjoint and inside the message, at positions that are multiples of four; otherwise Cut changes
// nothing.
func (m *Message) Cut(found []Found) error {
	if len(m.Items) > 0 {
		return fmt.Errorf("oncrpc: cutting a message that has %d items already", len(m.Items))
	}
	pos, end := 0, m.StreamLen()
	for _, f := range found {
		if f.State == Absent || f.Length == 0 {
			continue
		}
		if f.Position < pos || f.Position%4 != 0 || f.Length < 0 || f.Length > end-f.Position {
			return fmt.Errorf("oncrpc: a result of %d bytes at %d cannot be cut out of the rest of the message, %d to %d", f.Length, f.Position, pos, end)
		}
		pos = f.Position + xdr.Round(f.Length)
	}
	pos = 0
	w := cutter{rest: m.Stream}
	stream := m.spare[:0]
	for _, f := range found {
		if f.State == Absent || f.Length == 0 {
			continue
		}
		stream = w.move(stream, f.Position-pos)
		at := len(m.pieces)
		m.pieces = w.move(m.pieces, f.Length)
		m.Items = append(m.Items, xdr.Item{Position: f.Position, Length: f.Length, Data: m.pieces[at:len(m.pieces):len(m.pieces)]})
		w.skip(xdr.Pad(f.Length))
		pos = f.Position + xdr.Round(f.Length)
	}
	stream = w.move(stream, end-pos)
	m.spare, m.Stream = m.Stream, stream
	clear(m.spare)
	return nil
}

// moveItem copies the data of item i to memory, which is long enough, and makes the item refer to
// it.
func (m *Message) moveItem(i int, memory [][]byte) {
	it := &m.Items[i]
	src := cutter{rest: it.Data}
	at := len(m.pieces)
	for _, dst := range memory {
		n := 0
		for n < len(dst) {
			b := src.next(len(dst) - n)
			if len(b) == 0 {
				break
			}
			n += copy(dst[n:], b)
		}
		if n > 0 {
			m.pieces = append(m.pieces, dst[:n])
		}
	}
	it.Data = m.pieces[at:len(m.pieces):len(m.pieces)]
}

// cutter walks over a stream of slices.
type cutter struct {
	cur  []byte
	rest [][]byte
}

// next returns the next slice of at most n bytes, nil at the end.
func (w *cutter) next(n int) []byte {
	for len(w.cur) == 0 && len(w.rest) > 0 {
		w.cur, w.rest = w.rest[0], w.rest[1:]
	}
	k := min(n, len(w.cur))
	b := w.cur[:k:k]
	w.cur = w.cur[k:]
	return b
}

// move appends the slices of the next n bytes to dst, fewer at the end.
func (w *cutter) move(dst [][]byte, n int) [][]byte {
	for n > 0 {
		b := w.next(n)
		if len(b) == 0 {
			break
		}
		dst, n = append(dst, b), n-len(b)
	}
	return dst
}

// skip passes over n bytes, fewer at the end.
func (w *cutter) skip(n int) {
	for n > 0 {
		b := w.next(n)
		if len(b) == 0 {
			break
		}
		n -= len(b)
	}
}
