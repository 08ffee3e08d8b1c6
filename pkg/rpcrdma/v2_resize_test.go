package rpcrdma

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// TestResize asks a server for smaller and greater receives while calls of every size are under
// way, in one message each or in groups. The fabric ends the connection when a message is longer
// than its receive.
func TestResize(t *testing.T) {
	for _, ext := range []Extensions{0, MessageContinuation} {
		for _, async := range []bool{false, true} {
			t.Run(fmt.Sprintf("extensions%d,async=%v", ext, async), func(t *testing.T) { testResize(t, ext, async) })
		}
	}
}

func testResize(t *testing.T, ext Extensions, async bool) {
	change := func(cfg *Config) {
		extended(ext)(cfg)
		cfg.InlineCall, cfg.Credits = 8192, credit.Static(12)
	}
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, change)
	w.handler.async = async
	c := w.dial(change)
	var wg sync.WaitGroup
	var stop atomic.Bool
	for g := range 4 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for n := 0; !stop.Load(); n++ {
				m := move{args: []int{(n*731 + g*2000) % 20000}, results: []int{(n * 577) % 9000}}
				if err := m.do(c, w.cpool); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	calls := func() {
		for _, n := range []int{100, 3000, 9000} {
			if err := (&move{args: []int{n}}).do(c, w.cpool); err != nil {
				t.Error(err)
			}
		}
	}
	for range 3 {
		for _, size := range []int{2048, 1024} {
			if n := askReceiveSize(t, w, c, size); n != size {
				t.Fatalf("asked for %d: %d", size, n)
			}
			if n := c.Negotiated().InlineCall; n != size {
				t.Errorf("messages of %d bytes, want %d", n, size)
			}
			calls()
		}
		for _, size := range []int{4096, 8192} {
			askReceiveSize(t, w, c, size)
			eventually(t, "greater receives", func() bool {
				if err := null(c, w.cpool, procNull); err != nil {
					t.Fatal(err)
				}
				return c.Negotiated().InlineCall == size
			})
			calls()
		}
	}
	stop.Store(true)
	wg.Wait()
	if n := askReceiveSize(t, w, c, 16384); n != 8192 {
		t.Errorf("asked for more than is configured: %d", n)
	}
	for range 4 { // receives posted for more credits than are needed go with messages
		calls()
	}
	w.waitIdle()
	w.close(c)
}

// TestGrow checks that a server announces larger receives only when no smaller one is posted any
// more.
func TestGrow(t *testing.T) {
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
		version2(cfg)
		cfg.Credits = credit.Static(1)
	})
	p := w.rawDial(rawPrivate(4096))
	exchange := func(msg []byte) *wire.Header {
		p.send(msg)
		return p.parse2(p.get().b)
	}
	size := func(xid, n int) *wire.Header { return exchange(words(xid, 2, 1, 7, 1, 1, 4, n)) }
	call := func(xid int) *wire.Header {
		return exchange(append(words(xid, 2, 1, 0, 0, 0, 0, 0, 0), rpcCall(xid, procNull)...))
	}
	exchange(words(1, 2, 1, 6, 0, 0))
	if h := size(2, 2048); !wire.Bit(h.Props.Done, 0) {
		t.Fatalf("%+v", h.Props)
	}
	for xid := 10; xid < 15; xid++ { // now all receives are small
		call(xid)
	}
	if h := size(3, 4096); !wire.Bit(h.Props.Rejected, 0) {
		t.Fatalf("%+v", h.Props)
	}
	// One small receive had been replaced when the wish came. Two are left, and the call's own.
	n := 0
	for h := call(20); ; h = p.parse2(p.get().b) {
		if h.Procedure == wire.UpdProp {
			if v, ok := h.Props.Set[0].Uint32(); !ok || v != 4096 || h.Props.Set[0].ID != wire.ReceiveBufferSize {
				t.Errorf("%+v", h.Props)
			}
			break
		}
		if n++; n > 10 {
			t.Fatal("greater receives are not told")
		}
		p.send(append(words(20+n, 2, 1, 0, 0, 0, 0, 0, 0), rpcCall(20+n, procNull)...))
	}
	if n < 2 {
		t.Errorf("told after %d calls, while smaller receives were posted", n)
	}
	fence := p.parse2(p.get().b)
	for fence.Procedure != wire.ReqProp {
		fence = p.parse2(p.get().b)
	}
	p.send(words(uint32(fence.XID), 2, 1, 8, 0, 0, 0))
	p.send(append(append(words(50, 2, 1, 0, 0, 0, 0, 0, 0), rpcCall(50, procPlain, 3900, pattern(3900, 0))...), words(0)...))
	if h := p.parse2(p.get().b); h.Procedure != wire.Msg {
		t.Errorf("answer %+v", h)
	}
	w.waitIdle()
	p.close()
	w.close()
}

