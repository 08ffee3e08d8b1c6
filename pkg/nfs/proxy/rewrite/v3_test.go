package rewrite

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs3/nfs3test"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/xdr"
)

var modes = []sign.Mode{sign.Required, sign.Auto, sign.Off}

// drawProcedure draws a procedure other than NULL.
func drawProcedure(t *rapid.T) uint32 {
	return rapid.Uint32Range(1, nfs3.Procedures-1).Draw(t, "procedure")
}

// shorten makes handles short enough to be signed.
func shorten(m nfs3test.Message) {
	each(m, func(h *nfs3.Handle) { *h = (*h)[:min(len(*h), sign.Max3-sign.TagLen)] })
}

// signAll signs all handles in m.
func (r *env) signAll(m nfs3test.Message) {
	each(m, func(h *nfs3.Handle) {
		if *h != nil {
			*h = append(nfs3.Handle{}, r.sign(*h)...) // an empty handle differs from nil
		}
	})
}

// tame makes names in arguments harmless.
func tame(m nfs3test.Message) {
	each(m, func(d *nfs3.DirOpArgs) {
		d.Name = append([]byte("n"), bytes.ReplaceAll(bytes.ReplaceAll(d.Name, []byte("/"), []byte("_")), []byte{0}, nil)...)
	})
}

// TestArgsV3 checks that the backend gets the client's call with untagged handles and lowered
// counts.
func TestArgsV3(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newEnv(t, rapid.SampledFrom(modes).Draw(t, "mode"))
		defer r.end()
		proc := drawProcedure(t)
		m := nfs3test.NFS[proc].DrawArgs(t)
		shorten(m)
		tame(m)
		want := bytesOf(m)
		switch a := m.(type) {
		case *nfs3.ReadArgs:
			if proc == nfs3.ProcRead {
				b := *a
				b.Count = min(b.Count, nfs3.MaxData)
				want = bytesOf(&b)
			}
		case *nfs3.ReaddirArgs:
			b := *a
			b.Count = min(b.Count, nfs3.MaxData)
			want = bytesOf(&b)
		case *nfs3.ReaddirPlusArgs:
			b := *a
			b.MaxCount = lowerCount(proc, uint64(a.MaxCount), r.x.Signer.Overhead())
			want = bytesOf(&b)
		}
		r.signAll(m)
		stream, items := nfs3test.Encode(m)
		if rapid.Bool().Draw(t, "inline") {
			stream, items = nfs3test.Flatten(stream, items), nil
		}
		r.receive(nfs3.Program, 3, proc, stream, items)
		for range 2 { // a repeated call is rewritten alike
			if v := r.args(); v != Forward {
				t.Fatalf("verdict is %d", v)
			}
			if got := r.forwarded(); !bytes.Equal(got, want) {
				t.Fatalf("the backend gets\n%x, want\n%x", got, want)
			}
			if head, was := whole(&r.out)[:r.c.ArgsAt], whole(&r.in.Message)[:r.in.ArgsAt]; !bytes.Equal(head, was) {
				t.Fatalf("header is\n%x, was\n%x", head, was)
			}
			if len(r.out.Items) != len(items) || len(r.plan.Results) != len(r.in.Plan.Results) {
				t.Fatalf("%d items, %d before; %d results planned, %d before", len(r.out.Items), len(items), len(r.plan.Results), len(r.in.Plan.Results))
			}
			for i, res := range r.plan.Results {
				if res.Begin != r.c.ArgsAt || res.End != r.out.Len() || res.Max > r.in.Plan.Results[i].Max {
					t.Fatalf("result is planned as %+v for a call of %d bytes, parameters at %d", res, r.out.Len(), r.c.ArgsAt)
				}
			}
		}
	})
}

