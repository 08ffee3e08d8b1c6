package rpcrdma

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// back returns the requester of the reverse direction.
func (w *env) back() oncrpc.Requester {
	w.handler.mu.Lock()
	defer w.handler.mu.Unlock()
	return w.handler.conn.Back
}

// TestReverse makes calls from server to client, while others go from client to server.
func TestReverse(t *testing.T) {
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, nil)
	callbacks := &testHandler{}
	c := w.dial(func(cfg *Config) { cfg.Handler = callbacks; cfg.ReverseCredits = 5 })
	if err := null(c, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	back := w.back()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Add(2)
		go func() {
			defer wg.Done()
			for range 20 {
				if err := plain(back, w.pool, 1000+i, 2000+i); err != nil {
					t.Error(err)
					return
				}
			}
		}()
		go func() {
			defer wg.Done()
			for range 20 {
				if err := (&move{args: []int{5000}, results: []int{6000}}).do(c, w.cpool); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	if callbacks.calls != 160 {
		t.Errorf("the client got %d calls, want 160", callbacks.calls)
	}
	// messages that do not fit inline cannot be sent
	for _, n := range [][2]int{{5000, 1}, {1, 5000}} {
		var e *RequestError
		if err := plain(back, w.pool, n[0], n[1]); !errors.As(err, &e) {
			t.Errorf("%v: %v", n, err)
		}
	}
	for range 10 { // receives of past reverse calls are used up
		if err := null(c, w.cpool, procNull); err != nil {
			t.Error(err)
		}
	}
	w.waitIdle()
	w.close(c)
}

// TestReverseWithoutHandler: the client is there, but knows no program.
func TestReverseWithoutHandler(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, nil)
	c := w.dial(func(cfg *Config) { cfg.ReverseCredits = 1 })
	if err := null(c, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	var e *oncrpc.StatusError
	if err := null(w.back(), w.pool, procNull); !errors.As(err, &e) || e.Status.Accept != oncrpc.ProgUnavail {
		t.Errorf("got %v, want PROG_UNAVAIL", err)
	}
	w.close(c)
}

// TestReverseOnTheWire checks reverse calls on the wire: when they are sent, that they have no
// chunks, their credits, and that their XIDs are of their own.
func TestReverseOnTheWire(t *testing.T) { synctest.Test(t, testReverseOnTheWire) }

func testReverseOnTheWire(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.ReverseCredits = 6 })
	p := w.rawDial(rawPrivate(4096))
	var conn *Conn
	eventually(t, "the server has a connection", func() bool {
		w.server.mu.Lock()
		defer w.server.mu.Unlock()
		for c := range w.server.conns {
			conn = c
		}
		return conn != nil
	})
	var rs []*oncrpc.Request
	var done []chan struct{}
	for range 4 {
		r, e, err := oncrpc.NewRequest(w.pool, testProgram, testVersion, procPlain, oncrpc.Auth{}, 128)
		if err != nil {
			t.Fatal(err)
		}
		e.Opaque(nil)
		e.Uint32(0)
		r.Plan.MaxReply = 64
		_ = r.Seal()
		rs, done = append(rs, r), append(done, submit(&conn.requester, r))
	}
	synctest.Wait()
	p.none() // not before the reply to the first call
	p.send(plainMsg(1, rpcCall(1, procNull)))
	h, payload := p.parse(p.get().b)
	if len(payload) != 24 || h.XID != 1 {
		t.Fatalf("%+v", h)
	}
	take := func() *wire.Header {
		t.Helper()
		h, payload := p.parse(p.get().b)
		var d xdr.Decoder
		d.ResetBytes(payload)
		if xid, typ := d.Uint32(), d.Uint32(); xid != uint32(h.XID) || typ != oncrpc.MsgCall {
			t.Errorf("payload %x", payload)
		}
		if h.Procedure != wire.Msg || h.Chunks() || h.Credits != 6 {
			t.Errorf("reverse call: %+v", h)
		}
		return h
	}
	reply := func(h *wire.Header, credits int) {
		p.send(append(words(uint32(h.XID), 1, credits, 0, 0, 0, 0), words(uint32(h.XID), 1, 0, 0, 0, 0, 0, 0)...))
	}
	first := take()
	p.none() // one, before the first reply of its direction
	// a forward call with the XID of the reverse call
	p.send(plainMsg(int(first.XID), rpcCall(int(first.XID), procNull)))
	if h, _ := p.parse(p.get().b); h.XID != first.XID || h.Credits != 32 {
		t.Errorf("forward reply: %+v", h)
	}
	reply(first, 2)
	a, b := take(), take()
	p.none()
	reply(b, 1)
	p.none()
	p.send(words(uint32(a.XID), 1, 1, 4, 2)) // ERR_CHUNK
	reply(take(), 1)
	for i := range done {
		<-done[i]
	}
	var re *RemoteError
	if !errors.As(rs[1].Err, &re) || re.Code != wire.ErrChunk {
		t.Errorf("the call answered ERR_CHUNK: %v", rs[1].Err)
	}
	for i, r := range rs {
		if i != 1 && r.Err != nil {
			t.Error(r.Err)
		}
		r.Free()
	}
	for i := range 10 { // receives of past reverse calls are used up
		p.null(100 + i)
	}
	w.waitIdle()
	p.close()
	w.close()
}

// TestReverseCallWithChunks: the client's responder has no chunks.
func TestReverseCallWithChunks(t *testing.T) {
	c, p, w := newRequesterEnv(t, rawPrivate(4096), func(cfg *Config) { cfg.Handler = &testHandler{} }, nil)
	first := make(chan error, 1)
	go func() { first <- null(c, w.cpool, procNull) }()
	p.answerNull(8)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	p.send(append(words(5, 1, 1, 0, 0, 1, 1, someSegment, 0, 0), rpcCall(5, procNull)...))
	h, _ := p.parse(p.get().b)
	if h.Procedure != wire.Error || h.Code != wire.ErrChunk || h.XID != 5 {
		t.Errorf("answer: %+v", h)
	}
	p.send(plainMsg(6, rpcCall(6, procNull)))
	if h, _ := p.parse(p.get().b); h.Procedure != wire.Msg || h.Credits != 16 {
		t.Errorf("answer: %+v", h)
	}
	p.close()
	w.close(c)
}
