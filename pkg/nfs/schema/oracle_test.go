package schema

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"testing"

	mountxdr "github.com/buildbarn/go-xdr/pkg/protocols/mount"
	nfsv3 "github.com/buildbarn/go-xdr/pkg/protocols/nfsv3"
	"github.com/buildbarn/go-xdr/pkg/protocols/nfsv4"
	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/xdr"
)

// An oracle is generated from the RFCs' own XDR: it reads a message and writes it again.
type oracle func(r io.Reader, w io.Writer) error

func ofStruct[T any, P interface {
	*T
	io.ReaderFrom
	io.WriterTo
}]() oracle {
	return func(r io.Reader, w io.Writer) error {
		m := P(new(T))
		if _, err := m.ReadFrom(r); err != nil {
			return err
		}
		_, err := m.WriteTo(w)
		return err
	}
}

func ofUnion[T io.WriterTo](read func(io.Reader) (T, int64, error)) oracle {
	return func(r io.Reader, w io.Writer) error {
		m, _, err := read(r)
		if err != nil {
			return err
		}
		_, err = m.WriteTo(w)
		return err
	}
}

func ofList[T any](read func(io.Reader) (T, int64, error), write func(io.Writer, T) (int64, error)) oracle {
	return func(r io.Reader, w io.Writer) error {
		m, _, err := read(r)
		if err != nil {
			return err
		}
		_, err = write(w, m)
		return err
	}
}

func nothing(io.Reader, io.Writer) error { return nil }

type oracles struct{ args, results oracle }

var nfs3Oracles = []oracles{
	{nothing, nothing},
	{ofStruct[nfsv3.Getattr3args](), ofUnion(nfsv3.ReadGetattr3res)},
	{ofStruct[nfsv3.Setattr3args](), ofUnion(nfsv3.ReadSetattr3res)},
	{ofStruct[nfsv3.Lookup3args](), ofUnion(nfsv3.ReadLookup3res)},
	{ofStruct[nfsv3.Access3args](), ofUnion(nfsv3.ReadAccess3res)},
	{ofStruct[nfsv3.Readlink3args](), ofUnion(nfsv3.ReadReadlink3res)},
	{ofStruct[nfsv3.Read3args](), ofUnion(nfsv3.ReadRead3res)},
	{ofStruct[nfsv3.Write3args](), ofUnion(nfsv3.ReadWrite3res)},
	{ofStruct[nfsv3.Create3args](), ofUnion(nfsv3.ReadCreate3res)},
	{ofStruct[nfsv3.Mkdir3args](), ofUnion(nfsv3.ReadMkdir3res)},
	{ofStruct[nfsv3.Symlink3args](), ofUnion(nfsv3.ReadSymlink3res)},
	{ofStruct[nfsv3.Mknod3args](), ofUnion(nfsv3.ReadMknod3res)},
	{ofStruct[nfsv3.Remove3args](), ofUnion(nfsv3.ReadRemove3res)},
	{ofStruct[nfsv3.Rmdir3args](), ofUnion(nfsv3.ReadRmdir3res)},
	{ofStruct[nfsv3.Rename3args](), ofUnion(nfsv3.ReadRename3res)},
	{ofStruct[nfsv3.Link3args](), ofUnion(nfsv3.ReadLink3res)},
	{ofStruct[nfsv3.Readdir3args](), ofUnion(nfsv3.ReadReaddir3res)},
	{ofStruct[nfsv3.Readdirplus3args](), ofUnion(nfsv3.ReadReaddirplus3res)},
	{ofStruct[nfsv3.Fsstat3args](), ofUnion(nfsv3.ReadFsstat3res)},
	{ofStruct[nfsv3.Fsinfo3args](), ofUnion(nfsv3.ReadFsinfo3res)},
	{ofStruct[nfsv3.Pathconf3args](), ofUnion(nfsv3.ReadPathconf3res)},
	{ofStruct[nfsv3.Commit3args](), ofUnion(nfsv3.ReadCommit3res)},
}

var dirpath = ofList(mountxdr.ReadDirpath, mountxdr.WriteDirpath)

var mountOracles = []oracles{
	{nothing, nothing},
	{dirpath, ofUnion(mountxdr.ReadMountres3)},
	{nothing, ofList(mountxdr.ReadMountlist, mountxdr.WriteMountlist)},
	{dirpath, nothing},
	{nothing, nothing},
	{nothing, ofList(mountxdr.ReadExports, mountxdr.WriteExports)},
}

// The oracle reads whole messages of the table, and the walker too, with the items taken out or
// not.
func checkProcedure(t *testing.T, p Proc, s shape, o oracle, dir direction) {
	rapid.Check(t, func(t *rapid.T) {
		g := generator{t: t}
		g.shape(s)
		checkOracle(t, g.b, o)
		checkWalk(t, p, &g, dir)
	})
}

