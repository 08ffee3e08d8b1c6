package rpcrdma

import (
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/group"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// buildGroup lays a call out as a group; its reply may be one too. It returns false, and takes
// nothing, if the call or its reply does not fit the peer's limits, our receives, or the free
// credits. In the last case b.short is the number of credits that it needs.
func (b *callBuilder) buildGroup(o *outCall, t *negotiated, asked int) (bool, error) {
	out, r := o.out, o.req
	if b.group == nil {
		b.group = new(groupPlan)
	}
	g := b.group
	replies := b.direct(o, t)
	if replies == 0 || !b.arguments(out, r, t) || b.layGroup(r, t, replies) != nil {
		b.undirect()
		return false, nil //nolint:nilerr // it goes by chunks
	}
	head, err := out.buffer(b.head, g.planner.Memory())
	b.head = head
	n := g.planner.Transmissions()
	switch {
	case err != nil:
	case !out.takeCredits(n - o.credits):
		b.short = n
	default: // without receives, its further credits go back
		if o.credits = n; out.receives.reserve(replies) {
			o.reserved, b.grouped = replies, true
		}
	}
	if !b.grouped {
		b.undirect()
		return false, nil //nolint:nilerr // as above
	}
	if len(b.segs) > 0 {
		if err := b.exposeGroup(o, t, replies); err != nil {
			return false, err
		}
	}
	placed := 0
	for i := range g.bulk {
		x := &g.bulk[i]
		placed += x.Length
		if x.Placement == wire.Explicit {
			out.cfg.Observer.Transferred(ReadChunk, x.Length)
		} else {
			out.cfg.Observer.Transferred(PlacedCall, x.Length)
		}
	}
	out.cfg.Observer.Transferred(InlineCall, max(0, r.Call.Len()-placed))
	b.send.wrs = g.appendSends(b.send.wrs[:0], idRequest|uint64(o.id), b.head.B, wire.XID(o.xid), wire.Credits(asked))
	return true, nil
}

// layGroup makes the header and lays the group out, with the present segments of b.segs.
func (b *callBuilder) layGroup(r *oncrpc.Request, t *negotiated, replies int) error {
	g := b.group
	g.head.Reset()
	g.head.ReplyBuffers = uint32(replies)
	if err := group.Direct(&g.head, r.Plan.Results[:len(g.wants)], g.wants); err != nil {
		return err
	}
	return g.planner.Lay(t.layout, wire.XmtReq, &g.head, group.Limits{Transmissions: t.callLimit, Gather: b.maxGather})
}

// direct chooses the placement of results, takes memory for those that may be written, and returns
// how many transmissions the reply may have; 0 if that may be too few. b.segs gets segments of
// memory that is not exposed yet.
func (b *callBuilder) direct(o *outCall, t *negotiated) (replies int) {
	out, r, g := o.out, o.req, b.group
	p := &out.cfg.Placement
	b.segs, b.maxGather = b.segs[:0], out.maxGather
	g.wants = g.wants[:0]
	results, how := r.Plan.Results, out.wanted()
	exposed := how != wire.SendBased
	if !exposed && !out.cfg.has(SendBasedPlacement) || out.binding(r.Program, r.Version) == nil {
		results = nil
	}
	if replies = out.replyTransmissions(t, r.Plan.MaxReply, results); replies > t.replyLimit {
		return 0
	}
	for i := range results {
		if results[i].End <= results[i].Begin {
			return 0 // its origin is unknown
		}
		g.wants = append(g.wants, group.Want{Placement: how, MinLength: uint32(p.MinLength), Threshold: uint32(p.Threshold)})
		if !exposed {
			continue
		}
		if b.takeResult(o, i) != nil {
			return 0
		}
		b.addSegments(b.results[i].data)
	}
	return replies
}

// wanted is the placement of results. A server exposes nothing.
func (out *requester) wanted() wire.Placement {
	if out.server {
		return wire.SendBased
	}
	return out.cfg.Placement.Results
}

func (b *callBuilder) addSegments(data [][]byte) {
	for _, s := range data {
		b.segs = append(b.segs, wire.Segment{Length: uint32(len(s))})
	}
}

// arguments takes bulk data out of the payload stream: long arguments are exposed, shorter ones
// placed, if the peer has targets.
func (b *callBuilder) arguments(out *requester, r *oncrpc.Request, t *negotiated) bool {
	g, p := b.group, &out.cfg.Placement
	g.bulk = g.bulk[:0]
	for _, a := range r.Eligible {
		x := group.Bulk{Position: a.Position, Length: a.Length}
		switch {
		case a.Length == 0:
			continue
		case p.Threshold > 0 && a.Length >= p.Threshold && !out.server:
			x.Placement = wire.Explicit
		case t.place && a.Length >= p.MinLength:
			x.Placement = wire.SendBased
		default:
			continue
		}
		g.bulk = append(g.bulk, x)
	}
	if g.planner.Split(&r.Call, out.zero, g.bulk) != nil {
		return false
	}
	for i := range g.bulk {
		if g.bulk[i].Placement == wire.Explicit {
			b.addSegments(g.planner.Data(i))
		}
	}
	at := 0 // the slice is complete and does not move any more
	take := func(data [][]byte) []wire.Segment {
		at += len(data)
		return b.segs[at-len(data) : at]
	}
	for i := range b.writes {
		g.wants[i].Segments = take(b.results[i].data)
	}
	for i := range g.bulk {
		if g.bulk[i].Placement == wire.Explicit {
			g.planner.Expose(i, take(g.planner.Data(i)))
		}
	}
	return true
}

// exposeGroup exposes the memory of results and arguments, and lays the group out again with its
// handles.
func (b *callBuilder) exposeGroup(o *outCall, t *negotiated, replies int) (err error) {
	g, at := b.group, 0
	expose := func(data [][]byte, a rdma.Access, foreign bool) {
		for _, s := range data {
			if err == nil {
				b.segs[at], err = o.expose(s, a, foreign)
			}
			at++
		}
	}
	for i := range b.writes {
		expose(b.results[i].data, rdma.RemoteWrite, len(b.results[i].bufs) == 0)
	}
	for i := range g.bulk {
		if g.bulk[i].Placement == wire.Explicit {
			expose(g.planner.Data(i), rdma.RemoteRead, true)
		}
	}
	if err != nil {
		return err
	}
	return b.layGroup(o.req, t, replies)
}

// undirect undoes direct.
func (b *callBuilder) undirect() {
	for i := range b.writes {
		b.results[i].release()
	}
	b.writes, b.segs = 0, b.segs[:0]
}

// acceptGroup checks a reply by XMTRESP against its request.
func (b *callBuilder) acceptGroup(m *inbound) error {
	if b.group == nil || !b.grouped {
		return &ReplyError{"it is an XMTRESP, the call was no XMTREQ"}
	}
	if err := group.Check(&b.group.head, &m.hdr.Transmit); err != nil {
		return &ReplyError{err.Error()}
	}
	return nil
}

// fetchPlaced makes written results part of the reply. The peer has no access to their memory any
// more.
func (o *outCall) fetchPlaced(r *oncrpc.Request) {
	a, b := &o.reply, &o.build
	for i := range r.Reply.Items {
		it := &r.Reply.Items[i]
		if len(it.Data) > 0 {
			continue
		}
		p := &b.results[a.from[i]]
		b.data = split.Prefix(b.data[:0], p.data, it.Length)
		it.Data = r.Reply.Keep(b.data)
		p.handOver(&r.Reply)
		o.out.cfg.Observer.Transferred(WriteChunk, it.Length)
	}
}

// replyTransmissions bounds the transmissions of a reply of most bytes with directed results.
// Results that may be written go by Sends within the peer's limit.
func (out *requester) replyTransmissions(t *negotiated, most int, results []oncrpc.Result) int {
	how := out.wanted()
	switch n := out.boundReply(t, most, results, how); {
	case how != wire.Choice:
		return n
	case n <= t.replyLimit && out.cfg.has(SendBasedPlacement):
		return n
	}
	return out.boundReply(t, most, results, wire.Explicit)
}

// boundReply bounds the transmissions of a reply whose results are all placed in one way, in
// targets if they are long enough.
func (out *requester) boundReply(t *negotiated, most int, results []oncrpc.Result, how wire.Placement) int {
	p := &out.cfg.Placement
	plain, target, whole := t.receive, 0, t.receive
	if out.cfg.has(SendBasedPlacement) {
		target = p.ReceiveBuffer
		whole += target
	}
	rest, header, targets, inline := most, wire.OptionSize+12, 0, 0
	for i := range results {
		n := results[i].Max
		rest -= xdr.Round(n)
		header += 12
		short := min(n, p.MinLength)
		if how != wire.SendBased { // it may be written
			header += 4 + wire.SegmentSize*max(segmentCount(results[i].Memory, n), 1)
			switch how {
			case wire.Explicit:
				n = 0
			case wire.BySize:
				n = min(n, p.Threshold)
			}
		}
		switch {
		case n == 0:
		case target == 0:
			short = max(short, n)
		default:
			k := (n + target - 1) / target
			targets += k
			header += 8 + 4*k
		}
		inline += xdr.Round(short)
	}
	// All of them in the stream.
	count := countTransmissions(rest+inline, whole-header, whole-group.ContinueSize)
	if targets == 0 {
		return count
	}
	// All, or some, in targets. One alone is either in the stream or not.
	if len(results) > 1 {
		rest += inline
	}
	room := plain - header + (targets-1)*(plain-group.ContinueSize)
	return max(count, targets+countTransmissions(max(0, rest-room), 0, whole-group.ContinueSize)-1)
}

// countTransmissions is the number of transmissions for n bytes: the first takes first bytes, each
// other one more.
func countTransmissions(n, first, more int) int {
	if n -= first; n <= 0 {
		return 1
	}
	return 1 + (n+more-1)/more
}

// takeCredits takes n more credits, if they are free. A negative n gives credits back.
func (out *requester) takeCredits(n int) bool {
	out.mu.Lock()
	defer out.mu.Unlock()
	if n > 0 && (group.Window{Granted: min(out.granted, out.asked()), InFlight: out.inFlight}).Way(n, false) != group.Now {
		return false
	}
	out.inFlight += n
	return true
}

// replyBuffers is how many transmissions the reply to a call may have.
func (out *requester) replyBuffers(xid uint32) int {
	out.mu.Lock()
	defer out.mu.Unlock()
	if o := out.findLocked(xid); o != nil && o.posted {
		return max(1, o.reserved)
	}
	return 1
}
