package rpcrdma

import (
	"fmt"
	"math/bits"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

func (a *receivedReply) release() {
	a.message.Release()
	a.long, a.placed = 0, a.placed[:0]
}

func (out *requester) reply(m *inbound, cp *rdma.Completion) {
	if !out.match(m, cp, nil) {
		out.protocolError(UnknownXID, "message dropped: XID %#x is not that of an outstanding call", uint32(m.hdr.XID))
	}
}

func (out *requester) refused(m *inbound, cp *rdma.Completion) {
	h := &m.hdr
	if !out.match(m, cp, remoteError(h)) {
		out.protocolError(Dropped, "message dropped: RDMA_ERROR for XID %#x, which is not that of an outstanding call", uint32(h.XID))
	}
}

// garbled ends the call that a message with a bad header may reply to. No other reply will come.
func (out *requester) garbled(m *inbound, cp *rdma.Completion, err error) bool {
	return out.match(m, cp, &ReplyError{err.Error()})
}

// match finds the call that m replies to, and takes over its payload.
func (out *requester) match(m *inbound, cp *rdma.Completion, err error) bool {
	h := &m.hdr
	out.mu.Lock()
	o := out.findLocked(uint32(h.XID))
	if cp.HasInvalidated && (o == nil || !o.posted || !o.owns(cp.Invalidated)) {
		out.lostLocked(cp.Invalidated)
	}
	report, _ := err.(*ReportError) //nolint:errorlint // it is not wrapped
	if o == nil || !o.posted || report != nil && !report.concerns(o) {
		out.mu.Unlock()
		return false
	}
	o.unread = false
	out.offered = int(min(h.Credits, credit.Max))
	out.granted = min(out.granted, max(1, out.offered))
	out.unreserved += o.reserved
	o.reserved = 0
	if out.server {
		out.ended++
	}
	if o.req != nil && o.err == nil && o.retryLocked(err) {
		o.again, o.posted = true, false
		out.retrying++
		out.freed += o.credits - 1
		o.credits = 1
	} else {
		out.removeFromBucketLocked(o)
		out.freed += o.credits
		if o.req != nil && o.err == nil { // otherwise it was cancelled
			if err == nil {
				err = o.acceptReply(m)
			}
			o.err = err
		}
	}
	fetch := out.rfc5666 != nil && o.fetchLocked(m)
	next := o.invalidateLocked(cp.Invalidated, cp.HasInvalidated)
	out.mu.Unlock()
	o.do(next)
	if fetch {
		o.beginFetch()
	}
	switch err.(type) { //nolint:errorlint // they are not wrapped
	case nil:
	case *RemoteError, *ReportError:
		out.protocolError(ErrorReceived, "%v", err)
	default:
		out.protocolError(BadReply, "%v", err)
	}
	return true
}

func (o *outCall) owns(handle uint32) bool {
	for _, g := range o.regions {
		if g.handle == handle {
			return true
		}
	}
	return false
}

// lostLocked marks memory of another call that the peer has invalidated: a handle in use again
// while a late reply to a cancelled call was under way. That call's RDMA will fail, if it is not
// done yet. Its memory must not be invalidated twice.
func (out *requester) lostLocked(handle uint32) {
	for _, o := range out.calls {
		if !o.live || !o.posted || !o.unread {
			continue
		}
		for i := range o.regions {
			if o.regions[i].handle == handle {
				o.regions[i].gone = true
			}
		}
	}
}

// lostHandle is lostLocked for a message that may be part of a reply.
func (out *requester) lostHandle(handle uint32) {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.lostLocked(handle)
}

// acceptReply checks a reply's header against the call, and takes over its payload. It does not
// touch memory of chunks: the peer can still write it. Responders mark unused Write chunks, after a
// READ that failed, in several ways: with all lengths zero (RFC 8166 section 4.3.2.1), with an
// empty chunk (RFC 8267 section 6.4.1), without a Write list, or with the chunk as it was offered;
// see unused.
func (o *outCall) acceptReply(m *inbound) error {
	h, b, a := &m.hdr, &o.build, &o.reply
	if m.xmt {
		if err := b.acceptGroup(m); err != nil {
			return err
		}
		a.from = append(a.from[:0], m.origins...)
		a.message, *m.payload = *m.payload, a.message
		return nil
	}
	writes := b.writes
	if b.grouped {
		writes = 0
	}
	switch {
	case len(h.Reads) > 0 && !o.out.fetches():
		return &ReplyError{"it has a Read list"}
	case h.Writes() != writes && h.Writes() > 0:
		return &ReplyError{fmt.Sprintf("its Write list has %d chunks, the call's %d", h.Writes(), writes)}
	case h.HasReply && !b.hasLong:
		return &ReplyError{"it has a Reply chunk, the call none"}
	}
	for k := range writes {
		n := 0
		if h.Writes() > 0 {
			var err error
			if n, err = checkReturned(h.Write(k), b.segs, &b.results[k], h.Dialect == wire.V1); err != nil {
				return err
			}
		}
		a.placed = append(a.placed, n)
	}
	if h.HasReply {
		n, err := checkReturned(h.Reply(), b.segs, &b.replyChunk, false)
		if err != nil {
			return err
		}
		a.long = n
	}
	switch {
	case len(h.Reads) > 0:
		if err := o.fetch(m); err != nil {
			return err
		}
	case h.Procedure == wire.NoMsg && a.long == 0:
		return &ReplyError{"RDMA_NOMSG with nothing in the Reply chunk"}
	case h.Procedure != wire.NoMsg && a.long > 0:
		return &ReplyError{fmt.Sprintf("RDMA_MSG with %d bytes in the Reply chunk", a.long)}
	}
	if h.Procedure == wire.MsgP {
		if err := o.stripReply(m.payload, paddingOf(h), split.Length(m.message)); err != nil {
			return err
		}
	}
	a.message, *m.payload = *m.payload, a.message
	return nil
}

// checkReturned checks a returned chunk, and returns the number of bytes in it. They fill its
// segments in order (RFC 8166 section 3.4.6). rounds: the number may include the round-up of the
// data, even where there is no room for it (RFC 5666 section 3.7).
func checkReturned(segs, offered []wire.Segment, p *resultBuf, rounds bool) (n int, err error) {
	if len(segs) == 0 {
		return 0, nil
	}
	if len(segs) != len(p.data) {
		return 0, &ReplyError{fmt.Sprintf("a chunk has %d segments, the call's %d", len(segs), len(p.data))}
	}
	full := true
	for i, s := range segs {
		o := offered[p.at+i]
		switch {
		case s.Handle != o.Handle || s.Offset != o.Offset:
			return 0, &ReplyError{fmt.Sprintf("segment %d of a chunk is another one than the call's", i)}
		case s.Length > o.Length && (!rounds || o.Length == 0 || int(s.Length-o.Length) != xdr.Pad(n+int(o.Length))):
			return 0, &ReplyError{fmt.Sprintf("segment %d of a chunk has %d bytes, the call's %d", i, s.Length, o.Length)}
		case s.Length > 0 && !full:
			return 0, &ReplyError{fmt.Sprintf("segment %d of a chunk has data, the one before is not full", i)}
		}
		full = s.Length == o.Length
		n += int(s.Length)
	}
	return n, nil
}

// assemble puts the reply into r. The peer has no access to its memory any more.
func (o *outCall) assemble(r *oncrpc.Request) error {
	a, b := &o.reply, &o.build
	if o.fetched != nil {
		if err := o.fetched.join(&a.message); err != nil {
			return err
		}
	}
	r.Reply.Release()
	r.Reply, a.message = a.message, r.Reply
	obs := o.out.cfg.Observer
	if a.long > 0 {
		r.Reply.Stream = split.Prefix(r.Reply.Stream[:0], b.replyChunk.data, a.long)
		b.replyChunk.handOver(&r.Reply)
		obs.Transferred(ReplyChunk, a.long)
	} else {
		obs.Transferred(InlineReply, split.Length(r.Reply.Stream))
	}
	o.fetchPlaced(r)
	a.dec.Reset(r.Reply.Stream, r.Reply.Items)
	if err := a.header.Decode(&a.dec); err != nil {
		return &ReplyError{err.Error()}
	}
	if a.header.XID != o.xid {
		return &ReplyError{fmt.Sprintf("XID is %#x in the header, %#x in the reply", o.xid, a.header.XID)}
	}
	if o.xid != r.XID {
		r.Reply.SetXID(r.XID)
	}
	for i := range r.Plan.Results {
		r.Plan.Results[i].State = oncrpc.Absent
	}
	if !a.header.Status.OK() || len(r.Plan.Results) == 0 {
		return nil
	}
	bind := o.out.binding(r.Program, r.Version)
	if bind == nil {
		return nil
	}
	return o.locate(r, bind)
}

// locate finds the positions of the results in the reply, and makes items of the placed ones.
func (o *outCall) locate(r *oncrpc.Request, bind oncrpc.Binding) error {
	a, b := &o.reply, &o.build
	if b.writes == 0 || b.grouped {
		if err := a.results(r, bind, nil); err != nil {
			return nil //nolint:nilerr // nothing depends on it: the reply is whole
		}
		for k := range a.found {
			r.Plan.Results[k].State = a.found[k].State
		}
		return nil
	}
	a.slots, a.from = append(a.slots[:0], a.placed...), a.from[:0]
	for k := range b.writes {
		a.from = append(a.from, k)
	}
	err := a.results(r, bind, a.slots)
	if err != nil && !a.slide(r, bind) && !a.unused(r, bind, b.results) {
		return &ReplyError{err.Error()}
	}
	for k := range a.found {
		f, room := &a.found[k], a.slots[k]
		r.Plan.Results[k].State = f.State
		switch {
		case f.State != oncrpc.Placed && room > 0:
			return &ReplyError{fmt.Sprintf("%d bytes were placed for result %d, which has none", room, k)}
		case f.State != oncrpc.Placed:
			continue
		case room != f.Length && room != xdr.Round(f.Length):
			return &ReplyError{fmt.Sprintf("result %d has %d bytes, %d were placed", k, f.Length, room)}
		}
		p := &b.results[a.from[k]]
		b.data = split.Prefix(b.data[:0], p.data, f.Length)
		r.Reply.Items = append(r.Reply.Items, xdr.Item{Position: f.Position, Length: f.Length, Data: r.Reply.Keep(b.data)})
		p.handOver(&r.Reply)
		o.out.cfg.Observer.Transferred(WriteChunk, f.Length)
	}
	return nil
}

// results parses the results of the reply, if placed bytes of each were placed.
func (a *receivedReply) results(r *oncrpc.Request, bind oncrpc.Binding, placed []int) (err error) {
	a.dec.Reset(r.Reply.Stream, r.Reply.Items)
	if err = a.header.Decode(&a.dec); err != nil {
		return err
	}
	a.found, err = bind.Results(a.found[:0], &r.Plan, placed, r.Procedure, &a.dec)
	if err == nil && len(a.found) != len(r.Plan.Results) {
		err = fmt.Errorf("%d results of %d found", len(a.found), len(r.Plan.Results))
	}
	return err
}

// slide tries another form of Write lists: a result without data leaves its chunk to the next one
// (RFC 8166 section 4.3.2.2). Chunk j belongs to the j-th result that has data.
func (a *receivedReply) slide(r *oncrpc.Request, bind oncrpc.Binding) bool {
	n, used := len(a.placed), 0
	for used < n && a.placed[used] > 0 {
		used++
	}
	for _, rest := range a.placed[used:] {
		if rest > 0 {
			return false
		}
	}
	if used == n || n > 8 {
		return false
	}
	for set := range uint(1) << n {
		if bits.OnesCount(set) != used {
			continue
		}
		j := 0
		for k := range n {
			a.slots[k] = 0
			if set>>k&1 != 0 {
				a.slots[k], a.from[k] = a.placed[j], j
				j++
			}
		}
		if a.results(r, bind, a.slots) == nil {
			return true
		}
	}
	return false
}

// unused tries a third form: a result without data returns its chunk as offered, so that it seems
// full. These are the last chunks that have a length, since no operation follows a failed one.
func (a *receivedReply) unused(r *oncrpc.Request, bind oncrpc.Binding, places []resultBuf) bool {
	a.slots = append(a.slots[:0], a.placed...)
	for k := range a.from {
		a.from[k] = k
	}
	for k := len(a.placed) - 1; k >= 0 && (a.placed[k] == 0 || a.placed[k] == places[k].room+places[k].pad); k-- {
		if a.placed[k] == 0 {
			continue
		}
		a.slots[k] = 0
		if a.results(r, bind, a.slots) == nil {
			return true
		}
	}
	return false
}

// handOver makes m the owner of p's buffers.
func (p *resultBuf) handOver(m *oncrpc.Message) {
	for i, b := range p.bufs {
		m.Own(b)
		p.bufs[i] = nil
	}
	p.bufs = p.bufs[:0]
}
