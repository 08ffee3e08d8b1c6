package rpcrdma

import (
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// splitter walks a message by position and deals its bytes out: what stays in the stream, and what is taken out of it. It
// copies nothing.
type splitter struct {
	cur    []byte
	stream [][]byte
	items  []xdr.Item
	pos    int    // in the unreduced stream
	zeros  []byte // three zero bytes in registered memory, for the round-up of items
}

func (w *splitter) reset(m *oncrpc.Message, zeros []byte) {
	*w = splitter{stream: m.Stream, items: m.Items, zeros: zeros}
}

// next takes n bytes of the stream, or all that are left if n is negative, and returns how many of the n were not there.
func (w *splitter) next(dst [][]byte, n int) ([][]byte, int) {
	for n != 0 {
		if len(w.cur) == 0 {
			if len(w.stream) == 0 {
				return dst, max(n, 0)
			}
			w.cur, w.stream = w.stream[0], w.stream[1:]
			continue
		}
		k := len(w.cur)
		if n > 0 {
			k = min(k, n)
			n -= k
		}
		dst = append(dst, w.cur[:k:k])
		w.cur = w.cur[k:]
		w.pos += k
	}
	return dst, 0
}

// until appends to dst what stands before position pos, items included. It returns false if pos is inside an item
// or behind the end.
func (w *splitter) until(dst [][]byte, pos int) ([][]byte, bool) {
	for w.pos < pos {
		if len(w.items) == 0 || w.items[0].Position >= pos {
			var missing int
			dst, missing = w.next(dst, pos-w.pos)
			return dst, missing == 0
		}
		var ok bool
		if dst, ok = w.item(dst); !ok {
			return dst, false
		}
	}
	return dst, w.pos == pos
}

// item appends the next item, with what stands before it and its round-up.
func (w *splitter) item(dst [][]byte) ([][]byte, bool) {
	it := &w.items[0]
	dst, missing := w.next(dst, it.Position-w.pos)
	if missing > 0 || it.Position < w.pos {
		return dst, false
	}
	dst = appendData(dst, it.Data, it.Length)
	if pad := xdr.Pad(it.Length); pad > 0 {
		dst = append(dst, w.zeros[:pad])
	}
	w.pos += xdr.Round(it.Length)
	w.items = w.items[1:]
	return dst, true
}

// take appends the n bytes of data that stand at the present position to dst, an item or part of the stream, and passes over their round-up.
// It returns false if they are not there.
func (w *splitter) take(dst [][]byte, n int) ([][]byte, bool) {
	if len(w.items) > 0 && w.items[0].Position == w.pos {
		it := &w.items[0]
		if it.Length != n {
			return dst, false
		}
		dst = appendData(dst, it.Data, n)
		w.pos += xdr.Round(n)
		w.items = w.items[1:]
		return dst, true
	}
	if len(w.items) > 0 && w.items[0].Position < w.pos+n {
		return dst, false
	}
	dst, missing := w.next(dst, n)
	if missing > 0 {
		return dst, false
	}
	for pad := xdr.Pad(n); pad > 0; pad-- { // at the very end it may be missing
		for len(w.cur) == 0 && len(w.stream) > 0 {
			w.cur, w.stream = w.stream[0], w.stream[1:]
		}
		if len(w.cur) > 0 {
			w.cur = w.cur[1:]
		}
		w.pos++
	}
	return dst, true
}

// rest appends all that is left.
func (w *splitter) rest(dst [][]byte) ([][]byte, bool) {
	for len(w.items) > 0 {
		var ok bool
		if dst, ok = w.item(dst); !ok {
			return dst, false
		}
	}
	dst, _ = w.next(dst, -1)
	return dst, true
}

// appendData appends the first n bytes of data.
func appendData(dst, data [][]byte, n int) [][]byte {
	for _, s := range data {
		if n == 0 {
			break
		}
		if len(s) == 0 {
			continue
		}
		k := min(n, len(s))
		dst = append(dst, s[:k:k])
		n -= k
	}
	return dst
}

func length(list [][]byte) (n int) {
	for _, s := range list {
		n += len(s)
	}
	return n
}