func checkOracle(t *rapid.T, b []byte, o oracle) {
	t.Helper()
	r, w := bytes.NewReader(b), &bytes.Buffer{}
	if err := o(r, w); err != nil || r.Len() > 0 {
		t.Fatalf("the oracle leaves %d of %d bytes: %v\n%x", r.Len(), len(b), err, b)
	}
	if !bytes.Equal(b, w.Bytes()) {
		t.Fatalf("the oracle writes\n%x\nfor\n%x", w.Bytes(), b)
	}
}

// checkWalk walks g's message whole, and with its eligible parts taken out.
func checkWalk(t *rapid.T, p Proc, g *generator, dir direction) {
	t.Helper()
	var w Walker
	var d xdr.Decoder
	d.Reset(split(t, g.b), nil)
	if err := w.walk(p, &d, dir); err != nil || d.Left() > 0 || d.Pos() != len(g.b) {
		t.Fatalf("%v, %d bytes left of %d\n%x", err, d.Left(), len(g.b), g.b)
	}
	checkSpans(t, &w, g.b, 0, len(g.b))
	spans, ops := slices.Clone(w.Spans), slices.Clone(w.Ops)

	var stream []byte
	var sizes []int
	at := 0
	for _, it := range g.out {
		stream = append(stream, g.b[at:it.Position]...)
		at = it.Position + xdr.Round(it.Length)
	}
	stream = append(stream, g.b[at:]...)
	d.Reset(split(t, stream), g.out)
	if err := w.walk(p, &d, dir); err != nil || d.Left() > 0 || d.Pos() != len(g.b) || d.Used() != len(g.out) {
		t.Fatalf("with items: %v, %d bytes left of %d, %d items used of %d", err, d.Left(), len(g.b), d.Used(), len(g.out))
	}
	compare := func(how string) {
		if !slices.Equal(ops, w.Ops) || len(spans) != len(w.Spans) {
			t.Fatalf("%s: operations are\n%+v\nmust be\n%+v", how, w.Ops, ops)
		}
		for i, s := range w.Spans {
			want := spans[i]
			if s.Mark == Data && s.Value > 0 {
				if want.Out || !s.Out {
					t.Fatalf("%s: %+v, inline %+v", how, s, want)
				}
				want.Out = true
			}
			if fmt.Sprint(s) != fmt.Sprint(want) {
				t.Fatalf("%s: %+v, must be %+v", how, s, want)
			}
		}
	}
	compare("items")

	if dir == arguments {
		return
	}
	for _, op := range ops {
		if op.Code == OpRead && !p.Callback || op.Code == OpReadlink {
			sizes = append(sizes, 0)
		}
		for _, s := range spans[op.First:op.Last] {
			if s.Mark == Data {
				sizes[len(sizes)-1] = int(s.Value) + rapid.SampledFrom([]int{0, xdr.Pad(int(s.Value))}).Draw(t, "padding")
			}
		}
	}
	if len(ops) == 0 {
		for _, it := range g.out {
			sizes = append(sizes, it.Length)
		}
	}
	d.Reset(split(t, stream), nil)
	if err := w.ResultsPlaced(p, &d, sizes); err != nil || d.Left() > 0 || d.Pos() != len(g.b) {
		t.Fatalf("placed %v: %v, %d bytes left, at %d of %d", sizes, err, d.Left(), d.Pos(), len(g.b))
	}
	compare("placed")
}

// checkSpans checks the invariants of a walk through b, which ends at byte end.
func checkSpans(t interface {
	Helper()
	Fatalf(string, ...any)
}, w *Walker, b []byte, begin, end int,
) {
	t.Helper()
	at := begin
	for i, s := range w.Spans {
		if s.Pos < at || s.Len < 0 || s.Pos+s.Len > end || s.Mark == 0 {
			t.Fatalf("span %d, %+v, is out of order or of [%d,%d)", i, s, begin, end)
		}
		if len(s.B) > 0 && !bytes.Contains(b[s.Pos-begin:s.Pos-begin+s.Len], s.B) {
			t.Fatalf("span %d, %+v, has bytes of something else", i, s)
		}
		at = s.Pos
	}
	for i, op := range w.Ops {
		switch {
		case op.Pos >= op.End || op.End > end || op.First > op.Last || op.Last > len(w.Spans):
			t.Fatalf("operation %d, %+v", i, op)
		case i > 0 && (w.Ops[i-1].End != op.Pos || w.Ops[i-1].Last != op.First):
			t.Fatalf("operation %d, %+v, does not follow on %+v", i, op, w.Ops[i-1])
		}
		for _, s := range w.Spans[op.First:op.Last] {
			if s.Op != i || s.Pos < op.Pos || s.Pos+s.Len > op.End {
				t.Fatalf("operation %d, %+v, has %+v", i, op, s)
			}
		}
	}
}

