package rpcrdma

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"

	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// TestResize asks a server for smaller and greater receives while calls of every size are under way, in one message each or in groups. The fabric ends the
// connection when a message is longer than its receive.
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
	w := newWorld(t, rdmatest.Options{ScribbleReceives: true}, change)
	w.handler.async = async
	c := w.dial(change)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
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
			if n, err := c.AskReceiveSize(ctx, size); n != size || err != nil {
				t.Fatalf("asked for %d: %d, %v", size, n, err)
			}
			if n := c.Negotiated().InlineCall; n != size {
				t.Errorf("messages of %d bytes, want %d", n, size)
			}
			calls()
		}
		for _, size := range []int{4096, 8192} {
			if _, err := c.AskReceiveSize(ctx, size); err != nil {
				t.Fatalf("asked for %d: %v", size, err)
			}
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
	if n, err := c.AskReceiveSize(ctx, 16384); n != 8192 || err != nil {
		t.Errorf("asked for more than is configured: %d, %v", n, err)
	}
	if _, err := c.AskReceiveSize(ctx, 100); err == nil {
		t.Error("asked for 100 bytes")
	}
	for range 4 { // receives posted for more credits than are needed go with messages
		calls()
	}
	w.settled()
	w.close(c)
}

// TestGrow looks when a server tells of greater receives: when no smaller one is posted any more.
func TestGrow(t *testing.T) {
	w := newWorld(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
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
	w.settled()
	p.close()
	w.close()
}

// TestGrowInGroup lets a server get rid of its smaller receives in the midst of a group: it tells at once, and the group goes on by the sizes that it
// began with.
func TestGrowInGroup(t *testing.T) {
	between := 0
	for before := range 2 {
		w := newWorld(t, rdmatest.Options{ScribbleReceives: true}, func(cfg *Config) {
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
			conn.loop.Lock()
			defer conn.loop.Unlock()
			return conn.control.growing > 0
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
		w.settled()
		p.close()
		w.close()
	}
	if between == 0 {
		t.Error("it is never told within a group")
	}
}

// TestNewsBeforeWish lets a server tell of greater receives when the client has wished for smaller ones: the wish is what the client goes by. Calls go
// in groups of messages of that size.
func TestNewsBeforeWish(t *testing.T) {
	c, p, w, err := dial2(t, func(cfg *Config) {
		extended(MessageContinuation)(cfg)
		cfg.InlineCall = 8192
	}, func(h *wire.Header) []byte {
		return words(uint32(h.XID), 2, 8, 6, 4, 1, 4, 4096, 3, 4, 5, 5, 4, 8, 6, 4, 4, 0)
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	asked := make(chan int)
	go func() {
		n, err := c.AskReceiveSize(ctx, 2048)
		if err != nil {
			t.Error(err)
		}
		asked <- n
	}()
	news := func(n int) {
		p.send(words(5, 2, 8, 9, 1, 1, 4, n))
		eventually(t, "the client knows", func() bool { return c.Negotiated().Remote.ReceiveSize == n })
	}
	wish := p.parse2(p.get().b)
	news(8192) // it was on its way
	call := func(most, want int) {
		t.Helper()
		m := move{args: []int{6000}}
		r, err := m.build(w.cpool)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		done := submit(c, r)
		defer r.Free()
		h := p.parse2(p.get().b)
		n := 1
		for ; n < int(h.Transmit.Count); n++ {
			if b := p.get().b; len(b) > most {
				t.Errorf("a message of %d bytes, at most %d fit", len(b), most)
			}
		}
		if n != want {
			t.Errorf("a call of %d messages, want %d", n, want)
		}
		xid := uint32(h.XID)
		p.send(words(xid, 2, 8, 0, 1, 0, 0, 0, 0, xid, 1, 0, 0, 0, 0, crc(6000, 0), 6000, 0, tail))
		if <-done; r.Err != nil {
			t.Error(r.Err)
		}
	}
	call(2048, 4)
	p.send(words(uint32(wish.XID), 2, 8, 8, 1, 1, 0, 0)) // done
	if n := <-asked; n != 2048 {
		t.Errorf("the peer's receives have %d bytes, want 2048", n)
	}
	call(2048, 4)
	news(5000)
	call(5000, 2)
	p.close()
	w.close(c)
}

// TestReplyAfterShrink lets a server wish for smaller receives of the client: the replies to calls from then on have as many messages as it takes by
// the new size, and the client takes them.
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

// TestWishBehindOlder lets a wish wait for a message that is being made since before the peer's last news.
func TestWishBehindOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaitWorld(t)
		conn := w.c.conn
		made := conn.use()
		w.p.send(words(5, 2, 3, 9, 1, 1, 4, 3000))
		synctest.Wait()
		if n := w.c.Negotiated().Remote.ReceiveSize; n != 3000 {
			t.Fatalf("the peer's receives have %d bytes, want 3000", n)
		}
		w.wishBehind(t, conn, made)
		w.p.close()
		w.close(w.c)
	})
}

// TestWishBehindFence lets the answer to another message come when a wish is about to be sent, and waits for a message that is being made: it is
// not taken for the answer to the wish.
func TestWishBehindFence(t *testing.T) {
	for _, refused := range []bool{false, true} {
		w := newWaitWorld(t)
		r, done := w.submit(5000)
		xid := w.take(2)
		w.p.send(words(xid, 2, 3, 5, 1, 6, 12, 0, 9, 0)) // a reply of more messages than it may have is reported
		if h := w.p.parse2(w.p.get().b); h.Operation != wire.ReptErr {
			t.Fatalf("answer %+v", h)
		}
		fence := w.p.parse2(w.p.get().b)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		conn := w.c.conn
		made := conn.use()
		asked := make(chan int)
		go func() {
			n, err := w.c.AskReceiveSize(ctx, 2048)
			if err != nil {
				t.Error(err)
			}
			asked <- n
		}()
		eventually(t, "a wish", func() bool { return conn.terms.Load() != made })
		if refused {
			w.p.send(words(uint32(fence.XID), 2, 3, 4, 2))
		} else {
			w.p.send(words(uint32(fence.XID), 2, 3, 8, 0, 0, 0))
		}
		w.answer(xid, 5000, 3) // by other means
		if <-done; r.Err != nil {
			t.Error(r.Err)
		}
		r.Free()
		conn.unuse(made)
		wish := w.p.parse2(w.p.get().b)
		w.p.send(words(uint32(wish.XID), 2, 3, 8, 1, 1, 0, 0)) // done
		if n := <-asked; n != 2048 {
			t.Errorf("the peer's receives have %d bytes, want 2048", n)
		}
		if n := w.c.Negotiated().InlineCall; n != 2048 {
			t.Errorf("messages of %d bytes, want 2048", n)
		}
		cancel()
		w.p.close()
		w.close(w.c)
	}
}

// wishBehind wishes for smaller receives while a message is being made by older terms: the wish waits until that is done, and is granted.
func (w *waitWorld) wishBehind(t *testing.T, conn *Conn, made *terms) {
	t.Helper()
	asked := make(chan error)
	go func() {
		_, err := w.c.AskReceiveSize(context.Background(), 2048)
		asked <- err
	}()
	synctest.Wait()
	w.p.none()
	conn.unuse(made)
	wish := w.p.parse2(w.p.get().b)
	w.p.send(words(uint32(wish.XID), 2, 3, 8, 1, 1, 0, 0))
	if err := <-asked; err != nil {
		t.Error(err)
	}
}

// TestWishGivenUp gives up a wish before it is sent, while a message is being made that may be longer: the next wish waits for that message too.
func TestWishGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaitWorld(t)
		conn := w.c.conn
		made := conn.use()
		before := w.c.Negotiated().InlineCall
		for range 2 {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			if _, err := w.c.AskReceiveSize(ctx, 2048); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("given up: %v", err)
			}
			cancel()
			if n := w.c.Negotiated().InlineCall; n != before {
				t.Errorf("messages of %d bytes, want %d as before", n, before)
			}
		}
		w.wishBehind(t, conn, made)
		w.p.close()
		w.close(w.c)
	})
}

