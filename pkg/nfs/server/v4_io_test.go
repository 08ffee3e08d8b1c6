package server

import (
	"encoding/binary"
	"slices"
	"testing"

	"sluice.dev/sluice/pkg/internal/race"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
)

var (
	anonymous = Raw(make([]byte, 16))
	bypass    = Fields(0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff)
)

func read4(stateid Raw, off uint64, count int) Raw { return op4(nfs4.OpRead, stateid, off, count) }

func write4(stateid Raw, off uint64, stable int, data string) Raw {
	return op4(nfs4.OpWrite, stateid, off, stable, data)
}

func TestReadWrite4(t *testing.T) {
	s := newTreeSession4(t, nil)
	for _, x := range []struct {
		off   uint64
		count int
		want  string
		eof   bool
	}{
		{0, 4, "0123", false}, {0, 10, "0123456789", true}, {6, 100, "6789", true}, {10, 5, "", true}, {1 << 62, 5, "", true}, {2, 0, "", false},
	} {
		for _, id := range []Raw{anonymous, bypass} {
			var r nfs4.ReadRes
			r.Decode(opResult(s.ok(putRoot, lookup4("file"), read4(id, x.off, x.count)), 3))
			got := ""
			for _, b := range r.Data {
				got += string(b)
			}
			if got != x.want || r.EOF != x.eof {
				t.Errorf("READ of %d at %d is %q, eof %v", x.count, x.off, got, r.EOF)
			}
		}
	}
	// Several in one COMPOUND.
	res := s.ok(putRoot, lookup4("file"), read4(anonymous, 0, 2), read4(anonymous, 2, 3))
	var a, b nfs4.ReadRes
	a.Decode(opResult(res, 3))
	b.Decode(opResult(res, 4))
	if string(a.Data[0]) != "01" || string(b.Data[0]) != "234" {
		t.Errorf("two READs: %q, %q", a.Data, b.Data)
	}
	for stable := range 3 {
		var w nfs4.WriteRes
		w.Decode(opResult(s.ok(putRoot, lookup4("file"), write4(anonymous, 10, stable, "abc")), 3))
		var c nfs4.CommitRes
		c.Decode(opResult(s.ok(putRoot, lookup4("file"), op4(nfs4.OpCommit, uint64(0), 0)), 3))
		if w.Count != 3 || int(w.Committed) != stable || w.Verf != c.Verf {
			t.Errorf("WRITE: %+v, COMMIT: %+v", w, c)
		}
	}
	if got := s.content("file"); got != "0123456789abc" {
		t.Errorf("the file is %q", got)
	}
	var empty nfs4.WriteRes
	if empty.Decode(opResult(s.ok(putRoot, lookup4("file"), write4(anonymous, 1<<40, 0, "")), 3)); empty.Count != 0 {
		t.Errorf("an empty WRITE wrote %d bytes", empty.Count)
	}
	read := func(name string) []Raw { return []Raw{putRoot, lookup4(name), read4(anonymous, 0, 5)} }
	write := func(name string) []Raw { return []Raw{putRoot, lookup4(name), write4(anonymous, 0, 0, "x")} }
	commit := func(name string, off uint64, n int) []Raw {
		return []Raw{putRoot, lookup4(name), op4(nfs4.OpCommit, off, n)}
	}
	s.ok(putRoot, op4(nfs4.OpCreate, 7, "pipe", noAttrs))
	stale := Fields(1, 7, 7, 7)
	for name, x := range map[string]struct {
		want nfs4.Status
		ops  []Raw
	}{
		"READ of a directory":    {nfs4.ErrIsDir, read("dir")},
		"READ of a link":         {nfs4.ErrSymlink, read("link")},
		"READ of a pipe":         {nfs4.ErrWrongType, read("pipe")},
		"READ of nothing":        {nfs4.ErrNoFileHandle, []Raw{read4(anonymous, 0, 5)}},
		"READ, wrong stateid":    {nfs4.ErrBadStateID, []Raw{putRoot, lookup4("file"), read4(Fields(0xffffffff, 0, 0, 0), 0, 5)}},
		"READ, no current state": {nfs4.ErrBadStateID, []Raw{putRoot, lookup4("file"), read4(Fields(1, 0, 0, 0), 0, 5)}},
		"READ, foreign stateid":  {nfs4.ErrBadStateID, []Raw{putRoot, lookup4("file"), read4(stale, 0, 5)}},
		"READ cut off":           {nfs4.ErrBadXDR, []Raw{putRoot, Op(int(nfs4.OpRead), uint64(0))}},
		"WRITE of a directory":   {nfs4.ErrIsDir, write("dir")},
		"WRITE of a link":        {nfs4.ErrSymlink, write("link")},
		"WRITE of a pipe":        {nfs4.ErrWrongType, write("pipe")},
		"WRITE of nothing":       {nfs4.ErrNoFileHandle, []Raw{write4(anonymous, 0, 0, "x")}},
		"WRITE beyond":           {nfs4.ErrFBig, []Raw{putRoot, lookup4("file"), write4(anonymous, 1<<63-1, 0, "x")}},
		"WRITE, foreign stateid": {nfs4.ErrBadStateID, []Raw{putRoot, lookup4("file"), write4(stale, 0, 0, "x")}},
		"WRITE, stability 3":     {nfs4.ErrBadXDR, []Raw{putRoot, lookup4("file"), write4(anonymous, 0, 3, "x")}},
		"COMMIT of a directory":  {nfs4.ErrIsDir, commit("dir", 0, 0)},
		"COMMIT of a link":       {nfs4.ErrSymlink, commit("link", 0, 0)},
		"COMMIT of a pipe":       {nfs4.ErrWrongType, commit("pipe", 0, 0)},
		"COMMIT of nothing":      {nfs4.ErrNoFileHandle, []Raw{op4(nfs4.OpCommit, uint64(0), 0)}},
	} {
		expect(t, name, s.do(x.ops...), x.want)
	}
}

