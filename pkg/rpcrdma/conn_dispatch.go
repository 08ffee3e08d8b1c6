package rpcrdma

import (
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Completed implements rdma.Handler.
func (c *Conn) Completed(batch []rdma.Completion) {
	if b := c.handleBatch(batch); b != nil {
		b.Uncork()
	}
}

// handleBatch handles a batch of completions. It corks the connection to which the handler passes
// calls on, and returns it.
func (c *Conn) handleBatch(batch []rdma.Completion) oncrpc.Corker {
	c.recvMu.Lock()
	defer c.recvMu.Unlock()
	c.ep.Cork() // so that receives gather too
	defer c.ep.Uncork()
	held := c.info.Batch
	if held != nil {
		held.Cork()
	}
	for i := range batch {
		switch cp := &batch[i]; cp.ID & idKind {
		case idReceive:
			c.received(cp)
		case idRead:
			c.work.completed(1)
			c.responder.readDone(idIndex(cp.ID))
		case idInvalidate:
			c.work.completed(1)
			c.requester.invalidated(idIndex(cp.ID))
		case idRedirect:
			c.work.completed(1)
			c.requester.redirected(idIndex(cp.ID))
		case idFetch:
			c.work.completed(1)
			c.requester.fetchRead(idIndex(cp.ID))
		case idWithdraw:
			c.work.completed(1)
			c.responder.withdrawn(idIndex(cp.ID))
		}
	}
	if err := c.receives.fill(); err != nil {
		c.fail(err)
	}
	c.negotiator.sendReports()
	c.requester.returnCredits()
	c.negotiator.announce()
	c.negotiator.grow()
	if c.gate != nil {
		c.gate.refresh(c.cfg.Pool)
	}
	return held
}

// Sent implements rdma.Handler.
func (c *Conn) Sent(ids []uint64) {
	for _, id := range ids {
		switch id & idKind {
		case idAnswer:
			c.responder.sent(idIndex(id))
		case idRequest:
			c.requester.sent(idIndex(id))
		case idDone:
			c.requester.doneSent(idIndex(id))
		case idControl:
			c.negotiator.sent()
		case idGrant:
			c.gate.sent(c.cfg.Pool)
		}
	}
}

// received sorts a message: a call for the responder, a reply for the requester, or neither.
func (c *Conn) received(cp *rdma.Completion) {
	c.responder.messages.Add(int64(cp.Bytes))
	ic := c.responder.newInbound()
	s := c.receives.queue.completed(cp.ID)
	if !c.receives.expected() {
		c.receives.overrun(s)
		ic.recycle()
		c.fail(errOverrun)
		return
	}
	ic.message = s.moveTo(ic.message[:0], cp.Bytes, &ic.Message, c.cfg.Pool)
	err := ic.hdr.Parse(ic.message, &c.headerLimits)
	ic.v2 = ic.hdr.Version == wire.Version2 && c.headerLimits.Version2
	if c.negotiator.otherDialect(&ic.inbound, cp.Bytes) {
		c.consume(&ic.inbound, s, false)
		c.negotiator.refuseDialect(ic)
		return
	}
	if c.gate != nil && ic.v2 {
		c.gate.arrived(&ic.hdr)
	}
	if err != nil {
		c.badHeader(ic, s, cp, err.(*wire.ParseError)) //nolint:errorlint // it is documented to be one
		return
	}
	ic.Stream = wire.Payload(ic.Stream[:0], ic.message, ic.hdr.Size)
	versionKnown := c.negotiated.Load().version != 0
	if !versionKnown {
		c.negotiator.fixVersion(&ic.hdr)
	}
	if c.grouped && c.groups.assemble(ic, s, cp) || c.gate != nil && ic.v2 && c.continued.part(ic, s, cp) {
		return
	}
	switch p := ic.hdr.Procedure; {
	case p == wire.Error:
		c.consume(&ic.inbound, s, false)
		if !c.negotiator.refusedControl(&ic.inbound) {
			c.requester.refused(&ic.inbound, cp)
		}
		ic.recycle()
	case ic.v2 && p != wire.Msg && p != wire.NoMsg:
		c.consume(&ic.inbound, s, false)
		if c.gate != nil {
			c.negotiator.wgConnProp(ic)
		} else if ic.hdr.Procedure != wire.Optional || !c.groups.extend(ic, cp) {
			c.negotiator.handleMessage(ic)
		}
	case p == wire.Done:
		c.consume(&ic.inbound, s, false)
		c.responder.done(ic)
	case c.isReply(ic):
		c.consume(&ic.inbound, s, false)
		if versionKnown || !c.negotiator.probed(&ic.inbound) {
			c.requester.reply(&ic.inbound, cp)
		}
		ic.recycle()
	default:
		c.consume(&ic.inbound, s, true)
		c.responder.call(ic)
	}
}

// isReply reports whether a message is a reply. In version 1 (RFC 8167 section 3) the RPC message
// type decides, if it is there. Otherwise the chunks do: only a call has a Position Zero Read
// chunk, and only a reply is in a Reply chunk alone.
func (c *Conn) isReply(ic *inCall) bool {
	if ic.v2 {
		return ic.hdr.Direction == wire.Reply
	}
	if ic.hdr.Procedure == wire.NoMsg && len(ic.hdr.Reads) > 0 && c.fetches() {
		return c.requester.expects(uint32(ic.hdr.XID))
	}
	if ic.hdr.Procedure == wire.NoMsg {
		return len(ic.hdr.Reads) == 0 && (!c.server || ic.hdr.HasReply && c.requester.expects(uint32(ic.hdr.XID)))
	}
	ic.dec.Reset(ic.Stream, nil)
	ic.dec.Uint32()
	t := ic.dec.Uint32()
	if ic.dec.Err() != nil || t > oncrpc.MsgReply {
		return !c.server // neither: an answer is due only to a client
	}
	return t == oncrpc.MsgReply
}

// badHeader handles a message whose header cannot be parsed. A possible reply to a call of ours
// completes that call. Other replies are dropped, and calls are answered (RFC 8166 section 4.5).
func (c *Conn) badHeader(ic *inCall, s *recvBuffer, cp *rdma.Completion, err *wire.ParseError) {
	short := err.Field == "length" && err.Code == 0 && err.Offset == 0
	answered := c.grouped && c.groups.skip(&ic.hdr)
	reply := ic.hdr.Direction == wire.Reply || (!ic.v2 || !noReply(&ic.hdr)) && c.requester.expects(uint32(ic.hdr.XID))
	answer := !answered && (c.server || ic.v2) && err.Code != 0 && !reply
	properties := ic.v2 && aboutProperties(&ic.hdr)
	c.consume(&ic.inbound, s, answer && !properties)
	switch {
	case short:
		ic.drop(ShortMessage, err.Error())
	case answer && err.Code == wire.ErrVers && ic.hdr.Version == wire.Version2 && ic.hdr.Procedure == wire.ConnProp:
		// A client that has both versions asks for the newer one. That is no error: it goes on with
		// the other version.
		ic.state = stateServing
		ic.sendError(wire.Fault2{Code: wire.ErrVers})
	case answer && err.Code == wire.ErrVers && c.gate != nil && c.gate.active.Load():
		ic.v2, ic.hdr.Dialect = true, wire.V2WorkingGroup
		ic.refuse(wire.VersionMismatch, BadVersion, "%v", err)
	case answer && err.Code == wire.ErrVers:
		ic.refuse(wire.ErrVers, BadVersion, "%v", err)
	case answer:
		ic.refuseWith(wire.Fault2{Code: err.Code2, Max: err.Max}, BadHeader, "%v", err)
	case answered || !c.requester.garbled(&ic.inbound, cp, err):
		ic.drop(BadHeader, err.Error())
	default:
		ic.recycle()
	}
}

// aboutProperties reports whether a message of version 2 is about properties, which costs no
// credit.
func aboutProperties(h *wire.Header) bool {
	switch h.Procedure {
	case wire.ConnProp, wire.ReqProp, wire.RespProp, wire.UpdProp, wire.PropMiddle:
		return true
	}
	return false
}

// noReply reports whether a message of version 2 with a bad header is no reply: its direction,
// ahead of the error, is that of a call, or it is about properties.
func noReply(h *wire.Header) bool {
	switch h.Procedure {
	case wire.Msg, wire.NoMsg, wire.Optional, wire.ConnProp, wire.ReqProp, wire.RespProp, wire.UpdProp:
		return h.Direction == wire.Call
	}
	return false
}