// expect edits results as a client must see them, in the plainest way.
func (r *env) expect(m nfs3test.Message, atRoot bool) {
	each(m, func(l *nfs3test.List) {
		for i := range l.Entries {
			n := &l.Entries[i]
			if string(n.Name) != ".." {
				continue
			}
			n.Attr, n.Handle = nfs3.PostOpAttr{}, nfs3.PostOpFH{}
			if atRoot {
				n.FileID = rootID3
			}
		}
	})
	each(m, func(i *nfs3.FSInfoRes) {
		for _, v := range []*uint32{&i.RTMax, &i.RTPref, &i.WTMax, &i.WTPref, &i.DTPref} {
			*v = min(*v, nfs3.MaxData)
		}
	})
	if r.who.ReadOnly {
		each(m, func(a *nfs3.AccessRes) { a.Access &^= 0x1c })
	}
	r.signAll(m)
}

// TestResultsV3 checks that the client gets the backend's results with signed handles and without
// anything above the root.
func TestResultsV3(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newEnv(t, rapid.SampledFrom(modes).Draw(t, "mode"))
		defer r.end()
		proc := drawProcedure(t)
		args := nfs3test.NFS[proc].DrawArgs(t)
		shorten(args)
		tame(args)
		atRoot := rapid.Bool().Draw(t, "root")
		if atRoot {
			each(args, func(h *nfs3.Handle) { *h = root3 })
		}
		switch a := args.(type) {
		case *nfs3.ReadArgs:
			a.Count = max(a.Count, 512)
		case *nfs3.CommitArgs:
			a.Count = max(a.Count, 512)
		}
		r.signAll(args)
		changing := writingV3>>proc&1 != 0
		r.who.ReadOnly = !changing && rapid.Bool().Draw(t, "read-only")
		if v := r.send(nfs3.Program, proc, args); v != Forward {
			t.Fatalf("verdict is %d", v)
		}

		res := nfs3test.NFS[proc].DrawRes(t)
		shorten(res)
		each(res, func(l *nfs3test.List) {
			if len(l.Entries) > 0 && rapid.Bool().Draw(t, "up") {
				l.Entries[rapid.IntRange(0, len(l.Entries)-1).Draw(t, "which")].Name = []byte("..")
			}
		})
		stream, items := nfs3test.Encode(res)
		results := stream
		inline := rapid.Bool().Draw(t, "inline")
		if inline {
			results = nfs3test.Flatten(stream, items)
		}
		r.expect(res, atRoot)
		want := bytesOf(res)
		taken := items
		if inline {
			items = nil
		}
		if err := r.backend(results, items); err != nil {
			t.Fatal(err)
		}
		if got := r.results(); !bytes.Equal(got, want) {
			t.Fatalf("%s: the client gets\n%x, want\n%x", nfs3.ProcedureName(proc), got, want)
		}
		if len(r.in.Reply.Items) != len(taken) {
			t.Fatalf("%d eligible results are items, of %d", len(r.in.Reply.Items), len(taken))
		}
	})
}

// TestUnplannedV3 checks that a reply stays whole for a transport that plans for no results.
func TestUnplannedV3(t *testing.T) {
	r := newEnv(t, sign.Required)
	defer r.end()
	r.send(nfs3.Program, nfs3.ProcRead, &nfs3.ReadArgs{File: r.sign(handle3), Count: 100})
	r.in.Plan.Results = r.in.Plan.Results[:0]
	want := bytesOf(&nfs3.ReadRes{Count: 3, Data: [][]byte{[]byte("abc")}})
	if err := r.backend(want, nil); err != nil || len(r.in.Reply.Items) != 0 || !bytes.Equal(r.results(), want) {
		t.Errorf("%d items, error %v", len(r.in.Reply.Items), err)
	}
}

