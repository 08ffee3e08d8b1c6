package schema

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/xdr"
)

// A union without a default arm has the values of the table alone, as in the oracle.
func TestStrict(t *testing.T) {
	spoilt := map[string]int{}
	// Which shapes are spoilt is left to chance: some need several rounds.
	for round := 0; round < 20 && len(spoilt) < 15; round++ {
		testStrict(t, spoilt)
	}
	if len(spoilt) < 15 {
		t.Errorf("only %d shapes have such unions: %v", len(spoilt), spoilt)
	}
}

// testStrict counts the shapes with a spoilt union.
func testStrict(t *testing.T, spoilt map[string]int) {
	for callback, entries := range map[bool][]entry{false: forward, true: backward} {
		for code, e := range entries {
			for _, dir := range []direction{arguments, results} {
				if !e.known {
					continue
				}
				head, s, read := compoundArgs, e.args, compoundOracles[callback].args
				switch {
				case dir == results:
					head, s, read = compoundResults, e.results, compoundOracles[callback].results
				case callback:
					head = callbackArgs
				}
				p := Proc{Program: nfsProgram, Version: 4, Procedure: 1, Callback: callback}
				rapid.Check(t, func(t *rapid.T) {
					g := generator{t: t, spoil: true, old: true}
					g.shape(head)
					if dir == arguments {
						g.b[4+xdr.Round(int(g.b[3]))+3] = MaxMinor
					}
					g.word(1)
					g.word(uint32(code))
					g.shape(s)
					if !g.spoilt {
						return
					}
					spoilt[fmt.Sprint(callback, code, dir)]++
					var w Walker
					var d xdr.Decoder
					d.ResetBytes(g.b)
					var bad *Error
					if err := w.walk(p, &d, dir); !errors.As(err, &bad) || bad.Op != 0 || bad.Code != uint32(code) || bad.Unknown || bad.Attr || len(w.Ops) != 0 {
						t.Fatalf("%v\n%x", err, g.b)
					}
					if err := read(strings.NewReader(string(g.b)), discard{}); err == nil {
						t.Fatalf("the oracle reads\n%x", g.b)
					}
				})
			}
		}
	}
}

type discard struct{}

func (discard) Write(b []byte) (int, error) { return len(b), nil }

// No result exceeds ResultSize, where that is complete.
func TestResultSize(t *testing.T) {
	for code, e := range forward {
		size, open := ResultSize(uint32(code))
		if !e.known {
			if size != 8 || open {
				t.Errorf("no operation %d: %d bytes, %v", code, size, open)
			}
			continue
		}
		rapid.Check(t, func(t *rapid.T) {
			g := generator{t: t}
			g.word(uint32(code))
			g.shape(e.results)
			if !open && len(g.b) > size {
				t.Fatalf("operation %d: result has %d bytes, at most %d", code, len(g.b), size)
			}
		})
	}
	for code, want := range map[uint32]int{OpPutFH: 8, OpGetFH: 8 + 4 + 128, OpSequence: 8 + 36, OpLock: 8 + 8 + 8 + 4 + 8 + 4 + 1024, OpIllegal: 8, 1 << 31: 8} {
		if size, open := ResultSize(code); size != want || open {
			t.Errorf("operation %d: %d bytes, %v, must be %d", code, size, open, want)
		}
	}
	for _, code := range []uint32{OpRead, OpReaddir, OpGetAttr, OpOpen, OpExchangeID, OpLayoutGet, OpSecInfo} {
		if _, open := ResultSize(code); !open {
			t.Errorf("operation %d is bounded", code)
		}
	}
}

