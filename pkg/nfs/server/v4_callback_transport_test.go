package server

import (
	"context"
	"net"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// called answers every callback by success, and passes its last operation on.
type called struct{ ops chan nfs4.CBOp }

func (c *called) ServeRPC(call *oncrpc.Call) {
	e, err := call.BeginReply(oncrpc.MinReplyLen + 256)
	if err != nil {
		call.Drop()
		return
	}
	if call.Procedure == nfs4.ProcCompound {
		d := call.Args()
		var head nfs4.CBCompoundArgs
		head.Decode(d)
		d.Uint32()
		var seq nfs4.CBSequenceArgs
		seq.Decode(d)
		op := nfs4.CBOp(d.Uint32())
		e.Fixed(nfs4test.Fields(0, "", 2, int(nfs4.OpCBSequence), 0, nfs4test.Raw(seq.Session[:]), seq.Sequence, seq.Slot, seq.Slot, seq.Slot, int(op), 0))
		defer func() { c.ops <- op }()
	}
	call.EndReply()
	call.Respond()
}

// TestTransports recalls a delegation over TCP, and over RPC-over-RDMA of both versions.
func TestTransports(t *testing.T) {
	for _, c := range []struct {
		name     string
		versions []int // of RPC-over-RDMA; nil means TCP
	}{{"TCP", nil}, {"RPC-over-RDMA 1", []int{1}}, {"RPC-over-RDMA 2", []int{1, 2}}} {
		t.Run(c.name, func(t *testing.T) {
			e := newEnv4(t, unshared)
			e.put("file", "contents")
			pool := bufpool.New(0)
			t.Cleanup(func() {
				if err := pool.Close(); err != nil {
					t.Error(err)
				}
			})
			back := &called{ops: make(chan nfs4.CBOp, 16)}
			caller := &nfs4test.Caller{Pool: pool, Cred: e.cred}
			if c.versions == nil {
				dialTCP(e, caller, back)
			} else {
				dialRDMA(e, caller, back, c.versions)
			}
			s, err := nfs4test.NewSession(t.Context(), caller, 2, "client", 4, 0, backFlag)
			e.must(err)
			ok := func(ops ...nfs4test.Raw) *nfs4test.Results {
				t.Helper()
				res, err := s.Next(t.Context(), 0, ops...)
				e.must(err)
				expect(t, "COMPOUND", res, nfs4.OK)
				return res
			}
			ok(reclaimComplete)
			var o nfs4.OpenRes
			var handle []byte
			eventually(t, "a delegation", func() bool {
				res := ok(rootFH, openOp("o", accRW, 0, noCreate, "file"), op4(nfs4.OpGetFH))
				handle = append([]byte{}, res.Handle(t, 3)...)
				o.Decode(opResult(res, 2))
				return o.Delegation.Type == nfs4.DelegWrite
			})
			e.session("another").fails(nfs4.ErrDelay, rootFH, openOp("o", accR, 0, noCreate, "file"))
			select {
			case op := <-back.ops:
				if op != nfs4.OpCBRecall {
					t.Errorf("callback %d", op)
				}
			case <-time.After(time.Minute):
				t.Fatal("no callback")
			}
			ok(putFH(handle), delegReturn(o.Delegation.StateID))
		})
	}
}

func dialTCP(e *env, c *nfs4test.Caller, back oncrpc.Handler) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	e.must(err)
	srv, err := oncrpc.NewServer(oncrpc.Config{Pool: c.Pool, Handler: e.s, Bindings: binding.For})
	e.must(err)
	serve(e, func() { _ = srv.Serve(l) }, srv.Shutdown)
	conn, err := oncrpc.Dial(e.t.Context(), l.Addr().String(), oncrpc.Config{Pool: c.Pool, Handler: back, Bindings: binding.For})
	e.must(err)
	e.t.Cleanup(func() { _ = conn.Close(); conn.Wait() })
	c.Requester = conn
}

func dialRDMA(e *env, c *nfs4test.Caller, back oncrpc.Handler, versions []int) {
	provider, err := iwarp.New(iwarp.Config{})
	e.must(err)
	domain, err := provider.NewDomain()
	e.must(err)
	e.t.Cleanup(func() { _ = domain.Close() })
	e.must(domain.Register(c.Pool))
	l, err := provider.Listen(e.t.Context(), "127.0.0.1:0")
	e.must(err)
	srv, err := rpcrdma.NewServer(rpcrdma.Config{Pool: c.Pool, Domain: domain, Handler: e.s, Bindings: binding.For, Versions: versions}, l)
	e.must(err)
	serve(e, func() { _ = srv.Serve() }, srv.Shutdown)
	conn, err := rpcrdma.Dial(e.t.Context(), provider, l.Addr().String(),
		rpcrdma.Config{Pool: c.Pool, Handler: back, Bindings: binding.For, Versions: versions})
	e.must(err)
	e.t.Cleanup(func() { _ = conn.Close(); <-conn.Done() })
	c.Requester = conn
}

// serve runs a server until the end of the test.
func serve(e *env, run func(), shutdown func(context.Context) error) {
	done := make(chan struct{})
	go func() { defer close(done); run() }()
	e.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := shutdown(ctx); err != nil {
			e.t.Errorf("shutdown: %v", err)
		}
		<-done
	})
}
