package upstream

import (
	"errors"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
)

// TestNoReplay checks that a NoReplay call ends with its connection, and waits like any other
// before it is sent.
func TestNoReplay(t *testing.T) {
	withEnv(t, Config{}, func(b *env) {
		d := b.dialer
		lk := b.Open(client(1), nil)
		noReplay := func(r *Request) { r.NoReplay = true }
		b.call(lk, 1, 1, noReplay)
		b.call(lk, 2, 2, nil)
		b.call(lk, 3, 3, noReplay)
		b.call(lk, 4, 4, noReplay)
		c := d.conn(t, 0)
		b.call(lk, 3, 3, noReplay)  // the same call
		b.call(lk, 4, 40, noReplay) // waits for the first
		c.reply(1)
		b.want(ok(1, 1))
		d.setFail(func(int) error { return errRefused })
		c.end(errBroken)
		b.want(bad(3, 3, ErrSuperseded), bad(3, 3, ErrLost), bad(4, 4, ErrSuperseded))
		b.call(lk, 5, 5, noReplay)
		d.setFail(nil)
		pass(time.Second)
		c = d.conn(t, 1)
		if got := c.sent(); !slices.Equal(got, []uint32{2, 4, 5}) {
			t.Errorf("sent %v", got)
		}
		for _, xid := range c.sent() {
			c.reply(xid)
		}
		b.want(ok(2, 2), ok(4, 40), ok(5, 5))

		// The backend identifies the replay by XID and address, so the source port must be the
		// same.
		b.call(lk, 6, 6, noReplay)
		c.end(errBroken)
		b.want(bad(6, 6, ErrLost))
		lk.Close()
		pass(time.Second)
		b.call(b.Open(client(2), nil), 6, 60, noReplay)
		pass(time.Second)
		again := d.conn(t, 2)
		if again.port != c.port {
			t.Errorf("port %d, at first it was %d", again.port, c.port)
		}
		again.reply(6)
		b.want(ok(6, 60))
	})
}

// TestFinal checks that a final error ends the request and keeps the connection.
func TestFinal(t *testing.T) {
	withEnv(t, Config{}, func(b *env) {
		b.call(b.Open(client(1), nil), 1, 1, nil)
		c := b.dialer.conn(t, 0)
		r := c.take(1)
		r.Err = errFinal
		r.Done(r)
		b.want(bad(1, 1, errFinal))
		if st := b.Status(); st.Connections != 1 {
			t.Errorf("status %+v", st)
		}
	})
}

