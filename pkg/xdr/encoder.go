package xdr

import "encoding/binary"

// Encoder appends one message to memory of its user; it never allocates and never moves bytes. When
// the memory is full the message is too long: [Encoder.Overflow] returns true, and the last write
// is worthless.
type Encoder struct {
	b     []byte
	gone  int // data and round-up of items, which are not in b
	items []Item
	over  bool
}

// Reset makes e write to the memory of b, from its length to its capacity, and append items to
// items. The contents of b are the beginning of the stream.
func (e *Encoder) Reset(b []byte, items []Item) { *e = Encoder{b: b, items: items} }

// Bytes returns the reduced stream written so far.
func (e *Encoder) Bytes() []byte { return e.b }

// Items returns the items taken out of the stream.
func (e *Encoder) Items() []Item { return e.items }

// Pos returns the position of the next byte in the unreduced stream.
func (e *Encoder) Pos() int { return len(e.b) + e.gone }

// Room returns how many more bytes fit.
func (e *Encoder) Room() int { return cap(e.b) - len(e.b) }

// Overflow reports whether the memory was too short.
func (e *Encoder) Overflow() bool { return e.over }

// Mark returns the end of the message, for [Encoder.Truncate].
func (e *Encoder) Mark() (m Mark) { return Mark{len(e.b), e.gone, len(e.items)} }

// Mark is a place in a message under construction.
type Mark struct{ n, gone, items int }

// Truncate removes everything written since m.
func (e *Encoder) Truncate(m Mark) {
	e.b, e.gone, e.items, e.over = e.b[:m.n], m.gone, e.items[:m.items], false
}

// Grow appends n bytes for the caller to fill in, not zeroed; nil if they do not fit.
func (e *Encoder) Grow(n int) []byte {
	at := len(e.b)
	if n > cap(e.b)-at {
		e.over = true
		return nil
	}
	e.b = e.b[:at+n]
	return e.b[at:]
}

// Move copies the stream to the memory of b, which is larger, and goes on there.
func (e *Encoder) Move(b []byte) { e.b = append(b[:0], e.b...) }

// Uint32 writes an unsigned integer.
func (e *Encoder) Uint32(v uint32) {
	if b := e.Grow(4); b != nil {
		binary.BigEndian.PutUint32(b, v)
	}
}

// Uint64 writes an unsigned hyper integer.
func (e *Encoder) Uint64(v uint64) {
	if b := e.Grow(8); b != nil {
		binary.BigEndian.PutUint64(b, v)
	}
}

// Bool writes a boolean.
func (e *Encoder) Bool(v bool) {
	if v {
		e.Uint32(1)
	} else {
		e.Uint32(0)
	}
}

// Fixed writes opaque bytes and their round-up.
func (e *Encoder) Fixed(v []byte) {
	if b := e.Grow(Round(len(v))); b != nil {
		clear(b[copy(b, v):])
	}
}

// Opaque writes a counted opaque inline.
func (e *Encoder) Opaque(v []byte) {
	e.Uint32(uint32(len(v)))
	e.Fixed(v)
}

// String writes a counted string.
func (e *Encoder) String(v string) {
	e.Uint32(uint32(len(v)))
	if b := e.Grow(Round(len(v))); b != nil {
		clear(b[copy(b, v):])
	}
}

// Bulk writes the count word of a counted opaque, and takes its length bytes of data out of the
// stream as an item. It keeps data without a copy.
func (e *Encoder) Bulk(data [][]byte, length int) {
	e.Uint32(uint32(length))
	if length == 0 {
		return
	}
	e.items = append(e.items, Item{Position: e.Pos(), Length: length, Data: data})
	e.gone += Round(length)
}

// PutUint32 overwrites four bytes at offset at of the reduced stream, for counts that are known
// later.
func (e *Encoder) PutUint32(at int, v uint32) {
	if !e.over {
		binary.BigEndian.PutUint32(e.b[at:], v)
	}
}
