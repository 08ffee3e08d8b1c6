package rpcrdma

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// rawPeer is a peer without an engine: its messages are made by hand.
type rawPeer struct {
	t      testing.TB
	ep     rdma.Endpoint
	pool   *bufpool.Pool
	bufs   []*bufpool.Buf
	in     chan received
	ended  chan error
	size   int
	shared bool // the pool is another's
	recvs  [rawReceives][]byte
	read   chan struct{} // an RDMA Read has completed
	// take, if set, gets messages as they come, on the endpoint's goroutine, in place of in.
	take atomic.Pointer[func([]byte)]
}

// received is a message that came.
type received struct {
	b           []byte
	invalidated uint32
	has         bool
}

const rawReceives = 64

// options have everything that a peer needs.
func (p *rawPeer) options(d rdma.Domain, private []byte) rdma.Options {
	o := rdma.Options{Domain: d, PrivateData: private, ORD: 16, IRD: 16, SendQueue: 1 << 16}
	for i := range rawReceives {
		p.recvs[i] = p.mem(p.size)
		o.Receives = append(o.Receives, rdma.Receive{ID: uint64(i), Segments: [][]byte{p.recvs[i]}})
	}
	return o
}

// mem is local memory, for as long as the peer lives.
func (p *rawPeer) mem(n int) []byte {
	b, err := p.pool.Get(n)
	if err != nil {
		p.t.Fatal(err)
	}
	p.bufs = append(p.bufs, b)
	return b.B
}

func newRawPeer(t testing.TB, size int) *rawPeer {
	return &rawPeer{t: t, pool: getPool(), in: make(chan received, 256), read: make(chan struct{}, 256), ended: make(chan error, 1), size: size}
}

// rawPrivate is a raw peer's private data.
func rawPrivate(size int) []byte {
	return wire.PrivateData{RemoteInvalidation: true, SendSize: size, ReceiveSize: size}.Append(nil)
}

// rawDial connects a raw client.
func (w *env) rawDial(private []byte) *rawPeer {
	w.t.Helper()
	p := newRawPeer(w.t, 8192)
	d, err := w.p.NewDomain()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := d.Register(p.pool); err != nil {
		w.t.Fatal(err)
	}
	if p.ep, err = w.p.Dial(context.Background(), w.address, p.options(d, private)); err != nil {
		w.t.Fatal(err)
	}
	p.serve()
	return p
}

func (p *rawPeer) serve() { go func() { p.ended <- p.ep.Serve(p) }() }

// Completed implements rdma.Handler.
func (p *rawPeer) Completed(batch []rdma.Completion) {
	for _, c := range batch {
		if c.Op != rdma.Recv {
			if c.Op == rdma.Read {
				p.read <- struct{}{}
			}
			continue
		}
		b := p.recvs[c.ID]
		if take := p.take.Load(); take != nil {
			(*take)(b[:c.Bytes])
			_ = p.ep.PostReceives([]rdma.Receive{{ID: c.ID, Segments: [][]byte{b}}})
			continue
		}
		p.in <- received{append([]byte(nil), b[:c.Bytes]...), c.Invalidated, c.HasInvalidated}
		_ = p.ep.PostReceives([]rdma.Receive{{ID: c.ID, Segments: [][]byte{b}}})
	}
}

// Sent implements rdma.Handler.
func (p *rawPeer) Sent([]uint64) {}

// send sends one message.
func (p *rawPeer) send(b []byte) {
	p.t.Helper()
	m := p.mem(len(b))
	copy(m, b)
	p.post(m)
}

// post sends one message, in registered memory.
func (p *rawPeer) post(m []byte) {
	if err := p.ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Signaled: true, Local: [][]byte{m}}}); err != nil {
		p.t.Error(err)
	}
}

// get waits for a message.
func (p *rawPeer) get() received {
	p.t.Helper()
	select {
	case r := <-p.in:
		return r
	case err := <-p.ended:
		p.ended <- err
		select {
		case r := <-p.in:
			return r
		default:
		}
		p.t.Fatalf("connection ended: %v", err)
	case <-time.After(patience):
		p.t.Fatal("no message came")
	}
	return received{}
}

// none looks whether no message has come.
func (p *rawPeer) none() {
	p.t.Helper()
	select {
	case r := <-p.in:
		p.t.Fatalf("unexpected message %x", r.b)
	default:
	}
}

// end waits for the connection's end.
func (p *rawPeer) end() error {
	p.t.Helper()
	select {
	case err := <-p.ended:
		p.ended <- err
		return err
	case <-time.After(patience):
		p.t.Fatal("connection did not end")
		return nil
	}
}

func (p *rawPeer) close() {
	p.ep.Close()
	_ = p.end()
	for _, b := range p.bufs {
		b.Release()
	}
	p.bufs = nil
	if !p.shared {
		putPool(p.pool)
	}
}

