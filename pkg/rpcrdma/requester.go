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
	c       *Conn
	account credit.Account // how many credits to ask for; nil in the reverse direction

	open   atomic.Bool            // calls may be sent
	limits atomic.Pointer[bounds] // replaced under the lock

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

// outCall is a request in the hands of the requester, with all that it needs, so that nothing is allocated for the next one.
type outCall struct {
	c    *Conn
	id   uint32
	req  *oncrpc.Request // nil: cancelled, all that is left is to wait for the reply
	xid  uint32
	next *outCall // in the free list or the queue
	more *outCall // in its bucket

	// Under the requester's lock.
	live     bool
	queued   bool // it waits for a credit
	posted   bool // the peer may know of it
	again    bool // the peer refused it, and it will be sent in another shape
	credited bool // it is so, and has a credit
	starved  bool // it waits until others expose less
	exposes  bool // it is one of the requester's exposing
	// The requester's, when it was sent.
	tried, returned int
	detached        bool // cancelled: the request goes back to its user, the memory stays until the reply comes
	unsent          bool // its Send has not completed
	unread          bool // its reply has not come
	revoking        int  // invalidations that have not completed
	busy            int  // goroutines that work on it without the lock
	err             error
	credits         int // that it takes
	needs           int // that it has to wait for together, since nothing but a group can carry it; 0 otherwise
	reserved        int // receives for the transmissions of its reply, if that may be a group

	// What to do differently when it is sent again; see adapt.
	tries       int
	base        bool // not as a group
	room        int  // bytes in the Reply chunk
	wide, width int  // Write chunk, counted from 1, and its bytes
	noWrites    bool // no Write chunks

	// Of whoever is busy with it.
	regions []region
	revokes batch
	build   builder
	reply   answer
}

// region is memory that the peer can reach.
type region struct {
	handle uint32
	gone   bool // invalidated, or about to be
}

func (out *requester) init(c *Conn) {
	out.c = c
	out.granted = 1
	out.limits.Store(&bounds{Limits: c.cfg.Limits, ReadChunks: c.cfg.Limits.ReadSegments})
	out.xid = rand.Uint32()
	out.open.Store(!c.server)
	if !c.server {
		out.account = c.cfg.Credits.Open()
	}
}

// asked is how many credits a call requests.
func (out *requester) asked() int {
	if out.account == nil {
		return out.c.cfg.ReverseCredits
	}
	return min(max(1, out.account.Credits(out.granted, out.inFlight)), credit.Max)
}

// start lets calls be sent: in the reverse direction that is after the first answer of the forward direction.
func (out *requester) start() {
	if !out.open.Load() && !out.open.Swap(true) {
		out.pump()
	}
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
	out.c.fail(ErrClosed)
	return nil
}

func (out *requester) bucket(xid uint32) **outCall { return &out.buckets[xid%uint32(len(out.buckets))] }

func (out *requester) find(xid uint32) *outCall {
	o := *out.bucket(xid)
	for o != nil && o.xid != xid {
		o = o.more
	}
	return o
}

func (out *requester) link(o *outCall) {
	b := out.bucket(o.xid)
	o.more, *b = *b, o
}

func (out *requester) unlink(o *outCall) {
	b := out.bucket(o.xid)
	for *b != o {
		b = &(*b).more
	}
	*b, o.more = o.more, nil
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
		o = &outCall{c: out.c, id: uint32(len(out.calls))}
		out.calls = append(out.calls, o)
	} else {
		out.free, o.next = o.next, nil
	}
	o.req, o.xid, o.live, o.unread, o.credits, o.reserved = r, xid, true, true, 1, 0
	out.link(o)
	return o
}

func (out *requester) put(o *outCall) {
	o.req, o.live, o.posted, o.detached, o.credited, o.err = nil, false, false, false, false, nil
	o.starved = false
	o.tries, o.room, o.wide, o.width, o.noWrites, o.base, o.needs = 0, 0, 0, 0, false, false, 0
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
	c, out := o.c, &o.c.out
	unreserved := 0
	t := c.use()
	err := o.build.build(o, t, asked, first)
	if err == errShort { //nolint:errorlint // it is not wrapped
		c.unuse(t)
		o.wait(o.build.short)
		return
	}
	lent := false
	if err == nil && c.server {
		if lent = c.receives.reserve(1); !lent { // for its reply
			err = errNoReceive
		}
	}
	if err != nil {
		if ended := c.ep.Post(nil); ended != nil { // that is why
			err = &LostError{ended}
		}
	}
	out.mu.Lock()
	posted := err == nil && o.err == nil && out.closed == nil
	if posted { // its answer may come before this goroutine goes on, and o.posted say something else then
		o.posted, o.unsent = true, true
		out.mu.Unlock()
		c.work.post(&o.build.send)
		out.mu.Lock()
	}
	c.unuse(t)
	if lent && !posted {
		out.mu.Unlock()
		_ = c.receives.more(-1)
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
			out.unlink(o)
			o.unread = false
			out.inFlight -= o.credits
			unreserved = o.reserved
			o.revoke(0, false)
		}
	}
	o.complete()
	if unreserved > 0 {
		_ = c.receives.done(unreserved, 0)
	}
}

