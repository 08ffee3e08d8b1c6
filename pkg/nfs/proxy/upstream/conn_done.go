package upstream

import (
	"errors"

	"sluice.dev/sluice/pkg/oncrpc"
)

// maxDeaths is the number of connections that may end with a call in flight before the call is
// given up: a call may be the cause that ends the backend. Only connections on which the backend
// has answered count, and from the second on only those after an outage.
const maxDeaths = 2

// followUp is work that a change under the lock leaves for after unlocking.
type followUp struct {
	submit     *Request
	submitOn   *liveConn
	closing    *liveConn
	superseded *Request
	finished   *Request
	err        error // of finished
}

// run does the work. No lock is held.
func (f followUp) run() {
	if f.submit != nil {
		f.submitOn.Submit(&f.submit.Request)
	}
	if f.closing != nil {
		_ = f.closing.Close()
	}
	if f.superseded != nil {
		f.superseded.finish(ErrSuperseded)
	}
	if f.finished != nil {
		f.finished.finish(f.err)
	}
}

// onDone takes r back from its connection, which is done with it.
func (bc *backendConn) onDone(r *Request) {
	bc.mu.Lock()
	if r.cancelling {
		r.doneEarly = true
		bc.mu.Unlock()
		return
	}
	f := bc.onDoneLocked(r)
	bc.mu.Unlock()
	f.run()
}

// onDoneLocked decides whether r, or its replacement, is finished or sent again.
//
// A connection that still owes the reply to an abandoned call with the same XID is closed: a new
// one cannot bring that reply.
func (bc *backendConn) onDoneLocked(r *Request) (f followUp) {
	lc, err := r.sentOn, r.Err
	waiter := r // the request that waits for the answer
	if r.replacement != nil {
		waiter, f.superseded = r.replacement, r
		waiter.inFlight, r.replacement = nil, nil
	}
	cancelled := r.cancelCause != nil
	final := err != nil && !cancelled && lc.Final(err)
	switch {
	case err == nil:
		lc.answered = true
		bc.b.health.onAnswer()
	case !cancelled && !final:
		bc.dropLiveLocked(lc)
	}
	if errors.Is(err, oncrpc.ErrXIDInUse) {
		lc.abandoned = true
		f.closing = lc
	}
	if err != nil && !cancelled && !final && lc.answered && !lc.abandoned && !waiter.differs {
		// A cut link recovers at once. Only a backend that was unreachable in between has died.
		if waiter.deaths == 0 || lc.afterOutage {
			waiter.deaths++
		}
	}
	switch {
	case err == nil && !waiter.differs:
		if f.superseded != nil {
			waiter.takeReply(f.superseded)
		}
	case waiter.cancelCause != nil:
		err = waiter.cancelCause
	case final && !waiter.differs:
	case bc.owner.Load() == nil:
		err = ErrClosed
	case waiter.NoReplay && waiter.wasSent, waiter.deaths == maxDeaths:
		err = ErrLost
	default:
		waiter.sentOn, waiter.differs = nil, false
		if bc.resending {
			bc.rescan = true
		} else if live := bc.live.Load(); live != nil {
			bc.markSentLocked(live, waiter)
			f.submit, f.submitOn = waiter, live
		}
		return f
	}
	bc.removeLocked(waiter)
	f.finished, f.err = waiter, err
	return f
}

// supersedeLocked puts r in the place of old, an unanswered call with the same XID. After
// unlocking, the caller finishes superseded with [ErrSuperseded] and closes broken, where they are
// not nil.
//
// If both calls are the same, the client has sent its call again, perhaps on a new connection. The
// call in flight then serves r, and nothing more is sent.
//
// If they differ, the client has given up the old call and reused its XID. It would take the reply
// to the old call for the reply to r, so r waits until the old call is answered or lost with its
// connection. A third call that differs as well shows that the client waited in vain; the reply may
// never come (a server drops calls that RPCSEC_GSS rejects). Then the connection is closed: a new
// one cannot bring a reply to the old call.
func (bc *backendConn) supersedeLocked(old, r *Request) (superseded *Request, broken *liveConn) {
	bc.b.counts.superseded.Add(1)
	bc.removeLocked(old)
	superseded = old
	inFlight := old.inFlight
	if inFlight == nil && old.sentOn != nil {
		inFlight = old
	}
	if inFlight != nil {
		r.differs = !sameBytes(&inFlight.Call, &r.Call)
		if old == inFlight {
			superseded = nil // its connection still has it
		} else if old.differs && r.differs {
			broken = inFlight.sentOn
			broken.abandoned = true
		}
		inFlight.replacement, r.inFlight, r.sentOn = r, inFlight, inFlight.sentOn
		if r.wasSent = !r.differs; r.wasSent {
			r.deaths = inFlight.deaths
		}
	}
	bc.addLocked(r)
	if inFlight == nil {
		if r.wasSent = old.wasSent && sameBytes(&old.Call, &r.Call); r.wasSent {
			r.deaths = old.deaths
		}
		if bc.resending {
			bc.rescan = true
		}
		bc.reconnectLocked()
	}
	return superseded, broken
}

// dropLiveLocked stops using a connection. Its calls wait from now on.
func (bc *backendConn) dropLiveLocked(lc *liveConn) {
	if bc.live.Load() != lc {
		return
	}
	bc.live.Store(nil)
	bc.resending, bc.rescan, bc.cursor = false, false, nil
	bc.countsAsWaiting = true
	bc.b.waiting.Add(bc.queue.bytes)
	bc.b.counts.connected.Add(-1)
}
