package binding_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs3/nfs3test"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// header stands for the RPC header; positions include it.
const header = 64

func nfs(t testing.TB) oncrpc.Binding {
	t.Helper()
	b := binding.For(nfs3.Program, nfs3.Version)
	if b == nil {
		t.Fatal("no binding")
	}
	return b
}

// decoder returns a decoder after the header of a message with body stream and the given items.
func decoder(stream []byte, items []xdr.Item) *xdr.Decoder {
	items = append([]xdr.Item(nil), items...)
	for i := range items {
		items[i].Position += header
	}
	var d xdr.Decoder
	d.Reset([][]byte{make([]byte, header), stream}, items)
	d.Skip(header)
	return &d
}

func TestFor(t *testing.T) {
	var _ oncrpc.Bindings = binding.For
	for _, pv := range [][2]uint32{{nfs3.MountProgram, 3}, {nfs3.ACLProgram, 3}, {nfs3.Program, 2}, {nfs3.Program, 5}, {0x40000000, 1}, {100021, 4}, {nfs3.ACLProgram, 4}} {
		if b := binding.For(pv[0], pv[1]); b != nil {
			t.Errorf("program %d version %d has a binding", pv[0], pv[1])
		}
	}
}

// The bound and the eligible items of each procedure's results, derived by hand from RFC 1813 and
// RFC 8267 section 4.
func TestPlan(t *testing.T) {
	const attr, wcc = 88, 4 + 24 + 88
	h := nfs3.Handle("1234567") // 12 bytes on the wire
	where := nfs3.DirOpArgs{Dir: h, Name: []byte("name")}
	data := [][]byte{make([]byte, 5001)}
	cases := []struct {
		procedure uint32
		args      nfs3test.Message
		maxReply  int
		result    int // -1: none
		argument  *oncrpc.Argument
	}{
		{nfs3.ProcNull, &nfs3test.Void{}, 0, -1, nil},
		{nfs3.ProcGetAttr, &nfs3.GetAttrArgs{Object: h}, 4 + 84, -1, nil},
		{nfs3.ProcSetAttr, &nfs3.SetAttrArgs{Object: h}, 4 + wcc, -1, nil},
		{nfs3.ProcLookup, &where, 4 + 68 + 2*attr, -1, nil},
		{nfs3.ProcAccess, &nfs3.AccessArgs{Object: h}, 4 + attr + 4, -1, nil},
		{nfs3.ProcReadlink, &nfs3.ReadlinkArgs{Object: h}, 4 + attr + 4 + 4096, 4096, nil},
		{nfs3.ProcRead, &nfs3.ReadArgs{File: h, Count: 4097}, 4 + attr + 12 + 4100, 4097, nil},
		{nfs3.ProcRead, &nfs3.ReadArgs{File: h, Count: 0}, 4 + attr + 12, 0, nil},
		{nfs3.ProcRead, &nfs3.ReadArgs{File: h, Count: 1 << 31}, 4 + attr + 12 + 1<<20, 1 << 20, nil},
		{nfs3.ProcWrite, &nfs3.WriteArgs{File: h, Count: 5001, Data: data}, 4 + wcc + 16, -1, &oncrpc.Argument{Position: header + 12 + 8 + 4 + 4 + 4, Length: 5001}},
		{nfs3.ProcWrite, &nfs3.WriteArgs{File: h}, 4 + wcc + 16, -1, &oncrpc.Argument{Position: header + 32, Length: 0}},
		{nfs3.ProcCreate, &nfs3.CreateArgs{Where: where}, 4 + 72 + attr + wcc, -1, nil},
		{nfs3.ProcMkdir, &nfs3.MkdirArgs{Where: where}, 4 + 72 + attr + wcc, -1, nil},
		{nfs3.ProcSymlink, &nfs3.SymlinkArgs{Where: where, Path: [][]byte{[]byte("target")}, Length: 6}, 4 + 72 + attr + wcc, -1, &oncrpc.Argument{Position: header + 12 + 8 + 24 + 4, Length: 6}},
		{nfs3.ProcMknod, &nfs3.MknodArgs{Where: where, Type: nfs3.FIFO}, 4 + 72 + attr + wcc, -1, nil},
		{nfs3.ProcRemove, &where, 4 + wcc, -1, nil},
		{nfs3.ProcRmdir, &where, 4 + wcc, -1, nil},
		{nfs3.ProcRename, &nfs3.RenameArgs{From: where, To: where}, 4 + 2*wcc, -1, nil},
		{nfs3.ProcLink, &nfs3.LinkArgs{File: h, Link: where}, 4 + attr + wcc, -1, nil},
		{nfs3.ProcReaddir, &nfs3.ReaddirArgs{Dir: h, Count: 4097}, 4 + attr + 8 + 8 + 4100, -1, nil},
		{nfs3.ProcReaddir, &nfs3.ReaddirArgs{Dir: h, Count: 1<<32 - 1}, 4 + attr + 8 + 8 + 1<<20, -1, nil},
		{nfs3.ProcReaddirPlus, &nfs3.ReaddirPlusArgs{Dir: h, DirCount: 4, MaxCount: 8192}, 4 + attr + 8 + 8 + 8192, -1, nil},
		{nfs3.ProcReaddirPlus, &nfs3.ReaddirPlusArgs{Dir: h, DirCount: 4, MaxCount: 1<<32 - 1}, 4 + attr + 8 + 8 + 1<<20, -1, nil},
		{nfs3.ProcFSStat, &nfs3.FSStatArgs{Object: h}, 4 + attr + 52, -1, nil},
		{nfs3.ProcFSInfo, &nfs3.FSInfoArgs{Object: h}, 4 + attr + 48, -1, nil},
		{nfs3.ProcPathConf, &nfs3.PathConfArgs{Object: h}, 4 + attr + 24, -1, nil},
		{nfs3.ProcCommit, &nfs3.CommitArgs{File: h}, 4 + wcc + 8, -1, nil},
		{nfs3.Procedures, &nfs3test.Void{}, 0, -1, nil},
	}
	seen := map[uint32]bool{}
	for _, c := range cases {
		seen[c.procedure] = true
		t.Run(fmt.Sprintf("%s-%d", nfs3.ProcedureName(c.procedure), c.maxReply), func(t *testing.T) {
			stream, items := nfs3test.Encode(c.args)
			flat := nfs3test.Flatten(stream, items)
			want := oncrpc.Plan{MaxReply: c.maxReply}
			if c.result >= 0 {
				want.Results = []oncrpc.Result{{Max: c.result, Begin: header, End: header + len(flat)}}
			}
			var wantArgs []oncrpc.Argument
			if c.argument != nil {
				wantArgs = []oncrpc.Argument{*c.argument}
			}
			for _, d := range []*xdr.Decoder{decoder(stream, items), decoder(flat, nil)} {
				p := oncrpc.Plan{Results: []oncrpc.Result{{Max: 7}}} // from an earlier call
				args, err := nfs(t).Plan(&p, nil, c.procedure, d)
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, p); diff != "" && (len(want.Results) > 0 || len(p.Results) > 0 || p.MaxReply != want.MaxReply) {
					t.Errorf("plan (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff(wantArgs, args); diff != "" {
					t.Errorf("arguments (-want +got):\n%s", diff)
				}
			}
			if c.argument != nil && c.argument.Length > 0 {
				d := decoder(stream, items)
				if _, err := nfs(t).Plan(&oncrpc.Plan{}, nil, c.procedure, d); err != nil || d.Used() != 1 {
					t.Errorf("the item was not consumed: %d used, %v", d.Used(), err)
				}
			}
		})
	}
	if len(seen) != nfs3.Procedures+1 {
		t.Errorf("%d of %d procedures", len(seen)-1, nfs3.Procedures)
	}
}

