package server

import (
	"bytes"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	. "sluice.dev/sluice/pkg/nfs/nfs4test" //nolint:revive // calls are built of it
	"sluice.dev/sluice/test/prereq"
)

// sparse4 makes a file of 1 MiB with data at 0 and at 512 KiB, and a hole at the end.
func sparse4(s *session4) []byte {
	s.t.Helper()
	content := make([]byte, 1<<20)
	for _, at := range []int{0, 512 << 10} {
		copy(content[at:], bytes.Repeat([]byte("data"), 16<<10/4))
	}
	f, err := os.Create(s.path("sparse"))
	s.must(err)
	defer f.Close()
	for _, at := range []int64{0, 512 << 10} {
		_, err = f.WriteAt(content[at:at+16<<10], at)
		s.must(err)
	}
	s.must(f.Truncate(1 << 20))
	if at, err := unix.Seek(int(f.Fd()), 0, unix.SEEK_HOLE); err != nil || at == 1<<20 {
		prereq.Missing(s.t, "the file system has no holes")
	}
	return content
}

func TestHoles4(t *testing.T) {
	s := newTreeSession4(t, nil)
	content := sparse4(s)
	seek := func(off uint64, what int) nfs4.SeekRes {
		t.Helper()
		var r nfs4.SeekRes
		r.Decode(opResult(s.ok(putRoot, lookup4("sparse"), op4(nfs4.OpSeek, anonymous, off, what)), 3))
		return r
	}
	for _, x := range []struct {
		off  uint64
		what int
		want nfs4.SeekRes
	}{
		{0, 0, nfs4.SeekRes{Offset: 0}}, {0, 1, nfs4.SeekRes{Offset: 16 << 10}},
		{16 << 10, 0, nfs4.SeekRes{Offset: 512 << 10}}, {600 << 10, 0, nfs4.SeekRes{EOF: true, Offset: 1 << 20}},
		{512 << 10, 1, nfs4.SeekRes{Offset: 528 << 10}},
	} {
		if got := seek(x.off, x.what); got != x.want {
			t.Errorf("SEEK %d from %d: %+v, must be %+v", x.what, x.off, got, x.want)
		}
	}
	// READ_PLUS in parts of several lengths returns the content, holes as holes.
	for _, part := range []int{1 << 20, 100_003, 30_000} {
		var got []byte
		holes := 0
		for off := uint64(0); ; {
			var r nfs4.ReadPlusRes
			r.Decode(opResult(s.ok(putRoot, lookup4("sparse"), op4(nfs4.OpReadPlus, anonymous, off, part)), 3))
			for _, x := range r.Segments {
				if x.Offset != off {
					t.Fatalf("a segment at %d, must be at %d", x.Offset, off)
				}
				if x.Content == nfs4.ContentHole {
					got = append(got, make([]byte, x.Length)...)
					holes++
				} else {
					got = append(got, x.Data...)
				}
				off += x.Length
			}
			if r.EOF || len(r.Segments) == 0 {
				break
			}
		}
		if !bytes.Equal(got, content) || holes < 2 {
			t.Errorf("parts of %d: %d bytes with %d holes", part, len(got), holes)
		}
	}
	blocks := s.lstat("sparse").Blocks
	change := func(op nfs4.Op, off, n uint64) []Raw {
		return []Raw{putRoot, lookup4("sparse"), op4(op, anonymous, off, n)}
	}
	if res := s.do(change(nfs4.OpAllocate, 64<<10, 64<<10)...); nfs4.Status(res.Status) == nfs4.ErrNotSupp {
		prereq.Missing(t, "the file system cannot allocate")
	}
	if now := s.lstat("sparse").Blocks; now < blocks+128 {
		t.Errorf("ALLOCATE: %d blocks, there were %d", now, blocks)
	}
	s.ok(change(nfs4.OpAllocate, 1<<20, 4096)...)
	if size := s.lstat("sparse").Size; size != 1<<20+4096 {
		t.Errorf("ALLOCATE behind the end: the file has %d bytes", size)
	}
	s.ok(change(nfs4.OpDeallocate, 0, 16<<10)...)
	if got := s.content("sparse"); strings.Trim(got[:16<<10], "\x00") != "" || len(got) != 1<<20+4096 {
		t.Error("DEALLOCATE left data")
	}
	var advice nfs4.IOAdviseRes
	advice.Decode(opResult(s.ok(putRoot, lookup4("sparse"), op4(nfs4.OpIOAdvise, anonymous, uint64(0), uint64(4096), Bitmap(1, 4))), 3))
	if advice.Hints != nfs4.BitmapOf(4) {
		t.Errorf("IO_ADVISE returned %v", advice.Hints)
	}
	for name, x := range map[string]struct {
		want nfs4.Status
		ops  []Raw
	}{
		"SEEK behind the end":       {nfs4.ErrNXIO, []Raw{putRoot, lookup4("file"), op4(nfs4.OpSeek, anonymous, uint64(11), 0)}},
		"SEEK for a stranger":       {nfs4.ErrUnionNotSupp, []Raw{putRoot, lookup4("file"), op4(nfs4.OpSeek, anonymous, uint64(0), 7)}},
		"SEEK in a directory":       {nfs4.ErrIsDir, []Raw{putRoot, op4(nfs4.OpSeek, anonymous, uint64(0), 0)}},
		"ALLOCATE of nothing":       {nfs4.ErrInval, change(nfs4.OpAllocate, 0, 0)},
		"ALLOCATE beyond":           {nfs4.ErrInval, change(nfs4.OpAllocate, 1<<63, 1<<63)},
		"ALLOCATE too much":         {nfs4.ErrFBig, change(nfs4.OpAllocate, 0, 1<<63)},
		"DEALLOCATE of nothing":     {nfs4.ErrInval, change(nfs4.OpDeallocate, 0, 0)},
		"DEALLOCATE of a directory": {nfs4.ErrWrongType, []Raw{putRoot, op4(nfs4.OpDeallocate, anonymous, uint64(0), uint64(1))}},
		"READ_PLUS of a link":       {nfs4.ErrSymlink, []Raw{putRoot, lookup4("link"), op4(nfs4.OpReadPlus, anonymous, uint64(0), 1)}},
		"READ_PLUS of nothing":      {nfs4.ErrNoFileHandle, []Raw{op4(nfs4.OpReadPlus, anonymous, uint64(0), 1)}},
		"READ_PLUS behind the end":  {nfs4.OK, []Raw{putRoot, lookup4("file"), op4(nfs4.OpReadPlus, anonymous, uint64(1)<<60, 1)}},
		"IO_ADVISE, bad stateid":    {nfs4.ErrBadStateID, []Raw{putRoot, lookup4("file"), op4(nfs4.OpIOAdvise, Fields(1, 7, 7, 7), uint64(0), uint64(1), 0)}},
	} {
		expect(t, name, s.do(x.ops...), x.want)
	}
}
