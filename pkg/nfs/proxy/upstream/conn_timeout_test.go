package upstream

import (
	"slices"
	"testing"
	"time"
)

// TestSoftTimeout checks which calls time out, and when.
func TestSoftTimeout(t *testing.T) {
	const limit = 20 * time.Second
	for _, tt := range []struct {
		name string
		how  func(*Request)
		sent bool // before the backend fails
		lost bool // the connection is lost too
		ends bool
	}{
		{"never", nil, false, false, false},
		{"never, sent", nil, true, false, false},
		{"unsent", timeoutUnsent, false, false, true},
		{"unsent, sent", timeoutUnsent, true, false, false},
		{"unsent, lost", timeoutUnsent, true, true, false},
		{"always", timeoutAlways, false, false, true},
		{"always, sent", timeoutAlways, true, false, true},
		{"always, lost", timeoutAlways, true, true, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			withEnv(t, Config{SoftTimeout: limit, AnyPort: true}, func(b *env) {
				d := b.dialer
				if !tt.sent {
					d.setFail(func(int) error { return errRefused })
				}
				lk := b.Open(client(1), nil)
				pass(time.Hour)
				b.call(lk, 1, 1, tt.how)
				pass(time.Second)
				b.call(lk, 2, 2, tt.how)
				if tt.lost {
					d.setFail(func(int) error { return errRefused })
					d.conn(t, 0).end(errBroken)
				}
				pass(limit - time.Second - 1)
				b.want()
				pass(1)
				if tt.ends {
					b.want(bad(1, 1, ErrSoftTimeout))
				}
				pass(time.Second)
				if tt.ends {
					b.want(bad(2, 2, ErrSoftTimeout))
					if st := b.Status(); st.SoftTimeouts != 2 || st.Calls != 0 || st.WaitBytes != 0 {
						t.Errorf("status %+v", st)
					}
					return
				}
				pass(time.Hour)
				d.setFail(nil)
				pass(10 * time.Second)
				c := d.conn(t, 0)
				if tt.lost {
					c = d.conn(t, 1)
				}
				c.reply(1)
				c.reply(2)
				b.want(ok(1, 1), ok(2, 2))
			})
		})
	}
}

// TestSoftTimeoutOthers checks that only expired calls end, and that late replies are dropped.
func TestSoftTimeoutOthers(t *testing.T) {
	const limit = 20 * time.Second
	withEnv(t, Config{SoftTimeout: limit, AnyPort: true}, func(b *env) {
		lk := b.Open(client(1), nil)
		for xid := uint32(0); xid < 30; xid++ {
			b.call(lk, xid, xid, []func(*Request){nil, timeoutUnsent, timeoutAlways}[xid%3])
			pass(time.Second)
		}
		c := b.dialer.conn(t, 0)
		var want []outcome
		for xid := uint32(2); xid <= 10; xid += 3 {
			want = append(want, bad(xid, xid, ErrSoftTimeout))
		}
		b.want(want...)
		if c.reply(2) {
			t.Error("the connection was not told to forget the call")
		}
		if !c.late(2) {
			t.Error("no reply is owed")
		}
		b.call(lk, 2, 99, timeoutAlways) // its XID is free
		want = nil
		for xid := uint32(0); xid < 30; xid++ {
			if c.reply(xid) {
				if xid == 2 {
					want = append(want, ok(2, 99))
				} else {
					want = append(want, ok(xid, xid))
				}
			}
		}
		if len(want) != 28 {
			t.Errorf("%d calls were left to answer, want 28", len(want))
		}
		b.want(want...)
	})
}

// TestSoftTimeoutOwed checks that a call with the XID of a cancelled, still unanswered call is sent
// on a new connection only.
func TestSoftTimeoutOwed(t *testing.T) {
	const limit = 20 * time.Second
	for _, arg := range []uint32{1, 2} {
		withEnv(t, Config{SoftTimeout: limit}, func(b *env) {
			lk := b.Open(client(1), nil)
			b.call(lk, 7, 1, timeoutAlways)
			c := b.dialer.conn(t, 0)
			pass(limit)
			b.want(bad(7, 1, ErrSoftTimeout))
			b.call(lk, 8, 8, nil)
			b.call(lk, 7, arg, nil)
			if got := c.sent(); !slices.Equal(got, []uint32{7, 8}) {
				t.Errorf("sent %v", got)
			}
			if c.Err() == nil {
				t.Error("the connection goes on")
			}
			pass(time.Second)
			again := b.dialer.conn(t, 1)
			if got := again.sent(); !slices.Equal(got, []uint32{8, 7}) || again.port != c.port {
				t.Errorf("sent %v from port %d, at first it was %d", got, again.port, c.port)
			}
			again.reply(7)
			again.reply(8)
			b.want(ok(7, arg), ok(8, 8))
		})
	}
}

