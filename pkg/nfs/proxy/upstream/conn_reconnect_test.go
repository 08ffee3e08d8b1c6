package upstream

import (
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
)

var errRefused = errors.New("refused")

// TestBackoff checks that delays between dials grow, and that nothing is dialled without a call.
func TestBackoff(t *testing.T) {
	withEnv(t, Config{AnyPort: true}, func(b *env) {
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

		// The next dial is immediate after a long-lived connection only.
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

// TestDeaths checks which ends of connections count against a call in flight.
func TestDeaths(t *testing.T) {
	// run calls f with call 2 in flight on connection 0, on which the backend may have answered.
	run := func(name string, answered bool, f func(t *testing.T, b *env, lk *Link)) {
		t.Run(name, func(t *testing.T) {
			withEnv(t, Config{}, func(b *env) {
				lk := b.Open(client(1), nil)
				defer lk.Close()
				if answered {
					b.call(lk, 1, 1, nil)
					b.dialer.conn(t, 0).reply(1)
					b.want(ok(1, 1))
				}
				b.call(lk, 2, 2, nil)
				f(t, b, lk)
			})
		})
	}
	// A call that ended two connections is not sent on a third one. Calls that ended one are.
	run("after outages", true, func(t *testing.T, b *env, lk *Link) {
		d := b.dialer
		d.conn(t, 0) // has it in flight
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
		// The client sends it on its next connection, where two more may end.
		again := b.Open(client(2), nil)
		defer again.Close()
		b.call(again, 2, 2, nil)
		d.conn(t, 3).reply(2)
		b.want(ok(2, 2))
	})
	run("cut links", true, func(t *testing.T, b *env, _ *Link) {
		for n := range 5 {
			b.dialer.conn(t, n).end(errBroken)
			pass(time.Minute)
		}
		b.dialer.conn(t, 5).reply(2)
		b.want(ok(2, 2))
	})
	// A peer that accepts connections but answers nothing is not the backend: it gets no call
	// again, and the call waits.
	run("of another peer", false, func(t *testing.T, b *env, _ *Link) {
		d := b.dialer
		for n := range 3 {
			d.setMute(true)
			d.conn(t, n).end(errBroken)
			pass(10 * time.Second)
		}
		d.setMute(false)
		d.conn(t, 3).end(errBroken)
		pass(10 * time.Second)
		dials, _, _ := d.made()
		last := len(dials) - 1
		for n := 1; n < last; n++ {
			if sent := d.conn(t, n).sent(); len(sent) > 0 {
				t.Errorf("connection %d, which answers nothing, got %v", n, sent)
			}
		}
		d.conn(t, last).reply(2)
		b.want(ok(2, 2))
	})
}

// TestResend checks that unanswered calls are sent again in order, before later ones, from the same
// port.
func TestResend(t *testing.T) {
	withEnv(t, Config{}, func(b *env) {
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

// TestWhileResending covers calls that come, end or are answered while a new connection gets the
// waiting calls.
func TestWhileResending(t *testing.T) {
	withEnv(t, Config{AnyPort: true}, func(b *env) {
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
		// Call 1 is being sent, 2 is next.
		b.call(lk, 5, 5, nil)
		b.call(lk, 2, 20, nil)
		b.want(bad(2, 2, ErrSuperseded))
		goOn(1)
		goOn(1, 3)
		b.call(lk, 1, 10, nil) // waits for the reply to the first
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

		// Call 3 is being sent.
		c = d.conn(t, 2)
		goOn(3)
		goOn(3, 4)
		b.call(lk, 3, 30, nil)
		goOn(3, 4, 5)
		goOn(3, 4, 5, 2)
		b.call(lk, 6, 6, nil) // behind the replacement of 3, which is skipped
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

// TestRestart restarts the server under load. Every call is answered with its own XID, and all come
// from one port.
func TestRestart(t *testing.T) {
	t.Run("TCP", func(t *testing.T) { testRestart(t, nil, 20_000) })
	t.Run("RDMA", func(t *testing.T) { testRestart(t, rdmatest.NewFabric(rdmatest.Options{}), 5000) })
}

func testRestart(t *testing.T, p rdma.Provider, total int) {
	s := startEcho(t, p)
	b, pool := newBackend(t, p, s.addr, Config{BackoffMin: time.Millisecond, BackoffMax: 20 * time.Millisecond})
	lk := b.Open(client(1), nil)
	const depth = 64
	done := make(chan *Request, depth)
	finished := func(r *Request) {
		d, err := r.Results()
		if err != nil {
			t.Errorf("call %d: %v", r.XID, err)
		} else if x := d.Uint32(); x != r.XID {
			t.Errorf("call %d got the reply to %d", r.XID, x)
		}
		r.Reset()
		done <- r
	}
	for xid := uint32(1); xid <= depth; xid++ {
		r := newRequest(t, pool, xid, 1, xid)
		r.Finished = finished
		lk.Submit(r)
	}
	for answered := 0; answered < total; {
		select {
		case r := <-done:
			answered++
			kill := answered%(total/5) == total/10
			if kill {
				s.holdBack() // guarantees an unanswered call
			}
			if xid := uint32(answered + depth); xid <= uint32(total) {
				refill(t, pool, r, xid, 1, xid)
				r.Finished = finished
				lk.Submit(r)
			}
			if kill {
				s.awaitHeld()
				s.stop()
				s.start()
			}
		case <-time.After(10 * time.Millisecond): // calls held by the server
			s.release()
		}
	}
	// uses or makes the connection
	last, answer := newRequest(t, pool, uint32(total)+1, 3, 0), make(chan struct{})
	last.Finished = func(r *Request) {
		if _, err := r.Results(); err != nil {
			t.Errorf("last call: %v", err)
		}
		r.Reset()
		close(answer)
	}
	lk.Submit(last)
	<-answer
	if ports := s.sourcePorts(); p == nil && len(ports) != 1 {
		t.Errorf("the calls came from ports %v, want one", ports)
	}
	if st := b.Status(); st.Resends == 0 || st.Connections != 1 || st.Calls != 0 || st.WaitBytes != 0 {
		t.Errorf("status %+v", st)
	}
	lk.Close()
	if st := b.Status(); st.Detached != 1 {
		t.Errorf("status %+v", st)
	}
}
