package group

import (
	"fmt"

	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Segment is a piece of a receive buffer: xmrbs_seg of rtrext section 7.2.
type Segment struct {
	// Length is in bytes, at least 1. Align is the alignment that its owner promises; 0 and 1
	// promise nothing.
	Length, Align int
	// Target means that bulk data may be placed in it: XMRSFLAG_PLT.
	Target bool
	// At is its offset in the buffer. NewLayout sets it.
	At int
}

// Layout is the structure of a side's receive buffers: xmrbs_buf, with its groups expanded. All
// receives of a side share it: byte n of a message arrives at byte n of the buffer. It is
// immutable.
type Layout struct {
	Segments []Segment
	// Targets are the indexes of the target segments.
	Targets []int
	// Size is the length of the buffer in bytes.
	Size int
}

// Plain returns the layout of a peer that announces none: one segment, not a target (rtrext section
// 8.1, note 1).
func Plain(size int) *Layout {
	return &Layout{Segments: []Segment{{Length: size}}, Size: size}
}

// Expand returns the layout of a valid structure, such as a parsed one.
func Expand(b *wire.BufferStructure) *Layout {
	l := &Layout{Size: int(b.Length)}
	for at, s := range b.Segments() {
		l.add(Segment{Length: int(s.Length), Align: int(s.Align), Target: s.Flags&wire.Targetable != 0, At: int(at)})
	}
	return l
}

// NewLayout makes a layout of consecutive segments. It fails with no segments or more than
// [wire.MaxBufferSegments], with an empty one, and beyond a total of [wire.MaxBufferSize].
func NewLayout(segs ...Segment) (*Layout, error) {
	if len(segs) == 0 || len(segs) > wire.MaxBufferSegments {
		return nil, fmt.Errorf("group: a receive buffer of %d segments, must be 1 to %d", len(segs), wire.MaxBufferSegments)
	}
	l := &Layout{}
	for i, s := range segs {
		if s.Length < 1 || s.Length > wire.MaxBufferSize-l.Size {
			return nil, fmt.Errorf("group: segment %d of a receive buffer has %d bytes, must have 1 at least, and all together at most %d", i, s.Length, wire.MaxBufferSize)
		}
		s.At = l.Size
		l.Size += s.Length
		l.add(s)
	}
	return l, nil
}

func (l *Layout) add(s Segment) {
	if s.Target {
		l.Targets = append(l.Targets, len(l.Segments))
	}
	l.Segments = append(l.Segments, s)
}

func (l *Layout) target(k int) *Segment { return &l.Segments[l.Targets[k]] }

// at returns the offset of target k, or the end of the buffer if there are only k targets.
func (l *Layout) at(k int) int {
	if k == len(l.Targets) {
		return l.Size
	}
	return l.target(k).At
}

// Gaps returns the number of bytes before targets and outside of them, which a sender may have to
// fill with zeros.
func (l *Layout) Gaps() (n int) {
	end := 0
	for k := range l.Targets {
		n += l.target(k).At - end
		end = l.target(k).At + l.target(k).Length
	}
	return n
}

// behind returns the first target at offset n or later.
func (l *Layout) behind(n int) int {
	for k := range l.Targets {
		if l.target(k).At >= n {
			return k
		}
	}
	return len(l.Targets)
}

// longest returns the length of the longest target, 0 if none.
func (l *Layout) longest() (n int) {
	for k := range l.Targets {
		n = max(n, l.target(k).Length)
	}
	return n
}