// Operations exist from their minor version on.
func TestMinorVersions(t *testing.T) {
	first := func(code uint32) uint32 {
		switch {
		case code <= OpReleaseLockOwner || code == OpIllegal:
			return 0
		case code <= OpReclaimComplete:
			return 1
		}
		return 2
	}
	zeros := make([]byte, 512)
	for _, code := range []uint32{0, 2, OpAccess, OpReleaseLockOwner, OpBackchannelCtl, OpReclaimComplete, OpAllocate, OpClone, OpGetXattr, OpRemoveXattr, 76, 10043, OpIllegal, 1<<32 - 1} {
		exists := code >= OpAccess && code <= OpRemoveXattr || code == OpIllegal
		for minor := range uint32(MaxMinor + 1) {
			var w Walker
			var d xdr.Decoder
			d.ResetBytes(cat("", int(minor), 2, OpPutRootFH, int(code), zeros))
			err := w.Args(compoundProc, &d)
			var bad *Error
			unknown := errors.As(err, &bad) && bad.Unknown
			if known := exists && minor >= first(code); known == unknown {
				t.Errorf("operation %d in minor version %d: %v", code, minor, err)
			} else if unknown && (bad.Op != 1 || bad.Code != code || len(w.Ops) != 1) {
				t.Errorf("%+v, operations %+v", bad, w.Ops)
			}
		}
	}
}

func TestErrors(t *testing.T) {
	putroot, getattr := cat(OpPutRootFH), cat(OpNVerify, 3, 0, 0, 1<<23, 4, 1)
	many := cat("", 1, MaxOps+1)
	for range MaxOps + 1 {
		many = append(many, putroot...)
	}
	for _, c := range []struct {
		name   string
		p      Proc
		dir    direction
		b      []byte
		want   Error
		ops    int
		spans  int
		reason string
	}{
		{"no program", Proc{Program: 1, Version: 1}, arguments, nil, Error{Op: -1, Unknown: true}, 0, 0, "there is no procedure 0 of program 1 version 1"},
		{"no procedure", nfs3Proc(22), arguments, nil, Error{Op: -1, Unknown: true}, 0, 0, "there is no procedure 22 of program 100003 version 3"},
		{"no procedure of 4", Proc{Program: nfsProgram, Version: 4, Procedure: 2}, results, nil, Error{Op: -1, Unknown: true}, 0, 0, "there is no procedure 2"},
		{"no version", Proc{Program: nfsProgram, Version: 2}, results, nil, Error{Op: -1, Unknown: true}, 0, 0, "there is no procedure"},
		{"truncated", nfs3Proc(3), arguments, cat("handle"), Error{Op: -1}, 0, 0, "message ends"},
		{"long handle", nfs3Proc(1), arguments, cat(strings.Repeat("h", 65)), Error{Op: -1}, 0, 0, "length 65 exceeds the limit of 64"},
		{"minor", compoundProc, arguments, cat("", 3, 0), Error{Op: -1}, 0, 1, "minor version is 3, must be 0 to 2"},
		{"tag", compoundProc, arguments, cat(strings.Repeat("t", 1025), 0, 0), Error{Op: -1}, 0, 0, "length 1025 exceeds the limit of 1024"},
		{"operations", compoundProc, arguments, many, Error{Code: OpPutRootFH, TooMany: true}, 0, 2, "there are 257 operations, at most 256 are understood"},
		{"operations, and the first is cut short", compoundProc, arguments, cat("", 1, MaxOps+1, OpNVerify), Error{Code: OpNVerify}, 0, 2, "message ends"},
		{"results", compoundProc, results, cat(0, "", MaxOps+1), Error{Op: -1, TooMany: true}, 0, 2, "there are 257 operations, at most 256 are understood"},
		{"long handle of 4", compoundProc, arguments, cat("", 0, 2, putroot, OpPutFH, strings.Repeat("h", 129)), Error{Op: 1, Code: OpPutFH}, 1, 2, "length 129 exceeds the limit of 128"},
		{"no operation", compoundProc, arguments, cat("", 0, 2, putroot), Error{Op: 1}, 1, 2, "message ends"},
		{"long bitmap", compoundProc, arguments, cat("", 0, 1, OpGetAttr, 1<<30, 0), Error{Op: 0, Code: OpGetAttr}, 0, 2, "message ends"},
		{"unknown attribute beyond 255", compoundProc, arguments, cat("", 0, 1, OpNVerify, 9, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0), Error{Op: 0, Code: OpNVerify, Attr: true}, 0, 2, "attribute 256 is not known"},
		{"unknown attribute", compoundProc, arguments, cat("", 0, 2, putroot, getattr), Error{Op: 1, Code: OpNVerify, Attr: true}, 1, 2, "attribute 87 is not known"},
		{"values too short", compoundProc, arguments, cat("", 0, 1, OpNVerify, 1, 1<<4, 4, uint64(1)), Error{Op: 0, Code: OpNVerify}, 0, 2, "the values of the attributes end here"},
		{"values too long", compoundProc, arguments, cat("", 0, 1, OpNVerify, 1, 1<<4, 12, uint64(1), 0), Error{Op: 0, Code: OpNVerify}, 0, 2, "the values of the attributes end here"},
		{"values missing", compoundProc, arguments, cat("", 0, 1, OpNVerify, 1, 1<<4, 1000), Error{Op: 0, Code: OpNVerify}, 0, 2, "attributes have 1000 bytes, 0 are left"},
		{"bad watched value", compoundProc, arguments, cat("", 0, 1, OpNVerify, 1, 1<<19, 136, strings.Repeat("h", 132)), Error{Op: 0, Code: OpNVerify}, 0, 2, "length 132 exceeds the limit of 128"},
		{"many secinfos", compoundProc, results, cat(0, "", 1, OpSecInfo, 0, 257), Error{Op: 0, Code: OpSecInfo}, 0, 2, "there are 257 elements, at most 256 are understood"},
		{"no such result", compoundProc, results, cat(0, "", 1, 99, 0), Error{Op: 0, Code: 99, Unknown: true}, 0, 2, "there is no operation 99"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var w Walker
			var d xdr.Decoder
			d.ResetBytes(c.b)
			var got *Error
			if err := w.walk(c.p, &d, c.dir); !errors.As(err, &got) || !strings.Contains(err.Error(), c.reason) {
				t.Fatalf("%v, must say %q", err, c.reason)
			}
			if got.Op != c.want.Op || got.Code != c.want.Code || got.Unknown != c.want.Unknown || got.Attr != c.want.Attr {
				t.Errorf("%+v, must be %+v", got, c.want)
			}
			if len(w.Ops) != c.ops || len(w.Spans) != c.spans {
				t.Errorf("%d operations, %d spans, must be %d and %d", len(w.Ops), len(w.Spans), c.ops, c.spans)
			}
		})
	}
}

