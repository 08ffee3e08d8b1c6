package rpcrdma

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// TestSingleHandle looks which replies invalidate: those to calls all of whose chunks have one
// handle.
func TestSingleHandle(t *testing.T) {
	for _, agreed := range []bool{true, false} {
		w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.RemoteInvalidation = agreed })
		p := w.rawDial(rawPrivate(4096))
		p.null(1)
		xid := 10
		// parts cuts one region into n segments of 100 bytes.
		parts := func(a rdma.Access, n int) (segs []wire.Segment) {
			s := p.expose(p.mem(100*n), a)
			for i := range n {
				segs = append(segs, wire.Segment{Handle: s.Handle, Length: 100, Offset: s.Offset + uint64(100*i)})
			}
			return segs
		}
		both := rdma.RemoteRead | rdma.RemoteWrite
		one := parts(both, 3)[0].Handle
		_ = one
		for _, c := range []struct {
			name string
			make func() (msg []byte, segs []wire.Segment)
			want bool
		}{
			{"no chunks", func() ([]byte, []wire.Segment) {
				return words(0, 0, 0, rpcCall(xid, procNull)), nil
			}, false},
			{"one Write segment", func() ([]byte, []wire.Segment) {
				s := parts(both, 1)
				return words(0, chunkBytes(s), 0, 0, rpcCall(xid, procMove, moveArgs(nil, 50))), s
			}, true},
			{"one unused Write segment", func() ([]byte, []wire.Segment) {
				s := parts(both, 1)
				return words(0, chunkBytes(s), 0, 0, rpcCall(xid, procNull)), s
			}, true},
			{"Write segments of one region", func() ([]byte, []wire.Segment) {
				s := parts(both, 3)
				return words(0, chunkBytes(s), 0, 0, rpcCall(xid, procMove, moveArgs(nil, 250))), s
			}, true},
			{"Write segments of two regions", func() ([]byte, []wire.Segment) {
				s := append(parts(both, 1), parts(both, 1)...)
				return words(0, chunkBytes(s), 0, 0, rpcCall(xid, procMove, moveArgs(nil, 150))), s
			}, false},
			{"a pad segment of another region", func() ([]byte, []wire.Segment) {
				s := append(parts(both, 1), wire.Segment{Handle: 0x77, Length: 4})
				return words(0, chunkBytes(s), 0, 0, rpcCall(xid, procMove, moveArgs(nil, 99))), s
			}, false},
			{"Read and Write segments of one region", func() ([]byte, []wire.Segment) {
				s := parts(both, 2)
				return words(1, 48, s[0], 0, chunkBytes(s[1:]), 0, 0, rpcCall(xid, procMove, moveArgs([]int{100}, 50))), s
			}, true},
			{"Read and Reply segments of two regions", func() ([]byte, []wire.Segment) {
				s := append(parts(both, 1), parts(both, 1)...)
				return words(1, 48, s[0], 0, 0, chunkBytes(s[1:]), rpcCall(xid, procMove, moveArgs([]int{100}))), s
			}, false},
			{"two Write chunks of two regions", func() ([]byte, []wire.Segment) {
				s := append(parts(both, 1), parts(both, 1)...)
				return words(0, chunkBytes(s[:1]), chunkBytes(s[1:]), 0, 0, rpcCall(xid, procMove, moveArgs(nil, 50, 50))), s
			}, false},
			{"an error", func() ([]byte, []wire.Segment) {
				s := parts(both, 1)
				return words(0, chunkBytes(s), 0, 0, rpcCall(xid, procMove, moveArgs(nil, 500))), s
			}, false},
		} {
			xid++
			msg, segs := c.make()
			p.send(append(words(xid, 1, 32, 0), msg...))
			r := p.get()
			if r.has != (c.want && agreed) {
				t.Errorf("agreed %v: %s: invalidated %v", agreed, c.name, r.has)
			} else if r.has && r.invalidated != uint32(segs[0].Handle) {
				t.Errorf("agreed %v: %s: invalidated %#x, want %#x", agreed, c.name, r.invalidated, segs[0].Handle)
			}
		}
		p.close()
		w.close()
	}
}

