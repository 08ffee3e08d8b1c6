package conns

import (
	"context"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
)

// A sweep looks for idle connections, so that idle time costs a call nothing. A connection ends up
// to a quarter of its timeout late.
const (
	shortestSweep = 250 * time.Millisecond
	longestSweep  = 15 * time.Second
)

// Sweep ends idle connections until ctx ends.
func (t *Table) Sweep(ctx context.Context) {
	for {
		idle := t.idle.Load()
		wait := longestSweep
		for _, d := range []config.Duration{idle.BeforeFirstCall, idle.AfterCall} {
			if d > 0 {
				wait = min(wait, max(time.Duration(d)/4, shortestSweep))
			}
		}
		select {
		case <-time.After(wait):
			t.endIdle(time.Now(), t.idle.Load())
		case <-ctx.Done():
			return
		}
	}
}

// endIdle ends connections past their timeout. A connection with calls in flight, or with
// unanswered callbacks, is not idle.
func (t *Table) endIdle(now time.Time, idle *config.IdleTimeout) {
	t.mu.Lock()
	all := make([]*conn, 0, len(t.byConn))
	for _, c := range t.byConn {
		all = append(all, c)
	}
	t.mu.Unlock()
	for _, c := range all {
		if why := c.pastTimeout(now, idle); why != nil {
			c.info.Control.End(why)
		}
	}
}

// pastTimeout returns the cause to end a connection with, nil to keep it. Only endIdle calls it.
func (c *conn) pastTimeout(now time.Time, idle *config.IdleTimeout) error {
	if c.info.Control == nil {
		return nil
	}
	if calls := c.info.Calls.Load(); calls != c.lastCalls || c.info.Control.Busy() {
		c.lastCalls, c.lastActive = calls, now
		return nil
	}
	limit, why := idle.AfterCall, errNoCall
	if c.lastCalls == 0 {
		limit, why = idle.BeforeFirstCall, errNoFirstCall
	}
	if limit == 0 || now.Sub(c.lastActive) < time.Duration(limit) {
		return nil
	}
	return why
}