func TestNull(t *testing.T) {
	for _, p := range []Proc{nfs3Proc(0), {Program: nfsProgram, Version: 4}, {Program: mountProgram, Version: 3}, {Program: nfsaclProgram, Version: 3}, {Callback: true}} {
		for _, dir := range []direction{arguments, results} {
			if w := walkAll(t, p, dir, nil); len(w.Spans)+len(w.Ops) > 0 {
				t.Errorf("%+v: %+v", p, w)
			}
		}
	}
}

// A reused walker has the results of a new one, and does not allocate.
func TestReuse(t *testing.T) {
	all := readCaptured(t)
	var old Walker
	r := rand.New(rand.NewPCG(1, 2))
	for range 2 {
		for _, i := range r.Perm(len(all)) {
			c := &all[i]
			var fresh Walker
			var a, b xdr.Decoder
			a.Reset([][]byte{c.stream}, c.items)
			b.Reset([][]byte{c.stream}, c.items)
			errA, errB := c.walk(&old, &a), c.walk(&fresh, &b)
			if errA != nil || errB != nil || fmt.Sprint(old.Spans, old.Ops) != fmt.Sprint(fresh.Spans, fresh.Ops) {
				t.Fatalf("message %d: %v, %v", i, errA, errB)
			}
		}
	}
	if race.Enabled {
		return
	}
	for i := range all {
		c := &all[i]
		stream := [][]byte{c.stream}
		var d xdr.Decoder
		n := testing.AllocsPerRun(10, func() {
			d.Reset(stream, c.items)
			_ = c.walk(&old, &d)
		})
		if n != 0 {
			t.Errorf("message %d, %+v: %v allocations", i, c.proc, n)
		}
	}
}