// TestRevocation counts the requester's own invalidations: those of handles that the peer did not
// invalidate.
func TestRevocation(t *testing.T) {
	for _, agreed := range []bool{true, false} {
		w := newEnv(t, rdmatest.Options{}, nil)
		c := w.dial(func(cfg *Config) { cfg.RemoteInvalidation = agreed })
		if err := null(c, w.cpool, procNull); err != nil {
			t.Fatal(err)
		}
		for _, s := range []struct {
			m        move
			regions  uint64
			remotely uint64
		}{
			{move{args: []int{10}}, 0, 0},
			{move{results: []int{10000}}, 1, 1},
			{move{args: []int{10000}}, 1, 1},
			{move{args: []int{10000}, results: []int{10000}}, 2, 0},
			{move{results: []int{10000, 10000}}, 2, 0},
			{move{results: []int{10000}, memory: 4}, 4, 0},
		} {
			before := w.fabric.Counters()
			if err := s.m.do(c, w.cpool); err != nil {
				t.Fatal(err)
			}
			d := w.fabric.Counters().Sub(before)
			remotely := s.remotely
			if !agreed {
				remotely = 0
			}
			if d.Exposed != s.regions || d.Invalidates != remotely || d.LocalInvalidates != s.regions-remotely {
				t.Errorf("agreed %v, %+v: %d exposed, %d invalidated remotely, %d locally", agreed, s.m, d.Exposed, d.Invalidates, d.LocalInvalidates)
			}
		}
		w.close(c)
	}
}

var errEnough = errors.New("enough")

// TestCancel gives requests up in every state.
func TestCancel(t *testing.T) {
	w := newEnv(t, rdmatest.Options{}, func(cfg *Config) { cfg.Credits = credit.Static(2) })
	c := w.dial(nil)
	if err := null(c, w.cpool, procNull); err != nil {
		t.Fatal(err)
	}
	var rs []*oncrpc.Request
	var done []chan struct{}
	for range 5 { // two are sent and hang, three are queued
		r, _, err := oncrpc.NewRequest(w.cpool, testProgram, testVersion, procHang, oncrpc.Auth{}, 64)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		rs, done = append(rs, r), append(done, submit(c, r))
	}
	eventually(t, "two calls hang", func() bool { return w.handler.hanging() == 2 })
	for _, i := range []int{3, 1, 4} {
		c.Cancel(rs[i], errEnough)
		<-done[i]
		if rs[i].Err != errEnough { //nolint:errorlint // it is to be that one
			t.Errorf("request %d: %v", i, rs[i].Err)
		}
		c.Cancel(rs[i], errors.New("again"))
	}
	again, _, err := oncrpc.NewRequest(w.cpool, testProgram, testVersion, procNull, oncrpc.Auth{}, 64)
	if err != nil {
		t.Fatal(err)
	}
	again.XID = rs[1].XID // whose reply may come yet
	refused := make(chan struct{})
	again.Done = func(*oncrpc.Request) { close(refused) }
	c.Submit(again)
	if <-refused; !errors.Is(again.Err, oncrpc.ErrXIDInUse) {
		t.Errorf("a request with the XID of a cancelled one: %v, want %v", again.Err, oncrpc.ErrXIDInUse)
	}
	again.Free()
	select {
	case <-done[0]:
		t.Error("another request is done")
	case <-done[2]:
		t.Error("a queued request is done, though the cancelled one still has its credit")
	case <-time.After(10 * time.Millisecond):
	}
	w.handler.release() // the late reply gives the credit back
	<-done[0]
	eventually(t, "the queued call hangs", func() bool { return w.handler.hanging() == 1 })
	w.handler.release()
	<-done[2]
	for _, i := range []int{0, 2} {
		if rs[i].Err != nil {
			t.Error(rs[i].Err)
		}
	}
	for _, r := range rs {
		r.Free()
	}
	if err := null(c, w.cpool, procNull); err != nil {
		t.Error(err)
	}
	w.close(c)
}

