package server

import (
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
)

func TestCopy4(t *testing.T) {
	s := newTreeSession4(t, nil)
	s.put("target", "")
	between := func(op Raw) []Raw { return []Raw{putRoot, lookup4("file"), saveFH, putRoot, lookup4("target"), op} }
	copyOf := func(from, to, n uint64, sources ...any) Raw {
		list := []any{anonymous, anonymous, from, to, n, true, true, len(sources)}
		return op4(nfs4.OpCopy, append(list, sources...)...)
	}
	clone := func(from, to, n uint64) Raw { return op4(nfs4.OpClone, anonymous, anonymous, from, to, n) }
	for _, x := range []struct {
		from, to, n uint64
		want        string
		count       uint64
	}{
		{0, 0, 0, "0123456789", 10}, {2, 1, 3, "0234456789", 3}, {10, 0, 0, "0234456789", 0},
	} {
		var r nfs4.CopyRes
		r.Decode(opResult(s.ok(between(copyOf(x.from, x.to, x.n))...), 6))
		if got := s.content("target"); got != x.want || r.Response.Count != x.count || !r.Requirements.Synchronous || r.Response.HasCallback {
			t.Errorf("COPY of %d from %d to %d: %q, %+v", x.n, x.from, x.to, got, r)
		}
	}
	res := s.do(between(clone(0, 0, 0))...)
	if st := nfs4.Status(res.Status); st == nfs4.OK {
		if got := s.content("target"); got != "0123456789" {
			t.Errorf("CLONE made %q", got)
		}
	} else if st != nfs4.ErrNotSupp {
		t.Errorf("CLONE: %v", st)
	}
	bad := Fields(1, 7, 7, 7)
	for name, x := range map[string]struct {
		want nfs4.Status
		ops  []Raw
	}{
		"COPY behind the end":      {nfs4.ErrInval, between(copyOf(11, 0, 0))},
		"COPY of too much":         {nfs4.ErrInval, between(copyOf(5, 0, 6))},
		"COPY from another server": {nfs4.ErrNotSupp, between(copyOf(0, 0, 1, Fields(1, "server")))},
		"COPY onto itself":         {nfs4.ErrInval, []Raw{putRoot, lookup4("file"), saveFH, copyOf(0, 2, 5)}},
		"COPY from a directory":    {nfs4.ErrWrongType, []Raw{putRoot, saveFH, lookup4("file"), copyOf(0, 0, 0)}},
		"COPY to a directory":      {nfs4.ErrWrongType, []Raw{putRoot, lookup4("file"), saveFH, putRoot, copyOf(0, 0, 0)}},
		"COPY without a source":    {nfs4.ErrNoFileHandle, []Raw{putRoot, lookup4("file"), copyOf(0, 0, 0)}},
		"COPY, bad stateid":        {nfs4.ErrBadStateID, between(op4(nfs4.OpCopy, anonymous, bad, uint64(0), uint64(0), uint64(1), true, true, 0))},
		"CLONE of too much":        {nfs4.ErrInval, between(clone(5, 0, 6))},
		"CLONE of a directory":     {nfs4.ErrWrongType, []Raw{putRoot, saveFH, lookup4("file"), clone(0, 0, 0)}},
		"CLONE without a source":   {nfs4.ErrNoFileHandle, []Raw{putRoot, lookup4("file"), clone(0, 0, 0)}},
		"CLONE, bad stateid":       {nfs4.ErrBadStateID, between(op4(nfs4.OpClone, bad, anonymous, uint64(0), uint64(0), uint64(1)))},
		"CLONE cut off":            {nfs4.ErrBadXDR, between(Op(int(nfs4.OpClone)))},
		"OFFLOAD_STATUS":           {nfs4.ErrBadStateID, []Raw{putRoot, op4(nfs4.OpOffloadStatus, anonymous)}},
	} {
		expect(t, name, s.do(x.ops...), x.want)
	}
}

// The stateids of opens grant, and limit, each side of a copy and each change of a range.
func TestOpenModes42(t *testing.T) {
	s := newTreeSession4(t, nil)
	s.put("target", "")
	from := s.open("owner", accR, 0, noCreate, "file")
	reader, writer := s.open("reader", accR, 0, noCreate, "target"), s.open("writer", accRW, 0, noCreate, "target")
	onto := func(op nfs4.Op, src, dst nfs4.StateID, list ...any) []Raw {
		args := append([]any{stateID(src), stateID(dst), uint64(0), uint64(0), uint64(0)}, list...)
		return []Raw{putFH(from.handle), saveFH, putFH(writer.handle), op4(op, args...)}
	}
	ranged := func(op nfs4.Op, id nfs4.StateID) []Raw {
		return []Raw{putFH(writer.handle), op4(op, stateID(id), uint64(0), uint64(4096))}
	}
	s.ok(onto(nfs4.OpCopy, from.StateID, writer.StateID, true, true, 0)...)
	if got := s.content("target"); got != "0123456789" {
		t.Errorf("the copy is %q", got)
	}
	for name, ops := range map[string][]Raw{
		"COPY":       onto(nfs4.OpCopy, from.StateID, reader.StateID, true, true, 0),
		"CLONE":      onto(nfs4.OpClone, from.StateID, reader.StateID),
		"ALLOCATE":   ranged(nfs4.OpAllocate, reader.StateID),
		"DEALLOCATE": ranged(nfs4.OpDeallocate, reader.StateID),
	} {
		expect(t, name+" of a file open for reading", s.do(ops...), nfs4.ErrOpenMode)
	}
	expect(t, "COPY with the stateid of another file", s.do(onto(nfs4.OpCopy, writer.StateID, writer.StateID, true, true, 0)...), nfs4.ErrBadStateID)
}