// TestSoftTimeoutOwedWaiting covers a call that supersedes one that is just being cancelled.
func TestSoftTimeoutOwedWaiting(t *testing.T) {
	const limit = 20 * time.Second
	withEnv(t, Config{SoftTimeout: limit}, func(b *env) {
		lk := b.Open(client(1), nil)
		b.call(lk, 7, 1, timeoutAlways)
		c := b.dialer.conn(t, 0)
		pass(limit / 2)
		c.mu.Lock()
		c.onCancel = func() { b.call(lk, 7, 2, nil) }
		c.mu.Unlock()
		pass(limit)
		b.want(bad(7, 1, ErrSuperseded))
		if got := c.sent(); !slices.Equal(got, []uint32{7}) {
			t.Errorf("sent %v", got)
		}
		again := b.dialer.conn(t, 1)
		again.reply(7)
		b.want(ok(7, 2))
	})
}

// TestSoftTimeoutRepeated checks that a superseding call has a time of its own.
func TestSoftTimeoutRepeated(t *testing.T) {
	const limit = 20 * time.Second
	for _, arg := range []uint32{1, 2} {
		withEnv(t, Config{SoftTimeout: limit, AnyPort: true}, func(b *env) {
			lk := b.Open(client(1), nil)
			b.call(lk, 7, 1, timeoutAlways)
			pass(limit / 2)
			b.call(lk, 7, arg, timeoutAlways)
			pass(limit - 1)
			b.want()
			pass(1)
			b.want(bad(7, 1, ErrSuperseded), bad(7, arg, ErrSoftTimeout))
			if got := b.dialer.conn(t, 0).sent(); !slices.Equal(got, []uint32{7}) {
				t.Errorf("sent %v", got)
			}
		})
	}
}

// TestSoftTimeoutSubmitting checks that a call which is being submitted at its timeout ends in the
// next run.
func TestSoftTimeoutSubmitting(t *testing.T) {
	const limit = 20 * time.Second
	withEnv(t, Config{SoftTimeout: limit, AnyPort: true}, func(b *env) {
		lk := b.Open(client(1), nil)
		b.call(lk, 1, 1, nil)
		c := b.dialer.conn(t, 0)
		gate := make(chan struct{})
		c.mu.Lock()
		c.gate = gate
		c.mu.Unlock()
		go b.call(lk, 2, 2, timeoutAlways)
		pass(limit + time.Second)
		b.want()
		close(gate)
		pass(limit)
		b.want(bad(2, 2, ErrSoftTimeout))
		c.reply(1)
		b.want(ok(1, 1))
	})
}

// TestSoftTimeoutSince checks that WaitingSince counts, also behind calls that have waited less.
func TestSoftTimeoutSince(t *testing.T) {
	withEnv(t, Config{SoftTimeout: 10 * time.Second}, func(b *env) {
		b.dialer.setFail(func(int) error { return errRefused })
		lk := b.Open(client(1), nil)
		defer lk.Close()
		since := func(d time.Duration) func(*Request) {
			began := time.Now().Add(-d)
			return func(r *Request) { r.Timeout, r.WaitingSince = TimeoutAlways, began }
		}
		b.call(lk, 1, 1, timeoutAlways)
		b.call(lk, 2, 2, since(8*time.Second))
		b.call(lk, 3, 3, since(4*time.Second))
		b.call(lk, 4, 4, since(time.Minute))
		pass(100 * time.Millisecond)
		b.want(bad(4, 4, ErrSoftTimeout))
		pass(2 * time.Second)
		b.want(bad(2, 2, ErrSoftTimeout))
		pass(5 * time.Second)
		b.want(bad(3, 3, ErrSoftTimeout))
		pass(5 * time.Second)
		b.want(bad(1, 1, ErrSoftTimeout))
	})
}
