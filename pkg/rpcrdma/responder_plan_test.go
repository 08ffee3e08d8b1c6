package rpcrdma

import (
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// TestKeptIdentity has a call answered REPLY_RESOURCE and sends others with its XID: each is
// executed. The call itself, in whatever shape it comes again, is not.
func TestKeptIdentity(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) {
		version2(cfg)
		cfg.Credits = credit.Static(8)
	})
	p := w.rawDial(rawPrivate(4096))
	send := func(proc, xid int, lists []byte, payload []byte) *wire.Header {
		t.Helper()
		p.send(append(words(xid, 2, 8, proc, 0, 0, lists), payload...))
		return p.parse2(p.get().b)
	}
	none := words(0, 0, 0)
	room := func() []byte { return words(0, 0, 1, 1, p.expose(p.mem(8192), rdma.RemoteWrite)) }
	executed := func(want int, f func()) {
		t.Helper()
		before := w.handler.calls
		f()
		w.waitIdle()
		if n := w.handler.calls - before; n != want {
			t.Errorf("%d calls were executed, want %d", n, want)
		}
	}
	send(0, 1, none, rpcCall(1, procNull))
	plain := func(xid int) []byte { return rpcCall(xid, procPlain, 4, 7, 5000) }
	for _, c := range []struct {
		name  string
		other func(xid int) []byte
	}{
		{"NULL", func(xid int) []byte { return rpcCall(xid, procNull) }},
		{"other arguments", func(xid int) []byte { return rpcCall(xid, procPlain, 4, 8, 5000) }},
		{"more arguments", func(xid int) []byte { return rpcCall(xid, procPlain, 8, 7, 7, 5000) }},
		{"another version", func(xid int) []byte { return words(xid, 0, 2, testProgram, 2, procPlain, 0, 0, 0, 0, 4, 7, 5000) }},
		{"another program", func(xid int) []byte { return words(xid, 0, 2, 99, testVersion, procPlain, 0, 0, 0, 0, 4, 7, 5000) }},
	} {
		executed(1, func() {
			if h := send(0, 10, none, plain(10)); h.Code != wire.ReplyResource {
				t.Fatalf("%s: answer %+v", c.name, h)
			}
		})
		for xid := 100; xid < 200; xid++ {
			send(0, xid, none, rpcCall(xid, procNull))
		}
		executed(1, func() {
			if h := send(0, 10, room(), c.other(10)); h.Procedure == wire.Error {
				t.Errorf("%s: answer %+v", c.name, h)
			}
		})
		if n := w.server.only().responder.retained.n.Load(); n != 0 {
			t.Errorf("%s: %d replies are kept, though their XID is another call's", c.name, n)
		}
	}

	// The call itself: alike, and from a Position Zero Read chunk.
	long := func(b []byte) []byte {
		mem := p.mem(len(b))
		copy(mem, b)
		return words(1, 0, p.expose(mem, rdma.RemoteRead), 0, 0, 1, 1, p.expose(p.mem(8192), rdma.RemoteWrite))
	}
	executed(1, func() { send(0, 20, none, plain(20)) })
	executed(0, func() {
		if h := send(0, 20, room(), plain(20)); h.Procedure != wire.NoMsg {
			t.Errorf("answer %+v", h)
		}
	})
	executed(1, func() { send(0, 21, none, plain(21)) })
	executed(0, func() {
		if h := send(1, 21, long(plain(21)), nil); h.Procedure != wire.NoMsg {
			t.Errorf("answer to a long call %+v", h)
		}
	})

	// With its argument in the stream and in a Read chunk, either way.
	data := pattern(100, 0)
	arg := func() []byte {
		mem := p.mem(len(data))
		copy(mem, data)
		return words(1, 48, p.expose(mem, rdma.RemoteRead), 0, 0, 1, 1, p.expose(p.mem(8192), rdma.RemoteWrite))
	}
	inline := func(xid int) []byte { return rpcCall(xid, procMove, 1, 100, data, tail, 1, 5000, 2) }
	reduced := func(xid int) []byte { return rpcCall(xid, procMove, 1, 100, tail, 1, 5000, 2) }
	short := func() []byte { return words(arg()[:24], 0, 0, 0) }
	executed(1, func() {
		if h := send(0, 30, none, inline(30)); h.Code != wire.ReplyResource {
			t.Errorf("answer %+v", h)
		}
	})
	executed(0, func() {
		if h := send(0, 30, arg(), reduced(30)); h.Procedure != wire.NoMsg {
			t.Errorf("answer with a Read chunk %+v", h)
		}
	})
	executed(1, func() {
		if h := send(0, 31, short(), reduced(31)); h.Code != wire.ReplyResource {
			t.Errorf("answer %+v", h)
		}
	})
	executed(0, func() {
		if h := send(0, 31, room(), inline(31)); h.Procedure != wire.NoMsg {
			t.Errorf("answer without a Read chunk %+v", h)
		}
	})
	p.close()
	w.close()
}

// TestKeptNewest reports the reply to a call whose XID an earlier one had: the later reply is sent
// again.
func TestKeptNewest(t *testing.T) {
	k := retainedReplies{budget: bufpool.NewBudget(0, 0)}
	in := &responder{link: &link{cfg: &Config{}}}
	var calls [2]*inCall
	for i := range calls {
		calls[i] = &inCall{in: in, head: &bufpool.Buf{}}
		calls[i].hdr.XID = 5
		k.retainForReport(calls[i])
	}
	for _, want := range []*inCall{calls[1], calls[0], nil} {
		if got := k.takeReported(5); got != want {
			t.Errorf("got %p, want %p of %p", got, want, calls)
		}
	}
}
