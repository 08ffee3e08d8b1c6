package rpcrdma

import (
	"fmt"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/group"
)

// pump sends what waits, as far as there are credits.
func (out *requester) pump() {
	for {
		out.mu.Lock()
		o := out.first
		if o == nil || out.halted || !out.callsOpen.Load() || out.closed != nil {
			out.mu.Unlock()
			return
		}
		if o.starved && out.exposing > 0 && o.returned == out.returned { // until something is exposed no more
			out.mu.Unlock()
			return
		}
		asked := out.asked()
		if !o.credited {
			need := max(1, o.needs)
			switch (group.Window{Granted: max(1, min(out.granted, asked)), InFlight: out.inFlight}).Way(need, false) {
			case group.Now:
				out.inFlight += need
				o.credits = need
			case group.Never:
				if out.server && !out.answered && !out.probed {
					out.probed = true
					out.probe()
					out.mu.Unlock()
					continue
				}
				out.dequeue(nil, o)
				out.removeFromBucket(o)
				o.unread = false
				o.err = &RequestError{fmt.Sprintf("it needs %d credits, %d are granted, and it cannot go by chunks", need, out.granted)}
				o.complete()
				continue
			default:
				out.mu.Unlock()
				return
			}
		}
		out.dequeue(nil, o)
		o.busy++
		o.starved, o.exposes, o.returned, o.tried = false, true, out.returned, out.tried
		out.exposing++
		answered := out.answered
		out.mu.Unlock()
		o.send(asked, !answered)
	}
}

// halt has calls wait, or go on. It returns true if they did wait.
func (out *requester) halt(halted bool) (changed bool) {
	out.mu.Lock()
	defer out.mu.Unlock()
	changed = out.halted && !halted
	out.halted = halted
	return changed
}

// probe makes a call that every peer answers, to learn how many credits there are: the first call of the reverse direction has one, and may need
// more. The requester is locked: until the call is in the queue, the one that needs more credits has nothing to wait for.
func (out *requester) probe() {
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
	r.SetXID(out.nextXID())
	r.Done = func(r *oncrpc.Request) { r.Free() }
	o := out.get(r, r.XID)
	o.queued, r.Transport = true, o
	out.push(o)
}

// dequeue takes o out of the queue, where it stands behind prev.
func (out *requester) dequeue(prev, o *outCall) {
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

// settled notes that nothing is exposed for a call any more, or yet. The requester is locked.
func (o *outCall) settled() {
	out := o.out
	if !o.exposes {
		return
	}
	o.exposes = false
	out.exposing--
	if out.tried++; !o.starved { // what those give back who wait is for nobody, or they would wake each other
		out.returned++
	}
}

// starve has a call wait, for which the provider could not expose all memory, until other calls have theirs back: meanwhile nothing is exposed for it. It
// returns false if there are none, so that it would wait for ever. The requester is locked; starve unlocks it when it returns true.
func (o *outCall) starve() bool {
	out := o.out
	if o.err != nil || out.closed != nil || out.exposing == 1 && o.tried == out.tried {
		return false
	}
	out.inFlight -= o.credits - 1
	unreserved := o.reserved
	o.credits, o.reserved = 1, 0
	o.starved, o.again, o.unread = true, true, false
	o.invalidate(0, false)
	o.complete()
	if unreserved > 0 {
		_ = o.out.receives.done(unreserved, 0)
	}
	return true
}

// wait puts a call back in front of the queue, until it can have all the credits that its group needs. It has none meanwhile, and nothing is exposed for it.
func (o *outCall) wait(needs int) {
	out := o.out
	o.build.release()
	out.mu.Lock()
	out.inFlight -= o.credits
	o.credits, o.credited, o.needs = 1, false, needs
	o.busy--
	o.settled()
	if o.err == nil {
		o.err = out.closed
	}
	if o.err != nil { // cancelled meanwhile, or the connection has ended
		if o.unread {
			o.unread = false
			if out.closed == nil {
				out.removeFromBucket(o)
			}
		}
		o.complete()
	} else {
		o.queued = true
		out.push(o)
		out.mu.Unlock()
	}
	out.pump()
}

// push puts o in front of the queue, but behind those that have their credit: what waits for credits may wait for just these.
func (out *requester) push(o *outCall) {
	at := &out.first
	for *at != nil && (*at).credited {
		at = &(*at).next
	}
	if o.next, *at = *at, o; o.next == nil {
		out.last = o
	}
}
