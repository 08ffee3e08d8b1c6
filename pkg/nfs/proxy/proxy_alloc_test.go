package proxy_test

import (
	"testing"

	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// repeated is a call that can be repeated without allocating.
type repeated struct {
	t       *testing.T
	c       *nfs4test.Caller
	version uint32
	proc    uint32
	args    func(*xdr.Encoder)
	dec     xdr.Decoder
}

func (p *repeated) run() {
	r, e, err := oncrpc.NewRequest(p.c.Pool, nfs3.Program, p.version, p.proc, p.c.Cred, 2048)
	if err != nil {
		p.t.Fatal(err)
	}
	p.args(e)
	if err := r.Seal(); err != nil {
		p.t.Fatal(err)
	}
	b := binding.For(nfs3.Program, p.version)
	p.dec.Reset(r.Call.Stream, r.Call.Items)
	p.dec.Skip(r.ArgsAt)
	if r.Eligible, err = b.Plan(&r.Plan, r.Eligible[:0], p.proc, &p.dec); err != nil {
		p.t.Fatal(err)
	}
	r.Plan.MaxReply += oncrpc.MinReplyLen
	if err := oncrpc.Do(p.t.Context(), p.c.Requester, r); err != nil {
		p.t.Fatal(err)
	}
	results, err := r.Results()
	if err != nil {
		p.t.Fatal(err)
	}
	if status := results.Uint32(); status != 0 {
		p.t.Fatalf("status %d", status)
	}
	r.Free()
}

// warmth is the number of calls until memory use is constant: software iWARP remembers the latest
// 1024 regions.
const warmth = 1200

// TestNoAllocations checks that a forwarded call allocates nothing between client and backend, on
// any pair of networks.
func TestNoAllocations(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	v, _ := volume(t)
	behind := pool(t)
	s := serve(t, "127.0.0.1:0", behind, v)
	t.Cleanup(s.stop)
	three := map[string]*front{"tcp": newFront(t, "tcp", s.address, nil), "rdma": newFront(t, "rdma", serveRDMA(t, behind, v, new(spoken)), nil)}
	b := newFake(t)
	fakeService := serve(t, "127.0.0.1:0", pool(t), &canned{fake: b})
	t.Cleanup(fakeService.stop)
	four := newFront(t, "tcp", fakeService.address, func(c *proxy.Config) { c.Minor[1] = true })

	for _, way := range [][2]string{{"tcp", "tcp"}, {"rdma", "tcp"}, {"tcp", "rdma"}, {"rdma", "rdma"}} {
		network := way[0]
		c := three[way[1]].dial(t, network, nil)
		nfs := asClient(c)
		buf, err := c.Pool.Get(64 << 10)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(buf.Release)
		data := [][]byte{buf.B}
		root := mnt(t, c, "/")
		made, err := nfs.Create(t.Context(), root, "file", nfs3.Unchecked, nfs3.SetAttrs{}, nfs3.Verifier{})
		if err != nil {
			t.Fatal(err)
		}
		calls := map[string]*repeated{
			"GETATTR": {c: c, version: 3, proc: nfs3.ProcGetAttr, args: func(e *xdr.Encoder) { e.Opaque(made.Handle) }},
			"READ of 64 KiB": {c: c, version: 3, proc: nfs3.ProcRead, args: func(e *xdr.Encoder) {
				e.Opaque(made.Handle)
				e.Uint64(0)
				e.Uint32(64 << 10)
			}},
			"WRITE of 64 KiB": {c: c, version: 3, proc: nfs3.ProcWrite, args: func(e *xdr.Encoder) {
				e.Opaque(made.Handle)
				e.Uint64(0)
				e.Uint32(64 << 10)
				e.Uint32(uint32(nfs3.Unstable))
				e.Bulk(data, len(data[0]))
			}},
		}
		c4 := four.dial(t, network, nil)
		session, err := nfs4test.NewSession(t.Context(), c4, 1, "owner", 1, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		handle := four.signer.Append(nil, b.root, schema.MaxOps/2)
		calls["SEQUENCE, PUTFH and GETATTR"] = &repeated{c: c4, version: 4, proc: 1, args: func(e *xdr.Encoder) {
			e.Opaque(nil)
			e.Uint32(1)
			e.Uint32(3)
			e.Uint32(schema.OpSequence)
			e.Fixed(session.ID)
			e.Uint32(1)
			e.Uint32(0)
			e.Uint32(0)
			e.Uint32(0)
			e.Uint32(schema.OpPutFH)
			e.Opaque(handle)
			e.Uint32(schema.OpGetAttr)
			e.Uint32(1)
			e.Uint32(1<<1 | 1<<schema.AttrFileID)
		}}
		for _, name := range []string{"WRITE of 64 KiB", "READ of 64 KiB", "GETATTR", "SEQUENCE, PUTFH and GETATTR"} {
			p := calls[name]
			p.t = t
			for range warmth {
				p.run()
			}
			if n := testing.AllocsPerRun(500, p.run); n != 0 {
				t.Errorf("%s by %s, and to the backend by %s: %v allocations", name, way[0], way[1], n)
			}
		}
	}
}

// canned is a fake that answers the loop's calls without allocating.
type canned struct{ *fake }

var cannedResults = fields(0, "", 3, op(schema.OpSequence, 0, raw("session of fakes"), 1, 0, 7, 7, 0), op(schema.OpPutFH, 0),
	op(schema.OpGetAttr, 0, nfs4test.Attrs([]uint32{1, schema.AttrFileID}, 2, uint64(rootID))))

func (c *canned) ServeRPC(call *oncrpc.Call) {
	d := call.Args()
	d.Opaque(64)
	d.Uint32()
	if n, first := d.Uint32(), d.Uint32(); call.Version != 4 || call.Procedure != 1 || n != 3 || first != schema.OpSequence {
		c.fake.ServeRPC(call)
		return
	}
	e, err := call.BeginReply(oncrpc.MinReplyLen + len(cannedResults))
	if err != nil {
		call.Drop()
		return
	}
	copy(e.Grow(len(cannedResults)), cannedResults)
	call.EndReply()
	call.Respond()
}
