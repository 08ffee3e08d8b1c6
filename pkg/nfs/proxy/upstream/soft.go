package upstream

import "time"

// scheduleTimeoutLocked makes sure that the timer looks at r in time. The line is locked.
func (bc *backendConn) scheduleTimeoutLocked(r *Request) {
	d := bc.b.cfg.SoftTimeout
	if d == 0 || r.Timeout == TimeoutNever {
		return
	}
	r.timedFrom = time.Now()
	if !r.WaitingSince.IsZero() {
		// The timer goes by the oldest request, which this may be now although it comes last.
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

// expireRequests ends the requests whose time is over. The timer is set for one request at a time, the oldest, so that it costs nothing for each.
func (bc *backendConn) expireRequests() {
	limit := bc.b.cfg.SoftTimeout
	bc.mu.Lock()
	bc.scans++
	var gone *Request
	at := &gone
	wait := time.Duration(-1)
	early := bc.unordered
	bc.unordered = false
	for r := bc.queue.first; r != nil; {
		next := r.next
		if r.Timeout == TimeoutNever || r.Timeout == TimeoutUnsent && r.wasSent || r.cancelScan == bc.scans {
			r = next
			continue
		}
		if left := limit - time.Since(r.timedFrom); left > 0 {
			if wait < 0 || left < wait {
				wait = left
			}
			if !early {
				break
			}
			bc.unordered = bc.unordered || !r.WaitingSince.IsZero()
			r = next
			continue
		}
		if r.sentOn == nil {
			bc.removeLocked(r)
			*at, at = r, &r.next
			r = next
			continue
		}
		// What a connection has in hand comes back when its memory is free. If it is only just being submitted, that cannot be asked for yet.
		r.cancelScan = bc.scans
		if wait < 0 {
			wait = limit
		}
		bc.unordered = early
		bc.cancelSent(r)
		r = bc.queue.first
	}
	if bc.timerArmed = false; wait >= 0 && !bc.closed {
		if bc.unordered {
			wait = max(wait, limit/16) // the whole list is gone through
		}
		bc.armTimerLocked(wait)
	}
	bc.mu.Unlock()
	for r := gone; r != nil; r = r.next {
		bc.b.counts.softTimeouts.Add(1)
	}
	finishAll(gone, ErrSoftTimeout)
}

// cancelSent cancels r at the connection that has it, or its carrier. The line is locked before and after, but not throughout.
func (bc *backendConn) cancelSent(r *Request) {
	inFlight := r
	if r.inFlight != nil {
		inFlight = r.inFlight
	}
	if r.cancelCause == nil {
		bc.b.counts.softTimeouts.Add(1)
	}
	r.cancelCause, inFlight.cancelCause = ErrSoftTimeout, ErrSoftTimeout
	conn := inFlight.sentOn.Conn
	inFlight.cancelling = true
	bc.mu.Unlock()
	conn.Cancel(&inFlight.Request, ErrSoftTimeout)
	bc.mu.Lock()
	inFlight.cancelling = false
	if inFlight.doneEarly {
		inFlight.doneEarly = false
		bc.onDoneLocked(inFlight)
		bc.mu.Lock()
	}
}
