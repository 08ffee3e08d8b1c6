package rpcrdma

import (
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// continuation puts RPC messages of several Sends together, in the working group's dialect of
// version 2. Only the last part has chunks. The receives of the others are posted again at once:
// one message at a time can be open. recvMu is held for all of it.
type continuation struct {
	*link
	in  *responder
	out *requester

	open      *inCall // the parts so far; nil if there is none
	remaining int     // bytes that follow
	bufs      []*bufpool.Buf
	// skip: parts of the message with this XID and direction are dropped, until its last one.
	skip      bool
	xid       wire.XID
	direction wire.Direction
}

// part takes a message of the dialect. It returns false if the message goes its normal way.
func (c *continuation) part(ic *inCall, s *recvBuffer, cp *rdma.Completion) bool {
	h := &ic.hdr
	switch {
	case h.Procedure == wire.Grant:
		c.consume(&ic.inbound, s, false)
		ic.recycle()
		return true
	case c.open == nil && h.Procedure != wire.Middle && !c.skip:
		return false
	}
	same := h.Procedure == wire.Middle || h.Procedure == wire.Msg
	if c.skip {
		if same = same && h.XID == c.xid && h.Direction == c.direction; same {
			c.skip = h.Procedure == wire.Middle
			c.consume(&ic.inbound, s, false)
			ic.recycle()
			return true
		}
		c.skip = false
		return c.part(ic, s, cp)
	}
	n := split.Length(ic.Stream)
	if lead := c.open; lead != nil {
		same = same && h.XID == lead.hdr.XID && h.Direction == lead.hdr.Direction
		if !same { // the open one is given up, and this one too
			c.open = nil
			c.refuse(lead, new(rdma.Completion), "its transmissions are interrupted")
			return c.bad(ic, s, cp, "it interrupts a message of several transmissions")
		}
		if n > c.remaining || h.Procedure == wire.Middle && int(h.Remaining) != c.remaining-n || h.Procedure == wire.Msg && n != c.remaining {
			c.open = nil
			lead.recycle()
			return c.bad(ic, s, cp, "its bytes are not those that remain")
		}
	} else if most := c.most(h.Direction); n == 0 || uint64(n)+uint64(h.Remaining) > uint64(most) || h.Remaining == 0 {
		return c.bad(ic, s, cp, "a message of several transmissions is empty, or longer than it may be")
	}
	if h.Procedure == wire.Middle {
		c.consume(&ic.inbound, s, false)
		c.remaining = int(h.Remaining)
		if c.open == nil {
			c.open = ic
			return true
		}
		c.join(c.open, ic, false)
		ic.recycle()
		return true
	}
	lead := c.open
	c.open = nil
	c.join(ic, lead, true)
	lead.recycle()
	return false
}

// most bounds the bytes of a message of several Sends.
func (c *continuation) most(d wire.Direction) int {
	if d == wire.Call {
		return c.cfg.Continuation.MaxCallTransmissions * c.receiveSize()
	}
	return maxTransmissions * c.receiveSize()
}

// join moves the stream and the buffers of other to ic, in front of its stream or behind it.
func (c *continuation) join(ic, other *inCall, front bool) {
	if front {
		other.Stream = append(other.Stream, ic.Stream...)
		ic.Stream, other.Stream = other.Stream, ic.Stream
	} else {
		ic.Stream = append(ic.Stream, other.Stream...)
	}
	other.Stream = other.Stream[:0]
	c.bufs = other.Disown(c.bufs[:0])
	for _, b := range c.bufs {
		ic.Own(b)
	}
	clear(c.bufs)
}

// bad refuses a message, and the parts that still come of it.
func (c *continuation) bad(ic *inCall, s *recvBuffer, cp *rdma.Completion, reason string) bool {
	h := &ic.hdr
	if h.Procedure == wire.Middle {
		c.skip, c.xid, c.direction = true, h.XID, h.Direction
	}
	c.consume(&ic.inbound, s, false)
	c.refuse(ic, cp, reason)
	return true
}

// refuse answers a call, or ends the call that a reply answers.
func (c *continuation) refuse(ic *inCall, cp *rdma.Completion, reason string) {
	switch {
	case ic.hdr.Procedure == wire.Error:
		if !c.out.match(&ic.inbound, cp, remoteError(&ic.hdr)) {
			c.protocolError(Dropped, "message dropped: RDMA2_ERROR for XID %#x", uint32(ic.hdr.XID))
		}
		ic.recycle()
	case ic.hdr.Direction == wire.Call:
		ic.refuse(wire.InvalidContinuation, BadHeader, "%s", reason)
	case c.out.garbled(&ic.inbound, cp, &ReplyError{reason}):
		ic.recycle()
	default:
		ic.drop(BadReply, reason)
	}
}

// close frees the parts of an open message. The endpoint has let go of everything.
func (c *continuation) close() {
	if c.open != nil {
		c.open.recycle()
		c.open = nil
	}
}
