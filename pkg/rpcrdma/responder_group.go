package rpcrdma

import (
	"errors"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/group"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// replyRoom is how many transmissions the reply to a request by XMTREQ may have.
func (ic *inCall) replyRoom(t *negotiated) int {
	return max(1, min(int(min(ic.hdr.Transmit.ReplyBuffers, credit.Max)), t.sendReplies))
}

// groupCapacity is the longest reply that a request by XMTREQ has room for.
func (ic *inCall) groupCapacity() int {
	t, x := ic.in.negotiated.Load(), &ic.hdr.Transmit
	n := ic.replyRoom(t) * (t.layout.Size - group.ContinueSize)
	for i := range x.Sets {
		results := x.Results(&x.Sets[i])
		for k := range results {
			n += int(min(wire.Length(x.ResultSegments(&results[k])), uint64(ic.in.cfg.MaxBulk)))
		}
	}
	return n
}

// maxAdded bounds the memory beyond the reply's bytes that send-based placement may take: for
// headers, and for zeros in front of targets where the provider cannot gather them. The budget does
// not count it.
const maxAdded = 64 << 10

// placeGroup lays the reply out as a group, with bulk data as the request wants. RDMA Writes are in
// ic.work.
func (ic *inCall) placeGroup() *roomError {
	in, t := ic.in, ic.in.negotiated.Load()
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
	lim := group.Limits{Transmissions: ic.replyRoom(t), Gather: in.maxGather}
	for send := t.place; ; send = false {
		g.head.Reset()
		if !send {
			g.unplace()
		}
		if err := g.planner.Split(&ic.Reply, in.zero, g.bulk); err != nil {
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

func (ic *inCall) sendGroup() {
	in, g := ic.in, ic.group
	credits, err := ic.grantCredits(ic.held)
	if err == nil {
		ic.head, err = in.buffer(ic.head, g.planner.Memory())
	}
	if err != nil {
		ic.failUnanswered(err)
		return
	}
	placed := 0
	for i := range g.bulk {
		switch b := &g.bulk[i]; b.Placement {
		case wire.SendBased:
			placed += b.Length
			in.cfg.Observer.Transferred(PlacedReply, b.Length)
		case wire.Explicit:
			placed += b.Length
			in.cfg.Observer.Transferred(WriteChunk, b.Length)
		}
	}
	in.cfg.Observer.Transferred(InlineReply, max(0, ic.Reply.Len()-placed))
	if len(ic.work.wrs) > 0 {
		in.recent.record(ic.hdr.XID, ic.work.wrs)
	}
	ic.work.wrs = g.appendSends(ic.work.wrs, idAnswer|uint64(ic.id), ic.head.B, ic.hdr.XID, credits)
	if handle, ok := ic.groupHandle(); ok && in.invalidatesGroups(in.negotiated.Load()) {
		last := &ic.work.wrs[len(ic.work.wrs)-1]
		last.Op, last.Invalidate = rdma.SendWithInvalidate, uint32(handle)
	}
	in.retained.retainForReport(ic)
	ic.postAnswer()
	in.openCalls()
}

// groupHandle returns the one handle that all segments of a request by XMTREQ have, if they have
// one.
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

// collectItems makes chunks of the items that are fetched by RDMA Read. It returns an error code
// and the reason.
func (ic *inCall) collectItems() (wire.ErrorCode, string) {
	t := &ic.hdr.Transmit
	total := 0
	for i, k := range ic.origins {
		it := &t.Items[k]
		if it.Placement != wire.Explicit {
			ic.in.cfg.Observer.Transferred(PlacedCall, int(it.Length))
			continue
		}
		if int64(it.Length) > int64(ic.in.cfg.MaxBulk-total) {
			return wire.System, "the items have more bytes together than a call may have"
		}
		total += int(it.Length)
		ic.chunks = append(ic.chunks, argChunk{position: int(it.Position), length: int(it.Length), item: i, source: it})
	}
	if split.Length(ic.Stream) < oncrpc.MinCallLen {
		return wire.BadXDR, "the payload stream is shorter than an RPC call header"
	}
	return 0, ""
}
