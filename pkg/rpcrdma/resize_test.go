package rpcrdma

import (
	"context"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// TestResize asks a server for smaller and greater receives while calls of every size are under way. The fabric ends the connection when a
// message is longer than its receive.
func TestResize(t *testing.T) {
	w := newWorld(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
		version2(cfg)
		cfg.InlineCall, cfg.Credits = 8192, Static(5)
	})
	c := w.dial(func(cfg *Config) {
		version2(cfg)
		cfg.InlineCall = 8192
	})
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	calls := func() {
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for n := range 20 {
					m := move{args: []int{(n*731 + g*2000) % 9000}}
					if err := m.do(c, w.cpool); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		wg.Wait()
	}
	calls()
	for _, size := range []int{2048, 1024} {
		if n, err := c.AskReceiveSize(ctx, size); n != size || err != nil {
			t.Fatalf("asked for %d: %d, %v", size, n, err)
		}
		if n := c.Negotiated().InlineCall; n != size {
			t.Errorf("messages of %d bytes, want %d", n, size)
		}
		calls()
	}
	for _, size := range []int{4096, 8192} {
		if n, err := c.AskReceiveSize(ctx, size); n != size>>1 && n != 1024 || err != nil {
			t.Fatalf("asked for %d: %d, %v", size, n, err)
		}
		eventually(t, "greater receives", func() bool {
			if err := null(c, w.cpool, procNull); err != nil {
				t.Fatal(err)
			}
			return c.Negotiated().InlineCall == size
		})
		calls()
	}
	if n, err := c.AskReceiveSize(ctx, 16384); n != 8192 || err != nil {
		t.Errorf("asked for more than is configured: %d, %v", n, err)
	}
	if _, err := c.AskReceiveSize(ctx, 100); err == nil {
		t.Error("asked for 100 bytes")
	}
	w.settled()
	w.close(c)
}

// TestGrow looks when a server tells of greater receives: when no smaller one is posted any more.
func TestGrow(t *testing.T) {
	w := newWorld(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
		version2(cfg)
		cfg.Credits = Static(1)
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
	w.settled()
	p.close()
	w.close()
}
