package group

import (
	"cmp"
	"math"
	"slices"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// span is a piece of an item's data in a buffer segment.
type span struct {
	number   uint32 // of the buffer segment, in the group
	from, to int    // within the segment
}

// segment returns the segment with a number in the group, and its transmission.
func (l *Layout) segment(number uint32) (s *Segment, transmission int) {
	n := uint32(len(l.Targets))
	return l.target(int(number % n)), int(number / n)
}

// checkItems checks the items as far as possible before the group is whole. It sets a.spans to
// their data.
func (a *Assembler) checkItems() wire.Report {
	t := &a.lead.Transmit
	a.spans = a.spans[:0]
	next := 0 // minimum position
	for i := range t.Items {
		it := &t.Items[i]
		if it.Placement == wire.NoItem {
			continue
		}
		if int64(it.Position) < int64(next) || it.Position%4 != 0 {
			return wire.Report{Code: wire.BadOffset, Current: it.Position, Min: uint32(min(next, math.MaxUint32)), Max: math.MaxUint32}
		}
		if it.Placement == wire.TooShort {
			continue
		}
		next = int(it.Position) + xdr.Round(int(it.Length))
		if it.Placement == wire.Explicit {
			if room := wire.Length(t.Segments(it)); uint64(it.Length) > room {
				return wire.Report{Code: wire.BadOffset, Current: it.Length, Max: uint32(room)}
			}
			continue
		}
		if r := a.checkNumbers(t, it); r.Code != 0 {
			return r
		}
	}
	return a.checkOverlap()
}

// checkNumbers checks the buffer segments of an item.
func (a *Assembler) checkNumbers(t *wire.Transmit, it *wire.Item) wire.Report {
	numbers := t.Numbers(it)
	all := uint64(t.Count) * uint64(len(a.layout.Targets))
	bad := wire.Report{Code: wire.BadBuffer, Min: 0, Max: uint32(min(all, math.MaxUint32)) - 1}
	if all == 0 {
		bad.Min, bad.Max = 1, 0 // empty range
	}
	for _, n := range numbers {
		if uint64(n) >= all {
			bad.Current = n
			return bad
		}
	}
	left, at := int(it.Length), int(it.Offset)
	for k, n := range numbers {
		seg, _ := a.layout.segment(n)
		if k == 0 && at >= seg.Length {
			return wire.Report{Code: wire.BadOffset, Current: it.Offset, Max: uint32(seg.Length - 1)}
		}
		if left == 0 {
			break
		}
		here := min(left, seg.Length-at)
		if k == len(numbers)-1 && here < left {
			return wire.Report{Code: wire.BadOffset, Current: clip(at + left), Max: uint32(seg.Length)}
		}
		a.spans = append(a.spans, span{n, at, at + here})
		left, at = left-here, 0
	}
	if left > 0 { // too few numbers
		bad.Current, bad.Min, bad.Max = 0, 1, 0
		return bad
	}
	return wire.Report{}
}

// checkOverlap refuses items that share bytes.
func (a *Assembler) checkOverlap() wire.Report {
	order := func(x, y span) int {
		if c := cmp.Compare(x.number, y.number); c != 0 {
			return c
		}
		return cmp.Compare(x.from, y.from)
	}
	if !slices.IsSortedFunc(a.spans, order) {
		slices.SortFunc(a.spans, order)
	}
	for i := 1; i < len(a.spans); i++ {
		x, y := &a.spans[i-1], &a.spans[i]
		if x.number == y.number && y.from < x.to {
			seg, _ := a.layout.segment(y.number)
			return wire.Report{Code: wire.BadOffset, Current: uint32(y.from), Min: uint32(x.to), Max: uint32(seg.Length - 1)}
		}
	}
	return wire.Report{}
}

// checkPlaces compares the items with the received data of the whole group.
func (a *Assembler) checkPlaces() wire.Report {
	for _, s := range a.spans {
		seg, i := a.layout.segment(s.number)
		p := &a.parts[i]
		if got := p.n - seg.At; s.to > got {
			return a.about(i, wire.Report{Code: wire.BadOffset, Current: uint32(s.to), Max: uint32(min(max(got, 0), seg.Length))})
		}
		if used := p.inline - seg.At; s.from < used {
			return a.about(i, wire.Report{Code: wire.BadOffset, Current: uint32(s.from), Min: uint32(min(used, seg.Length)), Max: uint32(seg.Length - 1)})
		}
		p.referenced = true
	}
	inline, out := 0, 0
	for i := range a.parts {
		inline += a.parts[i].inline - a.parts[i].header
	}
	t := &a.lead.Transmit
	for i := range t.Items {
		it := &t.Items[i]
		switch end := inline + out; {
		case it.Placement == wire.NoItem:
		case int(it.Position) > end:
			return a.about(0, wire.Report{Code: wire.BadOffset, Current: it.Position, Min: clip(out), Max: clip(end)})
		case it.Placement != wire.TooShort:
			out += xdr.Round(int(it.Length))
		case int(it.Length) > end-int(it.Position):
			return a.about(0, wire.Report{Code: wire.BadOffset, Current: clip(int(it.Position) + int(it.Length)), Min: it.Position, Max: clip(end)})
		}
	}
	return wire.Report{}
}

// about attributes r to transmission i, caused by the first.
func (a *Assembler) about(i int, r wire.Report) wire.Report {
	r.Bad = id(a.lead)
	if i > 0 {
		r.Lead, r.HasLead = r.Bad, true
		r.Bad.Sequence = uint32(i)
	}
	return r
}

// items sets the items of m.
func (a *Assembler) items(m *oncrpc.Message) {
	a.origins = a.origins[:0]
	t := &a.lead.Transmit
	for i := range t.Items {
		it := &t.Items[i]
		if it.Length == 0 || it.Placement != wire.SendBased && it.Placement != wire.Explicit {
			continue
		}
		item := xdr.Item{Position: int(it.Position), Length: int(it.Length)}
		if it.Placement == wire.SendBased {
			a.data = a.data[:0]
			left, at := item.Length, int(it.Offset)
			for _, n := range t.Numbers(it) {
				seg, k := a.layout.segment(n)
				here := min(left, seg.Length-at)
				if here <= 0 {
					break
				}
				a.data = a.slices(a.data, &a.parts[k], seg.At+at, seg.At+at+here)
				left, at = left-here, 0
			}
			item.Data = m.Keep(a.data)
		}
		m.Items = append(m.Items, item)
		a.origins = append(a.origins, i)
	}
}

// clip limits a number to a report's field.
func clip(n int) uint32 { return uint32(min(n, math.MaxUint32)) }