// TestGrowInGroup lets a server replace its smaller receives in the midst of a group: it announces
// it at once, and the group continues with the former sizes.
func TestGrowInGroup(t *testing.T) {
	between := 0
	for before := range 2 {
		w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
			extended(MessageContinuation)(cfg)
			cfg.Credits = credit.Static(2)
		})
		p := w.rawDial(rawPrivate(4096))
		exchange := func(msg []byte) *wire.Header {
			t.Helper()
			p.send(msg)
			return p.parse2(p.get().b)
		}
		exchange(words(1, 2, 2, 6, 1, 3, 4, 7, 0))
		if h := exchange(words(2, 2, 2, 7, 1, 1, 4, 1024)); !wire.Bit(h.Props.Done, 0) {
			t.Fatalf("%+v", h.Props)
		}
		for xid := 10; xid < 15+before; xid++ { // now all receives are small
			exchange(append(words(xid, 2, 2, 0, 0, 0, 0, 0, 0), rpcCall(xid, procNull)...))
		}
		exchange(words(3, 2, 2, 7, 1, 1, 4, 4096))
		conn := w.server.only()
		pending := func() bool {
			conn.recvMu.Lock()
			defer conn.recvMu.Unlock()
			return conn.negotiator.growing > 0
		}
		payload := rpcCall(20, procPlain, 1000, pattern(1000, 7), 0)
		for pending() {
			p.send(append(words(20, 2, 2, 5, 0, 5, 20, 0, 0, 2, 1, 600), payload[:600]...))
			eventually(t, "the first message is there", func() bool {
				conn.receives.mu.Lock()
				defer conn.receives.mu.Unlock()
				return conn.receives.held == 1
			})
			if !pending() {
				between++
			}
			p.send(append(words(20, 2, 2, 5, 0, 7, 12, 1, 5, len(payload)-600), payload[600:]...))
			for h := p.parse2(p.get().b); h.Operation != wire.XmtResp; h = p.parse2(p.get().b) {
				if h.Procedure == wire.ReqProp {
					p.send(words(uint32(h.XID), 2, 2, 8, 0, 0, 0))
				} else if v, _ := h.Props.Set[0].Uint32(); h.Procedure != wire.UpdProp || v != 4096 {
					t.Fatalf("answer %+v", h)
				}
			}
		}
		w.waitIdle()
		p.close()
		w.close()
	}
	if between == 0 {
		t.Error("it is never told within a group")
	}
}

// TestReplyAfterShrink lets a server wish for smaller receives of the client: the replies to calls
// from then on have as many messages as it takes by the new size, and the client takes them.
func TestReplyAfterShrink(t *testing.T) {
	c, p, w, err := dial2(t, extended(MessageContinuation), func(h *wire.Header) []byte {
		return words(uint32(h.XID), 2, 8, 6, 4, 1, 4, 4096, 3, 4, 5, 5, 4, 4, 6, 4, 4, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	data := pattern(5000, 0)
	for _, s := range []struct{ size, messages int }{{4096, 2}, {2048, 3}} {
		if s.size < 4096 {
			p.send(words(5, 2, 8, 7, 1, 1, 4, s.size))
			if h := p.parse2(p.get().b); h.Procedure != wire.RespProp || !wire.Bit(h.Props.Done, 0) {
				t.Fatalf("answer to the wish: %+v", h)
			}
		}
		for range 10 { // all receives are of that size in the end
			m := move{results: []int{len(data)}, how: []int{2}}
			r, err := m.build(w.cpool)
			if err == nil {
				err = r.Seal()
			}
			if err != nil {
				t.Fatal(err)
			}
			done := submit(c, r)
			h := p.parse2(p.get().b)
			if n := int(h.Transmit.ReplyBuffers); n != s.messages {
				t.Fatalf("the reply may have %d messages of %d bytes, want %d", n, s.size, s.messages)
			}
			xid := uint32(h.XID)
			payload := words(xid, 1, 0, 0, 0, 0, 0, 0, 1, 0, len(data), data, tail)
			for i := range s.messages {
				n := min(len(payload), s.size-40)
				head := words(xid, 2, 8, 5, 1, 6, 12, 0, s.messages, n)
				if i > 0 {
					head = words(xid, 2, 8, 5, 1, 7, 12, i, 6, n)
				}
				p.send(append(head, payload[:n]...))
				payload = payload[n:]
			}
			if <-done; r.Err != nil {
				t.Fatal(r.Err)
			}
			if err := m.check(r); err != nil {
				t.Error(err)
			}
			r.Free()
		}
	}
	p.close()
	w.close(c)
}

// askReceiveSize requests that the server receive messages of at most size bytes, and returns the
// resulting size. No call is sent meanwhile, so that none is longer than that.
func askReceiveSize(t *testing.T, w *env, c *Client, size int) int {
	t.Helper()
	k, out := &c.conn.negotiator, &c.conn.requester
	var p wire.Properties
	p.SetUint32(wire.ReceiveBufferSize, uint32(size))
	out.halt(true)
	defer func() {
		out.halt(false)
		out.pump()
	}()
	eventually(t, "no call is being sent", func() bool {
		out.mu.Lock()
		defer out.mu.Unlock()
		return !slices.ContainsFunc(out.calls, func(o *outCall) bool { return o.live && o.busy > 0 })
	})
	eventually(t, "the request is sent", func() bool {
		k.recvMu.Lock()
		defer k.recvMu.Unlock()
		xid, credits := wire.XID(out.NextXID()), k.askedNow()
		return k.sendControl(xid, func(dst []byte) []byte {
			return wire.AppendProperties(dst, xid, credits, wire.Call, wire.ReqProp, &p, false)
		}) == nil
	})
	eventually(t, "the answer", func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		return !k.awaits
	})
	s := &w.server.only().negotiator
	s.recvMu.Lock()
	n := s.ownReceiveSize()
	s.recvMu.Unlock()
	if n == size { // done
		k.recvMu.Lock()
		defer k.recvMu.Unlock()
		if err := k.values.Set(p.Set); err != nil {
			t.Fatal(err)
		}
		k.negotiated.Store(k.negotiatedV2())
	}
	return n
}
