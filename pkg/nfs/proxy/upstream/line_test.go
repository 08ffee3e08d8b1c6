package upstream

import (
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
)

var errRefused = errors.New("refused")

// TestBackoff: attempts to connect come at growing distances; nothing is dialled before there is a call.
func TestBackoff(t *testing.T) {
	onBench(t, Config{AnyPort: true}, func(b *bench) {
		d := b.dialer
		lk := b.Open(client(1), nil)
		pass(time.Hour)
		if at, _, _ := d.made(); len(at) != 0 {
			t.Fatal("a connection without a call")
		}
		d.setFail(func(int) error { return errRefused })
		began := time.Now()
		b.call(lk, 1, 1, nil)
		pass(30 * time.Second)
		d.setFail(nil)
		var at []time.Duration
		dials, _, _ := d.made()
		for _, x := range dials {
			at = append(at, x.Sub(began))
		}
		ms := time.Millisecond
		if want := []time.Duration{
			0, 50 * ms, 150 * ms, 350 * ms, 750 * ms, 1550 * ms, 3150 * ms, 6350 * ms, 11350 * ms, 16350 * ms, 21350 * ms, 26350 * ms,
		}; !slices.Equal(at, want) {
			t.Errorf("dialled at %v, want %v", at, want)
		}
		pass(5 * time.Second)
		c := d.conn(t, 0)
		c.reply(1)
		b.want(ok(1, 1))

		// After a long life the next attempt comes at once, after a short one it does not. Without calls there is none.
		pass(time.Minute)
		b.call(lk, 2, 2, nil)
		dials, _, _ = d.made()
		n := len(dials)
		began = time.Now()
		c.end(errBroken)
		d.conn(t, 1).reply(2)
		b.want(ok(2, 2))
		b.call(lk, 3, 3, nil)
		d.conn(t, 1).end(errBroken)
		pass(time.Second)
		dials, _, _ = d.made()
		if got := dials[n:]; len(got) != 2 || got[0] != began || got[1].Sub(began) != 50*ms {
			t.Errorf("dialled at %v from %v on", got, began)
		}
		d.conn(t, 2).reply(3)
		b.want(ok(3, 3))
		d.conn(t, 2).end(errBroken)
		pass(time.Hour)
		if dials, _, _ = d.made(); len(dials) != n+2 {
			t.Error("dialled without need")
		}
	})
}

// TestDeaths: a call with which two connections to a backend have ended is not sent on a third.
// Those that only one has ended with are.
func TestDeaths(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		d := b.dialer
		lk := b.Open(client(1), nil)
		defer lk.Close()
		b.call(lk, 1, 1, nil)
		d.conn(t, 0).reply(1)
		b.want(ok(1, 1))
		b.call(lk, 2, 2, nil)
		d.conn(t, 0) // has it in hand
		d.setFail(func(int) error { return errRefused })
		d.conn(t, 0).end(errBroken)
		pass(time.Second)
		d.setFail(nil)
		pass(time.Minute)
		b.call(lk, 3, 3, nil)
		b.call(lk, 2, 2, nil) // the client sends it again
		d.conn(t, 1).end(errBroken)
		b.want(bad(2, 2, ErrSuperseded), bad(2, 2, ErrLost))
		pass(time.Second)
		if sent := d.conn(t, 2).sent(); !slices.Equal(sent, []uint32{3}) {
			t.Errorf("sent %v, want [3]", sent)
		}
		d.conn(t, 2).reply(3)
		b.want(ok(3, 3))
		// The client sends it on its next connection, and has two more.
		again := b.Open(client(2), nil)
		defer again.Close()
		b.call(again, 2, 2, nil)
		d.conn(t, 3).reply(2)
		b.want(ok(2, 2))
	})
}

// TestCuts: a connection that ends while its backend lives is a cut link, as often as it happens.
func TestCuts(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		d := b.dialer
		lk := b.Open(client(1), nil)
		defer lk.Close()
		b.call(lk, 1, 1, nil)
		d.conn(t, 0).reply(1)
		b.want(ok(1, 1))
		b.call(lk, 2, 2, nil)
		for n := range 5 {
			d.conn(t, n).end(errBroken)
			pass(time.Minute)
		}
		d.conn(t, 5).reply(2)
		b.want(ok(2, 2))
	})
}

