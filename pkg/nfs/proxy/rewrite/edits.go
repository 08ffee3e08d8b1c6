package rewrite

import (
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

const (
	// bufSize is how much memory for new bytes is taken at a time.
	bufSize = 2 << 10
	// manySlices is from how many slices on those of a new stream that are short are copied together: a list of so many costs more than the
	// copy, and adapters take only few of them.
	manySlices = 16
	// shortSlice is the length of a slice up to which copying it costs less than naming it.
	shortSlice = 1 << 10
)

// Edits changes a message without moving it: what stays is not copied, and what comes in has memory from the pool. All positions
// are those of the unreduced stream as it was. It may be used again and again.
type Edits struct {
	pool *bufpool.Pool
	bufs []*bufpool.Buf
	room []byte // left in the last of bufs
	list []edit
	err  error
}

// edit replaces the n bytes at pos.
type edit struct {
	pos, n int
	with   []byte
}

// Reset forgets all edits. New bytes come from pool.
func (e *Edits) Reset(pool *bufpool.Pool) {
	e.Release()
	e.pool = pool
}

// Release forgets all edits, and gives back the memory of those that were not applied.
func (e *Edits) Release() {
	for i, b := range e.bufs {
		b.Release()
		e.bufs[i] = nil
	}
	clear(e.list)
	e.bufs, e.list, e.room, e.err = e.bufs[:0], e.list[:0], nil, nil
}

// Len returns how many edits there are.
func (e *Edits) Len() int { return len(e.list) }

// Replace puts room for size new bytes, which it returns for the caller to fill in, in the place of the n bytes at pos; all three are
// multiples of four. Edits come in order of pos and do not overlap; several that insert at one place (n is 0) stay in order, and what
// is inserted at the position of an item comes before it. The memory may be filled in until Apply.
// When there is no memory the bytes go nowhere, and Apply fails.
func (e *Edits) Replace(pos, n, size int) []byte {
	if size > len(e.room) {
		e.grow(size)
	}
	with := e.room[:size:size]
	e.room = e.room[size:]
	e.list = append(e.list, edit{pos, n, with})
	return with
}

// grow takes memory for size new bytes.
func (e *Edits) grow(size int) {
	b, err := e.pool.Get(max(size, bufSize))
	if err != nil {
		e.err, e.room = err, make([]byte, size)
		return
	}
	e.bufs, e.room = append(e.bufs, b), b.B
}

// Apply makes dst, which is empty, the message src with all edits done. dst's stream and items refer to the memory of src, which has to last as long as dst
// is used, and to that of the new bytes, which dst owns from now on. Items go as a whole or stay as a whole: an edit that begins or ends inside
// of one is an error, as are edits out of order, and beyond the end.
// After an error dst is to be released. Edits are applied once.
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
			return fmt.Errorf("rewrite: edit %d at byte %d is inside of what stands before it, or beyond the end of the message", i, ed.pos)
		}
		if !s.moveTo(ed.pos+ed.n, false) {
			return fmt.Errorf("rewrite: edit %d at byte %d replaces %d bytes, which are not all there, or end inside an item", i, ed.pos, ed.n)
		}
		if len(ed.with) > 0 {
			dst.Stream = append(dst.Stream, ed.with)
		}
		s.shift += len(ed.with) - ed.n
	}
	if n := src.Len(); !s.moveTo(n, true) {
		return fmt.Errorf("rewrite: the message has items beyond its end at byte %d", n)
	}
	if len(e.list) > 0 && len(dst.Stream) >= manySlices {
		return e.join(dst)
	}
	return nil
}

// splicer moves on in a message, and takes into another one what is to be kept.
type splicer struct {
	dst   *oncrpc.Message
	cur   []byte // what is left of the current slice
	rest  [][]byte
	items []xdr.Item
	pos   int // in the unreduced stream as it was
	shift int // how much longer it has become
}

// moveTo moves on to a position, and keeps what is before it or leaves it out. False: it is not ahead, not there, or inside an item.
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

// join copies slices of dst's stream that are short and stand side by side to one place.
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
	out, run, at := dst.Stream[:0], 0, 0 // b.B[run:at] is what stands side by side up to now
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
