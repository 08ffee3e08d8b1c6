package rpcrdma

import (
	"context"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// TestKeptReplies looks how often calls are executed whose reply needs more room than was thought,
// and how many replies are kept.
func TestKeptReplies(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
		version2(cfg)
		cfg.Credits = credit.Static(4)
	})
	p := w.rawDial(rawPrivate(4096))
	msg := func(xid int, lists []byte, payload []byte) []byte {
		return append(words(xid, 2, 4, 0, 0, 0, lists), payload...)
	}
	send := func(xid int, lists []byte, payload []byte) *wire.Header {
		p.send(msg(xid, lists, payload))
		return p.parse2(p.get().b)
	}
	none := words(0, 0, 0)
	send(1, none, rpcCall(1, procNull))
	for xid := 10; xid < 16; xid++ { // two more than there are credits
		if h := send(xid, none, rpcCall(xid, procPlain, 0, 5000)); h.Code != wire.ReplyResource || h.Needed != 5032 {
			t.Fatalf("answer %+v", h)
		}
	}
	if n := w.server.only().responder.retained.n.Load(); n != 4 {
		t.Errorf("%d replies are kept, want 4", n)
	}
	calls := w.handler.calls
	room := func() []byte { return words(0, 0, 1, 1, p.expose(p.mem(5032), 3)) }
	for _, xid := range []int{14, 12, 15, 13} {
		if h := send(xid, room(), rpcCall(xid, procPlain, 0, 5000)); h.Procedure != wire.NoMsg {
			t.Errorf("answer to %d: %+v", xid, h)
		}
	}
	if w.handler.calls != calls {
		t.Errorf("%d calls were executed again", w.handler.calls-calls)
	}
	send(10, room(), rpcCall(10, procPlain, 0, 5000))
	if w.handler.calls != calls+1 {
		t.Error("a call without kept reply was not executed")
	}
	w.waitIdle()
	if _, bytes := w.server.only().responder.retained.held(); bytes != 0 {
		t.Errorf("%d bytes are counted for replies that are gone", bytes)
	}
	send(20, none, rpcCall(20, procPlain, 0, 5000)) // is kept to the end
	p.close()
	w.close()
}

// TestKeptWithoutBudget leaves replies that were kept alone: their calls' memory is there for
// others.
func TestKeptWithoutBudget(t *testing.T) {
	budget := bufpool.NewBudget(2<<20, 2<<20)
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
		version2(cfg)
		cfg.Credits, cfg.Budget = credit.Static(8), budget
	})
	w.budget = budget
	p := w.rawDial(rawPrivate(4096))
	data := p.expose(p.mem(1<<20), 1)
	for i, c := range []struct {
		result []byte
		code   wire.ErrorCode // 0: it is answered
	}{{words(5000, 2), wire.ReplyResource}, {words(5000, 2), wire.ReplyResource}, {words(8, 2), 0}} {
		xid := 10 + i
		call := rpcCall(xid, procMove, 1, 1<<20, tail, 1, c.result)
		p.send(words(xid, 2, 8, 0, 0, 0, 1, 48, data, 0, 0, 0, call))
		if h := p.parse2(p.get().b); h.Code != c.code || (h.Procedure == wire.Msg) != (c.code == 0) {
			t.Errorf("answer %d: %+v", i, h)
		}
	}
	if n := w.server.only().responder.retained.n.Load(); n != 2 {
		t.Errorf("%d replies are kept, want 2", n)
	}
	w.waitIdle()
	p.close()
	w.close()
}

// only is the one connection.
func (s *Server) only() *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		return c
	}
	return nil
}

// TestKeptGroups makes calls whose replies go as groups, one after the other: no more are kept than
// there are credits, and none when all credits have certainly been used again.
func TestKeptGroups(t *testing.T) {
	const credits = 4
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
		extended(MessageContinuation)(cfg)
		cfg.Credits = credit.Static(credits)
	})
	p := w.rawDial(rawPrivate(4096))
	p.send(words(1, 2, 32, 6, 2, 1, 4, 4096, 3, 4, 6, 0))
	p.get()
	in := &w.server.only().responder
	xid := 10
	group := func() {
		xid++
		p.send(words(xid, 2, 32, int(wire.Optional), 0, 5, 20, 0, 0, 1, 1, 40, rpcCall(xid, procNull)))
		if h := p.parse2(p.get().b); h.Operation != wire.XmtResp {
			t.Fatalf("answer %+v", h)
		}
	}
	report := func(xid int) *wire.Header {
		p.send(words(xid, 2, 32, int(wire.Optional), 0, 8, 20, xid, 1, 0, 0, 3))
		return p.parse2(p.get().b)
	}
	for range 3 * credits {
		group()
		w.waitIdle() // so that the replies before this one are known
	}
	if n, _ := in.retained.held(); n != credits {
		t.Errorf("%d replies are kept, want %d", n, credits)
	}
	if h := report(xid - credits + 1); h.Procedure != wire.Msg {
		t.Errorf("report of the oldest one: %+v", h)
	}
	if h := report(xid - credits); h.Code != wire.System {
		t.Errorf("report of the one before: %+v", h)
	}
	for range credits {
		xid++
		p.send(append(words(xid, 2, 32, 0, 0, 0, 0, 0, 0), rpcCall(xid, procNull)...))
		p.get()
	}
	if n, bytes := in.retained.held(); n != 0 || bytes != 0 {
		t.Errorf("%d replies are kept, of %d bytes, after as many calls as there are credits", n, bytes)
	}
	group() // is kept to the end
	p.close()
	w.close()
}

