package upstream

import "time"

// scheduleTimeoutLocked makes sure that the timer fires in time for r.
func (bc *backendConn) scheduleTimeoutLocked(r *Request) {
	d := bc.b.cfg.SoftTimeout
	if d == 0 || r.Timeout == TimeoutNever {
		return
	}
	r.timedFrom = time.Now()
	if !r.WaitingSince.IsZero() {
		// The timer follows the oldest request, which may now be the last in the queue.
		r.timedFrom, bc.unordered = r.WaitingSince, true
		d = max(0, d-time.Since(r.timedFrom))
		if bc.timerArmed && bc.timerDue.After(time.Now().Add(d)) {
			bc.armTimerLocked(d)
		}
	}
	if !bc.timerArmed {
		bc.armTimerLocked(d)
	}
}

func (bc *backendConn) armTimerLocked(d time.Duration) {
	bc.timerArmed, bc.timerDue = true, time.Now().Add(d)
	if bc.softTimer == nil {
		bc.softTimer = time.AfterFunc(d, bc.expireRequests)
	} else {
		bc.softTimer.Reset(d)
	}
}

// timeoutScan is one run of the timer through the queue.
type timeoutScan struct {
	limit     time.Duration
	wait      time.Duration // until the next run; negative: none is needed
	unordered bool
	unsent    *Request // expired requests that no connection has, chained by next
	last      **Request
}

// expireRequests ends the requests whose time is over. The timer is armed for one request at a
// time, the oldest, so that a request costs no timer of its own.
func (bc *backendConn) expireRequests() {
	bc.mu.Lock()
	bc.scans++
	s := timeoutScan{limit: bc.b.cfg.SoftTimeout, wait: -1, unordered: bc.unordered}
	s.last = &s.unsent
	bc.unordered = false
	for r := bc.scanLocked(&s); r != nil; r = bc.scanLocked(&s) {
		inFlight := bc.beginCancelLocked(r)
		lc := inFlight.sentOn
		bc.mu.Unlock()
		lc.Cancel(&inFlight.Request, ErrSoftTimeout)
		bc.mu.Lock()
		f := bc.endCancelLocked(inFlight)
		bc.mu.Unlock()
		f.run()
		bc.mu.Lock()
	}
	if bc.timerArmed = false; s.wait >= 0 && !bc.closed {
		if bc.unordered {
			s.wait = max(s.wait, s.limit/16) // each run then visits the whole queue
		}
		bc.armTimerLocked(s.wait)
	}
	bc.mu.Unlock()
	for r := s.unsent; r != nil; r = r.next {
		bc.b.counts.softTimeouts.Add(1)
	}
	finishAll(s.unsent, ErrSoftTimeout)
}

// scanLocked takes expired unsent requests out of the queue, up to the first expired request that a
// connection has. It returns that request, or nil at the end. A request is returned once in a run.
func (bc *backendConn) scanLocked(s *timeoutScan) *Request {
	for r := bc.queue.first; r != nil; {
		next := r.next
		if r.Timeout == TimeoutNever || r.Timeout == TimeoutUnsent && r.wasSent || r.cancelScan == bc.scans {
			r = next
			continue
		}
		if left := s.limit - time.Since(r.timedFrom); left > 0 {
			if s.wait < 0 || left < s.wait {
				s.wait = left
			}
			if !s.unordered {
				return nil
			}
			bc.unordered = bc.unordered || !r.WaitingSince.IsZero()
			r = next
			continue
		}
		if r.sentOn == nil {
			bc.removeLocked(r)
			*s.last, s.last = r, &r.next
			r = next
			continue
		}
		// The connection gives it back once its memory is free. A request that is just being
		// submitted cannot be cancelled yet: the next run tries again.
		r.cancelScan = bc.scans
		if s.wait < 0 {
			s.wait = s.limit
		}
		bc.unordered = s.unordered
		return r
	}
	return nil
}

// beginCancelLocked marks r as timed out. It returns the request to cancel at the connection: r, or
// the one in flight for it.
func (bc *backendConn) beginCancelLocked(r *Request) *Request {
	inFlight := r
	if r.inFlight != nil {
		inFlight = r.inFlight
	}
	if r.cancelCause == nil {
		bc.b.counts.softTimeouts.Add(1)
	}
	r.cancelCause, inFlight.cancelCause = ErrSoftTimeout, ErrSoftTimeout
	inFlight.cancelling = true
	return inFlight
}

// endCancelLocked handles a request that its connection gave back while cancelling it.
func (bc *backendConn) endCancelLocked(inFlight *Request) followUp {
	inFlight.cancelling = false
	if !inFlight.doneEarly {
		return followUp{}
	}
	inFlight.doneEarly = false
	return bc.onDoneLocked(inFlight)
}
