package rewrite

import (
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

const (
	// piece is how much memory for new bytes is taken at a time.
	piece = 2 << 10
	// manyEdits is from how many edits on the new stream is copied together: a list of so many slices costs more than the copy, and adapters take
	// only few of them.
	manyEdits = 16
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

// Release gives back the memory of edits that were not applied.
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

// Replace puts room for size new bytes, which it returns for the caller to fill in, in the place of the n bytes at pos. Edits come in
// order of pos and do not overlap; several that insert at one place (n is 0) stay in order. When there is no memory the bytes go nowhere, and Apply fails.
func (e *Edits) Replace(pos, n, size int) []byte {
	if size > len(e.room) {
		b, err := e.pool.Get(max(size, piece))
		if err != nil {
			e.err = err
			return make([]byte, size)
		}
		e.bufs, e.room = append(e.bufs, b), b.B
	}
	with := e.room[:size:size]
	e.room = e.room[size:]
	e.list = append(e.list, edit{pos, n, with})
	return with
}

// Apply makes dst the message src with all edits done. dst's stream and items refer to the memory of src, which has to last as long as dst
// is used, and to that of the new bytes, which dst owns from now on. An edit never touches an item's data: one inside them is an error, as are edits out of order.
// After an error dst is to be released.
func (e *Edits) Apply(dst, src *oncrpc.Message) error {
	if e.err != nil {
		return e.err
	}
	for _, b := range e.bufs {
		dst.Own(b)
	}
	clear(e.bufs)
	e.bufs, e.room = e.bufs[:0], nil
	rest, cur := src.Stream, []byte(nil)
	// pass moves on by n bytes of the reduced stream, which it keeps or leaves out.
	pass := func(n int, keep bool) bool {
		for n > 0 {
			for len(cur) == 0 {
				if len(rest) == 0 {
					return false
				}
				cur, rest = rest[0], rest[1:]
			}
			k := min(n, len(cur))
			if keep {
				dst.Stream = append(dst.Stream, cur[:k:k])
			}
			cur, n = cur[k:], n-k
		}
		return true
	}
	pos, shift := 0, 0 // in the unreduced stream; how much longer it has become
	items := src.Items
	// keep keeps everything up to the position.
	keep := func(to int) bool {
		for len(items) > 0 && items[0].Position < to {
			it := items[0]
			if it.Position < pos || !pass(it.Position-pos, true) {
				return false
			}
			pos = it.Position + xdr.Round(it.Length)
			it.Position += shift
			dst.Items = append(dst.Items, it)
			items = items[1:]
		}
		if pos > to || !pass(to-pos, true) {
			return false
		}
		pos = to
		return true
	}
	for i := range e.list {
		ed := &e.list[i]
		if ed.pos < pos || !keep(ed.pos) {
			return fmt.Errorf("rewrite: edit %d at byte %d overlaps what stands before it, or is beyond the message", i, ed.pos)
		}
		// Items inside what is replaced go with it.
		for left := ed.n; left > 0; {
			n := left
			if len(items) > 0 && items[0].Position < pos+left {
				n = items[0].Position - pos
			}
			if n < 0 || !pass(n, false) {
				return fmt.Errorf("rewrite: edit %d takes %d bytes at byte %d, which are not all there", i, ed.n, ed.pos)
			}
			pos, left = pos+n, left-n
			if left > 0 {
				size := xdr.Round(items[0].Length)
				if size > left {
					return fmt.Errorf("rewrite: edit %d ends inside an item at byte %d", i, items[0].Position)
				}
				pos, left, items = pos+size, left-size, items[1:]
			}
		}
		if len(ed.with) > 0 {
			dst.Stream = append(dst.Stream, ed.with)
		}
		shift += len(ed.with) - ed.n
	}
	if !keep(src.Len()) {
		return fmt.Errorf("rewrite: the message ends before byte %d", src.Len())
	}
	if len(e.list) >= manyEdits {
		return e.join(dst)
	}
	return nil
}

// join copies dst's reduced stream to one place.
func (e *Edits) join(dst *oncrpc.Message) error {
	b, err := e.pool.Get(dst.StreamLen())
	if err != nil {
		return err
	}
	n := 0
	for _, s := range dst.Stream {
		n += copy(b.B[n:], s)
	}
	dst.Own(b)
	clear(dst.Stream)
	dst.Stream = append(dst.Stream[:0], b.B[:n])
	return nil
}