func (p *rawPeer) expose(b []byte, a rdma.Access) wire.Segment {
	p.t.Helper()
	r, err := p.ep.Expose(b, a)
	if err != nil {
		p.t.Fatal(err)
	}
	return wire.Segment{Handle: wire.Handle(r.Handle), Length: uint32(len(b)), Offset: r.Offset}
}

// words are big-endian words, or bytes as they are.
func words(vs ...any) (b []byte) {
	for _, v := range vs {
		switch v := v.(type) {
		case int:
			b = binary.BigEndian.AppendUint32(b, uint32(v))
		case wire.Operation:
			b = binary.BigEndian.AppendUint32(b, uint32(v))
		case uint32:
			b = binary.BigEndian.AppendUint32(b, v)
		case uint64:
			b = binary.BigEndian.AppendUint64(b, v)
		case wire.Segment:
			b = wire.AppendSegment(b, v)
		case []byte:
			b = append(b, v...)
		default:
			panic(fmt.Sprintf("%T", v))
		}
	}
	return b
}

// rpcCall is a call's payload.
func rpcCall(xid, procedure int, args ...any) []byte {
	return append(words(xid, 0, 2, testProgram, testVersion, procedure, 0, 0, 0, 0), words(args...)...)
}

// moveArgs are the inline arguments of procMove: with argument lengths whose data are elsewhere,
// and results.
func moveArgs(args []int, results ...int) (b []byte) {
	b = words(len(args))
	for _, n := range args {
		b = append(b, words(n)...)
	}
	b = append(b, words(tail, len(results))...)
	for _, n := range results {
		b = append(b, words(n, 0)...)
	}
	return b
}

// plainMsg is RDMA_MSG without chunks.
func plainMsg(xid int, payload []byte) []byte {
	return append(words(xid, 1, 32, 0, 0, 0, 0), payload...)
}

// parse reads a message's header.
func (p *rawPeer) parse(b []byte) (*wire.Header, []byte) {
	p.t.Helper()
	h := new(wire.Header)
	lim := wire.Limits{ReadSegments: 256, WriteChunks: 256, SegmentsPerChunk: 256, WriteSegments: 1024}
	if err := h.Parse([][]byte{b}, &lim); err != nil {
		p.t.Fatalf("%x: %v", b, err)
	}
	return h, b[h.Size:]
}

// null makes a good call and checks its answer.
func (p *rawPeer) null(xid int) {
	p.t.Helper()
	p.send(plainMsg(xid, rpcCall(xid, procNull)))
	h, payload := p.parse(p.get().b)
	if h.XID != wire.XID(xid) || h.Procedure != wire.Msg || h.Credits == 0 || len(payload) != oncrpc.MinReplyLen {
		p.t.Fatalf("answer to NULL: %+v, payload %x", h, payload)
	}
}

// waitIdle waits until the server's side of all connections holds no call, and checks its accounts.
func (w *env) waitIdle() {
	w.t.Helper()
	w.server.mu.Lock()
	var conns []*Conn
	for c := range w.server.conns {
		conns = append(conns, c)
	}
	w.server.mu.Unlock()
	for _, c := range conns {
		for start := time.Now(); ; {
			c.responder.retained.mu.Lock()
			active := int(c.responder.active.Load()) - len(c.responder.retained.list)
			for ic := c.responder.retained.first; ic != nil; ic = ic.next {
				active--
				if ic.source != nil {
					active--
				}
			}
			c.responder.retained.mu.Unlock()
			r := &c.receives
			r.mu.Lock()
			want, have, held := r.credits+r.extra, r.posted, r.held
			r.mu.Unlock()
			room, waiting := c.work.room.Load(), c.work.waiting.Load()
			if active == 0 && held == 0 && want == have && room == int64(c.work.depth) && waiting == 0 {
				break
			}
			if time.Since(start) > time.Minute {
				w.t.Fatalf("connection did not settle: %d calls active, %d messages held, %d receives posted of %d, room for %d work requests, %d batches wait",
					active, held, have, want, room, waiting)
			}
			time.Sleep(time.Millisecond)
		}
	}
	if n := w.budget.Used(); n != 0 {
		w.t.Errorf("%d bytes of the budget are in use", n)
	}
}

// rawServer waits for one connection of the engine's requester.
func rawServer(t testing.TB, p rdma.Provider, private []byte) (address string, accept func() *rawPeer) {
	t.Helper()
	l, err := p.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l.Addr().String(), func() *rawPeer {
		t.Helper()
		defer l.Close()
		r := newRawPeer(t, 8192)
		d, err := p.NewDomain()
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Register(r.pool); err != nil {
			t.Fatal(err)
		}
		in, err := l.Accept()
		if err != nil {
			t.Fatal(err)
		}
		if r.ep, err = in.Accept(r.options(d, private)); err != nil {
			t.Fatal(err)
		}
		r.serve()
		return r
	}
}
