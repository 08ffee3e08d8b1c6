package wire

import (
	"encoding/binary"
	"fmt"
	"iter"
)

// BufferSegment is a contiguous piece of a receive buffer: xmrbs_seg of rtrext section 7.2.
type BufferSegment struct {
	// Length is in bytes, at least 1.
	Length uint32
	// Align divides the segment's address: a power of two; 0 and 1 promise nothing.
	Align uint32
	// Flags has Targetable. Other bits are ignored.
	Flags uint32
}

// Targetable is the flag of a segment for bulk items: XMRSFLAG_PLT. In a group of transmissions,
// these segments are numbered from 0 in the order of buffers, used or not (rtrext section 6.2).
const Targetable = 1

// BufferGroup is Count equal segments in a row: xmrbs_group.
type BufferGroup struct {
	Count uint32
	BufferSegment
}

// BufferStructure describes the segments of each of a side's receive buffers: xmrbs_buf, the value
// of ReceiveBufferStructure. Byte k of a message is received in byte k of the buffer.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|              Length: the sum of all segments                  |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                     Number of groups                          |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  groups: { count, segment length, alignment, flags }...       |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
type BufferStructure struct {
	Length uint32
	Groups []BufferGroup
}

// Bounds of a receive buffer.
const (
	MaxBufferSegments = 64
	// MinBufferSize: the first message of a connection fits every buffer.
	MinBufferSize = FirstMessage
	// MaxBufferSize is far above any practical size. It keeps sums of sizes from overflow.
	MaxBufferSize = 16 << 20
)

// Parse reads a property's value; b keeps its memory. The error is a *ParseError; b is then
// invalid.
func (b *BufferStructure) Parse(value []byte) error {
	b.Groups = b.Groups[:0]
	r := Reader{cur: value, left: len(value), part: "xmrbs_buf"}
	b.Length = r.Uint32()
	n := r.Uint32()
	if r.err == nil && n > MaxBufferSegments {
		r.Fail("xmrbuf_groups", "%d groups, at most %d are accepted", n, MaxBufferSegments)
	}
	for range n {
		g := BufferGroup{r.Uint32(), BufferSegment{r.Uint32(), r.Uint32(), r.Uint32()}}
		if r.err != nil {
			return r.err
		}
		b.Groups = append(b.Groups, g)
	}
	if r.err == nil && r.left > 0 {
		r.Fail("xmrbs_buf", "%d bytes follow", r.left)
	}
	if r.err != nil {
		return r.err
	}
	return b.Check()
}

// Check returns the fault of a structure as a *ParseError.
func (b *BufferStructure) Check() error {
	var count, sum uint64
	for i, g := range b.Groups {
		count += uint64(g.Count)
		switch {
		case g.Count == 0:
			return b.bad("xmrgrp_count", "group %d has no segment", i)
		case count > MaxBufferSegments:
			return b.bad("xmrgrp_count", "%d segments up to group %d, at most %d are accepted", count, i, MaxBufferSegments)
		case g.Length == 0 || g.Length > MaxBufferSize:
			return b.bad("xmrseg_length", "the segments of group %d have %d bytes, must be 1 to %d", i, g.Length, MaxBufferSize)
		case g.Align&(g.Align-1) != 0:
			return b.bad("xmrseg_align", "the alignment of group %d is %d, must be a power of two or 0", i, g.Align)
		}
		sum += uint64(g.Count) * uint64(g.Length)
	}
	switch {
	case b.Length < MinBufferSize || b.Length > MaxBufferSize:
		return b.bad("xmrbuf_length", "a buffer has %d bytes, must be %d to %d", b.Length, MinBufferSize, MaxBufferSize)
	case sum != uint64(b.Length):
		return b.bad("xmrbuf_length", "a buffer has %d bytes, its segments have %d", b.Length, sum)
	}
	return nil
}

func (b *BufferStructure) bad(field, format string, args ...any) error {
	return &ParseError{Field: field, Reason: fmt.Sprintf(format, args...), Code: ErrChunk, Code2: BadXDR}
}

// Append appends the value of the property.
func (b *BufferStructure) Append(dst []byte) []byte {
	u32 := binary.BigEndian.AppendUint32
	dst = u32(u32(dst, b.Length), uint32(len(b.Groups)))
	for _, g := range b.Groups {
		dst = u32(u32(u32(u32(dst, g.Count), g.Length), g.Align), g.Flags)
	}
	return dst
}

// Segments yields each segment of a buffer after its offset in the buffer.
func (b *BufferStructure) Segments() iter.Seq2[uint32, BufferSegment] {
	return func(yield func(uint32, BufferSegment) bool) {
		var at uint32
		for _, g := range b.Groups {
			for range g.Count {
				if !yield(at, g.BufferSegment) {
					return
				}
				at += g.Length
			}
		}
	}
}

// plain sets the structure of a buffer of unknown structure: one segment, without promises (rtrext
// section 8.1).
func (b *BufferStructure) plain(size uint32) {
	b.Length, b.Groups = size, append(b.Groups[:0], BufferGroup{1, BufferSegment{size, 1, 0}})
}