// TestCancelExposed cancels calls for which memory is exposed, without remote invalidation. The
// server, which does not know of that, goes on with RDMA: the connection lives, whosever the memory
// is.
func TestCancelExposed(t *testing.T) {
	for _, c := range []struct {
		name string
		m    move
		back bool // the request is back at once
		o    rdmatest.Options
	}{
		{"result in memory of the requester", move{results: []int{20000}}, true, rdmatest.Options{ReuseHandles: true}},
		{"Reply chunk", move{results: []int{20000}, how: []int{2}}, true, rdmatest.Options{ReuseHandles: true}},
		{"result in memory of the caller", move{results: []int{20000}, memory: 1}, false, rdmatest.Options{ReuseHandles: true}},
		{"argument", move{args: []int{20000}}, false, rdmatest.Options{ReuseHandles: true}},
		{"result in memory of the caller, redirected", move{results: []int{20000}, memory: 1}, true, rdmatest.Options{}},
		{"argument, redirected", move{args: []int{20000}}, true, rdmatest.Options{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := rdmatest.NewFabric(c.o)
			cl, p, w := newRequesterEnv(t, wire.PrivateData{SendSize: 4096, ReceiveSize: 4096}.Append(nil), nil, f)
			first := make(chan error, 1)
			go func() { first <- null(cl, w.cpool, procNull) }()
			p.answerNull(8)
			if err := <-first; err != nil {
				t.Fatal(err)
			}
			r, err := c.m.build(w.cpool)
			if err != nil {
				t.Fatal(err)
			}
			if c.m.how != nil {
				r.Plan.Results = r.Plan.Results[:0]
			}
			_ = r.Seal()
			done := submit(cl, r)
			h, _ := p.parse(p.get().b)
			var user []byte // the caller's memory
			if len(c.m.args) > 0 {
				user = r.Call.Items[0].Data[0]
			} else if c.m.memory > 0 {
				user = r.Plan.Results[0].Memory[0]
			}
			sent := bytes.Clone(user)
			cl.Cancel(r, errEnough)
			if c.back {
				<-done
				for i := range user { // it is used again
					user[i] = 0x77
				}
			} else {
				select {
				case <-done:
					t.Error("the memory went back to the caller while the server could reach it")
				default:
				}
			}
			mem := p.mem(20000)
			wr := rdma.WorkRequest{Op: rdma.Write, Signaled: true, Local: [][]byte{mem}}
			segs := h.Reply()
			switch {
			case len(h.Reads) > 0:
				wr.Op, segs = rdma.Read, []wire.Segment{h.Reads[0].Segment}
			case h.Writes() > 0:
				segs = h.Write(0)
			}
			wr.Remote = rdma.Remote{Handle: uint32(segs[0].Handle), Offset: segs[0].Offset}
			if err := p.ep.Post([]rdma.WorkRequest{wr}); err != nil {
				t.Fatal(err)
			}
			msg := append(words(uint32(h.XID), 1, 8, 0, 0), lateWrites(h)...)
			p.send(append(msg, words(0, 0, uint32(h.XID), 1, 0, 0, 0, 5)...))
			<-done
			if c.back && len(bytes.Trim(user, "\x77")) > 0 {
				t.Error("the server wrote to the caller's memory")
			}
			if wr.Op == rdma.Read {
				<-p.read
				if !bytes.Equal(mem, sent) {
					t.Error("the server read something else than the argument")
				}
			}
			if r.Err != errEnough { //nolint:errorlint // it is to be that one
				t.Errorf("the cancelled call: %v", r.Err)
			}
			r.Free()
			go func() { first <- null(cl, w.cpool, procNull) }()
			p.answerNull(8)
			if err := <-first; err != nil {
				t.Errorf("the next call: %v", err)
			}
			p.close()
			w.close(cl)
		})
	}
}

// TestLateInvalidate cancels a call, uses its handle anew if it has been withdrawn, and then lets
// the late reply invalidate it.
func TestLateInvalidate(t *testing.T) {
	for _, c := range []struct {
		name string
		m    move // cancelled
		own  bool // its memory is the requester's
	}{
		{"memory of the requester", move{results: []int{20000}}, true},
		{"memory of the caller", move{results: []int{20000}, memory: 1}, false},
		{"an argument", move{args: []int{20000}}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { lateInvalidate(t, c.m, c.own) })
		})
	}
}

