package rpcrdma

import (
	"context"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// TestKeptReplies looks how often calls are executed whose reply needs more room than was thought, and how many replies are kept.
func TestKeptReplies(t *testing.T) {
	w := newWorld(t, rdmatest.Options{}, func(cfg *Config) {
		version2(cfg)
		cfg.Credits = Static(4)
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
	if n := w.server.only().in.kept.n.Load(); n != 4 {
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
	w.settled()
	send(20, none, rpcCall(20, procPlain, 0, 5000)) // is kept to the end
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

// TestMoreRoom makes calls that are wrong about their replies; none is executed twice.
func TestMoreRoom(t *testing.T) {
	for _, credits := range []Static{1, 3} {
		w := newWorld(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
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
		w.settled()
		w.close(c)
	}
}

// TestCancelAgain cancels calls at any time while they are being sent again.
func TestCancelAgain(t *testing.T) {
	w := newWorld(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
		version2(cfg)
		cfg.Credits = Static(2)
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
