package rpcrdma

import (
	"errors"
	"slices"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// ErrDoneTimeout ends a connection whose client does not send RDMA_DONE for a reply that it is to
// read.
var ErrDoneTimeout = errors.New("rpcrdma: the client does not send RDMA_DONE")

const (
	// doneTimeout bounds the time from a reply with a Read list to its RDMA_DONE.
	doneTimeout = 30 * time.Second
	// mostExposed bounds the replies of a connection that are exposed at once; further ones wait.
	// As many receives are posted for RDMA_DONE, so it needs no credit.
	mostExposed = 16
	// mostReadSegments bounds the segments of a Read list in a reply. Beyond it data are copied.
	mostReadSegments = 16
)

// exposedReplies are replies in memory of this side that the peer reads (RFC 5666 sections 3.8 and
// 5.1). The memory belongs to its call, in the budget, until RDMA_DONE.
//
//	reply that does not fit → expose → Send with a Read list → RDMA_DONE → invalidate → recycle
type exposedReplies struct {
	mu      sync.Mutex
	list    []*exposedReply // oldest first
	waiting []*inCall
	closed  bool
	timer   *time.Timer
}

// exposedReply is the exposed memory of a call's reply.
type exposedReply struct {
	ic      *inCall
	since   time.Time
	regions []uint32
	work    sendBatch
	left    int // invalidations that have not completed
}

// exposes reports whether this side may expose replies.
func (l *link) exposes() bool { return l.server && l.cfg.RFC5666&ReadRead != 0 }

// exposeReply sends a reply for which the call has no room as one that the client reads. It returns
// false if that is impossible, too.
func (ic *inCall) exposeReply(e *roomError) bool {
	in := ic.in
	if !in.exposes() || ic.v2 || e.Code != wire.ReplyResource {
		return false
	}
	x := in.exposed
	x.mu.Lock()
	wait := len(x.list) >= mostExposed && !x.closed
	if wait {
		x.waiting = append(x.waiting, ic)
	} else {
		x.addLocked(ic)
	}
	x.mu.Unlock()
	return wait || ic.sendExposed()
}

// addLocked reserves a place for a reply. The call is held until its memory is invalidated.
func (x *exposedReplies) addLocked(ic *inCall) {
	if x.closed {
		return
	}
	ic.holds.Add(1)
	x.list = append(x.list, &exposedReply{ic: ic, since: time.Now()})
	if len(x.list) > 1 {
		return
	}
	if x.timer == nil {
		x.timer = time.AfterFunc(doneTimeout, func() { x.look(ic.in) })
	} else {
		x.timer.Reset(doneTimeout)
	}
}

// look ends the connection if the oldest exposed reply is too old.
func (x *exposedReplies) look(in *responder) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.closed || len(x.list) == 0 {
		return
	}
	if left := doneTimeout - time.Since(x.list[0].since); left > 0 {
		x.timer.Reset(left)
		return
	}
	in.fail(ErrDoneTimeout)
}

// sendExposed exposes the reply, and sends it. It returns false if the reply cannot be exposed.
func (ic *inCall) sendExposed() bool {
	in, h := ic.in, &ic.hdr
	proc, cuts, ok := ic.cutReply()
	if !ok {
		in.exposed.remove(ic)
		return false
	}
	credits, err := ic.grantCredits(ic.held)
	if err != nil {
		ic.failUnanswered(err)
		return true
	}
	head := wire.AppendFixed(ic.head.B[headAt:headAt], h.XID, wire.Version1, credits, proc)
	var regions []uint32
	for _, c := range cuts {
		for _, s := range c.data {
			r, err := in.ep.Expose(s, rdma.RemoteRead)
			if err != nil { // the memory is freed with the connection
				ic.failUnanswered(err)
				return true
			}
			regions = append(regions, r.Handle)
			head = wire.AppendReadSegment(head, wire.ReadSegment{
				Position: wire.Position(c.position),
				Segment:  wire.Segment{Handle: wire.Handle(r.Handle), Length: uint32(len(s)), Offset: r.Offset},
			})
		}
		in.cfg.Observer.Transferred(ReadChunk, split.Length(c.data))
	}
	in.exposed.note(ic, regions)
	ic.finishReply(wire.AppendEnd(head))
	return true
}

// cut is a part of the reply that the client reads.
type cut struct {
	position int
	data     [][]byte
}

// cutReply divides the reply that place has laid out, and makes room for its header. If the call
// has no Write list, each eligible result becomes a chunk, and the rest is inline, if it fits.
// Otherwise all that Write chunks do not take is one chunk, at position 0.
func (ic *inCall) cutReply() (wire.Procedure, []cut, bool) {
	in := ic.in
	limit := in.negotiated.Load().sendLimit
	if ic.hdr.Writes() == 0 {
		if cuts, ok := ic.cutResults(limit); ok {
			return wire.Msg, cuts, true
		}
	}
	size := ic.answerSize()
	if len(ic.out) > mostReadSegments || size+wire.ReadSegmentSize*len(ic.out) > limit {
		if split.Length(ic.out) > bufpool.MaxSize || ic.join() != nil {
			return 0, nil, false
		}
	}
	size += wire.ReadSegmentSize * len(ic.out)
	if size > limit || !ic.growHead(size) {
		return 0, nil, false
	}
	whole := cut{0, slices.Clone(ic.out)}
	ic.out = ic.out[:0]
	return wire.NoMsg, []cut{whole}, true
}

