package rpcrdma

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// noReads is for requesters whose peer takes no Read chunk: a long call goes as a group, or not at
// all.
func noReads(cfg *Config) {
	cfg.Limits = wire.DefaultLimits
	cfg.Limits.ReadSegments = 0
}

// queueEnv is a requester with three credits, whose calls of 5000 bytes take two.
type queueEnv struct {
	*env
	c *Client
	p *rawPeer
}

func newQueueEnv(t *testing.T, changes ...func(*Config)) *queueEnv {
	t.Helper()
	c, p, w, err := dial2(t, func(cfg *Config) {
		extended(MessageContinuation)(cfg)
		noReads(cfg)
		for _, change := range changes {
			change(cfg)
		}
	}, func(h *wire.Header) []byte {
		return words(uint32(h.XID), 2, 3, 6, 4, 1, 4, 4096, 3, 4, 5, 5, 4, 4, 6, 4, 4, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	return &queueEnv{w, c, p}
}

// submit makes a call with an argument of n bytes.
func (w *queueEnv) submit(n int) (*oncrpc.Request, chan struct{}) {
	w.t.Helper()
	m := move{args: []int{n}}
	r, err := m.build(w.cpool)
	if err == nil {
		err = r.Seal()
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return r, submit(w.c, r)
}

// take takes the n messages of a call, and returns its XID; 0 is for one message of any kind.
func (w *queueEnv) take(n int) uint32 {
	w.t.Helper()
	h := w.p.parse2(w.p.get().b)
	if n == 0 {
		return uint32(h.XID)
	}
	if n > 1 && int(h.Transmit.Count) != n || n == 1 && h.Procedure != wire.Msg {
		w.t.Fatalf("a call %+v, want one of %d messages", h, n)
	}
	for range n - 1 {
		w.p.get()
	}
	return uint32(h.XID)
}

func (w *queueEnv) answer(xid uint32, n, credits int) {
	w.p.send(words(xid, 2, credits, 0, 1, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0, crc(n, 0), n, 0, tail))
}

// waits returns the requirement for which the first call in the queue waits.
func (w *queueEnv) waits() (needs int) {
	out := &w.c.conn.requester
	out.mu.Lock()
	defer out.mu.Unlock()
	if out.first != nil {
		needs = out.first.needs
	}
	return needs
}

// TestWaitForCredits makes calls that only groups can carry, while too few credits are free: they
// wait for all of them, hold none meanwhile, and are not overtaken. When the grant is too low for
// good, they are refused.
func TestWaitForCredits(t *testing.T) {
	w := newQueueEnv(t)
	a, aDone := w.submit(100)
	b, bDone := w.submit(100)
	xa, xb := w.take(1), w.take(1)
	long, longDone := w.submit(5000)
	later, laterDone := w.submit(100)
	if n := w.waits(); n != 2 {
		t.Fatalf("the first call waits for %d credits, want 2", n)
	}
	w.p.none()
	w.answer(xa, 100, 3)
	<-aDone
	xl := w.take(2)
	w.p.none()
	w.answer(xb, 100, 2) // two are in flight, so the other still waits
	<-bDone
	w.p.none()
	w.answer(xl, 5000, 2)
	<-longDone
	xc := w.take(1)
	w.answer(xc, 100, 1)
	<-laterDone
	never, neverDone := w.submit(5000)
	<-neverDone
	for _, r := range []*oncrpc.Request{a, b, long, later} {
		if r.Err != nil {
			t.Error(r.Err)
		}
		r.Free()
	}
	var e *RequestError
	if !errors.As(never.Err, &e) || !strings.Contains(e.Reason, "2 credits, 1 are granted") {
		t.Errorf("a call of two messages with one credit: %v", never.Err)
	}
	never.Free()
	w.p.close()
	w.close(w.c)
}

// TestRetryWithinGrant refuses calls with a lower grant than before. They are sent again only when
// so few others are in flight, and no more than they are without those that were cancelled.
func TestRetryWithinGrant(t *testing.T) { synctest.Test(t, testRetryWithinGrant) }

func testRetryWithinGrant(t *testing.T) {
	w := newQueueEnv(t)
	w.call().answer(3)
	a, b, c := w.call(), w.call(), w.call()
	refuse := func(xid uint32) { w.p.send(words(xid, 2, 1, 4, 8, 5000)) }
	refuse(a.xid)
	refuse(b.xid)
	none := func() {
		t.Helper()
		synctest.Wait()
		w.p.none()
	}
	none() // c is in flight
	w.c.Cancel(a.r, context.Canceled)
	<-a.done
	if !errors.Is(a.r.Err, context.Canceled) {
		t.Errorf("cancelled: %v", a.r.Err)
	}
	a.r.Free()
	d, dDone := w.submit(100)
	none()
	c.answer(1)
	if xid := w.take(1); xid != b.xid {
		t.Errorf("call %#x comes, want %#x, which was refused", xid, b.xid)
	}
	none()
	b.answer(1)
	x := w.take(1)
	w.answer(x, 100, 1)
	<-dDone
	d.Free()
	w.p.close()
	w.close(w.c)
}

// queueCall is a call that has come.
type queueCall struct {
	w    *queueEnv
	r    *oncrpc.Request
	done chan struct{}
	xid  uint32
}

// call makes a call of one message.
func (w *queueEnv) call() *queueCall {
	w.t.Helper()
	r, done := w.submit(100)
	return &queueCall{w, r, done, w.take(1)}
}

// answer answers the call, which succeeds.
func (c *queueCall) answer(credits int) {
	c.w.t.Helper()
	c.w.answer(c.xid, 100, credits)
	if <-c.done; c.r.Err != nil {
		c.w.t.Error(c.r.Err)
	}
	c.r.Free()
}

// TestWaitEnds cancels a call that waits, lets the grant fall below another's requirement, and
// loses the connection under a third.
func TestWaitEnds(t *testing.T) {
	w := newQueueEnv(t)
	for range 2 {
		r, done := w.submit(100)
		s, sDone := w.submit(100)
		xr, xs := w.take(1), w.take(1)
		long, longDone := w.submit(5000)
		w.c.Cancel(long, context.Canceled)
		if <-longDone; !errors.Is(long.Err, context.Canceled) {
			t.Errorf("cancelled: %v", long.Err)
		}
		long.Free()
		low, lowDone := w.submit(5000)
		w.answer(xr, 100, 1)
		<-done
		if n := w.waits(); n != 2 {
			// the other answer may grant more
			t.Errorf("the first call waits for %d credits, want 2", n)
		}
		w.answer(xs, 100, 3)
		<-sDone
		w.answer(w.take(2), 5000, 3)
		if <-lowDone; low.Err != nil {
			t.Error(low.Err)
		}
		low.Free()
		r.Free()
		s.Free()
	}
	r, done := w.submit(100)
	s, sDone := w.submit(100)
	long, longDone := w.submit(5000)
	w.take(1)
	w.take(1)
	w.p.close()
	<-done
	<-sDone
	<-longDone
	var lost *LostError
	if !errors.As(long.Err, &lost) {
		t.Errorf("after the end: %v", long.Err)
	}
	for _, r := range []*oncrpc.Request{r, s, long} {
		r.Free()
	}
	w.close(w.c)
}

// TestWaitCancelled cancels a call that waits for credits: the one behind it goes at once, since
// there is a credit for that.
func TestWaitCancelled(t *testing.T) {
	w := newQueueEnv(t)
	var rs []*oncrpc.Request
	var done []chan struct{}
	for _, n := range []int{100, 100, 5000, 100} {
		r, ended := w.submit(n)
		rs, done = append(rs, r), append(done, ended)
	}
	xids := []uint32{w.take(1), w.take(1)}
	if n := w.waits(); n != 2 {
		t.Fatalf("the first call waits for %d credits, want 2", n)
	}
	w.c.Cancel(rs[2], context.Canceled)
	for _, xid := range append(xids, w.take(1)) {
		w.answer(xid, 100, 3)
	}
	for i, r := range rs {
		if <-done[i]; (r.Err != nil) != (i == 2) {
			t.Errorf("call %d: %v", i, r.Err)
		}
		r.Free()
	}
	w.p.close()
	w.close(w.c)
}

// TestGroupWithoutReceives makes a call that only a group can carry, and that has its credits,
// while there is no memory for the receives of its reply: it fails, and keeps no credit.
func TestGroupWithoutReceives(t *testing.T) {
	pool := bufpool.New(24 << 20)
	w := newQueueEnv(t, func(cfg *Config) { cfg.Pool = pool })
	others := w.cpool
	w.cpool = pool // where calls are made
	first, firstDone := w.submit(100)
	w.answer(w.take(1), 100, 3)
	<-firstDone
	first.Free()
	dry, err := (&move{args: []int{5000}}).build(w.cpool)
	if err == nil {
		err = dry.Seal()
	}
	if err != nil {
		t.Fatal(err)
	}
	taken := drain(w.cpool, defaultInline)
	<-submit(w.c, dry)
	var e *RequestError
	if !errors.As(dry.Err, &e) {
		t.Errorf("without memory: %v, want a RequestError", dry.Err)
	}
	dry.Free()
	eventually(t, "no credit is in use", func() bool {
		w.c.conn.requester.mu.Lock()
		defer w.c.conn.requester.mu.Unlock()
		return w.c.conn.requester.inFlight == 0
	})
	releaseEach(taken)
	r, done := w.submit(5000)
	w.answer(w.take(2), 5000, 3)
	if <-done; r.Err != nil {
		t.Error(r.Err)
	}
	r.Free()
	w.p.close()
	w.cpool = others
	w.close(w.c)
	if n := pool.Stats().Bufs; n != 0 {
		t.Errorf("%d buffers remain", n)
	}
}

// TestWaitBehind puts calls back in front of the queue in either order: one that waits for credits,
// and one that has a credit, for which the first may be waiting.
func TestWaitBehind(t *testing.T) {
	for _, first := range []bool{false, true} {
		out := new(requester)
		out.pushLocked(&outCall{credited: first})
		out.pushLocked(&outCall{credited: !first})
		if o := out.first; !o.credited || o.next == nil || o.next.credited || out.last != o.next || o.next.next != nil {
			t.Errorf("with the credited one pushed first %v, the queue is %+v", first, out)
		}
	}
}

// TestWaitUnderLoad mixes calls that only groups can carry with others, for all small limits.
func TestWaitUnderLoad(t *testing.T) {
	for _, credits := range []int{1, 2, 3, 5} {
		for _, limit := range []int{2, 4} {
			t.Run(fmt.Sprintf("credits%d,calls%d", credits, limit), func(t *testing.T) {
				change := func(cfg *Config) {
					extended(allExtensions)(cfg)
					cfg.Credits, cfg.Continuation = credit.Static(credits), Continuation{limit, 3}
					cfg.Placement = Placement{ReceiveBuffer: 8192, MinLength: 512}
				}
				w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, change)
				w.handler.async = limit == 2
				c := w.dial(func(cfg *Config) { change(cfg); noReads(cfg) })
				var wg sync.WaitGroup
				for g := range 6 {
					wg.Add(1)
					go func() {
						defer wg.Done()
						r := rand.New(rand.NewPCG(uint64(g), uint64(credits)))
						for range 15 {
							m := move{args: []int{r.IntN(8192 * min(credits, limit))}, results: []int{r.IntN(24000)}, split: r.IntN(3)}
							if err := m.do(c, w.cpool); err != nil {
								t.Errorf("%+v: %v", m, err)
								return
							}
						}
					}()
				}
				wg.Wait()
				w.waitIdle()
				w.close(c)
			})
		}
	}
}

// TestReportsInTurn sends two bad replies at once: the second one is reported when the report of
// the first one has been answered, and before the next call.
func TestReportsInTurn(t *testing.T) {
	w := newQueueEnv(t)
	group := func() (*oncrpc.Request, chan struct{}) {
		m := move{results: []int{5000}}
		r, err := m.build(w.cpool)
		if err == nil {
			err = r.Seal()
		}
		if err != nil {
			t.Fatal(err)
		}
		return r, submit(w.c, r)
	}
	a, aDone := group()
	b, bDone := group()
	xids := []uint32{w.take(0), w.take(0)}
	for _, xid := range xids { // the first continuation has another number
		w.p.send(words(xid, 2, 3, int(wire.Optional), 1, 6, 12, 0, 2, 24, xid, 1, 0, 0, 0, 0))
		w.p.send(words(xid, 2, 3, int(wire.Optional), 1, 7, 12, 5, 6, 0))
	}
	k := &w.c.conn.negotiator
	eventually(t, "the second report waits", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return len(k.reports) == 1
	})
	next, nextDone := w.submit(100)
	for i, xid := range xids {
		h := w.p.parse2(w.p.get().b)
		if h.Operation != wire.ReptErr || h.XID != wire.XID(xid) {
			t.Fatalf("message %+v, want the report of %#x", h, xid)
		}
		fence := w.p.parse2(w.p.get().b)
		if i == 0 {
			w.p.none()
		}
		w.p.send(words(xid, 2, 3, int(wire.Error), 10))
		w.p.send(words(uint32(fence.XID), 2, 3, int(wire.RespProp), 0, 0, 0))
	}
	w.answer(w.take(1), 100, 3)
	<-nextDone
	<-aDone
	<-bDone
	if next.Err != nil {
		t.Error(next.Err)
	}
	for _, r := range []*oncrpc.Request{a, b} {
		var e *RemoteError
		if !errors.As(r.Err, &e) || e.Code != wire.System {
			t.Errorf("a call whose reply was reported: %v", r.Err)
		}
	}
	for _, r := range []*oncrpc.Request{a, b, next} {
		r.Free()
	}
	w.p.close()
	w.close(w.c)
}

// TestFenceUnanswered sends two bad replies and leaves the fence of the first report unanswered:
// the calls that wait for it fail when its time is over, and so does the connection.
func TestFenceUnanswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newQueueEnv(t)
		var rs []*oncrpc.Request
		var done []chan struct{}
		for range 2 {
			m := move{results: []int{5000}}
			r, err := m.build(w.cpool)
			if err == nil {
				err = r.Seal()
			}
			if err != nil {
				t.Fatal(err)
			}
			rs, done = append(rs, r), append(done, submit(w.c, r))
		}
		xids := []uint32{w.take(0), w.take(0)}
		for _, xid := range xids { // the first continuation has another number
			w.p.send(words(xid, 2, 3, int(wire.Optional), 1, 6, 12, 0, 2, 24, xid, 1, 0, 0, 0, 0))
			w.p.send(words(xid, 2, 3, int(wire.Optional), 1, 7, 12, 5, 6, 0))
		}
		w.p.get() // the first report
		w.p.get() // its fence
		synctest.Wait()
		next, nextDone := w.submit(100)
		time.Sleep(controlTime - time.Second)
		select {
		case <-nextDone:
			t.Fatalf("the call that waits for the fence ended early: %v", next.Err)
		default:
		}
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case <-nextDone:
		default:
			t.Fatal("the call still waits for the fence")
		}
		for i, r := range append(rs, next) {
			if i < len(rs) {
				<-done[i]
			}
			var lost *LostError
			if !errors.As(r.Err, &lost) || !errors.Is(r.Err, errOverdue) {
				t.Errorf("call %d: %v", i, r.Err)
			}
			r.Free()
		}
		w.p.close()
		w.close(w.c)
	})
}
