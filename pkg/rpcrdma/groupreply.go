package rpcrdma

import (
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/group"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
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
	return max(1, min(int(min(ic.hdr.Transmit.ReplyBuffers, maxCredits)), t.replyLimit))
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

// placeGroup lays the reply out as a group, with bulk data where the request wants them. RDMA Writes are in ic.work.
func (ic *inCall) placeGroup() *roomError {
	c, t := ic.c, ic.c.terms.Load()
	if ic.group == nil {
		ic.group = new(groupPlan)
	}
	g, asked := ic.group, &ic.hdr.Transmit
	g.head.Reset()
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
		if !send {
			g.unplace()
		}
		if err := g.planner.Split(&ic.Reply, c.zero, g.bulk); err != nil {
			return noRoom(wire.System, 0, 0, "%v", err)
		}
		err := g.planner.Lay(t.layout, wire.XmtResp, &g.head, lim)
		if err == nil {
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
			c.cfg.Observer.Moved(PlacedReply, b.Length)
		case wire.Explicit:
			placed += b.Length
			c.cfg.Observer.Moved(WriteChunk, b.Length)
		}
	}
	c.cfg.Observer.Moved(InlineReply, max(0, ic.Reply.Len()-placed))
	if len(ic.work.wrs) > 0 {
		c.in.recent.note(ic.hdr.XID, ic.work.wrs)
	}
	ic.work.wrs = g.post(ic.work.wrs, idAnswer|uint64(ic.id), ic.head.B, ic.hdr.XID, credits)
	c.in.kept.note(ic)
	ic.post()
	c.out.start()
}

// needGroup is how much bulk memory a request by XMTREQ takes for its reply.
func (ic *inCall) needGroup() (n int64) {
	for i := range ic.Plan.Results {
		n += int64(ic.Plan.Results[i].Max)
	}
	return min(n, int64(ic.Plan.MaxReply))
}

// accept holds a reply by XMTRESP against its request.
func (b *builder) acceptGroup(ic *inCall) error {
	if b.group == nil || !b.grouped {
		return &ReplyError{"it is an XMTRESP, the call was no XMTREQ"}
	}
	if err := group.Check(&b.group.head, &ic.hdr.Transmit); err != nil {
		return &ReplyError{err.Error()}
	}
	return nil
}

// buildGroup lays a call out as a group, of which the reply may be one too. It returns false if it is not to be one, and takes nothing
// then: the call, or what its reply may be, does not fit the peer's limits, the credits that are free, or our receives.
func (b *builder) buildGroup(o *outCall, t *terms, asked int) bool {
	c, r, out := o.c, o.req, &o.c.out
	if b.group == nil {
		b.group = new(groupPlan)
	}
	g := b.group
	g.head.Reset()
	replies, ok := b.direct(c, r, t)
	if !ok {
		return false
	}
	g.head.ReplyBuffers = uint32(replies)
	g.bulk = g.bulk[:0]
	if t.place {
		g.bulk = group.Arguments(g.bulk, r.Eligible, c.cfg.Placement.MinLength)
	}
	if g.planner.Split(&r.Call, c.zero, g.bulk) != nil ||
		g.planner.Lay(t.layout, wire.XmtReq, &g.head, group.Limits{Transmissions: t.callLimit, Gather: c.maxGather}) != nil {
		return false
	}
	head, err := c.buffer(b.head, g.planner.Memory())
	b.head = head
	n := g.planner.Transmissions()
	if err != nil || !out.take(n-1) {
		return false
	}
	if !c.receives.reserve(replies) {
		out.take(1 - n)
		return false
	}
	o.credits, o.reserved, b.grouped = n, replies, true
	placed := 0
	for i := range g.bulk {
		placed += g.bulk[i].Length
		c.cfg.Observer.Moved(PlacedCall, g.bulk[i].Length)
	}
	c.cfg.Observer.Moved(InlineCall, max(0, r.Call.Len()-placed))
	b.send.wrs = g.post(b.send.wrs[:0], idRequest|uint64(o.id), head.B, wire.XID(o.xid), wire.Credits(asked))
	return true
}

// direct says in the header where results are to be placed, and returns how many transmissions the reply may have. It is not ok if
// that may be too few.
func (b *builder) direct(c *Conn, r *oncrpc.Request, t *terms) (replies int, ok bool) {
	g := b.group
	results := r.Plan.Results
	if c.cfg.Extensions&SendBasedPlacement == 0 || c.binding(r.Program, r.Version) == nil {
		results = nil
	}
	if replies = c.replyTransmissions(r.Plan.MaxReply, results); replies > t.replyLimit {
		return 0, false
	}
	g.wants = g.wants[:0]
	for i := range results {
		if results[i].End <= results[i].Begin {
			return 0, false // it is not known where it comes from
		}
		g.wants = append(g.wants, group.Want{Placement: wire.SendBased, MinLength: uint32(c.cfg.Placement.MinLength)})
	}
	return replies, group.Direct(&g.head, results, g.wants) == nil
}

// replyTransmissions bounds the transmissions of a reply of most bytes, of which these results are placed in targets if they are not too
// short for that.
func (c *Conn) replyTransmissions(most int, results []oncrpc.Result) int {
	plain, target := c.receiveSize(), c.cfg.Placement.ReceiveBuffer
	whole := plain
	if c.cfg.Extensions&SendBasedPlacement != 0 {
		whole += target
	}
	rest, header, targets, inline := most, wire.OptionSize+12, 0, 0
	for i := range results {
		n := results[i].Max
		rest -= round(n)
		k := (n + target - 1) / target
		targets += k
		header += 20 + 4*k
		inline += round(min(n, c.cfg.Placement.MinLength))
	}
	// All of them in the stream.
	count := transmissions(rest+inline, whole-header, whole-group.ContinueSize)
	if targets == 0 {
		return count
	}
	// All, or some, in targets. One alone is either in the stream or not.
	if len(results) > 1 {
		rest += inline
	}
	room := plain - header + (targets-1)*(plain-group.ContinueSize)
	return max(count, targets+transmissions(max(0, rest-room), 0, whole-group.ContinueSize)-1)
}

// transmissions is how many it takes for n bytes if the first one has room for first, and each other for more.
func transmissions(n, first, more int) int {
	if n -= first; n <= 0 {
		return 1
	}
	return 1 + (n+more-1)/more
}

func round(n int) int { return (n + 3) &^ 3 }

// take takes n more credits, if they are free. With a negative n it gives them back.
func (out *requester) take(n int) bool {
	out.mu.Lock()
	defer out.mu.Unlock()
	if n > 0 && out.inFlight+n > min(out.granted, out.asked()) {
		return false
	}
	out.inFlight += n
	return true
}

// replyBuffers is how many transmissions the reply to a call may have.
func (out *requester) replyBuffers(xid uint32) int {
	out.mu.Lock()
	defer out.mu.Unlock()
	if o := out.find(xid); o != nil && o.posted {
		return max(1, o.reserved)
	}
	return 1
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
	if k := c.in.kept.take(&c.in.kept.sent, uint32(ic.hdr.XID)); k != nil {
		ic.answerFrom(k)
		return
	}
	ic.refuse(wire.System, Dropped, "its reply was reported, and is no longer there")
}

// ReportError is the error of a request whose transmissions the peer could not put together.
type ReportError struct {
	Code  wire.ReportCode
	stray bool // it is about a continuation outside of all groups
}

func (e *ReportError) Error() string { return fmt.Sprintf("rpcrdma: the peer reports %v", e.Code) }