// TestDeathsElsewhere: what takes connections and ends them, or answers nothing, is no backend that
// a call has ended: it gets no call again, and the call waits.
func TestDeathsElsewhere(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		d := b.dialer
		lk := b.Open(client(1), nil)
		defer lk.Close()
		b.call(lk, 1, 1, nil)
		for n := range 3 {
			d.setMute()
			d.conn(t, n).end(errBroken)
			pass(10 * time.Second)
		}
		d.mu.Lock()
		d.mute = false
		d.mu.Unlock()
		d.conn(t, 3).end(errBroken)
		pass(10 * time.Second)
		dials, _, _ := d.made()
		last := len(dials) - 1
		for n := 1; n < last; n++ {
			if sent := d.conn(t, n).sent(); len(sent) > 0 {
				t.Errorf("connection %d, which answers nothing, got %v", n, sent)
			}
		}
		d.conn(t, last).reply(1)
		b.want(ok(1, 1))
	})
}

// TestResend: what is unanswered is sent again, in order and before what came later, from the same port.
func TestResend(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		d := b.dialer
		lk := b.Open(client(1), nil)
		for xid := uint32(1); xid <= 100; xid++ {
			b.call(lk, xid, 10*xid, nil)
		}
		c := d.conn(t, 0)
		c.reply(30)
		c.reply(70)
		b.want(ok(30, 300), ok(70, 700))
		d.setFail(func(int) error { return errRefused })
		c.end(errBroken)
		for xid := uint32(101); xid <= 110; xid++ {
			b.call(lk, xid, 10*xid, nil)
		}
		if st := b.Status(); st.Calls != 108 || st.WaitBytes != 108*(callCost+oncrpc.MinCallLen+4) || st.Connections != 0 {
			t.Errorf("status %+v", st)
		}
		d.setFail(nil)
		pass(10 * time.Second)
		c = d.conn(t, 1)
		var want []uint32
		var outcomes []outcome
		for xid := uint32(1); xid <= 110; xid++ {
			if xid != 30 && xid != 70 {
				want = append(want, xid)
				outcomes = append(outcomes, ok(xid, 10*xid))
			}
		}
		if got := c.sent(); !slices.Equal(got, want) {
			t.Errorf("sent %v, want %v", got, want)
		}
		if c.holds.most != 1 || c.holds.held != 0 {
			t.Errorf("what is sent again was not gathered: %+v", c.holds)
		}
		for _, xid := range want {
			c.reply(xid)
		}
		b.want(outcomes...)
		_, ports, _ := d.made()
		for _, p := range ports {
			if p != ports[0] || p < firstPort || p > lastPort {
				t.Errorf("dialled from %v, want one port below 1024", ports)
			}
		}
		if st := b.Status(); st.Resends != 98 || st.WaitBytes != 0 || st.Connections != 1 || st.Ports != 1 {
			t.Errorf("status %+v", st)
		}
	})
}

// TestOnce: a call that is good for one connection only ends with that. Until it has been sent it waits like any other.
func TestOnce(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
		d := b.dialer
		lk := b.Open(client(1), nil)
		once := func(r *Request) { r.NoReplay = true }
		b.call(lk, 1, 1, once)
		b.call(lk, 2, 2, nil)
		b.call(lk, 3, 3, once)
		b.call(lk, 4, 4, once)
		c := d.conn(t, 0)
		b.call(lk, 3, 3, once)  // is the same
		b.call(lk, 4, 40, once) // waits for the former
		c.reply(1)
		b.want(ok(1, 1))
		d.setFail(func(int) error { return errRefused })
		c.end(errBroken)
		b.want(bad(3, 3, ErrSuperseded), bad(3, 3, ErrLost), bad(4, 4, ErrSuperseded))
		b.call(lk, 5, 5, once)
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

		// The backend knows the repetition by XID and address: its sender finds the same source port.
		b.call(lk, 6, 6, once)
		c.end(errBroken)
		b.want(bad(6, 6, ErrLost))
		lk.Close()
		pass(time.Second)
		b.call(b.Open(client(2), nil), 6, 60, once)
		pass(time.Second)
		again := d.conn(t, 2)
		if again.port != c.port {
			t.Errorf("port %d, at first it was %d", again.port, c.port)
		}
		again.reply(6)
		b.want(ok(6, 60))
	})
}