// The memory of a huge list is not kept.
func TestHugeList(t *testing.T) {
	b := cat(0, 0, uint64(0))
	for range 3 * maxKept {
		b = append(b, cat(1, uint64(7), "n", uint64(8))...)
	}
	w := walkAll(t, nfs3Proc(16), results, append(b, cat(0, 1)...))
	if want := 2 + 2*3*maxKept; len(w.Spans) != want {
		t.Errorf("%d spans, must be %d", len(w.Spans), want)
	}
	var d xdr.Decoder
	d.ResetBytes(cat("handle"))
	if err := w.Args(nfs3Proc(1), &d); err != nil || cap(w.Spans) > 2*maxKept {
		t.Errorf("%v, room for %d spans is kept", err, cap(w.Spans))
	}
}

func BenchmarkWalk(b *testing.B) {
	for _, c := range readCaptured(b) {
		if len(c.stream) > 1000 || c.proc.Version != 4 || c.placed != nil {
			continue
		}
		var w Walker
		var d xdr.Decoder
		d.ResetBytes(c.stream)
		if c.walk(&w, &d) != nil || len(w.Ops) != 3 || w.Ops[2].Code != OpGetAttr {
			continue
		}
		b.Run(fmt.Sprintf("%d-%v", len(c.stream), c.dir == results), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				d.ResetBytes(c.stream)
				_ = c.walk(&w, &d)
			}
		})
	}
}

// FuzzWalk walks arbitrary bytes as all kinds of messages.
func FuzzWalk(f *testing.F) {
	for _, c := range readCaptured(f) {
		at, length := 0, 0
		if len(c.items) > 0 {
			at, length = c.items[0].Position, c.items[0].Length
		}
		f.Add(c.proc.Program, c.proc.Version, c.proc.Procedure, c.proc.Callback, bool(c.dir), c.stream, at, length)
	}
	f.Fuzz(func(t *testing.T, program, version, procedure uint32, callback, dir bool, b []byte, at, length int) {
		var items []xdr.Item
		if at >= 0 && at < 1<<20 && length > 0 && length < 1<<20 {
			items = append(items, xdr.Item{Position: at &^ 3, Length: length})
		}
		var w Walker
		var d xdr.Decoder
		half := len(b) / 2
		d.Reset([][]byte{b[:half], b[half:]}, items)
		err := w.walk(Proc{program, version, procedure, callback}, &d, direction(dir))
		var bad *Error
		if err != nil && !errors.As(err, &bad) || len(w.Ops) > MaxOps {
			t.Fatalf("%v, %d operations", err, len(w.Ops))
		}
		end := d.Pos()
		missing := 0
		if d.Used() > 0 {
			missing = xdr.Round(items[0].Length)
		}
		if end > len(b)+missing+3 || err == nil && d.Left() == 0 && end+3 < len(b)+missing {
			t.Fatalf("walked to %d of %d bytes, %d of items", end, len(b), missing)
		}
		if missing > 0 {
			b = nil
			for i := range w.Spans {
				w.Spans[i].B = nil
			}
		}
		checkSpans(t, &w, b, 0, end)
		if d.Used() > 0 || dir == bool(arguments) {
			return
		}
		for _, placed := range [][]int{{length}, {0, length}} {
			d.ResetBytes(b)
			if w.ResultsPlaced(Proc{program, version, procedure, callback}, &d, placed) == nil && d.Pos() > len(b)+max(0, xdr.Round(length))+3 {
				t.Fatalf("walked to %d of %d bytes", d.Pos(), len(b))
			}
		}
	})
}