// A Read chunk may contain the round-up, and the inline stream may lack it at the end of the data.
// Both are planned.
func TestPlanRoundUp(t *testing.T) {
	stream, items := nfs3test.Encode(&nfs3.WriteArgs{Count: 5, Data: [][]byte{make([]byte, 5)}})
	items[0].Length, items[0].Data = 8, nil // not fetched yet
	args, err := nfs(t).Plan(&oncrpc.Plan{}, nil, nfs3.ProcWrite, decoder(stream, items))
	if want := []oncrpc.Argument{{Position: header + 24, Length: 5}}; err != nil || !cmp.Equal(args, want) {
		t.Errorf("%v, %v, must be %v", args, err, want)
	}
	flat := slices.Concat(stream, []byte{1, 2, 3, 4, 5})
	args, err = nfs(t).Plan(&oncrpc.Plan{}, nil, nfs3.ProcWrite, decoder(flat, nil))
	if want := []oncrpc.Argument{{Position: header + 24, Length: 5}}; err != nil || !cmp.Equal(args, want) {
		t.Errorf("%v, %v, must be %v", args, err, want)
	}
}

// Items elsewhere are not consumed, or stop the decoder: the transport refuses both.
func TestPlanNotEligible(t *testing.T) {
	stream, _ := nfs3test.Encode(&nfs3.MkdirArgs{Where: nfs3.DirOpArgs{Name: []byte("x")}})
	for at := 0; at <= len(stream); at += 4 {
		d := decoder(stream, []xdr.Item{{Position: at, Length: 4}})
		if _, err := nfs(t).Plan(&oncrpc.Plan{}, nil, nfs3.ProcMkdir, d); err == nil && d.Used() != 0 {
			t.Errorf("MKDIR consumed an item at %d", at)
		}
	}
	stream, _ = nfs3test.Encode(&nfs3.WriteArgs{Count: 4, Data: [][]byte{make([]byte, 4)}})
	for at := 0; at < len(stream); at += 4 {
		d := decoder(stream, []xdr.Item{{Position: at, Length: 4}})
		if _, err := nfs(t).Plan(&oncrpc.Plan{}, nil, nfs3.ProcWrite, d); err == nil && d.Used() != 0 {
			t.Errorf("WRITE consumed an item at %d", at)
		}
	}
}