// refusal3 sends a call that must be refused and returns the status. The results must be
// well-formed and otherwise empty.
func (r *env) refusal3(proc uint32, args nfs3test.Message) nfs3.Status {
	r.t.Helper()
	if v := r.send(nfs3.Program, proc, args); v != Answered {
		r.t.Fatalf("%s: verdict is %d", nfs3.ProcedureName(proc), v)
	}
	b := r.results()
	decode(r.t, b, nfs3test.NFS[proc].NewRes())
	if !bytes.Equal(b[4:], make([]byte, len(b)-4)) {
		r.t.Errorf("%s: the refusal says %x", nfs3.ProcedureName(proc), b)
	}
	var d xdr.Decoder
	d.ResetBytes(b)
	return nfs3.Status(d.Uint32())
}

// TestForgedV3 checks that a forged handle never reaches the backend, in any argument.
func TestForgedV3(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newEnv(t, rapid.SampledFrom(modes[:2]).Draw(t, "mode"))
		defer r.end()
		r.who.ReadOnly = rapid.Bool().Draw(t, "read-only")
		proc := drawProcedure(t)
		args := nfs3test.NFS[proc].DrawArgs(t)
		n := 0
		each(args, func(h *nfs3.Handle) { *h = r.sign(handle3); n++ })
		which := rapid.IntRange(0, n-1).Draw(t, "which")
		each(args, func(h *nfs3.Handle) {
			if n--; n == which {
				(*h)[rapid.IntRange(0, len(*h)-1).Draw(t, "byte")] ^= 0x10
			}
		})
		if s := r.refusal3(proc, args); s != nfs3.ErrBadHandle {
			t.Fatalf("%s: status is %v", nfs3.ProcedureName(proc), s)
		}
	})
}

func TestReadOnlyV3(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := newEnv(t, sign.Required)
		defer r.end()
		r.who.ReadOnly = true
		proc := rapid.SampledFrom([]uint32{
			nfs3.ProcSetAttr, nfs3.ProcWrite, nfs3.ProcCreate, nfs3.ProcMkdir, nfs3.ProcSymlink, nfs3.ProcMknod, nfs3.ProcRemove, nfs3.ProcRmdir, nfs3.ProcRename, nfs3.ProcLink,
		}).Draw(t, "procedure")
		args := nfs3test.NFS[proc].DrawArgs(t)
		each(args, func(h *nfs3.Handle) { *h = r.sign(handle3) })
		if s := r.refusal3(proc, args); s != nfs3.ErrROFS {
			t.Fatalf("%s: status is %v", nfs3.ProcedureName(proc), s)
		}
	})
}

