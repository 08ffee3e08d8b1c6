package binding_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

func nfs4(t testing.TB) oncrpc.Binding {
	t.Helper()
	b := binding.For(nfs3.Program, 4)
	if b == nil {
		t.Fatal("no binding")
	}
	return b
}

// beforeOps is the number of bytes before the operations of a COMPOUND with the tag "abcde": the
// tag and two words.
const beforeOps = 4 + 8 + 4 + 4

func args4(t testing.TB, minor uint32, ops ...nfsv4.NfsArgop4) []byte {
	t.Helper()
	var b bytes.Buffer
	m := nfsv4.Compound4args{Tag: "abcde", Minorversion: minor, Argarray: ops}
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func results4(t testing.TB, ops ...nfsv4.NfsResop4) []byte {
	t.Helper()
	var b bytes.Buffer
	m := nfsv4.Compound4res{Tag: "abcde", Resarray: ops}
	if _, err := m.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func read4(count uint32) *nfsv4.NfsArgop4_OP_READ {
	return &nfsv4.NfsArgop4_OP_READ{Opread: nfsv4.Read4args{Count: count}}
}

func readDone(n int) *nfsv4.NfsResop4_OP_READ {
	return &nfsv4.NfsResop4_OP_READ{Opread: &nfsv4.Read4res_NFS4_OK{Resok4: nfsv4.Read4resok{Data: make([]byte, n)}}}
}

func readFailed() *nfsv4.NfsResop4_OP_READ {
	return &nfsv4.NfsResop4_OP_READ{Opread: &nfsv4.Read4res_default{Status: nfsv4.NFS4ERR_IO}}
}

func putFH(n int) *nfsv4.NfsArgop4_OP_PUTFH {
	return &nfsv4.NfsArgop4_OP_PUTFH{Opputfh: nfsv4.Putfh4args{Object: make([]byte, n)}}
}

func getAttr(attrs ...int) *nfsv4.NfsArgop4_OP_GETATTR {
	mask := make([]uint32, 3)
	for _, n := range attrs {
		mask[n/32] |= 1 << (n % 32)
	}
	return &nfsv4.NfsArgop4_OP_GETATTR{Opgetattr: nfsv4.Getattr4args{AttrRequest: mask}}
}

// Bounds and positions derived by hand from RFC 7531, 5662 and 7863.
func TestPlan4(t *testing.T) {
	const head = 4 + 12 + 4
	const sequence, putfh, read, fattr = 8 + 16 + 5*4, 8, 8 + 4 + 4, 8 + 4 + 32 + 4
	type result struct{ max, begin, end int }
	cases := []struct {
		name    string
		ops     []nfsv4.NfsArgop4
		rest    int // MaxReply without eligible results
		results []result
		args    []oncrpc.Argument
	}{
		{name: "nothing"},
		{
			name: "as Linux reads",
			ops:  []nfsv4.NfsArgop4{&nfsv4.NfsArgop4_OP_SEQUENCE{}, putFH(28), read4(4097), getAttr(3, 4)},
			rest: sequence + putfh + read + fattr + 16,
			results: []result{
				{4097, 36 + 36, 32},
			},
		},
		{
			name: "several results",
			ops:  []nfsv4.NfsArgop4{read4(10), &nfsv4.NfsArgop4_OP_READLINK{}, read4(1 << 31), read4(0)},
			rest: 3*read + 12,
			results: []result{
				{10, 0, 32}, {4096, 32, 4}, {1 << 20, 36, 32}, {0, 68, 32},
			},
		},
		{
			name: "WRITE and CREATE",
			ops: []nfsv4.NfsArgop4{
				&nfsv4.NfsArgop4_OP_WRITE{Opwrite: nfsv4.Write4args{Data: make([]byte, 5)}},
				&nfsv4.NfsArgop4_OP_CREATE{Opcreate: nfsv4.Create4args{Objtype: &nfsv4.Createtype4_NF4LNK{Linkdata: []byte("target")}}},
				&nfsv4.NfsArgop4_OP_CREATE{Opcreate: nfsv4.Create4args{Objtype: &nfsv4.Createtype4_NF4DIR{}}},
			},
			rest: (8 + 16) + 2*(8+20+36),
			args: []oncrpc.Argument{
				{Position: header + beforeOps + 4 + 16 + 8 + 4 + 4, Length: 5},
				{Position: header + beforeOps + 44 + 4 + 4 + 4, Length: 6},
			},
		},
		{
			name: "READDIR",
			ops:  []nfsv4.NfsArgop4{&nfsv4.NfsArgop4_OP_READDIR{Opreaddir: nfsv4.Readdir4args{Dircount: 10000, Maxcount: 8190}}},
			rest: 8 + 8 + 4 + 4 + 8192,
		},
		{
			name: "attributes without bounds",
			ops:  []nfsv4.NfsArgop4{getAttr(0, 12, 36, 37, 19, 24)},
			rest: fattr + 36 + (4 + 65536) + 2*(4+256) + (4 + 128) + (8 + 4096),
		},
		{
			name: "TEST_STATEID",
			ops:  []nfsv4.NfsArgop4{&nfsv4.NfsArgop4_OP_TEST_STATEID{OptestStateid: nfsv4.TestStateid4args{TsStateids: make([]nfsv4.Stateid4, 7)}}},
			rest: 8 + 4 + (8+7*16)/4,
		},
		{
			name: "devices and layouts",
			ops: []nfsv4.NfsArgop4{
				&nfsv4.NfsArgop4_OP_GETDEVICEINFO{Opgetdeviceinfo: nfsv4.Getdeviceinfo4args{GdiaMaxcount: 5000}},
				&nfsv4.NfsArgop4_OP_GETDEVICELIST{Opgetdevicelist: nfsv4.Getdevicelist4args{GdlaMaxdevices: 3}},
				&nfsv4.NfsArgop4_OP_LAYOUTGET{Oplayoutget: nfsv4.Layoutget4args{LogaMaxcount: 1000}},
			},
			rest: (8 + 8 + 36 + 5000) + (8 + 8 + 8 + 4 + 4 + 48) + (8 + 4 + 16 + 4 + 1000),
		},
		{
			name: "READ_PLUS",
			ops:  []nfsv4.NfsArgop4{&nfsv4.NfsArgop4_OP_READ_PLUS{OpreadPlus: nfsv4.ReadPlus4args{RpaCount: 70001}}},
			rest: 8 + 4 + 4 + 70004 + 4096,
		},
		{
			name: "OPEN",
			ops: []nfsv4.NfsArgop4{&nfsv4.NfsArgop4_OP_OPEN{Opopen: nfsv4.Open4args{
				Openhow: &nfsv4.Openflag4_default{}, Claim: &nfsv4.OpenClaim4_CLAIM_FH{},
			}}},
			rest: 8 + 16 + 20 + 4 + 36 + 4 + (16 + 4 + 12 + 12 + 4) + 256,
		},
		{
			name: "SECINFO",
			ops:  []nfsv4.NfsArgop4{&nfsv4.NfsArgop4_OP_SECINFO{Opsecinfo: nfsv4.Secinfo4args{Name: "x"}}},
			rest: 8 + 4 + 4096,
		},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			want := oncrpc.Plan{MaxReply: head + c.rest}
			for _, r := range c.results {
				begin := header + beforeOps + r.begin
				want.Results = append(want.Results, oncrpc.Result{Max: r.max, Begin: begin, End: begin + r.end})
				want.MaxReply += xdr.Round(r.max)
			}
			p := oncrpc.Plan{Results: make([]oncrpc.Result, 0, 4)}
			if len(c.results) == 0 {
				want.Results = p.Results
			}
			stream := args4(t, 2, c.ops...)
			got, err := nfs4(t).Plan(&p, nil, 1, decoder(stream, nil))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, p); diff != "" {
				t.Errorf("plan (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(c.args, got); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}

// A requester offers no memory for the text of a link, unless the call reads data as well.
func TestPlan4Offered(t *testing.T) {
	link := &nfsv4.NfsArgop4_OP_READLINK{}
	for name, c := range map[string]struct {
		ops     []nfsv4.NfsArgop4
		results int
	}{
		"link":          {[]nfsv4.NfsArgop4{putFH(28), link, getAttr(3)}, 0},
		"links":         {[]nfsv4.NfsArgop4{link, link}, 0},
		"data":          {[]nfsv4.NfsArgop4{putFH(28), read4(100)}, 1},
		"data and link": {[]nfsv4.NfsArgop4{link, read4(100)}, 2},
	} {
		var whole, offered oncrpc.Plan
		stream := args4(t, 2, c.ops...)
		_, err1 := nfs4(t).Plan(&whole, nil, 1, decoder(stream, nil))
		_, err2 := binding.Offered(nfs3.Program, 4).Plan(&offered, nil, 1, decoder(stream, nil))
		if err1 != nil || err2 != nil || len(offered.Results) != c.results || offered.MaxReply != whole.MaxReply {
			t.Errorf("%s: %+v (%v), must have %d results and the room of %+v (%v)", name, offered, err2, c.results, whole, err1)
		}
	}
}

// TestPlan4Estimated checks which calls may go again with more room: those of version 4.0 that
// change nothing, and have a result without a bound.
func TestPlan4Estimated(t *testing.T) {
	acl, size := getAttr(12), getAttr(4)
	secinfo := &nfsv4.NfsArgop4_OP_SECINFO{Opsecinfo: nfsv4.Secinfo4args{Name: "x"}}
	lookup := &nfsv4.NfsArgop4_OP_LOOKUP{Oplookup: nfsv4.Lookup4args{Objname: "x"}}
	remove := &nfsv4.NfsArgop4_OP_REMOVE{Opremove: nfsv4.Remove4args{Target: "x"}}
	unknown := args4(t, 0, putFH(8), acl, size)
	copy(unknown[len(unknown)-20:], []byte{0, 0, 0, 99})
	for name, c := range map[string]struct {
		stream []byte
		want   bool
	}{
		"ACL":             {args4(t, 0, putFH(8), acl), true},
		"owner":           {args4(t, 0, putFH(8), lookup, &nfsv4.NfsArgop4_OP_GETFH{}, getAttr(36)), true},
		"SECINFO":         {args4(t, 0, putFH(8), secinfo), true},
		"READ and ACL":    {args4(t, 0, putFH(8), read4(5000), acl, size), true},
		"bounded":         {args4(t, 0, putFH(8), read4(5000), size), false},
		"an effect":       {args4(t, 0, putFH(8), acl, remove), false},
		"an effect first": {args4(t, 0, putFH(8), remove, acl), false},
		"a slot":          {args4(t, 1, &nfsv4.NfsArgop4_OP_SEQUENCE{}, putFH(8), acl), false},
		"version 4.2":     {args4(t, 2, putFH(8), acl), false},
		"unknown":         {unknown, false},
		"nothing":         {args4(t, 0), false},
	} {
		t.Run(name, func(t *testing.T) {
			p := oncrpc.Plan{Estimated: !c.want}
			if _, err := nfs4(t).Plan(&p, nil, 1, decoder(c.stream, nil)); err != nil || p.Estimated != c.want {
				t.Errorf("%v, %v", p.Estimated, err)
			}
		})
	}
}

func TestPlan4Null(t *testing.T) {
	p := oncrpc.Plan{Results: []oncrpc.Result{{Max: 1}}, MaxReply: 9}
	args, err := nfs4(t).Plan(&p, nil, 0, decoder(nil, nil))
	if err != nil || len(args)+len(p.Results)+p.MaxReply > 0 {
		t.Errorf("%v %v %v", args, p, err)
	}
}

// All eligible results of a COMPOUND share one bound.
func TestPlan4Bounds(t *testing.T) {
	var ops []nfsv4.NfsArgop4
	for range 100 {
		ops = append(ops, read4(1<<32-1), getAttr(12), &nfsv4.NfsArgop4_OP_READLINK{})[:min(len(ops)+2, 256)]
	}
	var p oncrpc.Plan
	if _, err := nfs4(t).Plan(&p, nil, 1, decoder(args4(t, 2, ops...), nil)); err != nil {
		t.Fatal(err)
	}
	sum := 0
	for _, r := range p.Results {
		sum += xdr.Round(r.Max)
	}
	if len(p.Results) != 100 || sum != 4<<20 || p.MaxReply != sum+2<<20 {
		t.Errorf("%d results of %d bytes, at most %d", len(p.Results), sum, p.MaxReply)
	}
}

// A call that cannot be read to its end gets a plan for the readable part.
func TestPlan4Unknown(t *testing.T) {
	good := args4(t, 1, read4(100), &nfsv4.NfsArgop4_OP_PUTROOTFH{})
	unknown := bytes.Clone(good)
	unknown[len(good)-1] = 99
	later := bytes.Clone(good)
	later[len(good)-1] = schema.OpClone // of 4.2
	many := args4(t, 1, slices.Repeat([]nfsv4.NfsArgop4{read4(100)}, schema.MaxOps+1)...)
	for name, c := range map[string]struct {
		stream        []byte
		results, rest int
		reason        string
	}{
		"good":      {good, 1, 4 + 12 + 4 + 16 + 100 + 8, ""},
		"unknown":   {unknown, 1, 4 + 12 + 4 + 16 + 100 + 8, ""},
		"later":     {later, 1, 4 + 12 + 4 + 16 + 100 + 8, ""},
		"minor":     {args4(t, 3, read4(100)), 0, 4 + 12 + 4 + 8, ""},
		"cut short": {good[:len(good)-1], 0, 0, "message ends"},
		"empty":     {nil, 0, 0, "message ends"},
		"too many":  {many, 0, 4 + 12 + 4 + 8, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var p oncrpc.Plan
			_, err := nfs4(t).Plan(&p, nil, 1, decoder(c.stream, nil))
			if c.reason != "" {
				if err == nil || !strings.Contains(err.Error(), c.reason) {
					t.Errorf("%v, must say %q", err, c.reason)
				}
				return
			}
			if err != nil || len(p.Results) != c.results || p.MaxReply != c.rest {
				t.Errorf("%+v, %v, must have %d results and %d bytes", p, err, c.results, c.rest)
			}
		})
	}
}

// Items other than data of WRITE and text of CREATE are not consumed, or stop the decoder.
func TestPlan4Items(t *testing.T) {
	stream := args4(t, 2,
		&nfsv4.NfsArgop4_OP_WRITE{Opwrite: nfsv4.Write4args{Data: make([]byte, 8)}},
		&nfsv4.NfsArgop4_OP_LOOKUP{Oplookup: nfsv4.Lookup4args{Objname: "12345678"}},
	)
	data := beforeOps + 4 + 16 + 8 + 4 + 4
	for at := 0; at+8 <= len(stream); at += 4 {
		reduced := append(bytes.Clone(stream[:at]), stream[at+8:]...)
		d := decoder(reduced, []xdr.Item{{Position: at, Length: 8}})
		args, err := nfs4(t).Plan(&oncrpc.Plan{}, nil, 1, d)
		if good := err == nil && d.Used() == 1; good != (at == data) {
			t.Errorf("item at %d: %v, %d used", at, err, d.Used())
		} else if good && args[0] != (oncrpc.Argument{Position: header + data, Length: 8}) {
			t.Errorf("%v", args)
		}
	}
}

// compoundRes is a reply with eligible results of the given lengths. -1 is a failed operation,
// which ends the reply.
type compoundRes struct {
	ops  []nfsv4.NfsResop4
	lens []int
}

func drawCompound(t *rapid.T) (c compoundRes, p oncrpc.Plan) {
	for range rapid.IntRange(1, 4).Draw(t, "results") {
		n := rapid.SampledFrom([]int{0, 1, 4, 5, 100}).Draw(t, "length")
		p.Results = append(p.Results, oncrpc.Result{Max: 100})
		failed := len(c.lens) > 0 && c.lens[len(c.lens)-1] < 0
		if failed {
			continue
		}
		switch rapid.IntRange(0, 5).Draw(t, "kind") {
		case 0:
			c.ops, n = append(c.ops, readFailed()), -1
		case 1:
			text := bytes.Repeat([]byte("x"), n)
			c.ops = append(c.ops, &nfsv4.NfsResop4_OP_READLINK{Opreadlink: &nfsv4.Readlink4res_NFS4_OK{Resok4: nfsv4.Readlink4resok{Link: text}}})
		default:
			c.ops = append(c.ops, readDone(n))
		}
		c.lens = append(c.lens, n)
		if n >= 0 && rapid.Bool().Draw(t, "more") {
			c.ops = append(c.ops, &nfsv4.NfsResop4_OP_GETATTR{Opgetattr: &nfsv4.Getattr4res_NFS4_OK{
				Resok4: nfsv4.Getattr4resok{ObjAttributes: nfsv4.Fattr4{Attrmask: []uint32{1 << 3}, AttrVals: make([]byte, 8)}},
			}})
		}
	}
	return c, p
}

func TestResults4(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c, p := drawCompound(rt)
		flat := results4(t, c.ops...)
		var w schema.Walker
		var d xdr.Decoder
		d.ResetBytes(flat)
		if err := w.Results(schema.Proc{Program: nfs3.Program, Version: 4, Procedure: 1}, &d); err != nil {
			rt.Fatal(err)
		}
		want := make([]oncrpc.Found, len(p.Results))
		placed := make([]int, len(p.Results))
		var stream []byte
		var items []xdr.Item
		at, k := 0, 0
		for _, op := range w.Ops {
			if op.Code != schema.OpRead && op.Code != schema.OpReadlink {
				continue
			}
			if n := c.lens[k]; n > 0 {
				s := w.Spans[op.Last-1]
				want[k] = oncrpc.Found{State: oncrpc.Inline, Position: header + s.Pos + 4, Length: n}
				placed[k] = n + rapid.SampledFrom([]int{0, xdr.Pad(n)}).Draw(rt, "padding")
				items = append(items, xdr.Item{Position: s.Pos + 4, Length: n})
				stream = append(stream, flat[at:s.Pos+4]...)
				at = s.Pos + s.Len
			}
			k++
		}
		stream = append(stream, flat[at:]...)
		check := func(how string, placed []int, d *xdr.Decoder) {
			found, err := nfs4(t).Results(nil, &p, placed, 1, d)
			if err != nil || !cmp.Equal(found, want) {
				rt.Fatalf("%s: %+v, %v, must be %+v", how, found, err, want)
			}
		}
		check("whole", nil, decoder(flat, nil))
		check("inline", make([]int, len(p.Results)), decoder(flat, nil))
		for i := range want {
			if want[i].State == oncrpc.Inline {
				want[i].State = oncrpc.Placed
			}
		}
		check("items", nil, decoder(stream, items))
		check("placed", placed, decoder(stream, nil))
	})
}

func TestResults4Bad(t *testing.T) {
	one := results4(t, readDone(100))
	noData := append(bytes.Clone(one[:len(one)-100]), results4(t)[20:]...)
	odd := results4(t, readDone(0), &nfsv4.NfsResop4_OP_LOOKUPP{})
	odd[len(odd)-5] = 99
	cases := []struct {
		name    string
		stream  []byte
		results int
		max     int
		placed  []int
		reason  string
	}{
		{"placed more", noData, 1, 300, []int{104}, "104 bytes were placed where the reply says 100"},
		{"placed less", noData, 1, 300, []int{96}, "96 bytes were placed where the reply says 100"},
		{"more than planned", noData, 1, 99, []int{100}, "result 0 has 100 bytes, at most 99 were asked for"},
		{"placed, and failed", results4(t, readFailed()), 1, 300, []int{4}, "4 bytes were placed for result 0, which has no data"},
		{"placed, and missing", results4(t), 1, 300, []int{4}, "4 bytes were placed for result 0, which has no data"},
		{"placed beyond", noData, 1, 300, []int{100, 4}, "4 bytes were placed for result 1"},
		{"too many", results4(t, readDone(0), readDone(0)), 1, 300, nil, "operation 1 has an eligible result, only 1 are planned"},
		{"truncated", one[:30], 1, 300, nil, "message ends"},
		{"unknown before", odd, 2, 300, nil, "there is no operation 99"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := oncrpc.Plan{}
			for range c.results {
				p.Results = append(p.Results, oncrpc.Result{Max: c.max})
			}
			found, err := nfs4(t).Results(nil, &p, c.placed, 1, decoder(c.stream, nil))
			if err == nil || !strings.Contains(err.Error(), c.reason) || len(found) != 0 {
				t.Fatalf("%v, %v, must say %q", found, err, c.reason)
			}
		})
	}
	// All planned results precede the unknown operation.
	p := oncrpc.Plan{Results: []oncrpc.Result{{Max: 100}}}
	if found, err := nfs4(t).Results(nil, &p, nil, 1, decoder(odd, nil)); err != nil || len(found) != 1 {
		t.Errorf("%v, %v", found, err)
	}
}

func TestAllocs4(t *testing.T) {
	b := nfs4(t)
	call := [][]byte{args4(t, 2, &nfsv4.NfsArgop4_OP_SEQUENCE{}, putFH(28), read4(4097), getAttr(3, 4, 33, 36))}
	reply := [][]byte{results4(t, readDone(4096))}
	p := oncrpc.Plan{Results: make([]oncrpc.Result, 0, 2)}
	args := make([]oncrpc.Argument, 0, 2)
	found := make([]oncrpc.Found, 0, 2)
	var d xdr.Decoder
	plan := testing.AllocsPerRun(100, func() {
		d.Reset(call, nil)
		_, _ = b.Plan(&p, args, 1, &d)
	})
	res := testing.AllocsPerRun(100, func() {
		d.Reset(reply, nil)
		_, _ = b.Results(found, &p, nil, 1, &d)
	})
	if (plan != 0 || res != 0) && !race.Enabled {
		t.Errorf("Plan: %v allocations, Results: %v", plan, res)
	}
}

func FuzzPlan4(f *testing.F) {
	f.Add(args4(f, 2, &nfsv4.NfsArgop4_OP_SEQUENCE{}, putFH(28), read4(4097), getAttr(3, 4)), 0, 0)
	f.Add(args4(f, 0, &nfsv4.NfsArgop4_OP_WRITE{Opwrite: nfsv4.Write4args{Data: make([]byte, 5)}}), 56, 5)
	f.Fuzz(func(t *testing.T, stream []byte, at, length int) {
		var items []xdr.Item
		if at >= 0 && length > 0 && at < 1<<20 && length < 1<<20 {
			items = append(items, xdr.Item{Position: at &^ 3, Length: length})
		}
		var p oncrpc.Plan
		args, err := nfs4(t).Plan(&p, nil, 1, decoder(stream, items))
		if p.MaxReply < 0 || p.MaxReply > 6<<20 || len(p.Results) > schema.MaxOps {
			t.Fatalf("%+v", p)
		}
		end := header
		for _, r := range p.Results {
			if r.Begin < end || r.End <= r.Begin || r.Max < 0 || r.Max > nfs3.MaxData {
				t.Fatalf("%+v", p)
			}
			end = r.End
		}
		for _, a := range args {
			if err == nil && (a.Length > nfs3.MaxData || a.Position < header || a.Position%4 != 0) {
				t.Fatalf("%+v", a)
			}
		}
	})
}

func FuzzResults4(f *testing.F) {
	f.Add(results4(f, readDone(10), readDone(0), readDone(7)), 100, 0, 0)
	f.Add(results4(f, readDone(0), readFailed()), 100, 10, 0)
	f.Fuzz(func(t *testing.T, stream []byte, limit, first, second int) {
		if limit < 0 || limit > nfs3.MaxData || first < 0 || second < 0 {
			return
		}
		p := oncrpc.Plan{Results: []oncrpc.Result{{Max: limit}, {Max: limit}}}
		placed := []int{first, second}
		found, err := nfs4(t).Results(nil, &p, placed, 1, decoder(stream, nil))
		if (err == nil) != (len(found) == 2) {
			t.Fatalf("%v, %v", found, err)
		}
		for k, f := range found {
			if f.Length > limit || (placed[k] > 0) != (f.State == oncrpc.Placed) || f.State != oncrpc.Absent && f.Position < header {
				t.Fatalf("%+v with %d placed of %d", f, placed[k], limit)
			}
		}
	})
}