// No encodable result exceeds the bound.
func TestMaxReplyHolds(t *testing.T) {
	for procedure := range uint32(nfs3.Procedures) {
		t.Run(nfs3.ProcedureName(procedure), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				codec := nfs3test.NFS[procedure]
				args, res := codec.DrawArgs(t), codec.DrawRes(t)
				limit := rapid.Uint32Range(0, 2000).Draw(t, "count")
				// A result never exceeds its call's request.
				switch a := args.(type) {
				case *nfs3.ReadArgs:
					a.Count = max(limit, res.(*nfs3.ReadRes).Count)
				case *nfs3.ReaddirArgs:
					a.Count = limit
					l := &res.(*nfs3test.ReaddirRes).List
					l.Count, l.DirCount = limit, limit
				case *nfs3.ReaddirPlusArgs:
					a.MaxCount = limit
					l := &res.(*nfs3test.ReaddirPlusRes).List
					l.Count, l.DirCount = limit, a.DirCount
				}
				var p oncrpc.Plan
				_, err := binding.For(nfs3.Program, nfs3.Version).Plan(&p, nil, procedure, decoder(nfs3test.Flatten(nfs3test.Encode(args)), nil))
				if err != nil {
					t.Fatal(err)
				}
				if n := len(nfs3test.Flatten(nfs3test.Encode(res))); n > p.MaxReply {
					t.Fatalf("result has %d bytes, the bound is %d", n, p.MaxReply)
				}
			})
		})
	}
}

