package sluicectl

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// patience bounds an operation that moves no data. An outage of the server does not count:
// --reconnect bounds it.
func (s *session) patience(parent context.Context) (context.Context, context.CancelFunc) {
	ctx, _, cancel := s.patienceEach(parent)
	return ctx, cancel
}

// patienceEach bounds each answer of an operation that has many. The caller calls answered for
// each.
func (s *session) patienceEach(parent context.Context) (ctx context.Context, answered func(), cancel context.CancelFunc) {
	ctx, end := context.WithCancelCause(parent)
	limit := s.app.opts.timeout
	var mu sync.Mutex // until t is set
	mu.Lock()
	defer mu.Unlock()
	var t *time.Timer
	t = time.AfterFunc(limit, func() {
		mu.Lock()
		defer mu.Unlock()
		if rest := s.outages.rest(limit); rest > 0 {
			t.Reset(rest)
			return
		}
		end(context.DeadlineExceeded)
	})
	return ctx, func() { t.Reset(limit) }, func() { t.Stop(); end(nil) }
}

// outages are the times when the server does not answer, of the sessions of a connection.
type outages struct {
	mu    sync.Mutex
	out   bool
	ended time.Time // the last one
}

func (o *outages) begin() { o.set(true) }
func (o *outages) end()   { o.set(false) }

func (o *outages) set(out bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.out, o.ended = out, time.Now()
}

// rest returns how long the connection has to last until it has lasted for limit; 0 if it has.
func (o *outages) rest(limit time.Duration) time.Duration {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.out {
		return limit
	}
	return max(0, limit-time.Since(o.ended))
}

// Notes about a server that asks for patience: not before a second, and not too often.
const (
	noteDelayAfter = time.Second
	noteDelayEach  = 30 * time.Second
)

// delayed notes that a call waits because the server asks for it.
func (a *app) delayed(status error, waited time.Duration) {
	if waited < noteDelayAfter {
		return
	}
	a.mu.Lock()
	noted := !a.delayNoted.IsZero() && time.Since(a.delayNoted) < noteDelayEach
	if !noted {
		a.delayNoted = time.Now()
	}
	a.mu.Unlock()
	switch {
	case noted:
	case errors.Is(status, nfs4.ErrGrace):
		a.note("waiting: the server has restarted, and first lets its former clients reclaim their files (%v)", nfsStatus(status))
	default:
		a.note("waiting: %v", nfsStatus(status))
	}
}

// Limits of TCP: a server that vanishes is noticed within a minute, as one on iWARP.
const (
	keepAliveIdle     = 30 * time.Second
	keepAliveInterval = 7500 * time.Millisecond
	keepAliveCount    = 4
	userTimeout       = time.Minute
)

// limitSending bounds the wait for acknowledgements.
func limitSending(_, _ string, raw syscall.RawConn) (err error) {
	e := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds()))
	})
	return errors.Join(err, e)
}