func lateInvalidate(t *testing.T, m move, own bool) {
	f := rdmatest.NewFabric(rdmatest.Options{ReuseHandles: true})
	cl, p, w := newRequesterEnv(t, rawPrivate(4096), nil, f)
	first := make(chan error, 1)
	go func() { first <- null(cl, w.cpool, procNull) }()
	p.answerNull(8)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	r, err := m.build(w.cpool)
	if err != nil {
		t.Fatal(err)
	}
	_ = r.Seal()
	done := submit(cl, r)
	late, _ := p.parse(p.get().b)
	handle := func(h *wire.Header) wire.Segment {
		if len(h.Reads) > 0 {
			return h.Reads[0].Segment
		}
		return h.Write(0)[0]
	}
	cancelled := time.Now()
	cl.Cancel(r, context.DeadlineExceeded)
	<-done // nothing was answered
	want := cancelWait
	if own {
		want = 0
	}
	if waited := time.Since(cancelled); waited != want {
		t.Errorf("the request came back after %v, want %v", waited, want)
	}
	if !errors.Is(r.Err, context.DeadlineExceeded) {
		t.Errorf("error %v", r.Err)
	}
	r.Free()

	second := move{results: []int{20000}}
	if r, err = second.build(w.cpool); err != nil {
		t.Fatal(err)
	}
	_ = r.Seal()
	done = submit(cl, r)
	h, _ := p.parse(p.get().b)
	reused := handle(h).Handle == handle(late).Handle
	if reused == own {
		t.Errorf("handle reused: %v", reused)
	}
	// the late reply
	msg := append(words(uint32(late.XID), 1, 8, 0, 0), lateWrites(late)...)
	msg = append(msg, words(0, 0, uint32(late.XID), 1, 0, 0, 0, 5)...)
	mem := p.mem(len(msg))
	copy(mem, msg)
	wr := rdma.WorkRequest{Op: rdma.SendWithInvalidate, Signaled: true, Local: [][]byte{mem}, Invalidate: uint32(handle(late).Handle)}
	if err := p.ep.Post([]rdma.WorkRequest{wr}); err != nil {
		t.Fatal(err)
	}
	// and the answer to the second call
	if own {
		answerMove(t, p, h, second)
		<-done
		if err := second.check(r); err != nil {
			t.Errorf("second call: %v", err)
		}
	} else {
		res := p.mem(20000)
		s := handle(h)
		_ = p.ep.Post([]rdma.WorkRequest{{Op: rdma.Write, Signaled: true, Local: [][]byte{res}, Remote: rdma.Remote{Handle: uint32(s.Handle), Offset: s.Offset}}})
		<-done // the access is gone, and with it the connection
		var lost *LostError
		if !errors.As(r.Err, &lost) {
			t.Errorf("second call: %v", r.Err)
		}
	}
	r.Free()
	p.close()
	w.close(cl)
}

func lateWrites(h *wire.Header) (b []byte) {
	for i := range h.Writes() {
		b = wire.AppendReturned(b, h.Write(i), 0)
	}
	return b
}

// answerMove answers a call of procMove without arguments by hand, results placed in its Write
// chunks.
func answerMove(t *testing.T, p *rawPeer, h *wire.Header, m move) {
	t.Helper()
	msg := words(uint32(h.XID), 1, 8, 0, 0)
	payload := words(uint32(h.XID), 1, 0, 0, 0, 0, 0, 0, len(m.results))
	for k, n := range m.results {
		mem := p.mem(n)
		fill([][]byte{mem}, k)
		s := h.Write(k)[0]
		if err := p.ep.Post([]rdma.WorkRequest{{Op: rdma.Write, Local: [][]byte{mem}, Remote: rdma.Remote{Handle: uint32(s.Handle), Offset: s.Offset}}}); err != nil {
			t.Fatal(err)
		}
		msg = wire.AppendReturned(msg, h.Write(k), n)
		payload = append(payload, words(0, n)...)
	}
	msg = append(msg, words(0, 0)...)
	p.send(append(append(msg, payload...), words(tail)...))
}
