package rpcrdma

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
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
	case out.findLocked(r.XID) != nil:
		err = fmt.Errorf("rpcrdma: %w: %#x", oncrpc.ErrXIDInUse, r.XID)
	default:
		o := out.newCallLocked(r, r.XID)
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
		if ended := out.ep.Post(nil); ended != nil { // the reason
			err = &LostError{ended}
		}
	}
	out.mu.Lock()
	posted := err == nil && o.err == nil && out.closed == nil
	if posted { // its answer may come before this goroutine goes on, and change o.posted
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
		o.unexposedLocked()
	}
	var next step
	if errors.Is(err, rdma.ErrExposed) && o.canStarveLocked() {
		unreserved = o.starveLocked()
		next = o.invalidateLocked(0, false)
	} else {
		if o.err == nil {
			o.err = err
		}
		switch {
		case o.err == nil || !o.unread:
			next = o.nextLocked()
		case o.posted: // cancelled meanwhile
			next = o.awaitLateReplyLocked()
		default: // not sent
			out.removeFromBucketLocked(o)
			o.unread = false
			out.inFlight -= o.credits
			unreserved = o.reserved
			next = o.invalidateLocked(0, false)
		}
	}
	out.mu.Unlock()
	o.do(next)
	if unreserved > 0 {
		_ = out.receives.giveBack(unreserved, 0)
	}
}

// step is the work that follows a change of a call's state. It needs the requester unlocked.
type step struct {
	kind stepKind
	// The cancelled request, and its error.
	req *oncrpc.Request
	err error
}

type stepKind uint8

const (
	stepNone       stepKind = iota // the call waits
	stepInvalidate                 // post o.invalidations
	stepRedirect                   // lead the peer away from the user's memory
	stepAgain                      // queue the call again, in another shape
	stepFinish                     // return the request and free the call
	stepDetach                     // return the request; the call stays for its reply
)

// nextLocked returns the next step of o. The caller unlocks the requester and passes the step to
// do.
func (o *outCall) nextLocked() step {
	switch {
	case !o.live || o.queued || o.unsent || o.fetching || o.redirecting > 0 || o.busy > 0:
	case !o.unread && o.invalidating == 0 && o.again:
		o.busy++
		return step{kind: stepAgain}
	case !o.unread && o.invalidating == 0:
		o.live = false
		return step{kind: stepFinish}
	case o.detached && o.req != nil:
		o.stampXID(o.req.XID)
		s := step{kind: stepDetach, req: o.req, err: o.err}
		o.req = nil
		return s
	}
	return step{}
}

// do takes a step of o.
func (o *outCall) do(s step) {
	out := o.out
	if s.kind == stepInvalidate {
		// if that fails the connection ends (RFC 8166 section 4.5.4)
		out.work.post(&o.invalidations)
		out.mu.Lock()
		o.busy--
		s = o.nextLocked()
		out.mu.Unlock()
	}
	if s.kind == stepRedirect {
		s = o.redirect()
	}
	switch s.kind {
	case stepAgain:
		if !o.requeue() {
			o.finish()
		}
		out.pump()
	case stepFinish:
		o.finish()
	case stepDetach:
		s.req.Reply.Release()
		s.req.Err = s.err
		s.req.Done(s.req)
	}
}

// finish hands the request back to its user.
func (o *outCall) finish() {
	out, r := o.out, o.req
	if r != nil {
		o.stampXID(r.XID)
		if r.Err = o.err; r.Err == nil {
			r.Err = o.assemble(r)
		}
		if r.Err != nil {
			r.Reply.Release()
		}
	}
	o.regions = o.regions[:0]
	o.reply.release()
	o.fetched.release()
	o.fetched = nil
	o.build.release(out)
	out.mu.Lock()
	if out.closed != nil {
		o.build.freeHead()
	}
	o.unexposedLocked()
	hungry := out.first != nil && out.first.starved
	out.freeCallLocked(o)
	out.mu.Unlock()
	if r != nil {
		r.Done(r)
	}
	if hungry {
		out.pump()
	}
}

// awaitLateReplyLocked ends the wait of a cancelled call's user, and returns the next step. The
// call keeps its credits and its XID until the reply comes. If the peer lost access to memory while
// it works on the call, the connection would end, and with it all other calls. So memory of the
// requester stays exposed until then, while the request goes back.
//
// Where the memory is the user's, the connection's attributes decide. With Redirects the peer gets
// other memory, and the request goes back. Otherwise the request waits for the reply, or for the
// end of cancelWait.
func (o *outCall) awaitLateReplyLocked() step {
	switch {
	case !o.exposesForeign():
		o.detached = true
	case o.out.ep.Attributes().Redirects:
		o.busy++
		return step{kind: stepRedirect}
	default:
		o.limitWaitLocked()
	}
	return o.nextLocked()
}

func (o *outCall) exposesForeign() bool {
	return slices.ContainsFunc(o.regions, func(g exposedRegion) bool { return g.foreign })
}

