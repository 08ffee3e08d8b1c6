package rpcrdma

import (
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

const (
	// maxTries bounds how often a request is sent when the peer would take it in another shape.
	maxTries = 4
	// growth is the factor by which the room for a reply grows from one try to the next.
	growth = 4
)

// retryLocked decides whether a refused request can be sent again in another shape. If so it sets
// the shape in o and in the connection's limits. The peer has not executed the call, or has
// retained its reply.
func (o *outCall) retryLocked(err error) bool {
	out := o.out
	if _, ok := err.(*ReportError); ok && o.build.grouped { //nolint:errorlint // it is not wrapped
		o.noGroup = true
		return true
	}
	e, ok := err.(*RemoteError) //nolint:errorlint // it is not wrapped
	if ok && e.Version == wire.Version1 && e.Code == wire.ErrChunk {
		return out.rfc5666 != nil && o.withoutOldForms() || o.growLocked()
	}
	if !ok || e.Version != wire.Version2 || o.out.server || o.tries+1 >= maxTries {
		return false
	}
	o.tries++
	if o.build.grouped && e.Code != wire.ReplyResource {
		if e.Code == wire.InvalidOption || e.Code == wire.InvalidOption9 {
			out.noGroups.Store(true)
		}
		o.noGroup = true
		return e.Code != wire.System && e.Code != wire.ErrVers
	}
	o.noGroup = true
	needed := int(e.Needed)
	most := max(o.out.cfg.MaxBulk, bufpool.MaxSize)
	lim := *out.peerLimits.Load()
	var now *int
	switch e.Code {
	case wire.ReplyResource:
		if needed <= o.room || needed > most {
			return false
		}
		o.room = needed
		return true
	case wire.WriteResource:
		i := int(e.Index)
		switch {
		case needed == 0 || needed > most || o.noWrites || i > o.build.writes:
			return false
		case i == 0 || o.retryChunk != 0 && o.retryChunk != i:
			o.noWrites = true
			o.room = min(most, o.req.Plan.MaxReply+needed)
		case o.retryChunk == i && needed <= o.retrySize:
			return false
		default:
			o.retryChunk, o.retrySize = i, needed
		}
		return true
	case wire.ReadChunks:
		now = &lim.ReadChunks
	case wire.WriteChunks:
		now = &lim.WriteChunks
	case wire.Segments:
		now = &lim.SegmentsPerChunk
	default:
		return false
	}
	if int64(e.Max) < int64(*now) { // otherwise another request has learned it already
		*now = int(e.Max)
		lim.lowered = true
		out.peerLimits.Store(&lim)
	}
	return true
}

// growLocked enlarges the Reply chunk of a call whose reply may be longer than estimated: a short
// Reply chunk retry (RFC 8267 section 3.1). Version 1 has no length in its refusal. The call goes
// out as a new transaction, since the server may have cached the refusal; its user's XID stays.
func (o *outCall) growLocked() bool {
	out, plan := o.out, &o.req.Plan
	room := max(o.room, plan.MaxReply, out.negotiated.Load().recvLimit)
	most := max(out.cfg.MaxBulk, bufpool.MaxSize)
	if !plan.Estimated || out.server || room >= most || o.tries+1 >= maxTries {
		return false
	}
	o.tries++
	o.room = min(growth*room, most)
	out.removeFromBucketLocked(o)
	o.xid = out.nextXIDLocked()
	out.addToBucketLocked(o)
	return true
}

// stampXID writes an XID into the message of a call that has gone out with another one than its
// user's. No peer can reach the message any more, and its Send has completed.
func (o *outCall) stampXID(xid uint32) {
	if o.xid != o.req.XID {
		o.req.Call.SetXID(xid)
	}
}

// requeue puts a call without outstanding work in front of the queue, with its credit. It returns
// false after a cancellation, or the end of the connection: then the call is done.
func (o *outCall) requeue() bool {
	out := o.out
	o.regions = o.regions[:0]
	o.reply.release()
	o.build.release(out)
	out.mu.Lock()
	defer out.mu.Unlock()
	o.busy--
	o.unexposedLocked()
	o.again = false
	switch {
	case out.closed != nil:
		if o.err == nil {
			o.err = out.closed
		}
		o.live = false
	case o.err != nil:
		out.removeFromBucketLocked(o)
		out.inFlight--
		out.retrying--
		o.live = false
	default:
		o.stampXID(o.xid)
		o.unread, o.queued, o.credited = true, true, true
		out.pushLocked(o)
	}
	return o.live
}
