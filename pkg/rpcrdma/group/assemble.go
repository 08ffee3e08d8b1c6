package group

import (
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Outcome says what became of a message that was given to an [Assembler].
type Outcome uint8

// Outcomes. The assembler has taken the buffer, except with Other and Broken.
const (
	// Other: the message belongs to no group. Nothing happened.
	Other Outcome = iota
	// More: the message belongs to a group that goes on.
	More
	// Whole: the message is the last of its group. Assembler.Message has the RPC message.
	Whole
	// Bad: the group is given up, or was never one. Assembler.Report says why.
	Bad
	// Broken: the group is given up because this message is none of its own, as Assembler.Report says. The message itself may be all right:
	// it is to be given to the assembler once more.
	Broken
	// Ignored: the message belongs to a group that was given up before.
	Ignored
)

// Assembler puts the transmissions of a group together. All messages of one connection and direction of Sends go through it in the order in which they
// came. It is used again for the next group.
//
//	     Add: XmtReq, XmtResp          Add: the last one
//	idle --------------------> group ------------------> whole -- Message --> idle
//	  ^  <--------- Bad -------  |
//	  |                          | Bad, Broken
//	  +------ Ignored ... ------ given up
type Assembler struct {
	layout *Layout
	lead   *wire.Header
	open   bool // between the first and the last transmission
	parts  []part
	segs   [][]byte // of all parts
	given  givenUp
	report wire.Report

	origins []int
	spans   []span
	data    [][]byte
}

// part is a transmission that came.
type part struct {
	buf    *bufpool.Buf
	at     int // its first segment in Assembler.segs
	header int // where the payload stream begins
	inline int // where it ends
	n      int // length of the transmission
	kept   bool
}

// givenUp is a group of which more transmissions may come.
type givenUp struct {
	xid       wire.XID
	direction wire.Direction
	any       bool
}

// NewAssembler returns an assembler for receives of the given layout.
func NewAssembler(l *Layout) *Assembler { return &Assembler{layout: l} }

// Use says that the receives that come next have layout l. No group is open.
func (a *Assembler) Use(l *Layout) { a.layout = l }

// Add takes the next message: its header, which may be any, the segments of the receive that it is in, in full, and its length n in bytes. If
// it begins a group, h must stay as it is until the group ends, and the group may have limit transmissions. The assembler becomes the owner of
// buf, which may be nil, but see [Outcome]; the slice segs is not kept.
func (a *Assembler) Add(h *wire.Header, segs [][]byte, n int, buf *bufpool.Buf, limit int) Outcome {
	if a.open {
		return a.proceed(h, segs, n, buf)
	}
	if a.given.takes(h) {
		release(buf)
		return Ignored
	}
	a.given = givenUp{}
	if h.Procedure != wire.Optional || h.Operation < wire.XmtReq || h.Operation > wire.XmtCont {
		return Other
	}
	a.reset()
	if h.Operation == wire.XmtCont {
		release(buf)
		a.report = wire.Report{Bad: id(h), Code: wire.BadContinuation}
		return Bad
	}
	a.lead, a.open = h, true
	if t := &h.Transmit; int64(t.Count) > int64(max(limit, 1)) {
		return a.refuse(h, buf, wire.Report{Code: wire.BadSequence, Expected: uint32(max(limit, 1)), Current: t.Count})
	}
	if r := a.checkItems(); r.Code != 0 {
		return a.refuse(h, buf, r)
	}
	return a.take(h, segs, n, buf)
}

// proceed takes a message while a group is open.
func (a *Assembler) proceed(h *wire.Header, segs [][]byte, n int, buf *bufpool.Buf) Outcome {
	next := uint32(len(a.parts))
	switch {
	case h.Procedure != wire.Optional:
		return a.interrupt(h, wire.Report{Code: wire.BadHeaderType, Expected: uint32(wire.Optional), Current: uint32(h.Procedure)})
	case h.Operation != wire.XmtCont:
		return a.interrupt(h, wire.Report{Code: wire.BadOptionType, Expected: uint32(wire.XmtCont), Current: uint32(h.Operation)})
	case h.XID != a.lead.XID:
		return a.refuse(h, buf, wire.Report{Code: wire.BadXID, Expected: uint32(a.lead.XID), Current: uint32(h.XID)})
	case h.Direction != a.lead.Direction:
		return a.refuse(h, buf, wire.Report{Code: wire.BadContinuation})
	case h.Transmit.Number != next:
		return a.refuse(h, buf, wire.Report{Code: wire.BadSequence, Expected: next, Current: h.Transmit.Number})
	}
	return a.take(h, segs, n, buf)
}

// take keeps a transmission that is the next one.
func (a *Assembler) take(h *wire.Header, segs [][]byte, n int, buf *bufpool.Buf) Outcome {
	size := h.Transmit.PayloadLength
	if room := uint32(max(n-h.Size, 0)); size > room || size%4 != 0 {
		return a.refuse(h, buf, wire.Report{Code: wire.BadPayload, Current: size, Max: room})
	}
	at, end := len(a.segs), 0
	for i := range a.layout.Segments {
		l := &a.layout.Segments[i]
		var s []byte
		if i < len(segs) && end == l.At {
			s = segs[i][:min(len(segs[i]), l.Length)]
		}
		a.segs = append(a.segs, s)
		end += len(s)
	}
	a.parts = append(a.parts, part{buf: buf, at: at, header: h.Size, inline: h.Size + int(size), n: min(n, end), kept: size > 0})
	if len(a.parts) < int(a.lead.Transmit.Count) {
		return More
	}
	a.open = false
	if r := a.checkPlaces(); r.Code != 0 {
		a.report = r
		a.release()
		return Bad
	}
	return Whole
}

// interrupt gives up the open group because of a message that is none of its own.
func (a *Assembler) interrupt(h *wire.Header, r wire.Report) Outcome {
	a.fail(h, r)
	return Broken
}

// refuse gives up the open group because of its own transmission h.
func (a *Assembler) refuse(h *wire.Header, buf *bufpool.Buf, r wire.Report) Outcome {
	release(buf)
	a.fail(h, r)
	return Bad
}

// fail ends the open group with a report about h. What still comes of the group is not worth another report.
func (a *Assembler) fail(h *wire.Header, r wire.Report) {
	r.Bad = id(h)
	if h != a.lead {
		r.Lead, r.HasLead = id(a.lead), true
	}
	a.report = r
	a.given = givenUp{a.lead.XID, a.lead.Direction, true}
	a.release()
}

// takes tells whether h is a transmission of the group that was given up: its continuations, as many as come directly behind one another.
func (g *givenUp) takes(h *wire.Header) bool {
	return g.any && h.Procedure == wire.Optional && h.Operation == wire.XmtCont && h.XID == g.xid && h.Direction == g.direction
}

// Open tells whether a group has begun and more of it must come.
func (a *Assembler) Open() bool { return a.open }

// Report returns what is wrong, after Bad or Broken.
func (a *Assembler) Report() *wire.Report { return &a.report }

// Lead returns the header of the first transmission of the group.
func (a *Assembler) Lead() *wire.Header { return a.lead }

// GiveUp gives up a group, if one is open or whole, and releases its buffers.
func (a *Assembler) GiveUp() {
	if a.open {
		a.fail(a.lead, wire.Report{})
		return
	}
	a.reset()
}

// Skip says that a first transmission was refused before it came to the assembler, since its header cannot be read. An open group is given
// up, and the continuations that come next with that XID and direction are ignored, as many as they are.
func (a *Assembler) Skip(xid wire.XID, d wire.Direction) {
	a.reset()
	a.given = givenUp{xid, d, true}
}

func (a *Assembler) reset() {
	a.release()
	a.lead, a.report = nil, wire.Report{}
}

// release lets go of all parts.
func (a *Assembler) release() {
	for i := range a.parts {
		release(a.parts[i].buf)
	}
	clear(a.parts)
	clear(a.segs)
	clear(a.data)
	a.parts, a.segs, a.data, a.open = a.parts[:0], a.segs[:0], a.data[:0], false
}

// Message puts the group that is whole into m, which is empty, and makes m the owner of the buffers that it refers to; the
// others are released. The payload stream and the data of SendBased items are where they arrived. Explicit items have no data yet: the
// segments of the item that Origins tells have them. Items of no bytes are left out.
func (a *Assembler) Message(m *oncrpc.Message) {
	for i := range a.parts {
		p := &a.parts[i]
		m.Stream = a.slices(m.Stream, p, p.header, p.inline)
	}
	a.items(m)
	for i := range a.parts {
		p := &a.parts[i]
		if p.buf != nil && p.kept {
			m.Own(p.buf)
			p.buf = nil
		}
	}
	a.release()
}

// Origins returns, for each item of the message that Message made, its index in the items of the first header.
func (a *Assembler) Origins() []int { return a.origins }

// slices appends bytes [from, to) of a transmission to dst.
func (a *Assembler) slices(dst [][]byte, p *part, from, to int) [][]byte {
	for i := range a.layout.Segments {
		l := &a.layout.Segments[i]
		s := a.segs[p.at+i]
		lo, hi := max(from-l.At, 0), min(to-l.At, l.Length, len(s))
		if lo < hi {
			dst = append(dst, s[lo:hi:hi])
		}
	}
	return dst
}

func id(h *wire.Header) wire.MessageID {
	m := wire.MessageID{XID: h.XID, Direction: h.Direction}
	if h.Procedure == wire.Optional && h.Operation == wire.XmtCont {
		m.Sequence = h.Transmit.Number
	}
	return m
}

func release(b *bufpool.Buf) {
	if b != nil {
		b.Release()
	}
}
