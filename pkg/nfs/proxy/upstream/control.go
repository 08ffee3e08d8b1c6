package upstream

import (
	"context"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
)

// Control makes the gateway's own calls, on a connection that is dialled when there is a call and closed when there was none for a while.
type Control struct {
	b      *Backend
	dialer Dialer

	turn chan struct{} // holds one: the lock of what follows
	conn Conn
	port int
	uses int // calls under way
	idle *time.Timer
}

// Control returns a Control for a server that belongs to the backend: its mount daemon, say. It ends with the backend.
func (b *Backend) Control(d Dialer) *Control {
	c := &Control{b: b, dialer: d, turn: make(chan struct{}, 1)}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.controls = append(b.controls, c)
	return c
}

// Call is [Control.Call] on the backend itself.
func (b *Backend) Call(ctx context.Context, r *oncrpc.Request) error { return b.control.Call(ctx, r) }

// Call does what [oncrpc.Do] does. An error tells that there is no answer, be it that the backend is out of reach or that the connection was lost; the call
// may have been executed then. Nothing is sent again.
func (c *Control) Call(ctx context.Context, r *oncrpc.Request) error {
	conn, err := c.begin(ctx)
	if err != nil {
		return err
	}
	err = oncrpc.Do(ctx, conn, r)
	c.end(err)
	return err
}

// begin returns the connection, for one call.
func (c *Control) begin(ctx context.Context) (Conn, error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-c.turn }()
	if c.b.ctx.Err() != nil {
		return nil, ErrClosed
	}
	if c.conn != nil && c.conn.Err() != nil {
		c.drop()
	}
	if c.conn == nil {
		if err := c.dial(ctx); err != nil {
			return nil, err
		}
	}
	if c.idle != nil {
		c.idle.Stop()
	}
	c.uses++
	return c.conn, nil
}

// dial connects from a source port below 1024, if there is one.
func (c *Control) dial(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.b.cfg.DialTimeout)
	defer cancel()
	defer context.AfterFunc(c.b.ctx, cancel)()
	for tries := 0; ; tries++ {
		port := c.b.sourcePort(tries)
		c.b.counts.dials.Add(1)
		conn, err := c.dialer.Dial(ctx, port, nobody{})
		if err == nil {
			c.conn, c.port = conn, port
			return nil
		}
		c.b.counts.dialErrors.Add(1)
		c.b.ports.put(port)
		if port == 0 || ctx.Err() != nil {
			return err
		}
		switch {
		case portDenied(err):
			c.b.deny()
		case !portTaken(err):
			return err
		}
	}
}

// end ends one call's use of the connection.
func (c *Control) end(err error) {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if err == nil {
		c.b.health.heard()
	}
	if c.uses--; c.uses > 0 || c.conn == nil {
		return
	}
	if c.b.ctx.Err() != nil {
		c.drop()
		return
	}
	conn := c.conn
	c.idle = time.AfterFunc(c.b.cfg.IdleTime, func() {
		c.turn <- struct{}{}
		defer func() { <-c.turn }()
		if c.uses == 0 && c.conn == conn {
			c.drop()
		}
	})
}

// drop closes the connection. The lock is held.
func (c *Control) drop() {
	_ = c.conn.Close()
	c.conn.Wait()
	c.b.ports.put(c.port)
	c.conn = nil
}

// close ends the control, with the backend.
func (c *Control) close() {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if c.idle != nil {
		c.idle.Stop()
	}
	if c.conn != nil {
		c.drop()
	}
}
