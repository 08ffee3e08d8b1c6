package upstream

import (
	"context"
	"errors"
	"time"
)

// keep sees to it that there is a goroutine that keeps the line's connection. The line is locked.
func (l *line) keep() {
	if !l.running && !l.closed {
		l.running = true
		l.b.running.Go(l.run)
	}
}

// run connects, and connects again, as long as something waits for an answer. While there is a connection it waits for its end.
func (l *line) run() {
	away := false
	for l.wanted() {
		l.pause()
		if !l.wanted() {
			return
		}
		s := &session{line: l}
		var err error
		if s.conn, err = l.dial(s); err != nil {
			away = true
			l.backOff()
			continue
		}
		if !l.greet(s) {
			away = true
			_ = s.conn.Close()
			s.conn.Wait()
			l.backOff()
			continue
		}
		s.afterAway, away = away, false
		began := time.Now()
		if l.up(s) {
			l.resend(s)
		} else {
			_ = s.conn.Close()
		}
		s.conn.Wait()
		l.down(s)
		// A backend that hangs up as soon as it is called is not to be called all the time.
		if time.Since(began) < l.b.cfg.BackoffMax {
			l.backOff()
		} else {
			l.failures = 0
		}
	}
}

// greet has the backend answer NULL before a call is sent to it again. A server that takes
// connections and ends them need not be the backend, and then the call did not end the connection
// that had it before. It reports whether the connection may be used.
func (l *line) greet(s *session) bool {
	l.mu.Lock()
	again := false
	for r := l.queue.first; r != nil && !again; r = r.next {
		again = r.wasSent
	}
	l.mu.Unlock()
	if !again {
		return true
	}
	ctx, cancel := context.WithTimeout(l.ctx, l.b.cfg.DialTimeout)
	defer cancel()
	if err := l.b.null(ctx, s.conn); err != nil {
		if l.ctx.Err() == nil {
			l.b.failed(err)
		}
		return false
	}
	s.answered = true
	return true
}

// wanted reports whether a connection is needed. If not, the goroutine ends.
func (l *line) wanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed && l.queue.n > 0 {
		return true
	}
	l.running = false
	if l.closed {
		l.b.ports.put(l.port)
	}
	return false
}

// backOff puts off the next attempt to connect.
func (l *line) backOff() {
	cfg := &l.b.cfg
	d := cfg.BackoffMax
	if l.failures < 20 {
		d = min(d, cfg.BackoffMin<<l.failures)
	}
	l.failures++
	l.notBefore = time.Now().Add(d/2 + time.Duration(cfg.Rand()*float64(d/2)))
}

// pause waits until the next attempt to connect may be made, or the line is closed.
func (l *line) pause() {
	d := time.Until(l.notBefore)
	if l.failures == 0 || d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.ctx.Done():
	}
}

// dial makes one attempt to connect, from the line's source port.
func (l *line) dial(s *session) (Conn, error) {
	b := l.b
	for tries := 0; ; tries++ {
		if l.port == 0 {
			l.port, l.portUsed = b.sourcePort(tries), false
		}
		b.counts.dials.Add(1)
		ctx, cancel := context.WithTimeout(l.ctx, b.cfg.DialTimeout)
		conn, err := b.cfg.Dialer.Dial(ctx, l.port, s)
		cancel()
		if err == nil {
			if p := conn.Port(); p != l.port {
				b.ports.put(l.port)
				l.port = p
			}
			l.portUsed, l.portTrial = true, time.Time{}
			b.health.reached()
			return conn, nil
		}
		b.counts.dialErrors.Add(1)
		if l.port == 0 || !l.anotherPort(err) {
			if l.ctx.Err() == nil {
				b.failed(err)
			}
			return nil, err
		}
	}
}

// anotherPort reports whether an attempt that failed is to be repeated at once, from another port. A port from which there was a connection is
// not given up as soon as that: the backend knows the client's calls by it.
func (l *line) anotherPort(err error) bool {
	b := l.b
	switch {
	case portDenied(err):
		b.deny()
	case !portTaken(err):
		return false
	case l.portUsed:
		now := time.Now()
		if l.portTrial.IsZero() {
			l.portTrial = now
		}
		if now.Sub(l.portTrial) < b.cfg.PortPatience {
			return false
		}
	}
	b.ports.put(l.port)
	l.port, l.portTrial = 0, time.Time{}
	return true
}

// sourcePort takes a source port below 1024; 0, that is any, when there is none. tries is how many were tried in vain: those that others have
// (the backend of another export on the same server, say) are found out in this way.
func (b *Backend) sourcePort(tries int) int {
	denied := false
	if tries <= lastPort-firstPort {
		var p int
		if p, denied = b.ports.take(); p != 0 {
			return p
		}
	}
	if !denied && b.counts.otherPort.Add(1) == 1 {
		b.cfg.Logger.Warn("backend: no source port below 1024 is left, others are taken; some servers refuse them")
	}
	return 0
}

// deny takes note that this process may not use source ports below 1024.
func (b *Backend) deny() {
	if b.ports.deny() {
		b.cfg.Logger.Info("backend: this process may not use source ports below 1024, others are taken; some servers refuse them")
	}
}

// up makes s the line's connection, unless the line is closed.
func (l *line) up(s *session) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.current.Store(s)
	l.counted = false
	l.b.waiting.Add(-l.queue.bytes)
	l.resending, l.rescan, l.cursor = true, false, l.queue.first
	l.b.counts.connected.Add(1)
	return true
}

// resend sends what waits, in order.
func (l *line) resend(s *session) {
	out := s.conn.Out()
	out.Hold()
	defer out.Release()
	for {
		l.mu.Lock()
		if l.current.Load() != s {
			l.mu.Unlock()
			return
		}
		r := l.cursor
		for r != nil && r.via != nil {
			r = r.next
		}
		switch {
		case r != nil:
			l.cursor = r.next
			l.send(s, r)
			continue
		case l.rescan:
			l.rescan, l.cursor = false, l.queue.first
			l.mu.Unlock()
			continue
		}
		l.resending, l.cursor = false, nil
		l.mu.Unlock()
		return
	}
}

// down takes note that the connection has ended.
func (l *line) down(s *session) {
	l.mu.Lock()
	l.lose(s)
	closed := l.closed
	l.mu.Unlock()
	if !closed {
		l.b.health.lost()
	}
	if err := s.conn.Err(); err != nil && !closed && !errors.Is(err, context.Canceled) {
		l.b.cfg.Logger.Debug("backend: connection ended", "cause", err)
	}
}
