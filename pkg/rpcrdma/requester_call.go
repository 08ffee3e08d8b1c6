package rpcrdma

import (
	"errors"
	"fmt"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
)

// Submit implements oncrpc.Requester.
func (out *requester) Submit(r *oncrpc.Request) {
	r.Err = nil
	out.mu.Lock()
	var err error
	switch {
	case out.closed != nil:
		err = out.closed
	case out.find(r.XID) != nil:
		err = fmt.Errorf("rpcrdma: %w: %#x", oncrpc.ErrXIDInUse, r.XID)
	default:
		o := out.get(r, r.XID)
		o.queued = true
		r.Transport = o
		if out.last == nil {
			out.first = o
		} else {
			out.last.next = o
		}
		out.last = o
	}
	out.mu.Unlock()
	if err != nil {
		r.Err = err
		r.Done(r)
		return
	}
	out.pump()
}

// send builds and posts a call. The first one on a connection is small (RFC 8166 section 3.3.3).
func (o *outCall) send(asked int, first bool) {
	out := o.out
	unreserved := 0
	t := out.negotiated.Load()
	err := o.build.build(o, t, asked, first)
	if err == errShort { //nolint:errorlint // it is not wrapped
		o.wait(o.build.short)
		return
	}
	lent := false
	if err == nil && out.server {
		if lent = out.receives.reserve(1); !lent { // for its reply
			err = errNoReceive
		}
	}
	if err != nil {
		if ended := out.ep.Post(nil); ended != nil { // that is why
			err = &LostError{ended}
		}
	}
	out.mu.Lock()
	posted := err == nil && o.err == nil && out.closed == nil
	if posted { // its answer may come before this goroutine goes on, and o.posted say something else then
		o.posted, o.unsent = true, true
		out.mu.Unlock()
		out.work.post(&o.build.send)
		out.mu.Lock()
	}
	if lent && !posted {
		out.mu.Unlock()
		_ = out.receives.more(-1)
		out.mu.Lock()
	}
	o.busy--
	if len(o.regions) == 0 && err == nil {
		o.settled()
	}
	if errors.Is(err, rdma.ErrExposed) && o.starve() {
		return
	}
	if o.err == nil {
		o.err = err
	}
	if o.err != nil && o.unread { // not sent, or cancelled meanwhile
		if o.posted {
			o.giveUp()
		} else {
			out.removeFromBucket(o)
			o.unread = false
			out.inFlight -= o.credits
			unreserved = o.reserved
			o.invalidate(0, false)
		}
	}
	o.complete()
	if unreserved > 0 {
		_ = out.receives.done(unreserved, 0)
	}
}

// complete finishes o if nothing is outstanding. It unlocks the requester.
func (o *outCall) complete() {
	out := o.out
	free := o.live && !o.queued && !o.unsent && o.busy == 0
	done := free && !o.unread && o.invalidating == 0
	var r *oncrpc.Request
	again := done && o.again
	if again && o.sendAgain() {
		return
	}
	err := o.err
	switch {
	case done:
		o.live = false
	case free && o.detached:
		r, o.req = o.req, nil
	}
	out.mu.Unlock()
	switch {
	case done:
		o.finish()
		if again {
			out.pump() // its credit is free
		}
	case r != nil:
		r.Reply.Release()
		r.Err = err
		r.Done(r)
	}
}

// finish hands the request back to its user.
func (o *outCall) finish() {
	out, r := o.out, o.req
	if r != nil {
		if r.Err = o.err; r.Err == nil {
			r.Err = o.assemble(r)
		}
		if r.Err != nil {
			r.Reply.Release()
		}
	}
	o.regions = o.regions[:0]
	o.reply.release()
	o.build.release()
	out.mu.Lock()
	if out.closed != nil {
		o.build.free()
	}
	o.settled()
	hungry := out.first != nil && out.first.starved
	out.put(o)
	out.mu.Unlock()
	if r != nil {
		r.Done(r)
	}
	if hungry {
		out.pump()
	}
}