// Results are found inline, as items, or placed with only their lengths known.
func TestResults(t *testing.T) {
	for _, procedure := range []uint32{nfs3.ProcRead, nfs3.ProcReadlink} {
		t.Run(nfs3.ProcedureName(procedure), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				b := binding.For(nfs3.Program, nfs3.Version)
				res := nfs3test.NFS[procedure].DrawRes(t)
				stream, items := nfs3test.Encode(res)
				p := oncrpc.Plan{Results: []oncrpc.Result{{Max: 300}}}
				want := oncrpc.Found{State: oncrpc.Absent}
				if len(items) > 0 {
					want = oncrpc.Found{State: oncrpc.Placed, Position: header + items[0].Position, Length: items[0].Length}
				}
				check := func(how string, placed []int, d *xdr.Decoder) {
					found, err := b.Results(nil, &p, placed, procedure, d)
					if err != nil || !cmp.Equal(found, []oncrpc.Found{want}) {
						t.Fatalf("%s: %+v, %v, must be %+v", how, found, err, want)
					}
				}
				check("item", nil, decoder(stream, items))
				if len(items) > 0 {
					check("placed", []int{want.Length}, decoder(stream, nil))
					check("placed with round-up", []int{xdr.Round(want.Length)}, decoder(stream, nil))
					want.State = oncrpc.Inline
				}
				flat := nfs3test.Flatten(stream, items)
				check("inline", []int{0}, decoder(flat, nil))
				check("whole", nil, decoder(flat, nil))
				if len(items) > 0 {
					if at := want.Position - header; !bytes.Equal(flat[at:at+want.Length], bytes.Join(items[0].Data, nil)) {
						t.Fatal("the position is not that of the data")
					}
				}
			})
		})
	}
}

func TestResultsOfOthers(t *testing.T) {
	for procedure := range uint32(nfs3.Procedures + 1) {
		if procedure == nfs3.ProcRead || procedure == nfs3.ProcReadlink {
			continue
		}
		found, err := nfs(t).Results(nil, &oncrpc.Plan{}, nil, procedure, decoder(nil, nil))
		if err != nil || len(found) != 0 {
			t.Errorf("procedure %d: %v, %v", procedure, found, err)
		}
	}
}

func TestResultsBad(t *testing.T) {
	ok, _ := nfs3test.Encode(&nfs3.ReadRes{Count: 100, Data: [][]byte{make([]byte, 100)}})
	empty, _ := nfs3test.Encode(&nfs3.ReadRes{})
	failed, _ := nfs3test.Encode(&nfs3.ReadRes{Status: nfs3.ErrIO})
	cases := []struct {
		name   string
		stream []byte
		plan   int // planned results
		max    int
		placed []int
		reason string
	}{
		{"placed more than the count", ok, 1, 300, []int{104}, "104 bytes were placed where the reply says 100"},
		{"placed less", ok, 1, 300, []int{96}, "96 bytes were placed where the reply says 100"},
		{"more than planned", ok, 1, 99, []int{100}, "at most 99 were asked for"},
		{"inline more than planned", nfs3test.Flatten(ok, nil), 1, 99, nil, "length 100 exceeds the limit of 99"},
		{"inline without data", ok, 1, 300, nil, "message ends"},
		{"placed, and no data", empty, 1, 300, []int{4}, "4 bytes were placed where the reply says 0"},
		{"placed, and failed", failed, 1, 300, []int{4}, "4 bytes were placed for a reply of READ that has no data"},
		{"truncated", ok[:8], 1, 300, nil, "message ends"},
		{"nothing planned", ok, 0, 300, nil, "READ has one eligible result, 0 are planned"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p := oncrpc.Plan{}
			for range c.plan {
				p.Results = append(p.Results, oncrpc.Result{Max: c.max})
			}
			found, err := nfs(t).Results(nil, &p, c.placed, nfs3.ProcRead, decoder(c.stream, nil))
			if err == nil || !strings.Contains(err.Error(), c.reason) || len(found) != 0 {
				t.Fatalf("%v, %v, must say %q", found, err, c.reason)
			}
		})
	}
}

