package client_test

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs3/nfs3test"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// loop is a requester with a handler in the same process as its server. With place it places
// results where the request wants them, as RDMA does; otherwise replies are whole, as on TCP. It
// compares each request with its plan.
type loop struct {
	t       *testing.T
	handler oncrpc.Handler
	pool    *bufpool.Pool
	place   bool
	conn    *oncrpc.Conn

	serving sync.WaitGroup

	mu    sync.Mutex
	xid   uint32
	xids  map[uint32]bool
	calls map[*oncrpc.Request]uint32 // not answered yet, with their XIDs
	seen  []uint32                   // procedures
}

func newLoop(t *testing.T, h oncrpc.Handler, pool *bufpool.Pool, place bool) *loop {
	conn := &oncrpc.Conn{Network: "loop", Remote: netip.MustParseAddrPort("127.0.0.1:1")}
	return &loop{t: t, handler: h, pool: pool, place: place, conn: conn, xids: map[uint32]bool{}, calls: map[*oncrpc.Request]uint32{}}
}

func (l *loop) NextXID() uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.xid++
	return l.xid
}

func (l *loop) Close() error { return nil }

func (l *loop) Submit(r *oncrpc.Request) {
	l.mu.Lock()
	if l.xids[r.XID] {
		l.t.Errorf("XID %d was used before", r.XID)
	}
	l.xids[r.XID], l.calls[r] = true, r.XID
	l.seen = append(l.seen, r.Procedure)
	l.mu.Unlock()

	c := &oncrpc.Call{Conn: l.conn}
	c.Init(l.pool, &exchange{l, r})
	b, err := l.pool.Get(r.Call.Len())
	if err != nil {
		l.t.Error(err)
		return
	}
	c.Own(b)
	flat := nfs3test.Flatten(r.Call.Stream[0], r.Call.Items)
	copy(b.B, flat)
	flat = b.B
	c.Stream = append(c.Stream, flat)
	if err := oncrpc.DecodeCall(c); err != nil || c.XID != r.XID || c.ArgsAt != r.ArgsAt || c.Procedure != r.Procedure {
		l.t.Errorf("call header: %v, %+v", err, r)
	}
	l.checkPlan(r, flat)
	l.serving.Add(1)
	go func() {
		defer l.serving.Done()
		l.handler.ServeRPC(c)
	}()
}

// checkPlan compares the fields of r with its binding's view of the message.
func (l *loop) checkPlan(r *oncrpc.Request, flat []byte) {
	b := binding.Offered(r.Program, r.Version)
	if b == nil {
		if len(r.Eligible)+len(r.Plan.Results) > 0 {
			l.t.Errorf("program %d has no binding, but %+v", r.Program, r)
		}
		return
	}
	var d xdr.Decoder
	d.ResetBytes(flat)
	d.Skip(r.ArgsAt)
	var p oncrpc.Plan
	args, err := b.Plan(&p, nil, r.Procedure, &d)
	if err != nil {
		l.t.Errorf("%s: %v", nfs3.ProcedureName(r.Procedure), err)
		return
	}
	if len(args) != len(r.Eligible) || len(args) > 0 && args[0] != r.Eligible[0] {
		l.t.Errorf("%s: eligible are %v, the request says %v", nfs3.ProcedureName(r.Procedure), args, r.Eligible)
	}
	if len(p.Results) != len(r.Plan.Results) || len(p.Results) > 0 && p.Results[0].Max != r.Plan.Results[0].Max {
		l.t.Errorf("%s: results are %v, the request says %v", nfs3.ProcedureName(r.Procedure), p.Results, r.Plan.Results)
	}
	if r.Plan.MaxReply < p.MaxReply+oncrpc.MinReplyLen {
		l.t.Errorf("%s: replies have %d bytes and a header, the request says %d", nfs3.ProcedureName(r.Procedure), p.MaxReply, r.Plan.MaxReply)
	}
}

func (l *loop) Cancel(r *oncrpc.Request, cause error) {
	if l.take(r, r.XID) {
		r.Err = cause
		r.Done(r)
	}
}

// take ends the wait for a reply. A cancelled request may already be in use again, with another
// XID.
func (l *loop) take(r *oncrpc.Request, xid uint32) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if was, ok := l.calls[r]; !ok || was != xid {
		return false
	}
	delete(l.calls, r)
	return true
}

type exchange struct {
	l *loop
	r *oncrpc.Request
}

func (x *exchange) Drop(c *oncrpc.Call)      { c.Recycle() }
func (x *exchange) Supersede(c *oncrpc.Call) { c.Recycle() }

func (x *exchange) Respond(c *oncrpc.Call) {
	defer c.Recycle()
	r := x.r
	if !x.l.take(r, c.XID) {
		return
	}
	stream, items := c.Reply.Stream[0], c.Reply.Items
	if n := c.Reply.Len(); n > r.Plan.MaxReply {
		x.l.t.Errorf("%s: reply has %d bytes, planned were %d", nfs3.ProcedureName(r.Procedure), n, r.Plan.MaxReply)
	}
	r.Err = nil
	if x.l.place && len(items) == 1 && len(r.Plan.Results) == 1 && r.Plan.Results[0].Memory != nil {
		res := &r.Plan.Results[0]
		data := place(res.Memory, items[0].Data)
		res.State = oncrpc.Placed
		items = []xdr.Item{{Position: items[0].Position, Length: items[0].Length, Data: data}}
	} else {
		stream, items = nfs3test.Flatten(stream, items), nil
	}
	b, err := x.l.pool.Get(len(stream))
	if err != nil {
		x.l.t.Error(err)
		return
	}
	copy(b.B, stream)
	r.Reply.Own(b)
	r.Reply.Stream = append(r.Reply.Stream[:0], b.B)
	r.Reply.Items = append(r.Reply.Items[:0], items...)
	r.Done(r)
}

func place(memory, data [][]byte) (filled [][]byte) {
	m := memory[0]
	n := 0
	for _, s := range data {
		n += copy(m[n:], s)
	}
	return [][]byte{m[:n]}
}

// env is a client of a server in memory.
type env struct {
	*client.Client
	fs   *memFS
	loop *loop
	pool *bufpool.Pool
	root nfs3.Handle
}

// eachRig runs f over both kinds of transport and checks for leaks.
func eachEnv(t *testing.T, f func(t *testing.T, e *env)) {
	for _, place := range []bool{false, true} {
		name := "whole"
		if place {
			name = "placed"
		}
		t.Run(name, func(t *testing.T) {
			e := newEnv(t, place)
			f(t, e)
			e.loop.serving.Wait()
			if s := e.pool.Stats(); s.Bufs != 0 {
				t.Errorf("%d buffers were not released", s.Bufs)
			}
		})
	}
}

func newEnv(t *testing.T, place bool) *env {
	t.Helper()
	pool := bufpool.New(0)
	fs := newMemFS()
	l := newLoop(t, fs, pool, place)
	cred, err := client.ProcessCred()
	if err != nil {
		t.Fatal(err)
	}
	e := &env{Client: client.New(client.Config{Requester: l, Pool: pool, Cred: cred, Window: 4}), fs: fs, loop: l, pool: pool}
	if e.root, err = e.Mount(context.Background(), "/export"); err != nil {
		t.Fatal(err)
	}
	return e
}

func mustNot(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustBe(t *testing.T, err, target error) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("error is %v, must be %v", err, target)
	}
}
