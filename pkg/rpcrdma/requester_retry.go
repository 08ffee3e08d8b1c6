package rpcrdma

import (
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// maxTries bounds how often a request is sent when the peer would take it in another shape.
const maxTries = 4

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
	if ok && out.rfc5666 != nil && e.Version == wire.Version1 {
		return o.retryOldForms(e)
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
		o.unread, o.queued, o.credited = true, true, true
		out.pushLocked(o)
	}
	return o.live
}
