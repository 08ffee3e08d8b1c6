package xdr

import (
	"encoding/binary"
	"fmt"
)

// Decoder reads one message. The zero value reads an empty one; [Decoder.Reset] sets the message.
//
// The first failure sticks: every later read returns zero values, and [Decoder.Err] has reason and
// position. Results are views of the message's memory, valid as long as that is; a value that
// crosses two slices of the stream is a copy.
type Decoder struct {
	cur   []byte   // unread part of the current slice
	rest  [][]byte // the slices behind it
	left  int      // bytes left in cur and rest together
	pos   int      // position in the unreduced stream
	items []Item   // items not yet passed
	used  int      // items consumed by Bulk

	align, threshold, size int // see SkipPads

	err error
	tmp [8]byte // for words that cross slices; never returned
}

// Error is the error of Decoder.Err: a field could not be decoded.
type Error struct {
	Position int    // in the unreduced stream
	Reason   string // the field's value and its valid range
	// Misplaced: an item was taken out of the stream at a place where none may be.
	Misplaced bool
}

func (e *Error) Error() string { return fmt.Sprintf("xdr: at byte %d: %s", e.Position, e.Reason) }

// Reset makes d read the message with the given reduced stream and items, in order of position. d
// keeps both slices until the next Reset, and changes neither.
func (d *Decoder) Reset(stream [][]byte, items []Item) {
	*d = Decoder{rest: stream, items: items}
	for _, s := range stream {
		d.left += len(s)
	}
}

// ResetBytes makes d read b, a message without items.
func (d *Decoder) ResetBytes(b []byte) { *d = Decoder{cur: b, left: len(b)} }

// Err returns the first failure, nil without one.
func (d *Decoder) Err() error { return d.err }

// Pos returns the position of the next byte in the unreduced stream.
func (d *Decoder) Pos() int { return d.pos }

// Left returns how many bytes of the reduced stream have not been read.
func (d *Decoder) Left() int { return d.left }

// Used returns how many of the items Bulk has consumed.
func (d *Decoder) Used() int { return d.used }

// Fail records a failure at the current position, unless there is one.
func (d *Decoder) Fail(format string, args ...any) {
	if d.err == nil {
		d.err = &Error{Position: d.pos, Reason: fmt.Sprintf(format, args...)}
	}
	d.cur, d.rest, d.left = nil, nil, 0
}

func (d *Decoder) misplaced() {
	if e, ok := d.err.(*Error); ok { //nolint:errorlint // it is our own
		e.Misplaced = true
	}
}

// need checks that n more bytes are there, with no item before their end.
func (d *Decoder) need(n int) bool {
	if d.err != nil {
		return false
	}
	if len(d.items) > 0 && d.pos+n > d.items[0].Position {
		d.Fail("an item was taken out at byte %d, inside a field that has to be inline", d.items[0].Position)
		d.misplaced()
		return false
	}
	if n > d.left {
		d.Fail("message ends after %d more bytes, %d are needed", d.left, n)
		return false
	}
	return true
}

// take returns the next n bytes, which are there. If they cross slices it copies them, to tmp if
// they fit.
func (d *Decoder) take(n int, tmp []byte) []byte {
	for len(d.cur) == 0 && len(d.rest) > 0 {
		d.cur, d.rest = d.rest[0], d.rest[1:]
	}
	d.left -= n
	d.pos += n
	if n <= len(d.cur) {
		b := d.cur[:n:n]
		d.cur = d.cur[n:]
		return b
	}
	b := tmp
	if n > len(b) {
		b = make([]byte, n)
	}
	b = b[:n]
	for at := 0; at < n; {
		if len(d.cur) == 0 {
			d.cur, d.rest = d.rest[0], d.rest[1:]
		}
		k := copy(b[at:], d.cur)
		d.cur, at = d.cur[k:], at+k
	}
	return b
}

// Uint32 reads an unsigned integer.
func (d *Decoder) Uint32() uint32 {
	if !d.need(4) {
		return 0
	}
	return binary.BigEndian.Uint32(d.take(4, d.tmp[:]))
}

// Uint64 reads an unsigned hyper integer.
func (d *Decoder) Uint64() uint64 {
	if !d.need(8) {
		return 0
	}
	return binary.BigEndian.Uint64(d.take(8, d.tmp[:]))
}

