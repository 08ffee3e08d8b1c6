package rpcrdma

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// estimated builds a call of procPlain whose reply of n bytes is estimated at most bytes.
func (w *env) estimated(n, most int) *oncrpc.Request {
	w.t.Helper()
	r, e, err := oncrpc.NewRequest(w.cpool, testProgram, testVersion, procPlain, oncrpc.Auth{}, 64)
	if err != nil {
		w.t.Fatal(err)
	}
	e.Opaque([]byte("call"))
	e.Uint32(uint32(n))
	r.Plan.MaxReply, r.Plan.Estimated = most, true
	if err := r.Seal(); err != nil {
		w.t.Fatal(err)
	}
	return r
}

// checkXIDs looks whether a request has its own XID again.
func checkXIDs(t *testing.T, r *oncrpc.Request, xid uint32) {
	t.Helper()
	if got := binary.BigEndian.Uint32(r.Call.Stream[0]); r.XID != xid || got != xid {
		t.Errorf("the request has XID %#x, its call %#x, must be %#x", r.XID, got, xid)
	}
	if r.Err == nil {
		if got := binary.BigEndian.Uint32(r.Reply.Stream[0]); got != xid {
			t.Errorf("the reply has XID %#x, must be %#x", got, xid)
		}
	}
}

// TestReplyGrows makes calls whose replies are longer than estimated, all at once.
func TestReplyGrows(t *testing.T) {
	w := newEnv(t, rdmatest.Options{ScribbleReceives: true}, nil)
	c := w.dial(nil)
	if err := null(c, w.cpool, procNull); err != nil { // before that there is one credit
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	calls := 1
	for _, k := range []struct{ n, most, calls int }{
		{3000, 200, 1}, {5000, 200, 2}, {20_000, 200, 3}, {200_000, 200, 4}, {20_000, 6000, 2}, {1 << 20, 1 << 18, 3}, {3 << 20, 3 << 20, 2},
	} {
		for range 8 {
			calls += k.calls
			wg.Go(func() {
				r := w.estimated(k.n, k.most)
				defer r.Free()
				<-submit(c, r)
				d, err := r.Results()
				if r.Err != nil || err != nil {
					t.Errorf("%+v: %v, %v", k, r.Err, err)
					return
				}
				d.Uint32()
				if b := d.Opaque(maxItem); !bytes.Equal(b, pattern(k.n, 0)) {
					t.Errorf("%+v: wrong result", k)
				}
				checkXIDs(t, r, r.XID)
			})
		}
	}
	wg.Wait()
	w.handler.mu.Lock()
	if w.handler.calls != calls {
		t.Errorf("the server has served %d calls, must be %d", w.handler.calls, calls)
	}
	w.handler.mu.Unlock()
	r := w.estimated(1<<20, 200) // too long for three growths
	xid := c.NextXID() + 1
	<-submit(c, r)
	if e := new(RemoteError); !errors.As(r.Err, &e) || e.Code != wire.ErrChunk {
		t.Errorf("a reply beyond all growth: %v", r.Err)
	}
	checkXIDs(t, r, xid)
	r.Free()
	w.waitIdle()
	w.close(c)
}

// TestCancelGrown cancels a call that went out again: its user gets it back with its own XID, and
// may send it anew.
func TestCancelGrown(t *testing.T) {
	for tries := range 4 {
		t.Run(fmt.Sprint(tries), func(t *testing.T) {
			c, p, w := newRequesterEnv(t, rawPrivate(4096), nil, nil)
			first := make(chan error, 1)
			go func() { first <- null(c, w.cpool, procNull) }()
			p.answerNull(8)
			if err := <-first; err != nil {
				t.Fatal(err)
			}
			r := w.estimated(10, 200)
			done := submit(c, r)
			xid := r.XID
			h, _ := p.parse(p.get().b)
			for range tries {
				p.send(words(uint32(h.XID), 1, 8, 4, 2))
				h, _ = p.parse(p.get().b)
			}
			gone := errors.New("gone")
			c.Cancel(r, gone)
			p.await(done)
			if !errors.Is(r.Err, gone) {
				t.Error(r.Err)
			}
			checkXIDs(t, r, xid)
			p.send(words(uint32(h.XID), 1, 8, 4, 2)) // too late
			r.Plan.Estimated = false
			done = submit(c, r)
			again, payload := p.parse(p.get().b)
			if uint32(again.XID) != r.XID || binary.BigEndian.Uint32(payload) != r.XID {
				t.Errorf("sent anew with XIDs %#x and %#x, must be %#x", again.XID, payload[:4], r.XID)
			}
			c.Cancel(r, context.Canceled)
			p.await(done)
			r.Free()
			w.close(c)
			p.close()
		})
	}
}
