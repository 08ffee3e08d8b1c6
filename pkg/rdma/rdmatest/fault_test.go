package rdmatest

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

// inBubble runs a test of the fabric in virtual time, with the tools of the suite.
func inBubble(t *testing.T, o Options, test func(x *exam, f *Fabric)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := NewFabric(o)
		x := &exam{T: t, suite: &suite{Factory: Factory{Provider: f, Address: "127.0.0.1:0"}, pool: bufpool.New(0)}}
		defer x.finish()
		test(x, f)
	})
}

// TestFaults tries each action at each operation, and checks the effects at both ends.
func TestFaults(t *testing.T) {
	type outcome struct {
		delivered bool // the operation took effect at the peer
		back      bool // and its result, if it has one, came back
		why       error
	}
	ops := []rdma.Opcode{rdma.Send, rdma.SendWithInvalidate, rdma.Write, rdma.Read}
	for _, c := range []struct {
		do   Action
		ops  []rdma.Opcode
		want outcome
	}{
		{LoseBeforeSend, ops, outcome{why: ErrLost}},
		{LoseBeforeDelivery, ops, outcome{why: ErrLost}},
		{LoseAfterDelivery, ops, outcome{delivered: true, why: ErrLost}},
		{RefuseAccess, ops, outcome{why: ErrRemoteAccess}},
		{Overrun, ops[:2], outcome{why: ErrOverrun}},
		{Delay, ops, outcome{delivered: true, back: true}},
		{DelaySent, ops[:3], outcome{delivered: true, back: true}},
		{Stall, ops, outcome{}},
	} {
		for _, op := range c.ops {
			for _, o := range []Options{{}, {Delay: time.Millisecond}, {Bandwidth: 1 << 20, SentDelay: time.Millisecond}} {
				t.Run(fmt.Sprintf("%d/%s/%v", c.do, opName(op), o.Delay), func(t *testing.T) {
					inBubble(t, o, func(x *exam, f *Fabric) {
						a, b := x.connect(setup{}, setup{})
						region, mine := x.memory(100, 0), x.memory(100, 0)
						copy(mine, noise(1, 100))
						copy(region, noise(2, 100))
						other := b.expose(x.memory(1, 0), rdma.RemoteRead)
						remote := b.expose(region, rdma.RemoteRead|rdma.RemoteWrite)
						spared := f.Inject(Fault{Do: c.do, Op: op, Nth: 2})
						armed := f.Inject(Fault{Do: c.do, From: Dialer, Op: op, Delay: time.Hour})
						start := time.Now()
						a.post(rdma.WorkRequest{Op: op, Signaled: op != rdma.Read, Local: list(mine), Remote: remote, Invalidate: other.Handle})
						if c.want.why != nil {
							violated(a, b)
							for _, e := range []*end{a, b} {
								if !errors.Is(e.err, c.want.why) {
									x.Errorf("%s: %v, want %v", e.name, e.err, c.want.why)
								}
							}
						} else {
							time.Sleep(2 * time.Hour)
						}
						synctest.Wait()
						if !armed.Fired() || spared.Fired() {
							x.Errorf("the first fault fired: %v; the second: %v", armed.Fired(), spared.Fired())
						}
						switch op {
						case rdma.Write:
							if got := bytes.Equal(region, mine); got != c.want.delivered {
								x.Errorf("written: %v, want %v", got, c.want.delivered)
							}
						case rdma.Read:
							if got := bytes.Equal(region, mine); got != c.want.back || got != (len(a.done) == 1) {
								x.Errorf("read: %v, %d completions, want %v", got, len(a.done), c.want.back)
							}
						default:
							if got := len(b.messages) == 1; got != c.want.delivered {
								x.Errorf("received: %v, want %v", got, c.want.delivered)
							}
						}
						if c.want.back && len(a.posted) > 0 {
							x.Error("no completion")
						}
						_ = start
					})
				})
			}
		}
	}
}

