package upstream

import (
	"context"
	"errors"
	"time"
)

// reconnectLocked starts the goroutine that keeps the connection, if none runs.
func (bc *backendConn) reconnectLocked() {
	if !bc.running && !bc.closed {
		bc.running = true
		bc.b.running.Go(bc.keepConnected)
	}
}

// keepConnected keeps a connection live while calls are unanswered. While one is live it waits for
// its end.
func (bc *backendConn) keepConnected() {
	unreachable := false
	for bc.needed() {
		bc.awaitRetry()
		if !bc.needed() {
			return
		}
		lc := &liveConn{bc: bc}
		var err error
		if lc.Conn, err = bc.connect(lc); err != nil {
			unreachable = true
			bc.backOff()
			continue
		}
		if !bc.probeBeforeResend(lc) {
			unreachable = true
			_ = lc.Close()
			lc.Wait()
			bc.backOff()
			continue
		}
		lc.afterOutage, unreachable = unreachable, false
		began := time.Now()
		if bc.setLive(lc) {
			bc.resend(lc)
		} else {
			_ = lc.Close()
		}
		lc.Wait()
		bc.clearLive(lc)
		// Do not redial at full speed a backend that hangs up on each call.
		if time.Since(began) < bc.b.cfg.BackoffMax {
			bc.backOff()
		} else {
			bc.failures = 0
		}
	}
}

// probeBeforeResend calls NULL before a call is sent again, and reports whether the connection may
// be used. A server that accepts and closes connections need not be the backend; the call then did
// not end the previous connection.
func (bc *backendConn) probeBeforeResend(lc *liveConn) bool {
	bc.mu.Lock()
	again := false
	for r := bc.queue.first; r != nil && !again; r = r.next {
		again = r.wasSent
	}
	bc.mu.Unlock()
	if !again {
		return true
	}
	ctx, cancel := context.WithTimeout(bc.ctx, bc.b.cfg.DialTimeout)
	defer cancel()
	if err := bc.b.callNull(ctx, lc.Conn); err != nil {
		if bc.ctx.Err() == nil {
			bc.b.setUnreachable(err)
		}
		return false
	}
	lc.answered = true
	return true
}

// needed reports whether a connection is needed. If not, the goroutine must end.
func (bc *backendConn) needed() bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if !bc.closed && bc.queue.n > 0 {
		return true
	}
	bc.running = false
	if bc.closed {
		bc.b.ports.put(bc.port)
	}
	return false
}

// backOff delays the next attempt to connect.
func (bc *backendConn) backOff() {
	cfg := &bc.b.cfg
	d := cfg.BackoffMax
	if bc.failures < 20 {
		d = min(d, cfg.BackoffMin<<bc.failures)
	}
	bc.failures++
	bc.notBefore = time.Now().Add(d/2 + time.Duration(cfg.Rand()*float64(d/2)))
}

// awaitRetry waits for the next permitted attempt to connect, or for close.
func (bc *backendConn) awaitRetry() {
	d := time.Until(bc.notBefore)
	if bc.failures == 0 || d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-bc.ctx.Done():
	}
}

// connect makes one attempt to connect, from the connection's source port.
func (bc *backendConn) connect(lc *liveConn) (Conn, error) {
	b := bc.b
	for tries := 0; ; tries++ {
		if bc.port == 0 {
			bc.port, bc.portUsed = b.takePort(tries), false
		}
		b.counts.dials.Add(1)
		ctx, cancel := context.WithTimeout(bc.ctx, b.cfg.DialTimeout)
		conn, err := b.cfg.Dialer.Dial(ctx, bc.port, lc)
		cancel()
		if err == nil {
			if p := conn.Port(); p != bc.port {
				b.ports.put(bc.port)
				bc.port = p
			}
			bc.portUsed, bc.portBusySince = true, time.Time{}
			b.health.onConnect()
			return conn, nil
		}
		b.counts.dialErrors.Add(1)
		if bc.port == 0 || !bc.switchPort(err) {
			if bc.ctx.Err() == nil {
				b.setUnreachable(err)
			}
			return nil, err
		}
	}
}

// switchPort reports whether to retry a failed attempt at once from another port. A port that has
// been in use is kept for a while: the backend identifies the client's replays by it.
func (bc *backendConn) switchPort(err error) bool {
	b := bc.b
	switch {
	case portDenied(err):
		b.setPortsDenied()
	case !portTaken(err):
		return false
	case bc.portUsed:
		now := time.Now()
		if bc.portBusySince.IsZero() {
			bc.portBusySince = now
		}
		if now.Sub(bc.portBusySince) < b.cfg.PortPatience {
			return false
		}
	}
	b.ports.put(bc.port)
	bc.port, bc.portBusySince = 0, time.Time{}
	return true
}

// setLive makes lc the live connection, unless the backendConn is closed.
func (bc *backendConn) setLive(lc *liveConn) bool {
	bc.mu.Lock()
	defer bc.mu.Unlock()
	if bc.closed {
		return false
	}
	bc.live.Store(lc)
	bc.countsAsWaiting = false
	bc.b.waiting.Add(-bc.queue.bytes)
	bc.resending, bc.rescan, bc.cursor = true, false, bc.queue.first
	bc.b.counts.connected.Add(1)
	return true
}

// resend sends the waiting calls, in order.
func (bc *backendConn) resend(lc *liveConn) {
	out := lc.Out()
	out.Cork()
	defer out.Uncork()
	for {
		bc.mu.Lock()
		if bc.live.Load() != lc {
			bc.mu.Unlock()
			return
		}
		r := bc.cursor
		for r != nil && r.sentOn != nil {
			r = r.next
		}
		switch {
		case r != nil:
			bc.cursor = r.next
			bc.markSentLocked(lc, r)
			bc.mu.Unlock()
			lc.Submit(&r.Request)
			continue
		case bc.rescan:
			bc.rescan, bc.cursor = false, bc.queue.first
			bc.mu.Unlock()
			continue
		}
		bc.resending, bc.cursor = false, nil
		bc.mu.Unlock()
		return
	}
}

// clearLive handles the end of a connection.
func (bc *backendConn) clearLive(lc *liveConn) {
	bc.mu.Lock()
	bc.dropLiveLocked(lc)
	closed := bc.closed
	bc.mu.Unlock()
	if !closed {
		bc.b.health.onLost()
	}
	if err := lc.Err(); err != nil && !closed && !errors.Is(err, context.Canceled) {
		bc.b.cfg.Logger.Debug("backend connection ended", "cause", err)
	}
}