// repeated4 is a COMPOUND in slot 0 that is repeated without allocating, in new turns of the slot.
type repeated4 struct {
	*repeated
	s  *session4
	at int // of the sequence id in the stream
}

func (s *session4) repeated4(ops ...Raw) *repeated4 {
	s.t.Helper()
	args := Fields("tag", 2, len(ops)+1, slices.Concat(append([]Raw{s.seq(0)}, ops...)...))
	w := s.prepare(1, nfs4.Program, nfs4.Version, nfs4.ProcCompound, raw(args), 0)
	w.keep = true
	p := &repeated{w: w, stream: w.call.Stream[0], xid: 1 << 30}
	head := len(p.stream) - len(args)
	w.call.Recycle()
	const tagMinorCount, number, session = 8 + 4 + 4, 4, 16
	return &repeated4{p, s, head + tagMinorCount + number + session}
}

func (p *repeated4) run() {
	p.s.slots[0]++
	binary.BigEndian.PutUint32(p.stream[p.at:], p.s.slots[0])
	p.repeated.run()
}

// The data path of version 4 allocates nothing.
func TestNoAllocations4(t *testing.T) {
	if race.Enabled {
		t.Skip("the race detector allocates")
	}
	for _, inline := range []int{0, -1} {
		s := newEnv4(t, func(c *Config) {
			var y syncs
			c.InlineRead, c.Files.Sync = inline, y.sync
		}).session("client")
		s.put("file", string(make([]byte, 1<<20)))
		res := s.ok(putRoot, lookup4("file"), getFH)
		put := op4(nfs4.OpPutFH, slices.Clone(opResult(res, 3).Opaque(nfs4.MaxHandle)))
		opened := stateID(s.open("owner", accRW, 0, noCreate, "file").StateID)
		linux := Bitmap(1, 3, 4, 8, 20, 33, 35, 36, 37, 41, 45, 47, 52, 53, 55)
		for name, call := range map[string]*repeated4{
			"SEQUENCE":         s.repeated4(),
			"GETATTR":          s.repeated4(put, op4(nfs4.OpGetAttr, linux)),
			"ACCESS":           s.repeated4(put, op4(nfs4.OpAccess, 0x3f), op4(nfs4.OpGetAttr, linux)),
			"READ":             s.repeated4(put, read4(anonymous, 0, 4096)),
			"READ by an open":  s.repeated4(put, read4(opened, 0, 4096)),
			"WRITE by an open": s.repeated4(put, write4(opened, 0, 0, string(make([]byte, 4096))), op4(nfs4.OpGetAttr, linux)),
			"WRITE":            s.repeated4(put, write4(anonymous, 0, 0, string(make([]byte, 4096))), op4(nfs4.OpGetAttr, linux)),
			"COMMIT":           s.repeated4(put, op4(nfs4.OpCommit, uint64(0), 0)),
			"LOOKUP":           s.repeated4(putRoot, lookup4("file"), getFH, op4(nfs4.OpGetAttr, linux)),
		} {
			for range 50 {
				call.run()
			}
			if n := testing.AllocsPerRun(200, call.run); n != 0 {
				t.Errorf("%s, inline %d: %v allocations", name, inline, n)
			}
		}
	}
}