// TestWishAnsweredLate gives up a wish that was sent: both sides go by its answer.
func TestWishAnsweredLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWaitWorld(t)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := w.c.AskReceiveSize(ctx, 2048); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("given up: %v", err)
		}
		if _, err := w.c.AskReceiveSize(context.Background(), 1024); err == nil {
			t.Error("two wishes are outstanding")
		}
		size := func(want int) {
			t.Helper()
			synctest.Wait()
			if n := w.c.Negotiated(); n.InlineCall != want || n.Remote.ReceiveSize != want {
				t.Errorf("messages of %d bytes, and receives of %d, want %d", n.InlineCall, n.Remote.ReceiveSize, want)
			}
		}
		wish := w.p.parse2(w.p.get().b)
		w.p.send(words(uint32(wish.XID), 2, 3, 8, 1, 1, 0, 0))
		size(2048)
		asked := make(chan error)
		go func() {
			_, err := w.c.AskReceiveSize(context.Background(), 1024)
			asked <- err
		}()
		wish = w.p.parse2(w.p.get().b)
		w.p.send(words(uint32(wish.XID), 2, 3, 8, 1, 1, 0, 0))
		if err := <-asked; err != nil {
			t.Error(err)
		}
		size(1024)
		w.p.close()
		w.close(w.c)
	})
}