// TestWhileResending: what comes, goes or is answered while a new connection gets what waits, which takes its time.
func TestWhileResending(t *testing.T) {
	onBench(t, Config{AnyPort: true}, func(b *bench) {
		d := b.dialer
		lk := b.Open(client(1), nil)
		for xid := uint32(1); xid <= 4; xid++ {
			b.call(lk, xid, xid, nil)
		}
		c := d.conn(t, 0)
		gate := make(chan struct{})
		d.mu.Lock()
		d.gate = gate
		d.mu.Unlock()
		c.end(errBroken)
		pass(time.Second)
		c = d.conn(t, 1)
		goOn := func(want ...uint32) {
			t.Helper()
			gate <- struct{}{}
			if got := c.sent(); !slices.Equal(got, want) {
				t.Errorf("sent %v, want %v", got, want)
			}
		}
		// Call 1 is being sent, and 2 would be next.
		b.call(lk, 5, 5, nil)
		b.call(lk, 2, 20, nil)
		b.want(bad(2, 2, ErrSuperseded))
		goOn(1)
		goOn(1, 3)
		b.call(lk, 1, 10, nil) // waits for the first one's answer
		goOn(1, 3, 4)
		goOn(1, 3, 4, 5)
		goOn(1, 3, 4, 5, 2)
		synctest.Wait()
		if lk.bc.Load().resending {
			t.Error("all is sent, and yet it is being sent")
		}
		c.end(errBroken)
		b.want(bad(1, 1, ErrSuperseded))
		pass(time.Second)

		// Now 3 is being sent, and the others follow.
		c = d.conn(t, 2)
		goOn(3)
		goOn(3, 4)
		b.call(lk, 3, 30, nil)
		goOn(3, 4, 5)
		goOn(3, 4, 5, 2)
		b.call(lk, 6, 6, nil) // behind 3's successor, which is passed over
		goOn(3, 4, 5, 2, 1)
		c.reply(3) // while 6 is being sent
		b.want(bad(3, 3, ErrSuperseded))
		b.call(lk, 7, 7, nil)
		goOn(3, 4, 5, 2, 1, 6)
		goOn(3, 4, 5, 2, 1, 6, 7)
		goOn(3, 4, 5, 2, 1, 6, 7, 3)
		for xid := uint32(1); xid <= 7; xid++ {
			c.reply(xid)
		}
		b.want(ok(1, 10), ok(2, 20), ok(3, 30), ok(4, 4), ok(5, 5), ok(6, 6), ok(7, 7))
	})
}

