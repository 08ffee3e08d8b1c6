package rewrite

import (
	"testing"

	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs3/nfs3test"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// repeatedV3 is a call that is repeated with the same reply.
type repeatedV3 struct {
	r           *env
	call, reply []byte
	items       []xdr.Item
}

func repeatV3(t fatal, proc uint32, args, res nfs3test.Message) *repeatedV3 {
	p := &repeatedV3{r: newEnv(t, sign.Required)}
	r := p.r
	r.x.V3, r.who.Squash, r.cred = true, access.SquashRoot, sysCred(t, 0, 0, 0, 5)
	r.signAll(args)
	stream, items := nfs3test.Encode(args)
	r.receive(nfs3.Program, 3, proc, stream, items)
	p.call = append(append(p.call, r.in.Stream[0]...), r.in.Stream[1]...)
	p.items = append(p.items, r.in.Items...)
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 1<<10), nil)
	h := oncrpc.ReplyHeader{XID: xid3}
	h.Encode(&e)
	p.reply = append(e.Bytes(), bytesOf(res)...)
	return p
}

// run acts as handler and transport of a call.
func (p *repeatedV3) run() {
	r := p.r
	r.in.Stream = append(r.in.Stream, p.call)
	r.in.Items = append(r.in.Items, p.items...)
	if err := oncrpc.DecodeCall(&r.in); err != nil {
		panic(err)
	}
	r.in.Plan.Results = append(r.in.Plan.Results, oncrpc.Result{Max: 1 << 20})
	if v, err := r.c.Args(&r.x, &r.who, &r.in, &r.out, &r.plan); v != Forward || err != nil {
		panic(err)
	}
	r.back.Stream = append(r.back.Stream, p.reply)
	if err := r.c.Results(&r.x, &r.in, &r.back); err != nil {
		panic(err)
	}
	r.out.Release()
	r.in.Recycle()
}

var hotV3 = []struct {
	proc      uint32
	args, res func() nfs3test.Message
}{
	{
		nfs3.ProcGetAttr,
		func() nfs3test.Message { return &nfs3.GetAttrArgs{Object: handle3} },
		func() nfs3test.Message { return &nfs3.GetAttrRes{Attr: nfs3.Attr{Type: nfs3.Reg}} },
	},
	{
		nfs3.ProcLookup,
		func() nfs3test.Message { return &nfs3.LookupArgs{Dir: handle3, Name: []byte("name")} },
		func() nfs3test.Message { return &nfs3.LookupRes{Object: handle3} },
	},
	{
		nfs3.ProcRead,
		func() nfs3test.Message { return &nfs3.ReadArgs{File: handle3, Count: 4096} },
		func() nfs3test.Message { return &nfs3.ReadRes{Count: 4096, Data: [][]byte{make([]byte, 4096)}} },
	},
	{
		nfs3.ProcWrite,
		func() nfs3test.Message {
			return &nfs3.WriteArgs{File: handle3, Count: 4096, Data: [][]byte{make([]byte, 4096)}}
		},
		func() nfs3test.Message { return &nfs3.WriteRes{Count: 4096} },
	},
	{
		nfs3.ProcAccess,
		func() nfs3test.Message { return &nfs3.AccessArgs{Object: handle3, Access: 0x3f} },
		func() nfs3test.Message { return &nfs3.AccessRes{Access: 0x3f} },
	},
}

func TestAllocsV3(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, h := range hotV3 {
		p := repeatV3(t, h.proc, h.args(), h.res())
		p.r.in.Recycle()
		p.run()
		if n := testing.AllocsPerRun(500, p.run); n != 0 {
			t.Errorf("%s: %v allocations", nfs3.ProcedureName(h.proc), n)
		}
		p.r.end()
	}
}

func BenchmarkV3(b *testing.B) {
	for _, h := range hotV3 {
		b.Run(nfs3.ProcedureName(h.proc), func(b *testing.B) {
			p := repeatV3(b, h.proc, h.args(), h.res())
			p.r.in.Recycle()
			for b.Loop() {
				p.run()
			}
		})
	}
}