func TestNamesV3(t *testing.T) {
	names := []struct {
		name           string
		lookup, others nfs3.Status
	}{
		{"..", nfs3.ErrNoEnt, nfs3.ErrInval},
		{".", nfs3.OK, nfs3.ErrInval},
		{"", nfs3.ErrInval, nfs3.ErrInval},
		{"/", nfs3.ErrInval, nfs3.ErrInval},
		{"a/../..", nfs3.ErrInval, nfs3.ErrInval},
		{"a\x00", nfs3.ErrInval, nfs3.ErrInval},
		{"...", nfs3.OK, nfs3.OK},
		{"..a", nfs3.OK, nfs3.OK},
		{string(bytes.Repeat([]byte("n"), 400)), nfs3.OK, nfs3.OK},
	}
	at := func(name string) nfs3.DirOpArgs { return nfs3.DirOpArgs{Dir: handle3, Name: []byte(name)} }
	procs := map[uint32][]func(name string) nfs3test.Message{
		nfs3.ProcLookup:  {func(n string) nfs3test.Message { a := at(n); return &a }},
		nfs3.ProcCreate:  {func(n string) nfs3test.Message { return &nfs3.CreateArgs{Where: at(n)} }},
		nfs3.ProcMkdir:   {func(n string) nfs3test.Message { return &nfs3.MkdirArgs{Where: at(n)} }},
		nfs3.ProcSymlink: {func(n string) nfs3test.Message { return &nfs3.SymlinkArgs{Where: at(n)} }},
		nfs3.ProcMknod:   {func(n string) nfs3test.Message { return &nfs3.MknodArgs{Where: at(n), Type: nfs3.FIFO} }},
		nfs3.ProcRemove:  {func(n string) nfs3test.Message { a := at(n); return &a }},
		nfs3.ProcRmdir:   {func(n string) nfs3test.Message { a := at(n); return &a }},
		nfs3.ProcRename: {
			func(n string) nfs3test.Message { return &nfs3.RenameArgs{From: at(n), To: at("x")} },
			func(n string) nfs3test.Message { return &nfs3.RenameArgs{From: at("x"), To: at(n)} },
		},
		nfs3.ProcLink: {func(n string) nfs3test.Message { return &nfs3.LinkArgs{File: handle3, Link: at(n)} }},
	}
	r := newEnv(t, sign.Required)
	defer r.end()
	for proc, args := range procs {
		for _, tt := range names {
			want := tt.others
			if proc == nfs3.ProcLookup {
				want = tt.lookup
			}
			for _, make := range args {
				m := make(tt.name)
				r.signAll(m)
				if want == nfs3.OK {
					if v := r.send(nfs3.Program, proc, m); v != Forward {
						t.Errorf("%s of %q: verdict is %d", nfs3.ProcedureName(proc), tt.name, v)
					}
				} else if s := r.refusal3(proc, m); s != want {
					t.Errorf("%s of %q: status is %v, want %v", nfs3.ProcedureName(proc), tt.name, s, want)
				}
			}
		}
	}
	// The target of a symbolic link is the client's business.
	link := &nfs3.SymlinkArgs{Where: nfs3.DirOpArgs{Dir: r.sign(handle3), Name: []byte("l")}, Path: [][]byte{[]byte("../../..")}, Length: 8}
	if v := r.send(nfs3.Program, nfs3.ProcSymlink, link); v != Forward {
		t.Errorf("SYMLINK: verdict is %d", v)
	}
}

// TestLongHandlesV3 covers a backend whose handles leave no room for a tag.
func TestLongHandlesV3(t *testing.T) {
	long := bytes.Repeat([]byte{9}, 60)
	ask := func(r *env, proc uint32, args, res nfs3test.Message) []byte {
		t.Helper()
		r.send(nfs3.Program, proc, args)
		if err := r.backend(bytesOf(res), nil); err != nil {
			t.Fatal(err)
		}
		return r.results()
	}
	for _, mode := range modes {
		r := newEnv(t, mode)
		where := nfs3.DirOpArgs{Dir: r.sign(handle3), Name: []byte("name")}
		found := decode(t, ask(r, nfs3.ProcLookup, &where, &nfs3.LookupRes{Object: long}), &nfs3.LookupRes{})
		made := decode(t, ask(r, nfs3.ProcMkdir, &nfs3.MkdirArgs{Where: where}, &nfs3.MkdirRes{Object: nfs3.PostOpFH{Handle: long}}), &nfs3.MkdirRes{})
		if mode == sign.Required {
			if found.Status != nfs3.ErrServerFault || made.Status != nfs3.OK || made.Object.Handle != nil {
				t.Errorf("%v: LOOKUP %+v, MKDIR %+v", mode, found, made)
			}
		} else {
			if found.Status != nfs3.OK || !bytes.Equal(found.Object, long) || !bytes.Equal(made.Object.Handle, long) {
				t.Errorf("%v: LOOKUP %+v, MKDIR %+v", mode, found, made)
			}
			if v := r.send(nfs3.Program, nfs3.ProcGetAttr, &nfs3.GetAttrArgs{Object: long}); v != Forward || !bytes.Equal(r.forwarded()[4:], long) {
				t.Errorf("%v: a handle too long to be signed is not accepted", mode)
			}
		}
		r.end()
	}
}