// Bool reads a boolean. Values other than 0 and 1 fail.
func (d *Decoder) Bool() bool {
	switch v := d.Uint32(); v {
	case 0:
		return false
	case 1:
		return true
	default:
		d.Fail("boolean is %d, must be 0 or 1", v)
		return false
	}
}

// Fixed reads n opaque bytes and their round-up. n is the program's, never the peer's.
func (d *Decoder) Fixed(n int) []byte {
	if !d.need(Round(n)) {
		return nil
	}
	return d.take(Round(n), nil)[:n:n]
}

// Opaque reads a counted inline opaque of at most limit bytes. It does not check the round-up's
// value (RFC 4506 section 4.10).
func (d *Decoder) Opaque(limit int) []byte {
	n := d.count(limit)
	if d.err != nil {
		return nil
	}
	return d.Fixed(n)
}

// String reads a counted string of at most limit bytes. It allocates.
func (d *Decoder) String(limit int) string { return string(d.Opaque(limit)) }

// Skip passes over n bytes and no item.
func (d *Decoder) Skip(n int) {
	if n < 0 {
		d.Fail("length %d is negative", n)
		return
	}
	if !d.need(n) {
		return
	}
	d.pos += n
	d.drop(n)
}

// drop passes over n bytes of the stream, which are there.
func (d *Decoder) drop(n int) {
	d.left -= n
	for n > 0 {
		if len(d.cur) == 0 {
			d.cur, d.rest = d.rest[0], d.rest[1:]
			continue
		}
		k := min(n, len(d.cur))
		d.cur, n = d.cur[k:], n-k
	}
}

// SkipPads makes Bulk skip the padding of a message (RFC 5666 section 3.9), until Reset: the data
// of an opaque of threshold bytes or more begin at a multiple of align, which is a power of two.
// size is the length of the message, whose last part is the stream. No position counts the padding.
func (d *Decoder) SkipPads(align, threshold, size int) {
	d.align, d.threshold, d.size = align, threshold, size
}

// skipPad passes over the padding before data.
func (d *Decoder) skipPad() {
	n := (d.left - d.size) & (d.align - 1)
	if d.err == nil && n > d.left {
		d.Fail("message ends after %d more bytes, %d of padding are needed", d.left, n)
	}
	if d.err == nil {
		d.drop(n)
	}
}

// Gap advances by n bytes of the unreduced stream that are missing here and no item.
func (d *Decoder) Gap(n int) {
	if d.err == nil {
		d.pos += n
	}
}

// Bulk reads a counted opaque of at most limit bytes, inline or taken out of the stream, and
// appends its slices to dst. It returns dst, the opaque's length, and whether it was an item. It
// supplies a missing round-up at the end of the stream (RFC 8166 section 3.4.5.2).
func (d *Decoder) Bulk(limit int, dst [][]byte) (data [][]byte, length int, taken bool) {
	n := d.count(limit)
	if d.err != nil {
		return dst, 0, false
	}
	if len(d.items) > 0 && d.items[0].Position == d.pos {
		it := d.items[0]
		if it.Length != n && it.Length != Round(n) {
			d.Fail("item taken out here has %d bytes, its count says %d", it.Length, n)
			return dst, 0, false
		}
		d.items = d.items[1:]
		d.used++
		d.pos += Round(n)
		for left := n; left > 0 && len(it.Data) > 0; it.Data = it.Data[1:] {
			s := it.Data[0]
			s = s[:min(left, len(s))]
			dst, left = append(dst, s), left-len(s)
		}
		return dst, n, true
	}
	if d.align > 1 && n >= d.threshold {
		d.skipPad()
	}
	if !d.need(n) {
		return dst, 0, false
	}
	d.pos += n
	d.left -= n
	for left := n; left > 0; {
		if len(d.cur) == 0 {
			d.cur, d.rest = d.rest[0], d.rest[1:]
			continue
		}
		k := min(left, len(d.cur))
		dst = append(dst, d.cur[:k:k])
		d.cur, left = d.cur[k:], left-k
	}
	d.Skip(min(Pad(n), d.left))
	return dst, n, false
}

// count reads a count word and checks it against limit.
func (d *Decoder) count(limit int) int {
	n := d.Uint32()
	if d.err == nil && int64(n) > int64(limit) {
		d.Fail("length %d exceeds the limit of %d", n, limit)
	}
	if d.err != nil {
		return 0
	}
	return int(n)
}
