package rpcrdma

import (
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/group"
	"sluice.dev/sluice/pkg/rpcrdma/wire"

	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// groupPlan is what it takes to send a message as a group.
type groupPlan struct {
	planner group.Planner
	head    wire.Transmit
	bulk    []group.Bulk
	wants   []group.Want
}

// post adds the Sends of the group to wrs, of which the last one is signaled.
func (g *groupPlan) post(wrs []rdma.WorkRequest, id uint64, mem []byte, xid wire.XID, credits wire.Credits) []rdma.WorkRequest {
	for _, x := range g.planner.Write(mem, xid, credits) {
		wrs = append(wrs, rdma.WorkRequest{Op: rdma.Send, Local: x.Gather})
	}
	last := &wrs[len(wrs)-1]
	last.ID, last.Signaled = id, true
	return wrs
}

// replyRoom is how many transmissions the reply to a request by XMTREQ may have.
func (ic *inCall) replyRoom(t *terms) int {
	return max(1, min(int(min(ic.hdr.Transmit.ReplyBuffers, credit.Max)), t.sendReplies))
}

// groupCapacity bounds the reply to a request by XMTREQ by what the requester has room for.
func (ic *inCall) groupCapacity() int {
	t, x := ic.c.terms.Load(), &ic.hdr.Transmit
	n := ic.replyRoom(t) * (t.layout.Size - group.ContinueSize)
	for i := range x.Sets {
		results := x.Results(&x.Sets[i])
		for k := range results {
			n += int(min(wire.Length(x.ResultSegments(&results[k])), uint64(ic.c.cfg.MaxBulk)))
		}
	}
	return n
}

// maxAdded bounds how much more memory than the reply has bytes it may take to send it with send-based placement: for headers, and for zeros in front of the
// peer's targets where the provider cannot gather them. It is not of the budget.
const maxAdded = 64 << 10

// placeGroup lays the reply out as a group, with bulk data where the request wants them. RDMA Writes are in ic.work.
func (ic *inCall) placeGroup() *roomError {
	c, t := ic.c, ic.c.terms.Load()
	if ic.group == nil {
		ic.group = new(groupPlan)
	}
	g, asked := ic.group, &ic.hdr.Transmit
	ic.found = ic.found[:0]
	if len(asked.Sets) > 0 {
		ic.findResults(len(ic.Plan.Results))
	}
	prefer := wire.Explicit
	if t.place {
		prefer = wire.SendBased
	}
	var err error
	g.bulk, err = group.Answer(g.bulk[:0], asked, ic.Plan.Results, ic.found, prefer)
	if err != nil {
		var short *group.RoomError
		if errors.As(err, &short) {
			return noRoom(wire.WriteResource, short.Index+1, short.Needed, "%v", err)
		}
		return noRoom(wire.System, 0, 0, "%v", err)
	}
	lim := group.Limits{Transmissions: ic.replyRoom(t), Gather: c.maxGather}
	for send := t.place; ; send = false {
		g.head.Reset()
		if !send {
			g.unplace()
		}
		if err := g.planner.Split(&ic.Reply, c.zero, g.bulk); err != nil {
			return noRoom(wire.System, 0, 0, "%v", err)
		}
		err := g.planner.Lay(t.layout, wire.XmtResp, &g.head, lim)
		if err == nil && (!send || g.planner.Memory() <= ic.Reply.Len()+maxAdded) {
			break
		}
		if !send {
			return noRoom(wire.ReplyResource, 0, ic.Reply.Len(), "%v", err)
		}
	}
	ic.work.wrs, ic.lists = ic.work.wrs[:0], ic.lists[:0]
	for i := range g.bulk {
		if b := &g.bulk[i]; b.Placement == wire.Explicit {
			ic.write(b.Segments, g.planner.Data(i))
		}
	}
	return nil
}

// unplace does without send-based placement: with the memory that the request offers where it does, otherwise inline.
func (g *groupPlan) unplace() {
	for i := range g.bulk {
		b := &g.bulk[i]
		switch {
		case b.Placement != wire.SendBased:
		case len(b.Segments) > 0 && uint64(b.Length) <= wire.Length(b.Segments):
			b.Placement = wire.Explicit
		default:
			b.Placement = wire.TooShort
		}
	}
}

// sendGroup posts the reply that placeGroup has laid out.
func (ic *inCall) sendGroup() {
	c, g := ic.c, ic.group
	credits, err := ic.credits()
	if err == nil {
		ic.head, err = c.buffer(ic.head, g.planner.Memory())
	}
	if err != nil {
		ic.giveUp(err)
		return
	}
	placed := 0
	for i := range g.bulk {
		switch b := &g.bulk[i]; b.Placement {
		case wire.SendBased:
			placed += b.Length
			c.cfg.Observer.Transferred(PlacedReply, b.Length)
		case wire.Explicit:
			placed += b.Length
			c.cfg.Observer.Transferred(WriteChunk, b.Length)
		}
	}
	c.cfg.Observer.Transferred(InlineReply, max(0, ic.Reply.Len()-placed))
	if len(ic.work.wrs) > 0 {
		c.in.recent.note(ic.hdr.XID, ic.work.wrs)
	}
	ic.work.wrs = g.post(ic.work.wrs, idAnswer|uint64(ic.id), ic.head.B, ic.hdr.XID, credits)
	if handle, ok := ic.groupHandle(); ok && c.invalidatesGroups(c.terms.Load()) {
		last := &ic.work.wrs[len(ic.work.wrs)-1]
		last.Op, last.Invalidate = rdma.SendWithInvalidate, uint32(handle)
	}
	c.in.kept.note(ic)
	ic.post()
	c.out.start()
}

// groupHandle returns the one handle that all segments of a request by XMTREQ have, if they have one.
func (ic *inCall) groupHandle() (handle wire.Handle, ok bool) {
	t := &ic.hdr.Transmit
	same := func(segs []wire.Segment) bool {
		for i := range segs {
			if ok && segs[i].Handle != handle {
				return false
			}
			handle, ok = segs[i].Handle, true
		}
		return true
	}
	for i := range t.Items {
		if !same(t.Segments(&t.Items[i])) {
			return 0, false
		}
	}
	for i := range t.Sets {
		results := t.Results(&t.Sets[i])
		for k := range results {
			if !same(t.ResultSegments(&results[k])) {
				return 0, false
			}
		}
	}
	return handle, ok
}

// groupRoom is room of a request by XMTREQ.
func (ic *inCall) groupRoom() (n int64) {
	for i := range ic.Plan.Results {
		n += int64(ic.Plan.Results[i].Max)
	}
	return min(n, int64(ic.Plan.MaxReply))
}

// concerns reports whether a report is about the transmissions of o. Who sends it as chunks does not, nor who is told of a stray continuation: if
// its group had been given up, a report of that would have come before. The requester is locked.
func (e *ReportError) concerns(o *outCall) bool { return o.build.grouped && !e.stray }

// reported handles a report about one of our requests, or of our replies: it goes again by base means.
func (c *Conn) reported(ic *inCall, cp *rdma.Completion) {
	r := &ic.hdr.Transmit.Report
	err := &ReportError{Code: r.Code, stray: r.Code == wire.BadContinuation && !r.HasLead}
	if ic.hdr.Direction == wire.Reply {
		if !c.out.match(ic, cp, err) {
			c.drop(ic, Dropped, fmt.Sprintf("%v about XID %#x", err, uint32(ic.hdr.XID)))
		}
		return
	}
	c.fault(ErrorReceived, "%v about the reply to call %#x", err, uint32(ic.hdr.XID))
	if k := c.in.kept.reported(uint32(ic.hdr.XID)); k != nil {
		ic.answerFrom(k)
		return
	}
	ic.refuse(wire.System, Dropped, "its reply was reported, and is no longer there: it was reported before, or later ones took its memory")
}

// ReportError is the error of a request whose transmissions the peer could not put together.
type ReportError struct {
	Code  wire.ReportCode
	stray bool // it is about a continuation outside of all groups
}

func (e *ReportError) Error() string { return fmt.Sprintf("rpcrdma: the peer reports %v", e.Code) }