// TestFaultSelection: Conn, From, Op and Nth choose the work request.
func TestFaultSelection(t *testing.T) {
	for _, c := range []struct {
		fault Fault
		// after so many Sends of each connection's dialer, echoed by the acceptor; -1 for never
		lost [2]int
	}{
		{Fault{Op: rdma.Send}, [2]int{0, -1}},
		{Fault{Op: rdma.Send, Nth: 3}, [2]int{1, -1}},
		{Fault{Op: rdma.Send, From: Acceptor, Nth: 3}, [2]int{2, -1}},
		{Fault{Op: AnyOp, From: Dialer, Nth: 3}, [2]int{2, -1}},
		{Fault{Conn: 2, Op: rdma.Send, From: Dialer, Nth: 2}, [2]int{-1, 1}},
		{Fault{Conn: 2, Op: rdma.Write}, [2]int{-1, -1}},
		{Fault{Op: rdma.Send, Nth: 13}, [2]int{-1, 2}},
		{Fault{Op: rdma.Send, Nth: 100}, [2]int{-1, -1}},
	} {
		inBubble(t, Options{}, func(x *exam, f *Fabric) {
			var ends [2][2]*end
			for i := range ends {
				ends[i][0], ends[i][1] = x.connect(setup{}, setup{})
			}
			c.fault.Do = LoseBeforeSend
			armed := f.Inject(c.fault)
			for i, e := range ends {
				got := -1
				for n := range 4 {
					if e[0].echo(e[1], noise(n, 10)) != nil {
						got = n
						break
					}
				}
				if got != c.lost[i] {
					x.Errorf("%+v: connection %d was lost after %d, want %d", c.fault, i+1, got, c.lost[i])
				}
			}
			if want := c.lost != [2]int{-1, -1}; armed.Fired() != want {
				x.Errorf("%+v: fired %v", c.fault, !want)
			}
		})
	}
}

// TestDelay: a late request delays later ones in its direction, and nothing else.
func TestDelay(t *testing.T) {
	inBubble(t, Options{Delay: time.Millisecond}, func(x *exam, f *Fabric) {
		a, b := x.connect(setup{}, setup{})
		f.Inject(Fault{Do: Delay, Delay: 9 * time.Millisecond, From: Dialer, Op: rdma.Send, Nth: 2})
		start := time.Now()
		times := make(chan time.Duration, 10)
		b.on(func(message) { times <- time.Since(start) }, nil)
		for range 3 {
			a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true})
		}
		a.awaitSent(3)
		if d := time.Since(start); d != 0 {
			x.Errorf("Sent after %v, want at once", d)
		}
		b.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true})
		a.receive()
		if d := time.Since(start); d != time.Millisecond {
			x.Errorf("the other direction took %v, want 1ms", d)
		}
		for i, want := range []time.Duration{1, 10, 10} {
			if got := <-times; got != want*time.Millisecond {
				x.Errorf("message %d came after %v, want %v ms", i, got, int(want))
			}
		}
		f.Inject(Fault{Do: DelaySent, Delay: 5 * time.Millisecond, Op: rdma.Send})
		start = time.Now()
		for range 2 {
			a.post(rdma.WorkRequest{Op: rdma.Send, Signaled: true})
		}
		<-times
		<-times
		if d := time.Since(start); d != time.Millisecond {
			x.Errorf("the messages took %v, want 1ms", d)
		}
		a.awaitSent(2)
		if d := time.Since(start); d != 5*time.Millisecond {
			x.Errorf("Sent came after %v, want 5ms", d)
		}
	})
}

// TestLateInvalidate: a handle is reused for other memory while a Send with Invalidate of it is in
// flight, and that memory is invalidated.
func TestLateInvalidate(t *testing.T) {
	inBubble(t, Options{ReuseHandles: true}, func(x *exam, f *Fabric) {
		a, b := x.connect(setup{}, setup{})
		first, second := x.memory(100, 0), x.memory(100, 0)
		clear(second)
		r := b.expose(first, rdma.RemoteWrite)
		f.Inject(Fault{Do: Delay, Delay: time.Second, Op: rdma.SendWithInvalidate})
		a.post(rdma.WorkRequest{Op: rdma.SendWithInvalidate, Signaled: true, Invalidate: r.Handle})
		b.post(rdma.WorkRequest{Op: rdma.LocalInvalidate, Invalidate: r.Handle})
		b.await()
		again := b.expose(second, rdma.RemoteWrite)
		if again.Handle != r.Handle {
			x.Fatalf("handle %#x, want %#x again", again.Handle, r.Handle)
		}
		if m := b.receive(); !m.HasInvalidated || m.Invalidated != again.Handle {
			x.Errorf("%+v, want handle %#x invalidated", m.Completion, again.Handle)
		}
		a.post(rdma.WorkRequest{Op: rdma.Write, Local: list(first), Remote: again})
		violated(a, b)
		if !errors.Is(a.err, ErrRemoteAccess) || !isZero(second) {
			x.Errorf("the late invalidation had no effect: %v", a.err)
		}
	})
	inBubble(t, Options{NoRemoteInvalidation: true}, func(x *exam, f *Fabric) {
		a, b := x.connect(setup{}, setup{})
		if b.ep.Attributes().RemoteInvalidation {
			x.Error("remote invalidation is offered")
		}
		r := b.expose(x.memory(1, 0), rdma.RemoteWrite)
		a.post(rdma.WorkRequest{Op: rdma.SendWithInvalidate, Signaled: true, Invalidate: r.Handle})
		violated(a, b)
	})
}