// giveUp ends the wait for the reply to a cancelled call, whose place in the credits and among the
// XIDs is kept until it comes. A peer that cannot reach memory any more, and works on the call yet,
// has its connection ended by that, and with it all other calls. So what the requester owns stays
// exposed until the reply comes, while the request goes back to its user. Where the memory is the
// user's, the request has to wait for the reply, or for the end of cancelWait. The requester is
// locked.
func (o *outCall) giveUp() {
	if !o.build.foreign || len(o.regions) == 0 {
		o.detached = true
		return
	}
	xid := o.xid
	time.AfterFunc(cancelWait, func() { o.withdraw(xid) })
}

// withdraw ends the access to memory of the user for a call that was cancelled cancelWait ago, if
// its reply has not come. Something else keeps its place. A late reply may yet name its handle for
// invalidation; the connection is likely to end then, also if the handle has been given out anew.
func (o *outCall) withdraw(xid uint32) {
	out := o.out
	out.mu.Lock()
	if !o.live || o.xid != xid || !o.posted || !o.unread || o.err == nil {
		out.mu.Unlock()
		return
	}
	out.removeFromBucket(o)
	o.unread = false
	late := out.get(nil, o.xid)
	late.posted, late.credits, late.reserved, late.build.grouped = true, o.credits, o.reserved, o.build.grouped
	o.invalidate(0, false)
	o.complete()
}

// Cancel implements oncrpc.Canceler. A request that was sent, and for which memory of its user is
// exposed (arguments in Read chunks, results with Memory of their own), fails when its reply comes,
// or after 2 s: RDMA that the peer begins later ends the connection. Others fail at once.
func (out *requester) Cancel(r *oncrpc.Request, cause error) {
	out.mu.Lock()
	o, _ := r.Transport.(*outCall)
	if o == nil || o.out != out || o.req != r || !o.live || !o.unread && !o.again || o.err != nil {
		out.mu.Unlock()
		return
	}
	o.err = cause
	switch {
	case o.queued:
		var prev *outCall
		for p := out.first; p != o; p = p.next {
			prev = p
		}
		out.dequeue(prev, o)
		out.removeFromBucket(o)
		o.unread = false
		if o.credited {
			out.inFlight--
		}
		defer out.pump() // what it was in front of may have its credits
	case o.again: // sendAgain sees to it
	case o.busy == 0:
		o.giveUp()
	} // otherwise send sees to it
	o.complete()
}

// invalidate ends the peer's access to all memory of o, but for what the peer invalidated itself. The requester is locked
// before and after.
func (o *outCall) invalidate(invalidated uint32, has bool) {
	out := o.out
	wrs := o.invalidations.wrs[:0]
	for i := range o.regions {
		g := &o.regions[i]
		if remotely := has && g.handle == invalidated; !g.gone && !remotely {
			wrs = append(wrs, rdma.WorkRequest{ID: idInvalidate | uint64(o.id), Op: rdma.LocalInvalidate, Invalidate: g.handle})
		}
		g.gone = true
	}
	o.invalidations.wrs = wrs
	if len(wrs) == 0 || out.closed != nil {
		return
	}
	o.invalidating = len(wrs)
	o.busy++
	out.mu.Unlock()
	o.out.work.post(&o.invalidations) // if that fails the connection ends (RFC 8166 section 4.5.4)
	out.mu.Lock()
	o.busy--
}

// invalidated counts a finished invalidation.
func (out *requester) invalidated(id uint32) {
	out.mu.Lock()
	o := out.calls[id]
	o.invalidating--
	o.complete()
}

// sent notes that the Send of a call has completed.
func (out *requester) sent(id uint32) {
	out.mu.Lock()
	o := out.calls[id]
	o.unsent = false
	n := len(o.build.send.wrs)
	o.complete()
	out.work.done(n)
}