// TestFinal: an error that sending again would not help is the request's.
func TestFinal(t *testing.T) {
	onBench(t, Config{}, func(b *bench) {
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

// TestFinalRDMA: of the errors of RPC-over-RDMA, those of the connection are not the request's, nor is that its XID is taken there.
func TestFinalRDMA(t *testing.T) {
	for err, want := range map[error]bool{
		&rpcrdma.LostError{}: false,
		rpcrdma.ErrClosed:    false,
		fmt.Errorf("rpcrdma: %w: 7", oncrpc.ErrXIDInUse):   false,
		&rpcrdma.RequestError{Reason: "it has 5000 bytes"}: true,
	} {
		if got := (rdmaConn{}).Final(err); got != want {
			t.Errorf("%v: %v, want %v", err, got, want)
		}
	}
}

func bindError(errno syscall.Errno) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("bind", errno)}
}

func connectError(errno syscall.Errno) error {
	return &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", errno)}
}

// TestPorts: which source port a line takes, and what it does when it is not free.
func TestPorts(t *testing.T) {
	answer := func(b *bench, lk *Link, n int) {
		t.Helper()
		b.call(lk, 1, 1, nil)
		pass(time.Second)
		b.dialer.conn(t, n).reply(1)
		b.want(ok(1, 1))
	}
	t.Run("others have them", func(t *testing.T) {
		onBench(t, Config{}, func(b *bench) {
			b.dialer.setFail(func(p int) error {
				if p < 670 {
					return connectError(syscall.EADDRNOTAVAIL)
				}
				return nil
			})
			began := time.Now()
			answer(b, b.Open(client(1), nil), 0)
			at, ports, _ := b.dialer.made()
			if ports[5] != 670 || at[5] != began {
				t.Errorf("dialled at %v from %v", at, ports)
			}
			b.dialer.setFail(func(p int) error {
				if p != 0 {
					return bindError(syscall.EADDRINUSE)
				}
				return nil
			})
			answer(b, b.Open(client(2), nil), 1)
			if st := b.Status(); st.OtherPorts != 1 || st.Ports != 1 {
				t.Errorf("status %+v", st)
			}
		})
	})
	t.Run("denied", func(t *testing.T) {
		onBench(t, Config{}, func(b *bench) {
			b.dialer.setFail(func(p int) error {
				if p != 0 && p < 1024 {
					return bindError(syscall.EACCES)
				}
				return nil
			})
			lk := b.Open(client(1), nil)
			answer(b, lk, 0)
			b.dialer.conn(t, 0).end(errBroken)
			answer(b, lk, 1)
			if _, got, _ := b.dialer.made(); !slices.Equal(got, []int{665, 0, 40_000}) {
				t.Errorf("dialled from %v", got)
			}
			answer(b, b.Open(client(2), nil), 2)
			_, ports, _ := b.dialer.made()
			if st := b.Status(); ports[3] != 0 || st.OtherPorts != 0 || st.Ports != 0 {
				t.Errorf("dialled from %v, status %+v", ports, st)
			}
		})
	})
	for _, tt := range []struct {
		name  string
		taken time.Duration
		want  int
	}{{"free again soon", 3 * time.Second, 665}, {"never free again", time.Hour, 666}} {
		t.Run(tt.name, func(t *testing.T) {
			onBench(t, Config{}, func(b *bench) {
				lk := b.Open(client(1), nil)
				answer(b, lk, 0)
				broken := time.Now()
				b.dialer.setFail(func(p int) error {
					if p == 665 && time.Since(broken) < tt.taken {
						return connectError(syscall.EADDRNOTAVAIL)
					}
					return nil
				})
				b.dialer.conn(t, 0).end(errBroken)
				b.call(lk, 1, 1, nil)
				pass(20 * time.Second)
				c := b.dialer.conn(t, 1)
				if c.port != tt.want {
					t.Errorf("port %d, want %d", c.port, tt.want)
				}
				c.reply(1)
				b.want(ok(1, 1))
			})
		})
	}
	t.Run("all in use", func(t *testing.T) {
		onBench(t, Config{}, func(b *bench) {
			for i := range lastPort - firstPort + 2 {
				answer(b, b.Open(client(uint16(i)), nil), i)
			}
			if st := b.Status(); st.OtherPorts != 1 || st.Ports != lastPort-firstPort+1 {
				t.Errorf("status %+v", st)
			}
		})
	})
}

// TestOverload: beyond the limit calls are refused while there is no connection; one that is alone never is.
func TestOverload(t *testing.T) {
	const each = callCost + oncrpc.MinCallLen + 4
	onBench(t, Config{WaitLimit: 3 * each, AnyPort: true}, func(b *bench) {
		d := b.dialer
		d.setFail(func(int) error { return errRefused })
		one, two := b.Open(client(1), nil), b.Open(client(2), nil)
		b.call(one, 1, 1, nil)
		b.call(two, 2, 2, nil)
		b.call(one, 3, 3, nil)
		b.want()
		b.call(two, 4, 4, nil)
		b.want(bad(4, 4, ErrOverloaded))
		one.Close() // what has not been sent is not kept
		b.want(bad(1, 1, ErrClosed), bad(3, 3, ErrClosed))
		b.call(two, 5, 5, nil)
		b.want()
		d.setFail(nil)
		pass(time.Minute)
		for xid := uint32(10); xid < 20; xid++ { // with a connection there is no such limit
			b.call(two, xid, 0, nil)
		}
		for xid := range uint32(20) {
			d.conn(t, 0).reply(xid)
		}
		if n := len(b.results()); n != 12 {
			t.Errorf("%d calls were answered, want 12", n)
		}
		if st := b.Status(); st.Overloads != 1 || st.WaitBytes != 0 {
			t.Errorf("status %+v", st)
		}
	})
	onBench(t, Config{WaitLimit: 1}, func(b *bench) {
		b.call(b.Open(client(1), nil), 1, 1, nil)
		b.dialer.conn(t, 0).reply(1)
		b.want(ok(1, 1))
	})
}

// TestRepeated: a call with the XID of one that is unanswered.
func TestRepeated(t *testing.T) {
	setup := func(t *testing.T, f func(b *bench, lk *Link, c *fakeConn)) {
		onBench(t, Config{AnyPort: true}, func(b *bench) {
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
		setup(t, func(b *bench, lk *Link, c *fakeConn) {
			b.call(lk, 7, 1, nil)
			b.want()
			b.call(lk, 7, 1, nil)
			b.want(bad(7, 1, ErrSuperseded)) // the second; the first is still in the connection's hands
			sent(t, c, 7)
			c.reply(7)
			b.want(bad(7, 1, ErrSuperseded), ok(7, 1))
			b.call(lk, 7, 2, nil) // all done: a call like any other
			c.reply(7)
			b.want(ok(7, 2))
		})
	})
	t.Run("same, lost", func(t *testing.T) {
		setup(t, func(b *bench, lk *Link, c *fakeConn) {
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
		setup(t, func(b *bench, lk *Link, c *fakeConn) {
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
		setup(t, func(b *bench, lk *Link, c *fakeConn) {
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
		setup(t, func(b *bench, lk *Link, c *fakeConn) {
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
		setup(t, func(b *bench, lk *Link, _ *fakeConn) {
			b.call(lk, 8, 8, nil)
			b.call(lk, 7, 2, nil)
			b.call(lk, 7, 3, nil) // the first will never be answered
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
		setup(t, func(b *bench, lk *Link, c *fakeConn) {
			b.call(lk, 7, 2, nil)
			b.call(lk, 7, 1, nil)
			c.reply(7)
			b.want(bad(7, 1, ErrSuperseded), bad(7, 2, ErrSuperseded), ok(7, 1))
			sent(t, c, 7)
		})
	})
}

// TestGather: a link's holds are those of its connection, a connection's batches hold the client, whatever changes meanwhile.
func TestGather(t *testing.T) {
	onBench(t, Config{AnyPort: true}, func(b *bench) {
		var out gatherer
		conn := client(1)
		conn.Out = &out
		lk := b.Open(conn, nil)
		lk.Cork() // nothing to hold yet
		b.call(lk, 1, 1, nil)
		c := b.dialer.conn(t, 0)
		lk.Uncork()
		lk.Cork()
		if c.holds.held != 1 {
			t.Errorf("%d holds", c.holds.held)
		}
		c.peer.Cork()
		if out.held != 1 {
			t.Errorf("%d holds of the client", out.held)
		}
		c.reply(1)
		lk.Close()
		c.peer.Uncork()
		c.peer.Cork() // parked
		c.peer.Uncork()
		c.end(errBroken)
		lk.Uncork()
		if c.holds.held != 0 || out.held != 0 || out.most != 1 {
			t.Errorf("holds %+v, of the client %+v", c.holds, out)
		}
		b.want(ok(1, 1))
	})
}
