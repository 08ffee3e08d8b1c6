package gateway

import (
	"context"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
)

// Connections are looked at in sweeps, so that idle time costs a call nothing. A connection ends up to a quarter of its timeout late.
const (
	shortestSweep = 250 * time.Millisecond
	longestSweep  = 15 * time.Second
)

// sweep ends idle connections until ctx ends.
func (c *clients) sweep(ctx context.Context) {
	for {
		idle := c.idle.Load()
		wait := longestSweep
		for _, d := range []config.Duration{idle.BeforeFirstCall, idle.AfterCall} {
			if d > 0 {
				wait = min(wait, max(time.Duration(d)/4, shortestSweep))
			}
		}
		select {
		case <-time.After(wait):
			c.endIdle(time.Now(), c.idle.Load())
		case <-ctx.Done():
			return
		}
	}
}

// endIdle ends the connections that have been idle for too long. One with calls in flight, or with callbacks that the client has not
// answered, is not idle.
func (c *clients) endIdle(now time.Time, idle *config.IdleTimeout) {
	c.mu.Lock()
	all := make([]*peer, 0, len(c.byConn))
	for _, cl := range c.byConn {
		all = append(all, cl)
	}
	c.mu.Unlock()
	for _, cl := range all {
		if why := cl.idle(now, idle); why != nil {
			cl.info.Control.End(why)
		}
	}
}

// idle returns why a connection has to end, nil if it need not. Only sweep calls it.
func (cl *peer) idle(now time.Time, idle *config.IdleTimeout) error {
	if cl.info.Control == nil {
		return nil
	}
	if calls := cl.info.Calls.Load(); calls != cl.calls || cl.info.Control.Busy() {
		cl.calls, cl.active = calls, now
		return nil
	}
	limit, why := idle.AfterCall, errNoCall
	if cl.calls == 0 {
		limit, why = idle.BeforeFirstCall, errNoFirstCall
	}
	if limit == 0 || now.Sub(cl.active) < time.Duration(limit) {
		return nil
	}
	return why
}