func (o *outCall) limitWaitLocked() {
	xid := o.xid
	time.AfterFunc(cancelWait, func() { o.withdraw(xid) })
}

// redirect leads the peer away from the user's memory: it writes results to memory of the
// requester, and reads arguments from a copy. Without memory for that the request waits.
func (o *outCall) redirect() step {
	out, b := o.out, &o.redirections
	b.wrs = b.wrs[:0]
	var err error
	for i := range o.regions {
		g := &o.regions[i]
		if !g.foreign || err != nil {
			continue
		}
		var buf *bufpool.Buf
		if buf, err = out.cfg.Pool.Get(len(g.mem)); err != nil {
			continue
		}
		o.build.bufs = append(o.build.bufs, buf)
		if g.access&rdma.RemoteRead != 0 {
			copy(buf.B, g.mem)
		}
		b.wrs = append(b.wrs, rdma.WorkRequest{ID: idRedirect | uint64(o.id), Op: rdma.Redirect, Invalidate: g.handle, Local: [][]byte{buf.B}})
	}
	out.mu.Lock()
	post := err == nil && out.closed == nil
	if post {
		o.redirecting = len(b.wrs)
	} else if out.closed == nil {
		o.limitWaitLocked()
	}
	out.mu.Unlock()
	if post {
		out.work.post(b)
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	o.busy--
	return o.nextLocked()
}

// redirected counts a finished redirection. The last one lets the request go back.
func (out *requester) redirected(id uint32) {
	out.mu.Lock()
	o := out.calls[id]
	o.redirecting--
	o.detached = o.redirecting == 0
	next := o.nextLocked()
	out.mu.Unlock()
	o.do(next)
}

// withdraw ends the access to the user's memory of a call that was cancelled cancelWait ago, if its
// reply has not come. Another outCall keeps its place. A late reply may still name its handle for
// invalidation; then the connection is likely to end, also if the handle is in use again.
func (o *outCall) withdraw(xid uint32) {
	out := o.out
	out.mu.Lock()
	if !o.live || o.xid != xid || !o.posted || !o.unread || o.err == nil {
		out.mu.Unlock()
		return
	}
	out.removeFromBucketLocked(o)
	o.unread = false
	late := out.newCallLocked(nil, o.xid)
	late.posted, late.credits, late.reserved, late.build.grouped = true, o.credits, o.reserved, o.build.grouped
	next := o.invalidateLocked(0, false)
	out.mu.Unlock()
	o.do(next)
}

// Cancel implements oncrpc.Canceler. A request that was sent fails at once, unless memory of its
// user is exposed over a provider without Redirects: arguments in Read chunks, or results with
// Memory of their own. Then it fails when its reply comes, or after 2 s. RDMA that the peer begins
// later ends the connection.
func (out *requester) Cancel(r *oncrpc.Request, cause error) {
	out.mu.Lock()
	o, _ := r.Transport.(*outCall)
	if o == nil || o.out != out || o.req != r || !o.live || !o.unread && !o.again || o.err != nil {
		out.mu.Unlock()
		return
	}
	o.err = cause
	var next step
	switch {
	case o.queued:
		var prev *outCall
		for p := out.first; p != o; p = p.next {
			prev = p
		}
		out.dequeueLocked(prev, o)
		out.removeFromBucketLocked(o)
		o.unread = false
		if o.credited {
			out.inFlight--
			out.retrying--
		}
		defer out.pump() // calls behind it may have its credits
	case o.again: // requeue sees to it
	case o.busy == 0:
		next = o.awaitLateReplyLocked()
	} // otherwise send sees to it
	if next.kind == stepNone {
		next = o.nextLocked()
	}
	out.mu.Unlock()
	o.do(next)
}

// invalidateLocked ends the peer's access to all memory of o, except for the handle that the peer
// invalidated, and returns the next step.
func (o *outCall) invalidateLocked(invalidated uint32, has bool) step {
	wrs := o.invalidations.wrs[:0]
	for i := range o.regions {
		g := &o.regions[i]
		if remotely := has && g.handle == invalidated; !g.gone && !remotely {
			wrs = append(wrs, rdma.WorkRequest{ID: idInvalidate | uint64(o.id), Op: rdma.LocalInvalidate, Invalidate: g.handle})
		}
		g.gone = true
	}
	o.invalidations.wrs = wrs
	if len(wrs) == 0 || o.out.closed != nil {
		return o.nextLocked()
	}
	o.invalidating = len(wrs)
	o.busy++
	return step{kind: stepInvalidate}
}

// invalidated counts a finished invalidation.
func (out *requester) invalidated(id uint32) {
	out.mu.Lock()
	o := out.calls[id]
	o.invalidating--
	next := o.nextLocked()
	out.mu.Unlock()
	o.do(next)
}

// sent handles the completion of a call's Send.
func (out *requester) sent(id uint32) {
	out.mu.Lock()
	o := out.calls[id]
	o.unsent = false
	n := len(o.build.send.wrs)
	next := o.nextLocked()
	out.mu.Unlock()
	o.do(next)
	out.work.completed(n)
}