// held counts the replies that were sent as groups, and their bytes.
func (k *retainedReplies) held() (n, bytes int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for ic := k.first; ic != nil; ic = ic.next {
		n++
	}
	return n, k.bytes
}

// TestKeptBytes makes long replies go as groups: their memory is bounded, and the calls' own is not
// kept.
func TestKeptBytes(t *testing.T) {
	budget := bufpool.NewBudget(256<<20, 32<<20)
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
		extended(allExtensions)(cfg)
		cfg.Budget = budget
	})
	w.budget = budget
	c := w.dial(extended(allExtensions))
	kept := &w.server.only().responder.retained
	m := move{args: []int{100000}, results: []int{900000}}
	for range 12 { // 1 MiB each, and the rest of the reply
		if err := m.do(c, w.cpool); err != nil {
			t.Fatal(err)
		}
	}
	if n, bytes := kept.held(); bytes > retainedBytes || n < 6 || n > 8 {
		t.Errorf("%d replies are kept, of %d bytes", n, bytes)
	}
	w.waitIdle()
	w.close(c)
}

// TestKeptInOrder holds the rule by which replies are let go of against a requester that receives
// as late as it can: it has not received a reply that is still there, and whatever it has not
// received is there.
func TestKeptInOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := &responder{link: &link{cfg: &Config{}}}
		k := &in.retained
		k.budget = bufpool.NewBudget(0, 0)
		most := rapid.IntRange(1, 6).Draw(t, "credits")
		free := most                 // credits that the requester can use
		var calls, replies []*inCall // executing; sent, and not received by it
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch cost := rapid.IntRange(1, most).Draw(t, "cost"); {
			case rapid.Bool().Draw(t, "answer") && len(calls) > 0:
				i := rapid.IntRange(0, len(calls)-1).Draw(t, "which")
				ic := calls[i]
				calls = append(calls[:i], calls[i+1:]...)
				k.returned.Add(uint64(ic.taken))
				if rapid.Bool().Draw(t, "as a group") {
					k.retainForReport(ic)
					k.markSent(ic)
				}
				replies = append(replies, ic)
			default:
				for free < cost && len(replies) > 0 {
					free += replies[0].taken
					replies = replies[1:]
				}
				if free < cost {
					continue
				}
				free -= cost
				k.countCall(cost, most)
				calls = append(calls, &inCall{in: in, taken: cost, head: &bufpool.Buf{}})
			}
			var want []*inCall
			for _, ic := range replies {
				if ic.noted {
					want = append(want, ic)
				}
			}
			n, _ := k.held()
			if n < len(want) || n > most {
				t.Fatalf("%d replies are kept, %d may be reported, with %d credits", n, len(want), most)
			}
			at := k.first
			for ; n > len(want); n-- { // the requester has these, but that is not certain
				at = at.next
			}
			for _, ic := range want {
				if at != ic {
					t.Fatal("a reply that may be reported is not kept")
				}
				at = at.next
			}
		}
	})
}

// TestMoreRoom makes calls that are wrong about their replies; none is executed twice.
func TestMoreRoom(t *testing.T) {
	for _, credits := range []credit.Static{1, 3} {
		w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
			version2(cfg)
			cfg.Credits = credits
		})
		c := w.dial(version2)
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		const n = 40
		done := make(chan error, n)
		for i := range n {
			m := move{results: []int{3000 + 100*i, 2000}, how: []int{2, 2}}
			r, err := m.build(w.cpool)
			if err != nil {
				t.Fatal(err)
			}
			r.Plan.MaxReply = 100 // far too little
			r.Plan.Results = r.Plan.Results[:0]
			go func() {
				err := oncrpc.Do(ctx, c, r)
				if err == nil {
					err = m.check(r)
				}
				r.Free()
				done <- err
			}()
		}
		for range n {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if w.handler.calls != n {
			t.Errorf("%d calls were executed, want %d", w.handler.calls, n)
		}
		w.waitIdle()
		w.close(c)
	}
}

// TestCancelAgain cancels calls at any time while they are being sent again.
func TestCancelAgain(t *testing.T) {
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
		version2(cfg)
		cfg.Credits = credit.Static(2)
	})
	c := w.dial(version2)
	for i := range 200 {
		m := move{results: []int{6000}, how: []int{2}}
		r, err := m.build(w.cpool)
		if err != nil {
			t.Fatal(err)
		}
		r.Plan.MaxReply, r.Plan.Results = 100, r.Plan.Results[:0]
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		done := submit(c, r)
		time.Sleep(time.Duration(i) * time.Microsecond)
		c.Cancel(r, context.Canceled)
		<-done
		r.Free()
	}
	for range 5 {
		if err := null(c, w.cpool, procNull); err != nil {
			t.Error(err)
		}
	}
	w.close(c)
}
