package rewrite

import (
	"encoding/binary"
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

const (
	// bufSize is the size of a buffer for new bytes.
	bufSize = 2 << 10
	// manySlices is the number of slices from which short neighbours are merged: many slices cost
	// more than a copy, and adapters take few.
	manySlices = 16
	// shortSlice is the length up to which a copy is cheaper than a slice of its own.
	shortSlice = 1 << 10
)

// Edits changes a message in place: kept bytes are not copied, and new bytes come from the pool.
// All positions are those of the original unreduced stream. Edits is reusable.
type Edits struct {
	pool *bufpool.Pool
	bufs []*bufpool.Buf
	room []byte // rest of the last of bufs
	list []edit
	err  error
}

// edit replaces the n bytes at pos.
type edit struct {
	pos, n int
	with   []byte
}

// Reset drops all edits. New bytes come from pool.
func (e *Edits) Reset(pool *bufpool.Pool) {
	e.Release()
	e.pool = pool
}

// Release drops all edits and their memory.
func (e *Edits) Release() {
	for i, b := range e.bufs {
		b.Release()
		e.bufs[i] = nil
	}
	clear(e.list)
	e.bufs, e.list, e.room, e.err = e.bufs[:0], e.list[:0], nil, nil
}

// Len returns the number of edits.
func (e *Edits) Len() int { return len(e.list) }

// Replace replaces the n bytes at pos by size new bytes, which it returns to be filled in before
// Apply. All three are multiples of four. Edits come in order of pos and do not overlap. Insertions
// (n is 0) at one place stay in order, and precede an item at that position. Without memory the
// bytes are lost, and Apply fails.
func (e *Edits) Replace(pos, n, size int) []byte {
	if size > len(e.room) {
		e.grow(size)
	}
	with := e.room[:size:size]
	e.room = e.room[size:]
	e.list = append(e.list, edit{pos, n, with})
	return with
}

func (e *Edits) grow(size int) {
	b, err := e.pool.Get(max(size, bufSize))
	if err != nil {
		e.err, e.room = err, make([]byte, size)
		return
	}
	e.bufs, e.room = append(e.bufs, b), b.B
}

// Apply makes dst, which must be empty, a copy of src with all edits. dst refers to the memory of
// src, which must outlive it, and owns the new bytes. An edit that begins or ends inside an item,
// is out of order, or ends beyond the message is an error; dst must then be released. Apply uses up
// the edits.
func (e *Edits) Apply(dst, src *oncrpc.Message) error {
	if e.err != nil {
		return e.err
	}
	for _, b := range e.bufs {
		dst.Own(b)
	}
	clear(e.bufs)
	e.bufs, e.room = e.bufs[:0], nil
	s := splicer{dst: dst, rest: src.Stream, items: src.Items}
	for i := range e.list {
		ed := &e.list[i]
		if !s.moveTo(ed.pos, true) {
			return fmt.Errorf("rewrite: edit %d at byte %d overlaps an edit or item, or is beyond the end of the message", i, ed.pos)
		}
		if !s.moveTo(ed.pos+ed.n, false) {
			return fmt.Errorf("rewrite: edit %d at byte %d replaces %d bytes: too many, or up to the middle of an item", i, ed.pos, ed.n)
		}
		if len(ed.with) > 0 {
			dst.Stream = append(dst.Stream, ed.with)
		}
		s.shift += len(ed.with) - ed.n
	}
	if n := src.Len(); !s.moveTo(n, true) {
		return fmt.Errorf("rewrite: message has items beyond its end at byte %d", n)
	}
	if len(e.list) > 0 && len(dst.Stream) >= manySlices {
		return e.join(dst)
	}
	return nil
}

// splicer copies parts of a message to another one.
type splicer struct {
	dst   *oncrpc.Message
	cur   []byte // rest of the current slice
	rest  [][]byte
	items []xdr.Item
	pos   int // in the original unreduced stream
	shift int // growth so far
}

// moveTo advances to end, and keeps or drops the bytes before it. It reports false if end is
// behind, beyond the message, or inside an item.
func (s *splicer) moveTo(end int, keep bool) bool {
	for s.pos < end {
		n := end - s.pos
		if len(s.items) > 0 {
			it := s.items[0]
			if it.Position == s.pos {
				size := xdr.Round(it.Length)
				if size > n {
					return false
				}
				if keep {
					it.Position += s.shift
					s.dst.Items = append(s.dst.Items, it)
				}
				s.items, s.pos = s.items[1:], s.pos+size
				continue
			}
			n = min(n, it.Position-s.pos)
		}
		for len(s.cur) == 0 {
			if len(s.rest) == 0 {
				return false
			}
			s.cur, s.rest = s.rest[0], s.rest[1:]
		}
		if n = min(n, len(s.cur)); n < 0 {
			return false
		}
		if keep {
			s.dst.Stream = append(s.dst.Stream, s.cur[:n:n])
		}
		s.cur, s.pos = s.cur[n:], s.pos+n
	}
	return s.pos == end
}

// join merges short neighbouring slices of dst's stream.
func (e *Edits) join(dst *oncrpc.Message) error {
	size := 0
	for _, s := range dst.Stream {
		if len(s) <= shortSlice {
			size += len(s)
		}
	}
	if size == 0 || size > bufpool.MaxSize {
		return nil
	}
	b, err := e.pool.Get(size)
	if err != nil {
		return err
	}
	dst.Own(b)
	out, run, at := dst.Stream[:0], 0, 0 // b.B[run:at] is the current run of short slices
	for _, s := range dst.Stream {
		if len(s) <= shortSlice {
			at += copy(b.B[at:], s)
			continue
		}
		if at > run {
			out = append(out, b.B[run:at:at])
			run = at
		}
		out = append(out, s)
	}
	if at > run {
		out = append(out, b.B[run:at:at])
	}
	clear(dst.Stream[len(out):])
	dst.Stream = out
	return nil
}

// putUint32 replaces a word.
func putUint32(e *Edits, pos int, v uint32) { binary.BigEndian.PutUint32(e.Replace(pos, 4, 4), v) }

// putOpaque replaces n bytes by a counted opaque of size bytes, which it returns to be filled in.
func putOpaque(e *Edits, pos, n, size int) []byte {
	b := e.Replace(pos, n, 4+xdr.Round(size))
	binary.BigEndian.PutUint32(b, uint32(size))
	clear(b[4+size:])
	return b[4 : 4+size : 4+size]
}

// opaqueBytes returns the content of a counted opaque.
func opaqueBytes(b []byte) []byte { return b[4 : 4+binary.BigEndian.Uint32(b)] }

// wordAt returns the word at a position of the unreduced stream, which must exist. It resets d.
func wordAt(d *xdr.Decoder, m *oncrpc.Message, pos int) uint32 {
	d.Reset(m.Stream, nil)
	for i := range m.Items {
		if m.Items[i].Position < pos {
			pos -= xdr.Round(m.Items[i].Length)
		}
	}
	d.Skip(pos)
	return d.Uint32()
}