func TestAllocs(t *testing.T) {
	b := nfs(t)
	p := oncrpc.Plan{Results: make([]oncrpc.Result, 0, 2)}
	args := make([]oncrpc.Argument, 0, 2)
	found := make([]oncrpc.Found, 0, 2)
	for procedure := range uint32(nfs3.Procedures) {
		stream, _ := nfs3test.Encode(nfs3test.NFS[procedure].NewArgs())
		streams := [][]byte{stream}
		var d xdr.Decoder
		n := testing.AllocsPerRun(100, func() {
			d.Reset(streams, nil)
			_, _ = b.Plan(&p, args, procedure, &d)
		})
		if n != 0 && !race.Enabled && d.Err() == nil {
			t.Errorf("Plan of %s: %v allocations", nfs3.ProcedureName(procedure), n)
		}
	}
	stream, items := nfs3test.Encode(&nfs3.ReadRes{Count: 100, Data: [][]byte{make([]byte, 100)}})
	streams := [][]byte{stream}
	p.Results = append(p.Results[:0], oncrpc.Result{Max: 100})
	var d xdr.Decoder
	n := testing.AllocsPerRun(100, func() {
		d.Reset(streams, items)
		_, _ = b.Results(found, &p, nil, nfs3.ProcRead, &d)
	})
	if n != 0 && !race.Enabled {
		t.Errorf("Results of READ: %v allocations", n)
	}
}

func FuzzPlan(f *testing.F) {
	f.Add(uint8(nfs3.ProcWrite), []byte("\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x05\x00\x00\x00\x00\x00\x00\x00\x05"), 24, 5)
	f.Add(uint8(nfs3.ProcRead), make([]byte, 16), 0, 0)
	f.Fuzz(func(t *testing.T, procedure uint8, stream []byte, at, length int) {
		var items []xdr.Item
		if at >= 0 && length > 0 && at < 1<<20 && length < 1<<20 {
			items = append(items, xdr.Item{Position: at &^ 3, Length: length})
		}
		var p oncrpc.Plan
		args, err := binding.For(nfs3.Program, nfs3.Version).Plan(&p, nil, uint32(procedure), decoder(stream, items))
		if p.MaxReply < 0 || p.MaxReply > 2<<20 || len(p.Results) > 1 || len(args) > 1 {
			t.Fatalf("%+v %v", p, args)
		}
		for _, a := range args {
			if err == nil && (a.Length > nfs3.MaxData || a.Position < header) {
				t.Fatalf("%+v", a)
			}
		}
	})
}

func FuzzResults(f *testing.F) {
	for _, m := range []nfs3test.Message{&nfs3.ReadRes{Count: 100, Data: [][]byte{make([]byte, 100)}}, &nfs3.ReadRes{Status: nfs3.ErrIO}} {
		stream, items := nfs3test.Encode(m)
		f.Add(true, stream, 100, 0)
		f.Add(true, nfs3test.Flatten(stream, items), 100, 100)
	}
	f.Fuzz(func(t *testing.T, read bool, stream []byte, limit, placed int) {
		procedure := uint32(nfs3.ProcReadlink)
		if read {
			procedure = nfs3.ProcRead
		}
		if limit < 0 || limit > nfs3.MaxData || placed < 0 {
			return
		}
		p := oncrpc.Plan{Results: []oncrpc.Result{{Max: limit}}}
		found, err := binding.For(nfs3.Program, nfs3.Version).Results(nil, &p, []int{placed}, procedure, decoder(stream, nil))
		if (err == nil) != (len(found) == 1) {
			t.Fatalf("%v, %v", found, err)
		}
		for _, f := range found {
			if f.Length > limit || (placed > 0) != (f.State == oncrpc.Placed) || f.State != oncrpc.Absent && f.Position < header {
				t.Fatalf("%+v with %d placed of %d", f, placed, limit)
			}
		}
	})
}
