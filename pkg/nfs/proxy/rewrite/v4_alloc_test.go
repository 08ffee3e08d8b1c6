package rewrite

import (
	"testing"

	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// trip is a COMPOUND that is repeated with its reply.
type trip struct {
	x           *Export
	who         Caller
	c           Call
	in          oncrpc.Call
	out, back   oncrpc.Message
	plan        oncrpc.Plan
	call, reply []byte
	item        []xdr.Item // of the call
	planned     bool       // the client's transport plans for a result
}

func (p *trip) run() {
	p.in.Stream = append(p.in.Stream, p.call)
	p.in.Items = append(p.in.Items, p.item...)
	if err := oncrpc.DecodeCall(&p.in); err != nil {
		panic(err)
	}
	if p.planned {
		p.in.Plan.Results = append(p.in.Plan.Results, oncrpc.Result{Max: 1 << 20})
	}
	if v, err := p.c.Args(p.x, &p.who, &p.in, &p.out, &p.plan); v != Forward || err != nil {
		panic(err)
	}
	p.back.Stream = append(p.back.Stream, p.reply)
	if err := p.c.Results(p.x, &p.in, &p.back); err != nil {
		panic(err)
	}
	p.out.Release()
	p.in.Recycle()
}

// trips returns the most common COMPOUNDs.
func trips(tb testing.TB) map[string]*trip {
	x := exportV4(tb, sign.Required)
	handle := putFH(x.signed(someFH))
	data := make([]byte, 8192)
	write := op(schema.OpWrite, stateID, uint64(0), 2, len(data))
	stat := []uint32{1, 3, 4, aID, 33, aMounted}
	got := gotAttr(stat, 1, uint64(1), uint64(2), uint64(3), 0o644, uint64(3))
	all := map[string]*trip{
		"GETATTR": {
			call:  compoundV4(2, sequence, handle, getAttr(stat...)),
			reply: resultsOf(0, sequenceOK, ok(schema.OpPutFH), got),
		},
		"READ": {
			call:    compoundV4(2, sequence, handle, op(schema.OpRead, stateID, uint64(0), len(data))),
			reply:   resultsOf(0, sequenceOK, ok(schema.OpPutFH), ok(schema.OpRead, 0, data)),
			planned: true,
		},
		"WRITE": {
			call:  compoundV4(2, sequence, handle, write, getAttr(stat...)),
			reply: resultsOf(0, sequenceOK, ok(schema.OpPutFH), ok(schema.OpWrite, len(data), 2, uint64(9)), got),
			item:  []xdr.Item{{Position: len(compoundV4(2, sequence, handle, write)), Length: len(data), Data: [][]byte{data}}},
		},
		"LOOKUP": {
			call:  compoundV4(2, sequence, handle, lookup("name"), getFH, getAttr(stat...)),
			reply: resultsOf(0, sequenceOK, ok(schema.OpPutFH), ok(schema.OpLookup), ok(schema.OpGetFH, someFH), got),
		},
		"LOOKUPP": {
			call:  compoundV4(2, sequence, handle, lookupP, getFH),
			reply: resultsOf(0, sequenceOK, ok(schema.OpPutFH), ok(schema.OpNVerify), ok(schema.OpLookupP), ok(schema.OpGetFH, someFH)),
		},
	}
	for _, p := range all {
		p.x = x
		p.in.Init(pool4, nil)
	}
	return all
}

// TestAllocsV4 checks that a COMPOUND allocates nothing in the steady state.
func TestAllocsV4(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for name, p := range trips(t) {
		p.run()
		if n := testing.AllocsPerRun(500, p.run); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkV4(b *testing.B) {
	for name, p := range trips(b) {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				p.run()
			}
		})
	}
}

// TestBulkV4 checks that WRITE data is not copied, and READ data is cut out of the reply.
func TestBulkV4(t *testing.T) {
	all := trips(t)
	var c Call
	var out oncrpc.Message
	var plan oncrpc.Plan
	p := all["WRITE"]
	in := arrived(t, p.call)
	in.Items = p.item
	if v, err := c.Args(p.x, &p.who, in, &out, &plan); v != Forward || err != nil {
		t.Fatal(v, err)
	}
	if len(out.Items) != 1 || &out.Items[0].Data[0][0] != &p.item[0].Data[0][0] || out.Items[0].Position != p.item[0].Position-sign.TagLen {
		t.Errorf("the items are %v", out.Items)
	}
	out.Release()

	p = all["READ"]
	in = arrived(t, p.call)
	in.Plan.Results = append(in.Plan.Results, oncrpc.Result{Max: 1 << 20})
	if v, err := c.Args(p.x, &p.who, in, &out, &plan); v != Forward || err != nil {
		t.Fatal(v, err)
	}
	if len(plan.Results) != 1 || plan.Results[0].Max != 8192 {
		t.Errorf("the plan has %v", plan.Results)
	}
	var m oncrpc.Message
	m.Stream = append(m.Stream, p.reply)
	if err := c.Results(p.x, in, &m); err != nil {
		t.Fatal(err)
	}
	at := len(p.reply) - 8192
	if len(in.Reply.Items) != 1 || in.Reply.Items[0].Position != at || &in.Reply.Items[0].Data[0][0] != &p.reply[at] {
		t.Errorf("the items are %v", in.Reply.Items)
	}
	sameBytes(t, "the reply", flat(&in.Reply), p.reply)
	out.Release()

	// The text of a link stays inline.
	in = arrived(t, compoundV4(2, sequence, putRootFH, op(schema.OpReadlink)))
	if v, err := c.Args(p.x, &p.who, in, &out, &plan); v != Forward || err != nil || len(plan.Results) != 0 || plan.MaxReply < 4096 {
		t.Errorf("READLINK: %v, %v, the plan has %v in %d bytes", v, err, plan.Results, plan.MaxReply)
	}
	out.Release()

	// A refusal after a READ follows its data.
	in = arrived(t, compoundV4(2, sequence, putRootFH, op(schema.OpRead, stateID, uint64(0), 8192), lookup("..")))
	in.Plan.Results = append(in.Plan.Results, oncrpc.Result{Max: 1 << 20})
	sendV4(t, &c, p.x, &p.who, in)
	data := make([]byte, 8191)
	sameBytes(t, "the reply", answerV4(t, &c, p.x, in, resultsOf(0, sequenceOK, ok(schema.OpPutFH), ok(schema.OpRead, 0, data))),
		resultsOf(errBadName, sequenceOK, ok(schema.OpPutRootFH), ok(schema.OpRead, 0, data), op(schema.OpLookup, errBadName)))
	if len(in.Reply.Items) != 1 {
		t.Errorf("the items are %v", in.Reply.Items)
	}
	// A refused WRITE drops its data.
	p = all["WRITE"]
	in = arrived(t, compoundV4(2, sequence, putFH(p.x.signed(someFH)), lookup("."), raw(p.call[len(compoundV4(2, sequence, putFH(p.x.signed(someFH)))):])))
	in.Items = []xdr.Item{p.item[0]}
	in.Items[0].Position += len(lookup("."))
	sent, _ := sendV4(t, &c, p.x, &p.who, in)
	sameBytes(t, "the call", sent, compoundV4(2, sequence, putFH(someFH)))
}
