package upstream

import "time"

// watch makes sure that the timer looks at r in time. The line is locked.
func (l *line) watch(r *Request) {
	d := l.b.cfg.SoftTimeout
	if d == 0 || r.Soft == SoftNever {
		return
	}
	r.began = time.Now()
	if !r.Since.IsZero() {
		// The timer goes by the oldest request, which this may be now although it comes last.
		r.began, l.early = r.Since, true
		d = max(0, d-time.Since(r.began))
		if l.armed && l.due.After(time.Now().Add(d)) {
			l.arm(d)
		}
	}
	if !l.armed {
		l.arm(d)
	}
}

func (l *line) arm(d time.Duration) {
	l.armed, l.due = true, time.Now().Add(d)
	if l.timer == nil {
		l.timer = time.AfterFunc(d, l.tick)
	} else {
		l.timer.Reset(d)
	}
}

// tick ends the requests whose time is over. The timer is set for one request at a time, the oldest, so that it costs nothing for each.
func (l *line) tick() {
	limit := l.b.cfg.SoftTimeout
	l.mu.Lock()
	l.ticks++
	var gone *Request
	at := &gone
	wait := time.Duration(-1)
	early := l.early
	l.early = false
	for r := l.queue.first; r != nil; {
		next := r.next
		if r.Soft == SoftNever || r.Soft == SoftUnsent && r.wasSent || r.tried == l.ticks {
			r = next
			continue
		}
		if left := limit - time.Since(r.began); left > 0 {
			if wait < 0 || left < wait {
				wait = left
			}
			if !early {
				break
			}
			l.early = l.early || !r.Since.IsZero()
			r = next
			continue
		}
		if r.via == nil {
			l.remove(r)
			*at, at = r, &r.next
			r = next
			continue
		}
		// What a connection has in hand comes back when its memory is free. If it is only just being submitted, that cannot be asked for yet.
		r.tried = l.ticks
		if wait < 0 {
			wait = limit
		}
		l.early = early
		l.giveUp(r)
		r = l.queue.first
	}
	if l.armed = false; wait >= 0 && !l.closed {
		if l.early {
			wait = max(wait, limit/16) // the whole list is gone through
		}
		l.arm(wait)
	}
	l.mu.Unlock()
	for r := gone; r != nil; r = r.next {
		l.b.counts.softTimeouts.Add(1)
	}
	finishAll(gone, ErrSoftTimeout)
}

// giveUp cancels r at the connection that has it, or its carrier. The line is locked before and after, but not throughout.
func (l *line) giveUp(r *Request) {
	carrier := r
	if r.carrier != nil {
		carrier = r.carrier
	}
	if r.cause == nil {
		l.b.counts.softTimeouts.Add(1)
	}
	r.cause, carrier.cause = ErrSoftTimeout, ErrSoftTimeout
	conn := carrier.via.conn
	carrier.busy = true
	l.mu.Unlock()
	conn.Cancel(&carrier.Request, ErrSoftTimeout)
	l.mu.Lock()
	carrier.busy = false
	if carrier.ended {
		carrier.ended = false
		l.settle(carrier)
		l.mu.Lock()
	}
}
