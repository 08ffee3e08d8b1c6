package group

import (
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Outcome is the result of passing a message to an [Assembler].
type Outcome uint8

// Outcomes. The assembler takes the buffer, except with Other and Broken.
const (
	// Other: the message belongs to no group and was ignored.
	Other Outcome = iota
	// More: the message belongs to an unfinished group.
	More
	// Whole: the message completes its group. Assembler.Message returns the RPC message.
	Whole
	// Bad: the assembler gave up the group, or never began it. Assembler.Report is the reason.
	Bad
	// Broken: the assembler gave up the group because another message interrupted it; see
	// Assembler.Report. That message may be valid: pass it to the assembler again.
	Broken
	// Ignored: the message belongs to a group given up before.
	Ignored
)

// Assembler joins the transmissions of a group. It gets all messages of one connection and one
// direction of Sends, in order of arrival, and is reused for the next group.
//
//	     Add: XmtReq, XmtResp          Add: the last one
//	idle --------------------> group ------------------> whole -- Message --> idle
//	  ^  <--------- Bad -------  |
//	  |                          | Bad, Broken
//	  +------ Ignored ... ------ given up
type Assembler struct {
	layout  *Layout
	lead    *wire.Header
	open    bool // between the first and the last transmission
	parts   []part
	segs    [][]byte // of all parts
	givenUp givenUp
	report  wire.Report

	origins []int
	spans   []span
	data    [][]byte
}

// part is a received transmission.
type part struct {
	buf        *bufpool.Buf
	at         int // index of its first segment in Assembler.segs
	header     int // start of the payload stream
	inline     int // end of the payload stream
	n          int // length of the transmission
	referenced bool
}

// givenUp is a group that was given up but may still receive transmissions.
type givenUp struct {
	xid       wire.XID
	direction wire.Direction
	any       bool
}

// NewAssembler returns an assembler for receives of layout l.
func NewAssembler(l *Layout) *Assembler { return &Assembler{layout: l} }

// Add takes the next message: its header of any operation, all segments of its receive, and its
// length n in bytes. If it begins a group, h must not change until the group ends, and the group
// may have up to limit transmissions. The assembler takes ownership of buf, which may be nil,
// except as in [Outcome]. It does not keep the slice segs.
func (a *Assembler) Add(h *wire.Header, segs [][]byte, n int, buf *bufpool.Buf, limit int) Outcome {
	if a.open {
		return a.proceed(h, segs, n, buf)
	}
	if a.givenUp.takes(h) {
		release(buf)
		return Ignored
	}
	a.givenUp = givenUp{}
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

// proceed handles a message while a group is open.
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

// take keeps the next transmission of the group.
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
	a.parts = append(a.parts, part{buf: buf, at: at, header: h.Size, inline: h.Size + int(size), n: min(n, end), referenced: size > 0})
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

// interrupt gives up the open group because of a message outside it.
func (a *Assembler) interrupt(h *wire.Header, r wire.Report) Outcome {
	a.fail(h, r)
	return Broken
}

// refuse gives up the open group because of its transmission h.
func (a *Assembler) refuse(h *wire.Header, buf *bufpool.Buf, r wire.Report) Outcome {
	release(buf)
	a.fail(h, r)
	return Bad
}

// fail ends the open group with a report about h, and suppresses reports about its later
// transmissions.
func (a *Assembler) fail(h *wire.Header, r wire.Report) {
	r.Bad = id(h)
	if h != a.lead {
		r.Lead, r.HasLead = id(a.lead), true
	}
	a.report = r
	a.givenUp = givenUp{a.lead.XID, a.lead.Direction, true}
	a.release()
}

// takes reports whether h continues the group that was given up: only continuations without another
// message in between do.
func (g *givenUp) takes(h *wire.Header) bool {
	return g.any && h.Procedure == wire.Optional && h.Operation == wire.XmtCont && h.XID == g.xid && h.Direction == g.direction
}

// Report returns the error after Bad or Broken.
func (a *Assembler) Report() *wire.Report { return &a.report }

// GiveUp drops an open or whole group and releases its buffers.
func (a *Assembler) GiveUp() {
	if a.open {
		a.fail(a.lead, wire.Report{})
		return
	}
	a.reset()
}

// Skip records a first transmission with an unreadable header. It gives up an open group, and the
// following continuations with that XID and direction are ignored.
func (a *Assembler) Skip(xid wire.XID, d wire.Direction) {
	a.reset()
	a.givenUp = givenUp{xid, d, true}
}

func (a *Assembler) reset() {
	a.release()
	a.lead, a.report = nil, wire.Report{}
}

func (a *Assembler) release() {
	for i := range a.parts {
		release(a.parts[i].buf)
	}
	clear(a.parts)
	clear(a.segs)
	clear(a.data)
	a.parts, a.segs, a.data, a.open = a.parts[:0], a.segs[:0], a.data[:0], false
}

// Message moves the whole group into m, which must be empty. m becomes the owner of the buffers it
// refers to; the others are released. The payload stream and the data of SendBased items stay in
// their receive buffers. Explicit items get no data: it is in the segments of the item that Origins
// names. Empty items are omitted.
func (a *Assembler) Message(m *oncrpc.Message) {
	for i := range a.parts {
		p := &a.parts[i]
		m.Stream = a.slices(m.Stream, p, p.header, p.inline)
	}
	a.items(m)
	for i := range a.parts {
		p := &a.parts[i]
		if p.buf != nil && p.referenced {
			m.Own(p.buf)
			p.buf = nil
		}
	}
	a.release()
}

// Origins returns, for each item of the last Message, its index among the items of the first
// header.
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
