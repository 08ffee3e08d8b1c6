package rpcrdma

import (
	"fmt"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/group"
)

// pump sends waiting calls within the credits.
func (out *requester) pump() {
	for {
		out.mu.Lock()
		o := out.first
		if o == nil || out.halted || !out.callsOpen.Load() || out.closed != nil {
			out.mu.Unlock()
			return
		}
		// until other calls are done with their exposed memory
		if o.starved && out.exposing > 0 && o.returned == out.returned {
			out.mu.Unlock()
			return
		}
		asked := out.asked()
		if o.credited {
			if out.inFlight-out.retrying >= out.granted { // the grant was lowered meanwhile
				out.mu.Unlock()
				return
			}
			out.retrying--
		} else {
			need := max(1, o.needs)
			switch (group.Window{Granted: max(1, min(out.granted, asked)), InFlight: out.inFlight}).Way(need, false) {
			case group.Now:
				out.inFlight += need
				o.credits = need
			case group.Never:
				if out.server && !out.answered && !out.probed {
					out.probed = true
					out.probeLocked()
					out.mu.Unlock()
					continue
				}
				out.dequeueLocked(nil, o)
				out.removeFromBucketLocked(o)
				o.unread = false
				o.err = &RequestError{fmt.Sprintf("it needs %d credits, %d are granted, and it cannot go by chunks", need, out.granted)}
				next := o.nextLocked()
				out.mu.Unlock()
				o.do(next)
				continue
			default:
				out.mu.Unlock()
				return
			}
		}
		out.dequeueLocked(nil, o)
		o.busy++
		o.starved, o.exposes, o.returned, o.tried = false, true, out.returned, out.tried
		out.exposing++
		answered := out.answered
		out.mu.Unlock()
		o.send(asked, !answered)
	}
}

// halt makes calls wait, or go on. It returns true if they did wait.
func (out *requester) halt(halted bool) (changed bool) {
	out.mu.Lock()
	defer out.mu.Unlock()
	changed = out.halted && !halted
	out.halted = halted
	return changed
}

// probeLocked makes a call that every peer answers, to learn the number of credits: the first call
// of the reverse direction has one, and may need more. The lock stays held until the probe is in
// the queue, so that the other call has an answer to wait for.
func (out *requester) probeLocked() {
	r, _, err := oncrpc.NewRequest(out.cfg.Pool, 0, 0, 0, oncrpc.Auth{}, oncrpc.MinCallLen)
	if err == nil {
		if err = r.Seal(); err != nil {
			r.Free()
		}
	}
	if err != nil {
		return // the call that needs more credits fails
	}
	r.Plan.MaxReply = oncrpc.MinReplyLen + oncrpc.MaxAuthLen
	r.SetXID(out.nextXIDLocked())
	r.Done = func(r *oncrpc.Request) { r.Free() }
	o := out.newCallLocked(r, r.XID)
	o.queued, r.Transport = true, o
	out.pushLocked(o)
}

// dequeueLocked takes o, which is behind prev, out of the queue.
func (out *requester) dequeueLocked(prev, o *outCall) {
	if prev == nil {
		out.first = o.next
	} else {
		prev.next = o.next
	}
	if out.last == o {
		out.last = prev
	}
	o.next, o.queued = nil, false
}

// unexposedLocked marks that no memory is exposed for a call any more.
func (o *outCall) unexposedLocked() {
	out := o.out
	if !o.exposes {
		return
	}
	o.exposes = false
	out.exposing--
	// memory that waiting calls give back does not count, or they would wake each other
	if out.tried++; !o.starved {
		out.returned++
	}
}

// canStarveLocked reports whether o, whose memory the provider could not expose, can wait until
// other calls give back theirs.
func (o *outCall) canStarveLocked() bool {
	out := o.out
	return o.err == nil && out.closed == nil && (out.exposing != 1 || o.tried != out.tried)
}

// starveLocked makes o wait without exposed memory. It returns the number of receives to give back.
// invalidateLocked follows.
func (o *outCall) starveLocked() (unreserved int) {
	o.out.inFlight -= o.credits - 1
	o.out.retrying++
	unreserved = o.reserved
	o.credits, o.reserved = 1, 0
	o.starved, o.again, o.unread = true, true, false
	return unreserved
}

// wait puts a call back in front of the queue until all credits for its group are free. It holds no
// credit and exposes nothing meanwhile.
func (o *outCall) wait(needs int) {
	out := o.out
	o.build.release(out)
	out.mu.Lock()
	out.inFlight -= o.credits
	o.credits, o.credited, o.needs = 1, false, needs
	o.busy--
	o.unexposedLocked()
	if o.err == nil {
		o.err = out.closed
	}
	if o.err == nil {
		o.queued = true
		out.pushLocked(o)
	} else if o.unread { // cancelled meanwhile, or the connection has ended
		o.unread = false
		if out.closed == nil {
			out.removeFromBucketLocked(o)
		}
	}
	next := o.nextLocked()
	out.mu.Unlock()
	o.do(next)
	out.pump()
}

// pushLocked puts o in front of the queue, but behind calls that have a credit: a waiting call may
// wait for just these.
func (out *requester) pushLocked(o *outCall) {
	at := &out.first
	for *at != nil && (*at).credited {
		at = &(*at).next
	}
	if o.next, *at = *at, o; o.next == nil {
		out.last = o
	}
}