// TestSuperseded covers calls with the XID of an unanswered call.
func TestSuperseded(t *testing.T) {
	setup := func(t *testing.T, f func(b *env, lk *Link, c *fakeConn)) {
		withEnv(t, Config{AnyPort: true}, func(b *env) {
			lk := b.Open(client(1), nil)
			b.call(lk, 7, 1, nil)
			f(b, lk, b.dialer.conn(t, 0))
		})
	}
	sent := func(t *testing.T, c *fakeConn, want ...uint32) {
		t.Helper()
		if got := c.sent(); !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
	}
	t.Run("same", func(t *testing.T) {
		setup(t, func(b *env, lk *Link, c *fakeConn) {
			b.call(lk, 7, 1, nil)
			b.want()
			b.call(lk, 7, 1, nil)
			b.want(bad(7, 1, ErrSuperseded)) // the second; the first is still in flight
			sent(t, c, 7)
			c.reply(7)
			b.want(bad(7, 1, ErrSuperseded), ok(7, 1))
			b.call(lk, 7, 2, nil) // the XID is free again
			c.reply(7)
			b.want(ok(7, 2))
		})
	})
	t.Run("same, lost", func(t *testing.T) {
		setup(t, func(b *env, lk *Link, c *fakeConn) {
			b.call(lk, 7, 1, nil)
			c.end(errBroken)
			b.want(bad(7, 1, ErrSuperseded))
			pass(time.Second)
			c = b.dialer.conn(t, 1)
			sent(t, c, 7)
			c.reply(7)
			b.want(ok(7, 1))
		})
	})
	t.Run("waiting", func(t *testing.T) {
		setup(t, func(b *env, lk *Link, c *fakeConn) {
			b.dialer.setFail(func(int) error { return errRefused })
			c.end(errBroken)
			b.call(lk, 8, 5, nil)
			b.call(lk, 7, 1, nil)
			b.call(lk, 8, 6, nil)
			b.want(bad(7, 1, ErrSuperseded), bad(8, 5, ErrSuperseded))
			b.dialer.setFail(nil)
			pass(10 * time.Second)
			c = b.dialer.conn(t, 1)
			sent(t, c, 7, 8)
			c.reply(7)
			c.reply(8)
			b.want(ok(7, 1), ok(8, 6))
		})
	})
	t.Run("another", func(t *testing.T) {
		setup(t, func(b *env, lk *Link, c *fakeConn) {
			b.call(lk, 7, 2, nil)
			sent(t, c, 7) // the second waits
			c.reply(7)
			b.want(bad(7, 1, ErrSuperseded))
			sent(t, c, 7, 7)
			c.reply(7)
			b.want(ok(7, 2))
		})
	})
	t.Run("another, lost", func(t *testing.T) {
		setup(t, func(b *env, lk *Link, c *fakeConn) {
			b.call(lk, 7, 2, nil)
			c.end(errBroken)
			pass(time.Second)
			c = b.dialer.conn(t, 1)
			sent(t, c, 7)
			c.reply(7)
			b.want(bad(7, 1, ErrSuperseded), ok(7, 2))
		})
	})
	t.Run("another, and another", func(t *testing.T) {
		setup(t, func(b *env, lk *Link, _ *fakeConn) {
			b.call(lk, 8, 8, nil)
			b.call(lk, 7, 2, nil)
			b.call(lk, 7, 3, nil) // the first is never answered
			b.want(bad(7, 1, ErrSuperseded), bad(7, 2, ErrSuperseded))
			pass(time.Second)
			c := b.dialer.conn(t, 1)
			sent(t, c, 8, 7)
			c.reply(8)
			c.reply(7)
			b.want(ok(8, 8), ok(7, 3))
		})
	})
	t.Run("another, and the same again", func(t *testing.T) {
		setup(t, func(b *env, lk *Link, c *fakeConn) {
			b.call(lk, 7, 2, nil)
			b.call(lk, 7, 1, nil)
			c.reply(7)
			b.want(bad(7, 1, ErrSuperseded), bad(7, 2, ErrSuperseded), ok(7, 1))
			sent(t, c, 7)
		})
	})
}

// TestLateReply checks that a late reply to a cancelled call is not delivered to the next call with
// its XID.
func TestLateReply(t *testing.T) {
	came := make(chan *oncrpc.Call, 2)
	addr := startServer(t, handler(func(c *oncrpc.Call) {
		if c.Procedure == 0 {
			c.ReplyAccept(oncrpc.Success)
			return
		}
		came <- c
	}))
	answer := func(c *oncrpc.Call) {
		arg := c.Args().Uint32()
		e, err := c.BeginReply(oncrpc.MinReplyLen + 4)
		if err != nil {
			t.Error(err)
			c.Drop()
			return
		}
		e.Uint32(arg)
		c.Respond()
	}
	b, pool := newTCPBackend(t, addr, Config{SoftTimeout: 50 * time.Millisecond, BackoffMin: time.Millisecond, BackoffMax: time.Millisecond})
	lk := b.Open(client(1), nil)
	done := make(chan struct{})
	submit := func(arg uint32, soft TimeoutPolicy) *Request {
		r := newRequest(t, pool, 7, 1, arg)
		r.Timeout, r.Finished = soft, func(*Request) { done <- struct{}{} }
		lk.Submit(r)
		return r
	}
	r := submit(1, TimeoutAlways)
	first := <-came
	<-done
	if !errors.Is(r.Err, ErrSoftTimeout) {
		t.Errorf("the first call ends with %v, want %v", r.Err, ErrSoftTimeout)
	}
	r.Reset()
	r = submit(2, TimeoutNever)
	second := <-came
	answer(first)
	answer(second)
	<-done
	if d, err := r.Results(); err != nil {
		t.Error(err)
	} else if x := d.Uint32(); x != 2 {
		t.Errorf("the second call got the reply to the one with %d", x)
	}
	r.Reset()
}
