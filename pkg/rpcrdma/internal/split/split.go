// Package split takes an RPC message apart by positions in its unreduced stream. It copies nothing.
package split

import (
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// Splitter walks a message by position and separates the payload stream from the items taken out of
// it.
type Splitter struct {
	stream Pieces
	items  []xdr.Item
	pos    int    // in the unreduced stream
	zeros  []byte // for the round-up of items that stay
}

// Reset begins with m. zeros has at least three zero bytes, for the round-up of items that stay, in
// memory that can be sent.
func (w *Splitter) Reset(m *oncrpc.Message, zeros []byte) {
	*w = Splitter{stream: Of(m.Stream), items: m.Items, zeros: zeros}
}

// Until appends to dst everything before position pos, items included. It returns false if pos is
// inside an item or behind the end.
func (w *Splitter) Until(dst [][]byte, pos int) ([][]byte, bool) {
	for len(w.items) > 0 && w.items[0].Position < pos {
		var ok bool
		if dst, ok = w.item(dst); !ok {
			return dst, false
		}
	}
	return w.inline(dst, pos)
}

// inline appends to dst everything before position pos, where no item is.
func (w *Splitter) inline(dst [][]byte, pos int) ([][]byte, bool) {
	n := pos - w.pos
	if n < 0 {
		return dst, false
	}
	dst, missing := w.stream.Take(dst, n)
	w.pos += n - missing
	return dst, missing == 0
}

// item appends the next item with its round-up, and everything before it.
func (w *Splitter) item(dst [][]byte) ([][]byte, bool) {
	it := &w.items[0]
	dst, ok := w.inline(dst, it.Position)
	if !ok {
		return dst, false
	}
	if dst, ok = appendData(dst, it); !ok {
		return dst, false
	}
	if pad := xdr.Pad(it.Length); pad > 0 {
		dst = append(dst, w.zeros[:pad])
	}
	w.pos += xdr.Round(it.Length)
	w.items = w.items[1:]
	return dst, true
}

// Take appends n bytes of data at the present position to dst, an item or part of the stream, and
// skips their round-up. It returns false if they do not exist. An item without data of its own
// appends nothing.
func (w *Splitter) Take(dst [][]byte, n int) ([][]byte, bool) {
	if len(w.items) > 0 && w.items[0].Position == w.pos {
		it := &w.items[0]
		if it.Length != n {
			return dst, false
		}
		ok := true
		if len(it.Data) > 0 {
			dst, ok = appendData(dst, it)
		}
		w.pos += xdr.Round(n)
		w.items = w.items[1:]
		return dst, ok
	}
	if len(w.items) > 0 && w.items[0].Position < w.pos+n {
		return dst, false
	}
	dst, missing := w.stream.Take(dst, n)
	w.stream.Skip(xdr.Pad(n)) // at the very end it may be missing
	w.pos += xdr.Round(n)
	return dst, missing == 0
}

// Rest appends the rest.
func (w *Splitter) Rest(dst [][]byte) ([][]byte, bool) {
	for len(w.items) > 0 {
		var ok bool
		if dst, ok = w.item(dst); !ok {
			return dst, false
		}
	}
	return w.stream.Rest(dst), true
}

// appendData appends the data of an item. It returns false if they are shorter than the item's
// length.
func appendData(dst [][]byte, it *xdr.Item) ([][]byte, bool) {
	data := Of(it.Data)
	dst, missing := data.Take(dst, it.Length)
	return dst, missing == 0
}

// Pieces is a list of slices that is read from its beginning.
type Pieces struct {
	cur  []byte
	rest [][]byte
}

// Of returns list as Pieces.
func Of(list [][]byte) Pieces { return Pieces{rest: list} }

// Take appends the slices of the next n bytes to dst, and returns the number of missing bytes.
func (p *Pieces) Take(dst [][]byte, n int) ([][]byte, int) {
	for n > 0 && p.more() {
		k := min(n, len(p.cur))
		dst = append(dst, p.cur[:k:k])
		p.cur, n = p.cur[k:], n-k
	}
	return dst, n
}

// Skip passes over n bytes, or to the end.
func (p *Pieces) Skip(n int) {
	for n > 0 && p.more() {
		k := min(n, len(p.cur))
		p.cur, n = p.cur[k:], n-k
	}
}

// Rest appends the slices that are left.
func (p *Pieces) Rest(dst [][]byte) [][]byte {
	if len(p.cur) > 0 {
		dst = append(dst, p.cur)
	}
	return append(dst, p.rest...)
}

func (p *Pieces) more() bool {
	for len(p.cur) == 0 {
		if len(p.rest) == 0 {
			return false
		}
		p.cur, p.rest = p.rest[0], p.rest[1:]
	}
	return true
}

// Prefix appends the slices of the first n bytes of a list to dst, fewer at its end.
func Prefix(dst, list [][]byte, n int) [][]byte {
	p := Of(list)
	dst, _ = p.Take(dst, n)
	return dst
}

// Length returns the bytes in a list.
func Length(list [][]byte) (n int) {
	for _, s := range list {
		n += len(s)
	}
	return n
}
