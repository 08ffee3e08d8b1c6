package rpcrdma

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// cancelWait is how long a cancelled request, for which memory of its user is exposed, waits for
// its reply.
const cancelWait = 2 * time.Second

// requester is the role that makes calls; it is the oncrpc.Requester of the connection.
//
// A request is done when its reply has come, its own Send has completed, and the peer can no longer reach any memory that
// was exposed for it (RFC 8166 section 4.4.1): only then does the memory belong to its user again.
type requester struct {
	oncrpc.Waiters
	*link
	account credit.Account // how many credits to ask for; nil in the reverse direction

	open       atomic.Bool                // calls may be sent
	peerLimits atomic.Pointer[peerLimits] // replaced under the lock

	mu       sync.Mutex
	closed   error
	answered bool // the first reply has come
	probed   bool // a call was made to learn of credits
	granted  int  // calls that may be in flight, as far as the peer is concerned
	inFlight int  // calls sent and not answered, those that were cancelled included
	halted   bool // something is to be sent before the next call
	exposing int  // calls for which memory is exposed, or about to be
	tried    int  // how many of them were done with that
	returned int  // and had been sent
	calls    []*outCall
	free     *outCall
	first    *outCall // queue of what waits for a credit
	last     *outCall
	buckets  [256]*outCall // by XID: all that have no reply yet
	xid      uint32

	noGroups atomic.Bool // the peer does not take XMTREQ after all

	// These are changed with the loop held.
	freed   int // credits of replies handled, not given back yet
	ended   int // of a server: how many such replies there were
	offered int // the grant of the last of them, 0 if there was none
	// Receives to give back: those reserved for the replies of groups, and those that such replies hold.
	unreserved, heldParts int
}

func (out *requester) init(l *link) {
	out.link, l.onOpen = l, out.pump
	out.granted = 1
	out.peerLimits.Store(&peerLimits{Limits: l.cfg.Limits, ReadChunks: l.cfg.Limits.ReadSegments})
	out.xid = rand.Uint32()
	l.callsOpen.Store(!l.server)
	if !l.server {
		out.account = l.cfg.Credits.Open()
	}
}

// asked is how many credits a call requests.
func (out *requester) asked() int {
	if out.account == nil {
		return out.cfg.ReverseCredits
	}
	return min(max(1, out.account.Credits(out.granted, out.inFlight)), credit.Max)
}

// NextXID implements oncrpc.Requester.
func (out *requester) NextXID() uint32 {
	out.mu.Lock()
	defer out.mu.Unlock()
	return out.nextXID()
}

func (out *requester) nextXID() uint32 {
	for {
		out.xid++
		if out.find(out.xid) == nil {
			return out.xid
		}
	}
}

// Close implements oncrpc.Requester: it ends the connection.
func (out *requester) Close() error {
	out.fail(ErrClosed)
	return nil
}

func (out *requester) bucket(xid uint32) **outCall { return &out.buckets[xid%uint32(len(out.buckets))] }

func (out *requester) find(xid uint32) *outCall {
	o := *out.bucket(xid)
	for o != nil && o.xid != xid {
		o = o.nextInBucket
	}
	return o
}

func (out *requester) addToBucket(o *outCall) {
	b := out.bucket(o.xid)
	o.nextInBucket, *b = *b, o
}

func (out *requester) removeFromBucket(o *outCall) {
	b := out.bucket(o.xid)
	for *b != o {
		b = &(*b).nextInBucket
	}
	*b, o.nextInBucket = o.nextInBucket, nil
}

// expects reports whether xid is that of a call of ours which waits for its reply.
func (out *requester) expects(xid uint32) bool {
	out.mu.Lock()
	defer out.mu.Unlock()
	o := out.find(xid)
	return o != nil && o.posted
}

func (out *requester) get(r *oncrpc.Request, xid uint32) *outCall {
	o := out.free
	if o == nil {
		o = &outCall{out: out, id: uint32(len(out.calls))}
		out.calls = append(out.calls, o)
	} else {
		out.free, o.next = o.next, nil
	}
	o.req, o.xid, o.live, o.unread, o.credits, o.reserved = r, xid, true, true, 1, 0
	out.addToBucket(o)
	return o
}

func (out *requester) put(o *outCall) {
	o.req, o.live, o.posted, o.detached, o.credited, o.err = nil, false, false, false, false, nil
	o.starved = false
	o.tries, o.room, o.retryChunk, o.retrySize, o.noWrites, o.noGroup, o.needs = 0, 0, 0, 0, false, false, 0
	o.next, out.free = out.free, o
}

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

// returnCredits gives back the credits of the replies that were handled. Receives are there for what they let arrive.
func (out *requester) returnCredits() {
	if out.unreserved|out.heldParts|out.ended != 0 {
		if err := out.receives.done(out.unreserved+out.ended, out.heldParts); err != nil {
			out.fail(err)
		}
		out.unreserved, out.heldParts, out.ended = 0, 0, 0
	}
	if out.freed == 0 {
		return
	}
	granted := max(1, min(out.offered, credit.Max))
	if !out.server {
		out.mu.Lock()
		granted = min(granted, out.asked())
		out.mu.Unlock()
		var err error
		if granted, err = out.receives.allow(granted); err != nil {
			out.fail(err)
		}
	}
	out.mu.Lock()
	out.inFlight -= out.freed
	out.granted, out.answered = granted, true
	out.mu.Unlock()
	out.freed = 0
	out.pump()
}

// close fails what is outstanding. The endpoint has let go of all memory, and the peer has no access any more.
func (out *requester) close(cause error) {
	var lost error = &LostError{cause}
	if errors.Is(cause, ErrClosed) {
		lost = cause
	}
	out.mu.Lock()
	out.closed = lost
	out.first, out.last = nil, nil
	clear(out.buckets[:])
	var gone *outCall
	for _, o := range out.calls {
		if !o.live {
			o.build.free()
			continue
		}
		o.next, o.nextInBucket = nil, nil
		if o.unread && o.err == nil {
			o.err = lost
		}
		if o.again && o.err == nil {
			o.err = lost
		}
		o.queued, o.unsent, o.unread, o.again, o.invalidating = false, false, false, false, 0
		if o.busy == 0 {
			o.live = false
			o.next, gone = gone, o
		}
	}
	out.mu.Unlock()
	for gone != nil {
		o := gone
		gone, o.next = o.next, nil
		o.finish()
	}
	if out.account != nil {
		out.account.Close()
	}
}
