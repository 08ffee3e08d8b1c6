package rpcrdma

import (
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/group"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// groupReceiver is the receiving side of the round-trip extension. It puts together RPC messages of
// several Sends, or with bulk data in receive buffers. recvMu is held for all of it.
//
// A message of a group keeps the place of its receive until the group is answered (a request), or
// complete (a reply).
type groupReceiver struct {
	*link
	in                *responder
	out               *requester
	negotiator        *negotiator
	zeros             *bufpool.Buf     // freed with the connection
	asm               *group.Assembler // nil: there are none on this connection
	parts             []*inCall        // transmissions of the open group
	bufs              []*bufpool.Buf
	lateContinuations int // receives for transmissions that may still come of an abandoned group
}

func (g *groupReceiver) init(l *link, in *responder, out *requester, k *negotiator) {
	g.link, g.in, g.out, g.negotiator = l, in, out, k
}

// ready makes the connection ready for groups, if they are configured. Both sides know each other's
// properties, or one has none.
func (g *groupReceiver) ready() error {
	if g.grouped || !g.cfg.has(MessageContinuation|SendBasedPlacement) {
		return nil
	}
	zeros, err := g.cfg.Pool.Get(zeroBytes)
	if err != nil {
		return err
	}
	clear(zeros.B)
	g.zeros, g.zero, g.grouped = zeros, zeros.B, true
	g.asm = group.NewAssembler(group.Expand(g.negotiator.structure()))
	return nil
}

// assemble takes a message. It returns false if the message belongs to no group.
func (g *groupReceiver) assemble(ic *inCall, s *recvBuffer, cp *rdma.Completion) bool {
	h := &ic.hdr
	if h.Procedure == wire.Optional && (h.Operation == wire.XmtReq) != g.server && h.Operation <= wire.XmtResp && !g.negotiated.Load().back {
		return false
	}
	if cp.HasInvalidated && h.Procedure == wire.Optional { // perhaps with a part of a reply
		g.out.lostHandle(cp.Invalidated)
	}
	for {
		switch g.asm.Add(h, ic.message, cp.Bytes, nil, g.limit(h)) {
		case group.Other:
			g.dropLate()
			return false
		case group.More:
			g.consume(&ic.inbound, s, true)
			g.parts = append(g.parts, ic)
		case group.Whole:
			g.consume(&ic.inbound, s, true)
			g.parts = append(g.parts, ic)
			g.whole(cp)
		case group.Bad:
			g.consume(&ic.inbound, s, true)
			g.parts = append(g.parts, ic)
			g.bad()
		case group.Broken:
			g.bad()
			continue
		case group.Ignored:
			g.consume(&ic.inbound, s, false)
			if g.lateContinuations > 0 {
				g.lateContinuations--
				_ = g.receives.more(-1)
			}
			ic.recycle()
		}
		return true
	}
}

// limit is how many transmissions a group may have.
func (g *groupReceiver) limit(h *wire.Header) int {
	if h.Operation == wire.XmtResp {
		return g.out.replyBuffers(uint32(h.XID))
	}
	return g.cfg.callTransmissions()
}

// mergeParts merges the parts of a group into its first, which gets all buffers and receives.
func (g *groupReceiver) mergeParts() *inCall {
	lead := g.parts[0]
	for _, p := range g.parts[1:] {
		lead.held += p.held
		g.bufs = p.Disown(g.bufs[:0])
		for _, b := range g.bufs {
			lead.Own(b)
		}
		p.recycle()
	}
	clear(g.bufs)
	clear(g.parts)
	g.parts = g.parts[:0]
	lead.xmt = true
	return lead
}

// whole passes a complete message on.
func (g *groupReceiver) whole(cp *rdma.Completion) {
	lead := g.mergeParts()
	lead.Stream = lead.Stream[:0]
	g.asm.Message(&lead.Message)
	lead.origins = append(lead.origins[:0], g.asm.Origins()...)
	if lead.hdr.Direction == wire.Reply {
		g.out.heldParts += lead.held
		g.out.reply(&lead.inbound, cp)
		lead.recycle()
		return
	}
	g.in.call(lead)
}

// bad gives up a group, and reports the reason. The peer sends the request again by other means,
// and the reply if it retained that.
func (g *groupReceiver) bad() {
	r := *g.asm.Report()
	lead := g.mergeParts()
	reason := "its transmissions: " + r.Code.String()
	if lead.hdr.Direction == wire.Call {
		g.stray(int(lead.hdr.Transmit.Count) - lead.held)
	}
	if lead.hdr.Direction == wire.Reply {
		g.out.heldParts += lead.held
		if g.out.expects(uint32(lead.hdr.XID)) && g.negotiator.reportReply(lead.hdr.XID, &r) {
			lead.drop(BadReply, reason)
			return
		}
		g.endReply(lead, reason, reason)
		return
	}
	g.protocolError(BadHeader, "call %#x: %s", uint32(lead.hdr.XID), reason)
	lead.answerReport(&r)
}

// stray posts receives for at most n Sends that may still come of a group. Its sender gets their
// credits back with the answer.
func (g *groupReceiver) stray(n int) {
	g.dropLate()
	if n = min(n, g.cfg.callTransmissions()); n > 0 && g.receives.more(n) == nil {
		g.lateContinuations = n
	}
}

// dropLate gives up the receives for late transmissions.
func (g *groupReceiver) dropLate() {
	if g.lateContinuations > 0 {
		_ = g.receives.more(-g.lateContinuations)
		g.lateContinuations = 0
	}
}

// endReply ends the wait for a reply that cannot be put together. A reply to no call of ours is
// dropped.
func (g *groupReceiver) endReply(lead *inCall, reason, dropped string) {
	if !g.out.garbled(&lead.inbound, new(rdma.Completion), &ReplyError{reason}) {
		lead.drop(BadReply, dropped)
		return
	}
	lead.recycle()
}

// skip gives up the open group because of a message with a bad header. It reports whether that
// message is one of the group's own, and so answered with it.
func (g *groupReceiver) skip(h *wire.Header) (answered bool) {
	if len(g.parts) > 0 {
		g.asm.GiveUp()
		lead := g.mergeParts()
		answered = h.Procedure == wire.Optional && h.Operation == wire.XmtCont && h.XID == lead.hdr.XID && h.Direction == lead.hdr.Direction
		if lead.hdr.Direction == wire.Reply {
			g.out.heldParts += lead.held
			g.endReply(lead, "its transmissions are interrupted", "a reply's transmissions are interrupted")
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

// close frees the parts of an open group. The endpoint has let go of everything.
func (g *groupReceiver) close() {
	for _, p := range g.parts {
		p.recycle()
	}
	g.parts = nil
	if g.zeros != nil {
		g.zeros.Release()
	}
}

// answerReport answers a request whose transmissions are wrong.
func (ic *inCall) answerReport(r *wire.Report) {
	credits, head, err := ic.answerHead()
	if err != nil {
		ic.failUnanswered(err)
		return
	}
	ic.answerWith(appendReport(head, ic.hdr.XID, credits, wire.Reply, r))
}

// concerns reports whether a report is about the transmissions of o: it was sent as a group, and
// the report is about no stray continuation. Had the group been given up, a report of that would
// have come before. The requester is locked.
func (e *ReportError) concerns(o *outCall) bool { return o.build.grouped && !e.stray }

// handleReport handles a report about one of our requests or replies. It goes again by base means.
func (g *groupReceiver) handleReport(ic *inCall, cp *rdma.Completion) {
	r := &ic.hdr.Transmit.Report
	err := &ReportError{Code: r.Code, stray: r.Code == wire.BadContinuation && !r.HasLead}
	if ic.hdr.Direction == wire.Reply {
		if !g.out.match(&ic.inbound, cp, err) {
			g.protocolError(Dropped, "message dropped: %v about XID %#x", err, uint32(ic.hdr.XID))
		}
		ic.recycle()
		return
	}
	g.protocolError(ErrorReceived, "%v about the reply to call %#x", err, uint32(ic.hdr.XID))
	if k := g.in.retained.takeReported(uint32(ic.hdr.XID)); k != nil {
		ic.answerFrom(k)
		return
	}
	ic.refuse(wire.System, Dropped, "its reply was reported, and is no longer there: it was reported before, or later ones took its memory")
}
