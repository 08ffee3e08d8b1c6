package rpcrdma

import (
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/group"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// groups is the receiving side of the round-trip extension: it puts together RPC messages that come in several Sends, or with bulk data
// placed in receive buffers. The loop is held for all of it.
//
// A message of a group keeps the place of its receive until the group is answered (a request), or complete (a reply).
type groups struct {
	c      *Conn
	asm    *group.Assembler // nil: there are none on this connection
	parts  []*inCall        // transmissions of the open group
	strays int              // receives for what may still come of a group that was given up
}

// layoutOf is the structure of a side's receive buffers as the planner needs it.
func layoutOf(v *wire.Values) *group.Layout {
	b, size := v.Structure(), v.ReceiveSize()
	if size < b.Length {
		return group.Plain(int(size))
	}
	var segs []group.Segment
	for _, s := range b.Segments() {
		segs = append(segs, group.Segment{Length: int(s.Length), Align: int(s.Align), Target: s.Flags&wire.Targetable != 0})
	}
	l, err := group.NewLayout(segs...)
	if err != nil { // more segments than it takes, of which none is known to be wrong
		return group.Plain(int(size))
	}
	return l
}

// ready makes the connection ready for groups, if they were configured. Both sides know each other's properties, or one has none to tell.
func (g *groups) ready(c *Conn) error {
	if g.asm != nil || !c.cfg.has(MessageContinuation|SendBasedPlacement) {
		return nil
	}
	zeros, err := c.cfg.Pool.Get(zeroBytes)
	if err != nil {
		return err
	}
	clear(zeros.B)
	c.zeros, c.zero = zeros, zeros.B
	g.c, g.asm = c, group.NewAssembler(group.Expand(c.structure()))
	return nil
}

// zeroBytes is how many zeros there are to pad messages with: enough for the header segment of a receive.
const zeroBytes = 4096

// add takes a message. It returns false if the message has nothing to do with groups.
func (g *groups) add(ic *inCall, s *receive, cp *rdma.Completion) bool {
	c, h := g.c, &ic.hdr
	if h.Procedure == wire.Optional && (h.Operation == wire.XmtReq) != c.server && h.Operation <= wire.XmtResp && !c.terms.Load().back {
		return false
	}
	if cp.HasInvalidated && h.Procedure == wire.Optional { // perhaps with a part of a reply
		c.out.mu.Lock()
		c.out.lost(cp.Invalidated)
		c.out.mu.Unlock()
	}
	for {
		switch g.asm.Add(h, ic.message, cp.Bytes, nil, g.limit(h)) {
		case group.Other:
			g.forget()
			return false
		case group.More:
			c.arrived(ic, s, true)
			g.parts = append(g.parts, ic)
		case group.Whole:
			c.arrived(ic, s, true)
			g.parts = append(g.parts, ic)
			g.whole(cp)
		case group.Bad:
			c.arrived(ic, s, true)
			g.parts = append(g.parts, ic)
			g.bad()
		case group.Broken:
			g.bad()
			continue
		case group.Ignored:
			c.arrived(ic, s, false)
			if g.strays > 0 {
				g.strays--
				_ = c.receives.more(-1)
			}
			ic.recycle()
		}
		return true
	}
}

// limit is how many transmissions a group may have.
func (g *groups) limit(h *wire.Header) int {
	if h.Operation == wire.XmtResp {
		return g.c.out.replyBuffers(uint32(h.XID))
	}
	return g.c.cfg.callTransmissions()
}

// gather makes the parts of a group one, its first, which has all buffers and receives.
func (g *groups) gather() *inCall {
	lead := g.parts[0]
	for _, p := range g.parts[1:] {
		lead.held += p.held
		g.c.bufs = p.Disown(g.c.bufs[:0])
		for _, b := range g.c.bufs {
			lead.Own(b)
		}
		p.recycle()
	}
	clear(g.c.bufs)
	clear(g.parts)
	g.parts = g.parts[:0]
	lead.xmt = true
	return lead
}

// whole passes a message on that has come in full.
func (g *groups) whole(cp *rdma.Completion) {
	lead := g.gather()
	lead.Stream = lead.Stream[:0]
	g.asm.Message(&lead.Message)
	lead.origins = append(lead.origins[:0], g.asm.Origins()...)
	if lead.hdr.Direction == wire.Reply {
		g.c.out.heldParts += lead.held
		g.c.out.reply(lead, cp)
		return
	}
	g.c.in.call(lead)
}

// bad gives up a group, and reports why. A request is answered so; it will come by other means. So will a reply, if the peer has it still.
func (g *groups) bad() {
	c, r := g.c, *g.asm.Report()
	lead := g.gather()
	reason := "its transmissions: " + r.Code.String()
	if lead.hdr.Direction == wire.Call {
		g.stray(int(lead.hdr.Transmit.Count) - lead.held)
	}
	if lead.hdr.Direction == wire.Reply {
		c.out.heldParts += lead.held
		if c.out.expects(uint32(lead.hdr.XID)) && c.control.report(lead.hdr.XID, &r) {
			c.drop(lead, BadReply, reason)
			return
		}
		if !c.out.garbled(lead, new(rdma.Completion), &ReplyError{reason}) {
			c.drop(lead, BadReply, reason)
		}
		return
	}
	c.fault(BadHeader, "call %#x: %s", uint32(lead.hdr.XID), reason)
	lead.report(&r)
}

// stray has receives for n Sends, at most, that may yet come of a group: its sender has their credits back with the answer.
func (g *groups) stray(n int) {
	g.forget()
	if n = min(n, g.c.cfg.callTransmissions()); n > 0 && g.c.receives.more(n) == nil {
		g.strays = n
	}
}

// forget lets go of the receives for what may still have come of a group.
func (g *groups) forget() {
	if g.strays > 0 {
		_ = g.c.receives.more(-g.strays)
		g.strays = 0
	}
}

// skip gives up the open group because of a message whose header cannot be read. It reports whether that is one of the group's own, and so
// answered with it.
func (g *groups) skip(h *wire.Header) (answered bool) {
	if g.asm == nil {
		return false
	}
	if len(g.parts) > 0 {
		g.asm.GiveUp()
		lead := g.gather()
		answered = h.Procedure == wire.Optional && h.Operation == wire.XmtCont && h.XID == lead.hdr.XID && h.Direction == lead.hdr.Direction
		if lead.hdr.Direction == wire.Reply {
			g.c.out.heldParts += lead.held
			if !g.c.out.garbled(lead, new(rdma.Completion), &ReplyError{"its transmissions are interrupted"}) {
				g.c.drop(lead, BadReply, "a reply's transmissions are interrupted")
			}
		} else {
			lead.refuse(wire.BadXDR, BadHeader, "its transmissions are interrupted")
		}
	}
	if h.Procedure == wire.Optional && h.Operation >= wire.XmtReq && h.Operation <= wire.XmtCont {
		g.asm.Skip(h.XID, h.Direction)
		if h.Direction == wire.Call {
			g.stray(maxTransmissions)
		}
	}
	return answered
}

// close frees what is left of a group; the endpoint has let go of everything.
func (g *groups) close() {
	for _, p := range g.parts {
		p.recycle()
	}
	g.parts = nil
	if g.c != nil {
		g.c.zeros.Release()
	}
}

// report answers a request whose transmissions are wrong.
func (ic *inCall) report(r *wire.Report) {
	h := &ic.hdr
	ic.state = serving
	credits, err := ic.credits()
	var head []byte
	if err == nil {
		head, err = ic.newHead(wire.FirstMessage)
	}
	if err != nil {
		ic.giveUp(err)
		return
	}
	ic.answerWith(appendReport(head, h.XID, credits, wire.Reply, r))
}

func appendReport(dst []byte, xid wire.XID, credits wire.Credits, d wire.Direction, r *wire.Report) []byte {
	t := wire.Transmit{Report: *r}
	at := len(dst)
	dst = wire.BeginOption(dst, xid, credits, d, wire.ReptErr)
	return wire.EndOption(t.Append(dst, wire.ReptErr), at)
}

// collectItems makes chunks of the items of a request that are to be fetched by RDMA Read; it returns what is wrong.
func (ic *inCall) collectItems() (wire.ErrorCode, string) {
	t := &ic.hdr.Transmit
	total := 0
	for i, k := range ic.origins {
		it := &t.Items[k]
		if it.Placement != wire.Explicit {
			ic.c.cfg.Observer.Transferred(PlacedCall, int(it.Length))
			continue
		}
		if int64(it.Length) > int64(ic.c.cfg.MaxBulk-total) {
			return wire.System, "the items have more bytes together than a call may have"
		}
		total += int(it.Length)
		ic.chunks = append(ic.chunks, chunk{position: int(it.Position), length: int(it.Length), item: i, source: it})
	}
	if split.Length(ic.Stream) < oncrpc.MinCallLen {
		return wire.BadXDR, "the payload stream is shorter than an RPC call header"
	}
	return 0, ""
}