// TestBoundV3 checks that any list within the lowered count stays within the client's count when
// signed.
func TestBoundV3(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Uint32().Draw(t, "count")
		m := int(lowerCount(nfs3.ProcReaddirPlus, uint64(count), sign.TagLen))
		used, grown := 0, 0
		for {
			n := minEntryV3 + 4*rapid.IntRange(0, 60).Draw(t, "entry")
			if m > 64<<10 {
				n = minEntryV3
			}
			if used+n > m {
				break
			}
			used, grown = used+n, grown+n+sign.TagLen
		}
		if grown > int(count) || m > nfs3.MaxData {
			t.Fatalf("count %d is lowered to %d: entries of %d bytes become %d", count, m, used, grown)
		}
		if count >= 1024 && m < min(int(count), nfs3.MaxData)*4/5 {
			t.Fatalf("count %d is lowered to %d", count, m)
		}
		if off := lowerCount(nfs3.ProcReaddirPlus, uint64(count), 0); off != min(count, nfs3.MaxData) {
			t.Fatalf("count %d is lowered to %d, though nothing grows", count, off)
		}
	})
}

// TestWithoutMemory checks that everything is released, and that the call may be tried again.
func TestWithoutMemory(t *testing.T) {
	r := newEnv(t, sign.Required)
	defer r.end()
	args := &nfs3.GetAttrArgs{Object: r.sign(handle3)}
	stream, _ := nfs3test.Encode(args)
	pool := r.pool
	for _, forged := range []bool{false, true} {
		r.in.Init(r.pool, nil)
		r.receive(nfs3.Program, 3, nfs3.ProcGetAttr, stream, nil)
		if forged {
			r.in.Stream[1][10]++
		}
		r.in.Init(emptyPool, nil)
		if _, err := r.c.Args(&r.x, &r.who, &r.in, &r.out, &r.plan); err == nil || len(r.out.Stream) > 0 || len(r.in.Reply.Stream) > 0 {
			t.Errorf("error %v, %d slices forwarded", err, len(r.out.Stream))
		}
	}
	r.in.Init(pool, nil)
	r.send(nfs3.Program, nfs3.ProcLookup, &nfs3.LookupArgs{Dir: r.sign(handle3), Name: []byte("a")})
	r.in.Init(emptyPool, nil)
	if err := r.backend(bytesOf(&nfs3.LookupRes{Object: handle3}), nil); err == nil || len(r.in.Reply.Stream) > 0 {
		t.Errorf("error %v, reply of %d slices", err, len(r.in.Reply.Stream))
	}
	r.in.Init(pool, nil)
}

// TestCapturedV3 checks that captured messages of Linux pass unchanged, except handles and the
// attributes of "..".
func TestCapturedV3(t *testing.T) {
	n := 0
	for _, x := range readExchanged(t) {
		if x.proc.Version != 3 || x.proc.Procedure == 0 {
			continue
		}
		n++
		for _, mode := range modes {
			r := newEnv(t, mode)
			args := signArgs(t, r.x.Signer, x)
			items := x.items()
			for i := range items {
				items[i].Position += len(args) - len(x.args)
			}
			r.receive(x.proc.Program, x.proc.Version, x.proc.Procedure, args, items)
			if v := r.args(); v != Forward || !bytes.Equal(r.forwarded(), nfs3test.Flatten(x.args, x.items())) {
				t.Errorf("%+v: verdict %d, forwarded\n%x, want\n%x", x.proc, v, r.forwarded(), x.args)
				continue
			}
			if r.in.Program != nfs3.Program || x.proc.Procedure == nfs3.ProcRead {
				r.end() // the capture lacks the data of READ
				continue
			}
			res := decode(t, x.reply, nfs3test.NFS[x.proc.Procedure].NewRes())
			r.expect(res, false)
			if err := r.backend(x.reply, nil); err != nil || !bytes.Equal(r.results(), bytesOf(res)) {
				t.Errorf("%+v: error %v, results\n%x, want\n%x", x.proc, err, r.results(), bytesOf(res))
			}
			r.end()
		}
	}
	if n < 14 {
		t.Errorf("only %d calls of version 3", n)
	}
}