// complete finishes o if nothing is outstanding. It unlocks the requester.
func (o *outCall) complete() {
	out := &o.c.out
	free := o.live && !o.queued && !o.unsent && o.busy == 0
	done := free && !o.unread && o.revoking == 0
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
	out, r := &o.c.out, o.req
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
	out := &o.c.out
	out.mu.Lock()
	if !o.live || o.xid != xid || !o.posted || !o.unread || o.err == nil {
		out.mu.Unlock()
		return
	}
	out.unlink(o)
	o.unread = false
	late := out.get(nil, o.xid)
	late.posted, late.credits, late.reserved, late.build.grouped = true, o.credits, o.reserved, o.build.grouped
	o.revoke(0, false)
	o.complete()
}

// Cancel implements oncrpc.Canceler. A request that was sent, and for which memory of its user is
// exposed (arguments in Read chunks, results with Memory of their own), fails when its reply comes,
// or after 2 s: RDMA that the peer begins later ends the connection. Others fail at once.
func (out *requester) Cancel(r *oncrpc.Request, cause error) {
	out.mu.Lock()
	o, _ := r.Transport.(*outCall)
	if o == nil || o.c != out.c || o.req != r || !o.live || !o.unread && !o.again || o.err != nil {
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
		out.unlink(o)
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

// revoke ends the peer's access to all memory of o, but for what the peer invalidated itself. The requester is locked
// before and after.
func (o *outCall) revoke(invalidated uint32, has bool) {
	out := &o.c.out
	wrs := o.revokes.wrs[:0]
	for i := range o.regions {
		g := &o.regions[i]
		if remotely := has && g.handle == invalidated; !g.gone && !remotely {
			wrs = append(wrs, rdma.WorkRequest{ID: idRevoke | uint64(o.id), Op: rdma.LocalInvalidate, Invalidate: g.handle})
		}
		g.gone = true
	}
	o.revokes.wrs = wrs
	if len(wrs) == 0 || out.closed != nil {
		return
	}
	o.revoking = len(wrs)
	o.busy++
	out.mu.Unlock()
	o.c.work.post(&o.revokes) // if that fails the connection ends (RFC 8166 section 4.5.4)
	out.mu.Lock()
	o.busy--
}

// revoked counts a finished invalidation.
func (out *requester) revoked(id uint32) {
	out.mu.Lock()
	o := out.calls[id]
	o.revoking--
	o.complete()
}

// sent notes that the Send of a call has completed.
func (out *requester) sent(id uint32) {
	out.mu.Lock()
	o := out.calls[id]
	o.unsent = false
	n := len(o.build.send.wrs)
	o.complete()
	out.c.work.done(n)
}

// settle gives back the credits of the replies that were handled. Receives are there for what they let arrive.
func (out *requester) settle() {
	if out.unreserved|out.heldParts|out.ended != 0 {
		if err := out.c.receives.done(out.unreserved+out.ended, out.heldParts); err != nil {
			out.c.fail(err)
		}
		out.unreserved, out.heldParts, out.ended = 0, 0, 0
	}
	if out.freed == 0 {
		return
	}
	c := out.c
	granted := max(1, min(out.offered, credit.Max))
	if !c.server {
		out.mu.Lock()
		granted = min(granted, out.asked())
		out.mu.Unlock()
		var err error
		if granted, err = c.receives.allow(granted); err != nil {
			c.fail(err)
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
		o.next, o.more = nil, nil
		if o.unread && o.err == nil {
			o.err = lost
		}
		if o.again && o.err == nil {
			o.err = lost
		}
		o.queued, o.unsent, o.unread, o.again, o.revoking = false, false, false, false, 0
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