func TestProcedures(t *testing.T) {
	for _, c := range []struct {
		name       string
		program    uint32
		procedures []procedure
		oracles    []oracles
	}{
		{"NFS", nfsProgram, nfs3, nfs3Oracles},
		{"MOUNT", mountProgram, mount, mountOracles},
	} {
		if len(c.procedures) != len(c.oracles) {
			t.Fatalf("%s has %d procedures, the oracle %d", c.name, len(c.procedures), len(c.oracles))
		}
		for i := range c.procedures {
			p := Proc{Program: c.program, Version: 3, Procedure: uint32(i)}
			t.Run(fmt.Sprintf("%s-%d-args", c.name, i), func(t *testing.T) {
				checkProcedure(t, p, c.procedures[i].args, c.oracles[i].args, arguments)
			})
			t.Run(fmt.Sprintf("%s-%d-results", c.name, i), func(t *testing.T) {
				checkProcedure(t, p, c.procedures[i].results, c.oracles[i].results, results)
			})
		}
	}
}

var compoundOracles = map[bool]oracles{
	false: {ofStruct[nfsv4.Compound4args](), ofStruct[nfsv4.Compound4res]()},
	true:  {ofStruct[nfsv4.CbCompound4args](), ofStruct[nfsv4.CbCompound4res]()},
}

// The oracle has no extended attributes; they have their own test.
func beyondOracle(callback bool, code uint32) bool { return !callback && code >= OpGetXattr }

func checkCompound(t *testing.T, callback bool, entries []entry, code uint32, dir direction) {
	p := Proc{Program: nfsProgram, Version: 4, Procedure: 1, Callback: callback}
	o := compoundOracles[callback]
	rapid.Check(t, func(t *rapid.T) {
		g := generator{t: t, old: !beyondOracle(callback, code)}
		codes := []uint32{code}
		for range rapid.IntRange(0, 2).Draw(t, "more operations") {
			codes = append(codes, rapid.SampledFrom([]uint32{OpCBGetAttr, code, OpCBRecall, OpIllegal}).Draw(t, "code"))
		}
		head, read := compoundArgs, o.args
		switch {
		case dir == results:
			head, read = compoundResults, o.results
		case callback:
			head = callbackArgs
		}
		g.shape(head)
		if dir == arguments {
			at := 4 + xdr.Round(int(g.b[3]))
			g.b[at+3] = MaxMinor
		}
		g.word(uint32(len(codes)))
		ends := []int{len(g.b)}
		for _, code := range codes {
			g.word(code)
			e := &illegal
			if code != OpIllegal {
				e = &entries[code]
			}
			if dir == arguments {
				g.shape(e.args)
			} else {
				g.shape(e.results)
			}
			ends = append(ends, len(g.b))
		}
		if !beyondOracle(callback, code) {
			checkOracle(t, g.b, read)
		}
		checkWalk(t, p, &g, dir)
		var w Walker
		var d xdr.Decoder
		d.ResetBytes(g.b)
		if err := w.walk(p, &d, dir); err != nil || len(w.Ops) != len(codes) {
			t.Fatal(err)
		}
		for i, op := range w.Ops {
			if op.Code != codes[i] || op.Pos != ends[i] || op.End != ends[i+1] {
				t.Fatalf("operation %d is %+v, must be number %d at [%d,%d)", i, op, codes[i], ends[i], ends[i+1])
			}
		}
	})
}

func TestOperations(t *testing.T) {
	for callback, entries := range map[bool][]entry{false: forward, true: backward} {
		for code, e := range entries {
			if !e.known {
				continue
			}
			for dir, name := range map[direction]string{arguments: "args", results: "results"} {
				t.Run(fmt.Sprintf("callback-%v-%d-%s", callback, code, name), func(t *testing.T) {
					checkCompound(t, callback, entries, uint32(code), dir)
				})
			}
		}
	}
}

func ofValue[T any](read func(io.Reader) (T, int64, error), write func(io.Writer, T) (int64, error)) oracle {
	return ofList(read, write)
}

func ofPointer[T any](read func(io.Reader, *T) (int64, error), write func(io.Writer, *T) (int64, error)) oracle {
	return func(r io.Reader, w io.Writer) error {
		var m T
		if _, err := read(r, &m); err != nil {
			return err
		}
		_, err := write(w, &m)
		return err
	}
}