// cutResults takes the eligible results out of the reply.
func (ic *inCall) cutResults(limit int) (cuts []cut, ok bool) {
	ic.findResults(len(ic.Plan.Results))
	var out [][]byte
	segments := 0
	ic.split.Reset(&ic.Reply, ic.head.B[:headAt])
	for _, f := range ic.found {
		if f.Length == 0 {
			continue
		}
		c := cut{position: f.Position}
		if out, ok = ic.split.Until(out, f.Position); ok {
			c.data, ok = ic.split.Take(nil, f.Length)
		}
		if !ok {
			return nil, false
		}
		segments += len(c.data)
		cuts = append(cuts, c)
	}
	if out, ok = ic.split.Rest(out); !ok || len(cuts) == 0 {
		return nil, false
	}
	size := ic.answerSize() + wire.ReadSegmentSize*segments
	if segments > mostReadSegments || size+split.Length(out) > limit || !ic.growHead(size) {
		return nil, false
	}
	ic.out = append(ic.out[:0], out...)
	return cuts, true
}

// growHead makes room for a header of size bytes. The zeros of the old one may be part of the
// reply.
func (ic *inCall) growHead(size int) bool {
	if cap(ic.head.B) >= headAt+size {
		return true
	}
	old := ic.head
	ic.head = nil
	ic.Reply.Own(old)
	_, err := ic.newHead(size)
	return err == nil
}

// note notes the memory that is exposed for a reply. If the connection has ended nobody reaches it.
func (x *exposedReplies) note(ic *inCall, regions []uint32) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if i := x.findLocked(ic); i >= 0 {
		x.list[i].regions = regions
	}
}

// remove gives up the place of a reply that was not sent.
func (x *exposedReplies) remove(ic *inCall) {
	x.mu.Lock()
	i := x.findLocked(ic)
	if i >= 0 {
		x.list = slices.Delete(x.list, i, i+1)
	}
	x.mu.Unlock()
	if i >= 0 {
		ic.letGo()
	}
}

func (x *exposedReplies) findLocked(ic *inCall) int {
	return slices.IndexFunc(x.list, func(r *exposedReply) bool { return r.ic == ic })
}

// done takes RDMA_DONE. recvMu is held.
func (in *responder) done(m *inCall) {
	if !in.exposes() || m.v2 {
		m.drop(Dropped, "RDMA_DONE is no longer part of version 1")
		return
	}
	x := in.exposed
	x.mu.Lock()
	i := slices.IndexFunc(x.list, func(r *exposedReply) bool {
		return r.left == 0 && r.ic.hdr.XID == m.hdr.XID && len(r.regions) > 0
	})
	if i < 0 {
		x.mu.Unlock()
		m.drop(UnknownXID, "RDMA_DONE for no reply that is exposed")
		return
	}
	r := x.list[i]
	for _, handle := range r.regions {
		r.work.wrs = append(r.work.wrs, rdma.WorkRequest{ID: idWithdraw | uint64(r.ic.id), Op: rdma.LocalInvalidate, Invalidate: handle})
	}
	r.left = len(r.regions)
	x.mu.Unlock()
	m.recycle()
	in.work.post(&r.work)
}

// withdrawn counts a finished invalidation of a reply's memory. recvMu is held.
func (in *responder) withdrawn(id uint32) {
	x := in.exposed
	x.mu.Lock()
	i := slices.IndexFunc(x.list, func(r *exposedReply) bool { return r.ic.id == id && r.left > 0 })
	if i < 0 { // the connection has ended
		x.mu.Unlock()
		return
	}
	r := x.list[i]
	if r.left--; r.left > 0 {
		x.mu.Unlock()
		return
	}
	x.list = slices.Delete(x.list, i, i+1)
	var next *inCall
	if len(x.waiting) > 0 {
		next = x.waiting[0]
		x.waiting = slices.Delete(x.waiting, 0, 1)
		x.addLocked(next)
	}
	x.mu.Unlock()
	r.ic.letGo()
	if next != nil && !next.sendExposed() {
		next.sendError(wire.Fault2{Code: wire.ReplyResource})
	}
}

// close frees the replies. The endpoint has let go of them.
func (x *exposedReplies) close() {
	x.mu.Lock()
	list, waiting := x.list, x.waiting
	x.list, x.waiting, x.closed = nil, nil, true
	if x.timer != nil {
		x.timer.Stop()
	}
	x.mu.Unlock()
	for _, r := range list {
		r.ic.letGo()
	}
	for _, ic := range waiting {
		ic.recycle()
	}
}
