package server

import (
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
)

func TestRead(t *testing.T) {
	for _, inline := range []int{0, -1} { // on the receive loop, then on a worker
		r := newEnv(t, func(c *Config) { c.InlineRead = inline })
		content := strings.Repeat("0123456789abcdef", 3<<12) // 192 KiB
		r.put("file", content)
		r.put("empty", "")
		h := r.handle("file")
		size := uint64(len(content))
		for _, c := range []struct {
			off   uint64
			count uint32
			eof   bool
		}{
			{0, 0, false}, {0, 1, false}, {5, 7, false}, {0, uint32(size), true}, {0, 1 << 20, true}, {0, 1<<32 - 1, true}, {size - 1, 1, true},
			{size - 2, 1, false}, {size, 10, true}, {size + 5, 10, true}, {1 << 63, 10, true}, {1<<64 - 1, 10, true}, {size, 0, true}, {4095, 4098, false},
		} {
			for range 2 {
				res, got := r.read(h, c.off, c.count)
				want := ""
				if c.off < size {
					want = content[c.off:min(size, c.off+uint64(c.count))]
				}
				if res.Status != nfs3.OK || got != want || res.EOF != c.eof || res.Attr.Attr.Size != size {
					t.Errorf("%d bytes at %d: %v, %d bytes, eof %v, size %d; want %d bytes, eof %v", c.count, c.off, res.Status, len(got), res.EOF, res.Attr.Attr.Size, len(want), c.eof)
				}
			}
		}
		if res, got := r.read(r.handle("empty"), 0, 10); res.Status != nfs3.OK || got != "" || !res.EOF {
			t.Errorf("an empty file: %v, %q, eof %v", res.Status, got, res.EOF)
		}
		r.must(os.Mkdir(r.path("dir"), 0o755))
		r.must(os.Symlink("file", r.path("link")))
		r.must(unix.Mkfifo(r.path("fifo"), 0o666))
		for _, name := range []string{"dir", "link", "fifo"} {
			res, _ := r.read(r.handle(name), 0, 10)
			wantStatus(t, "read of "+name, res.Status, nfs3.ErrInval)
			wantStatus(t, "write of "+name, r.write(r.handle(name), 0, "x", nfs3.Unstable).Status, nfs3.ErrInval)
			wantStatus(t, "commit of "+name, r.commit(r.handle(name), 0, 0).Status, nfs3.ErrInval)
		}
		// A hole reads as zeros, and is no space used.
		r.must(os.Truncate(r.path("empty"), 1<<30))
		if res, got := r.read(r.handle("empty"), 1<<29, 100); got != strings.Repeat("\x00", 100) || res.Attr.Attr.Used > 1<<20 {
			t.Errorf("a hole: %q, used %d", got, res.Attr.Attr.Used)
		}
	}
}

// TestReadUnderTruncation changes a file's length during reads: a reply has only bytes of the file.
func TestReadUnderTruncation(t *testing.T) {
	r := newEnv(t, nil)
	r.put("file", "")
	h := r.handle("file")
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			_ = os.WriteFile(r.path("file"), []byte(strings.Repeat("x", 8000)), 0o644)
			_ = os.Truncate(r.path("file"), 10)
		}
	})
	for range 2000 {
		res, got := r.read(h, 0, 10000)
		if res.Status != nfs3.OK || strings.Trim(got, "x") != "" || len(got) > 8000 {
			t.Errorf("%v, %d bytes", res.Status, len(got))
			break
		}
	}
	stop.Store(true)
	wg.Wait()
}

// TestReadAtEndOfGrowingFile: a reply without data has eof set, or clients report an error.
func TestReadAtEndOfGrowingFile(t *testing.T) {
	for _, inline := range []int{0, -1} {
		r := newEnv(t, func(c *Config) { c.InlineRead = inline })
		r.put("file", "")
		h := r.handle("file")
		var stop atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			for !stop.Load() {
				_ = os.Truncate(r.path("file"), 0)
				_ = os.Truncate(r.path("file"), 10)
			}
		})
		for range 3000 {
			if res, _ := r.read(h, 5, 10); res.Status != nfs3.OK || res.Count == 0 && !res.EOF {
				t.Errorf("%v, %d bytes, end %v", res.Status, res.Count, res.EOF)
				break
			}
		}
		stop.Store(true)
		wg.Wait()
	}
}

// syncs counts syncs, and fails on demand.
type syncs struct {
	mu    sync.Mutex
	count map[vfs.SyncKind]int
	fail  error
}

func (s *syncs) sync(fd int, kind vfs.SyncKind) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.count == nil {
		s.count = map[vfs.SyncKind]int{}
	}
	s.count[kind]++
	return s.fail
}

func (s *syncs) setFail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail = err
}

// take returns the syncs since the last call: of files and directories, data, file systems.
func (s *syncs) take() [3]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := [3]int{s.count[vfs.SyncFile], s.count[vfs.SyncData], s.count[vfs.SyncFS]}
	s.count = nil
	return out
}

func TestStability(t *testing.T) {
	needRoot(t)
	var s syncs
	r := newEnv(t, func(c *Config) { c.Files.Sync = s.sync })
	r.put("file", "")
	h := r.handle("file")
	var verf nfs3.Verifier
	for i, c := range []struct {
		how  nfs3.Stability
		want [3]int
	}{{nfs3.Unstable, [3]int{}}, {nfs3.DataSync, [3]int{0, 1, 0}}, {nfs3.FileSync, [3]int{1, 0, 0}}} {
		res := r.write(h, uint64(i*10), "0123456789", c.how)
		if got := s.take(); res.Status != nfs3.OK || res.Count != 10 || res.Committed != c.how || got != c.want {
			t.Errorf("%v: %v, %d bytes, committed %v, syncs %v, want %v", c.how, res.Status, res.Count, res.Committed, got, c.want)
		}
		if i > 0 && res.Verf != verf {
			t.Error("the verifier changed")
		}
		verf = res.Verf
		if w := res.Wcc; !w.HasBefore || w.Before.Size != uint64(i*10) || w.After.Attr.Size != uint64(i*10+10) {
			t.Errorf("%v: wcc %+v", c.how, w)
		}
	}
	if res := r.commit(h, 0, 0); res.Status != nfs3.OK || res.Verf != verf || s.take() != [3]int{1, 0, 0} {
		t.Errorf("COMMIT: %v", res.Status)
	}
	// An empty write changes nothing.
	mtime := r.lstat("file").Mtim
	if res := r.write(h, 5, "", nfs3.FileSync); res.Status != nfs3.OK || res.Count != 0 || r.lstat("file").Mtim != mtime || s.take() != [3]int{} {
		t.Errorf("no bytes: %+v", res)
	}

	one, two := [3]int{1, 0, 0}, [3]int{2, 0, 0}
	steps := []struct {
		what string
		do   func() nfs3.Status
		want [3]int
	}{
		{"SETATTR", func() nfs3.Status { return r.setattr(h, nfs3.SetAttrs{SetMode: true, Mode: 0o600}).Status }, one},
		{"CREATE", func() nfs3.Status { return r.create(r.root, "new", nfs3.Guarded, nfs3.SetAttrs{}).Status }, two},
		{"exclusive CREATE", func() nfs3.Status {
			return r.createVerified(r.root, "exclusive", nfs3.Exclusive, nfs3.SetAttrs{}, nfs3.Verifier{1}).Status
		}, two},
		{"MKDIR", func() nfs3.Status { return r.mkdir(r.root, "dir", 0o755).Status }, two},
		{"SYMLINK", func() nfs3.Status { return r.symlink(r.root, "link", "x").Status }, one},
		{"MKNOD", func() nfs3.Status {
			return r.creating(nfs3.ProcMknod, &nfs3.MknodArgs{Where: nfs3.DirOpArgs{Dir: r.root, Name: []byte("fifo")}, Type: nfs3.FIFO}).Status
		}, one},
		{"SETATTR of a link", func() nfs3.Status { return r.setattr(r.handle("link"), nfs3.SetAttrs{SetUID: true, UID: 3}).Status }, [3]int{0, 0, 1}},
		{"LINK", func() nfs3.Status { return r.link(h, r.root, "hard").Status }, two},
		{"RENAME", func() nfs3.Status { return r.rename(r.root, "hard", r.root, "soft").Status }, one},
		{"RENAME to another directory", func() nfs3.Status { return r.rename(r.root, "soft", r.handle("dir"), "hard").Status }, two},
		{"REMOVE", func() nfs3.Status { return r.removing(nfs3.ProcRemove, r.handle("dir"), "hard").Status }, one},
		{"RMDIR", func() nfs3.Status { return r.removing(nfs3.ProcRmdir, r.root, "dir").Status }, one},
	}
	for _, step := range steps {
		wantStatus(t, step.what, step.do(), nfs3.OK)
		if got := s.take(); got != step.want {
			t.Errorf("%s: syncs %v, want %v", step.what, got, step.want)
		}
	}

	// Every failure is reported, and changes the verifier once.
	for _, c := range []struct {
		what string
		do   func() nfs3.Status
	}{
		{"COMMIT", func() nfs3.Status { return r.commit(h, 0, 0).Status }},
		{"FILE_SYNC", func() nfs3.Status { return r.write(h, 0, "x", nfs3.FileSync).Status }},
		{"DATA_SYNC", func() nfs3.Status { return r.write(h, 0, "x", nfs3.DataSync).Status }},
		{"CREATE", func() nfs3.Status { return r.create(r.root, "failing", nfs3.Guarded, nfs3.SetAttrs{}).Status }},
	} {
		before := r.write(h, 0, "x", nfs3.Unstable).Verf
		s.setFail(unix.EIO)
		wantStatus(t, "failing "+c.what, c.do(), nfs3.ErrIO)
		s.setFail(nil)
		after := r.commit(h, 0, 0)
		if after.Status != nfs3.OK || after.Verf == before {
			t.Errorf("after a failing %s: COMMIT %v, the verifier changed: %v", c.what, after.Status, after.Verf != before)
		}
		if again := r.commit(h, 0, 0); again.Verf != after.Verf {
			t.Errorf("after a failing %s: the verifier changed twice", c.what)
		}
	}
	s.setFail(unix.ENOSPC)
	wantStatus(t, "no space", r.commit(h, 0, 0).Status, nfs3.ErrNoSpc)
	s.setFail(unix.EDQUOT)
	wantStatus(t, "no quota", r.commit(h, 0, 0).Status, nfs3.ErrDQuot)
	s.setFail(nil)

	// And so does a restart.
	was := r.commit(h, 0, 0).Verf
	r.stop()
	r.start(nil)
	if now := r.commit(h, 0, 0); now.Status != nfs3.OK || now.Verf == was {
		t.Errorf("after a restart: %v, the verifier changed: %v", now.Status, now.Verf != was)
	}
}

func TestWrite(t *testing.T) {
	r := newEnv(t, nil)
	r.put("file", "")
	h := r.handle("file")
	for _, c := range []struct {
		off        uint64
		data, want string
		status     nfs3.Status
	}{
		{0, "hello", "hello", nfs3.OK},
		{3, "p!", "help!", nfs3.OK},
		{8, "z", "help!\x00\x00\x00z", nfs3.OK},
		{1 << 63, "x", "help!\x00\x00\x00z", nfs3.ErrFBig},
		{1<<63 - 2, "xyz", "help!\x00\x00\x00z", nfs3.ErrFBig},
		{1<<64 - 1, "x", "help!\x00\x00\x00z", nfs3.ErrFBig},
		{1<<64 - 1, "", "help!\x00\x00\x00z", nfs3.ErrFBig},
	} {
		res := r.write(h, c.off, c.data, nfs3.Unstable)
		wantStatus(t, "write "+c.data, res.Status, c.status)
		if got := r.content("file"); got != c.want {
			t.Errorf("%q at %d: the file is %q, want %q", c.data, c.off, got, c.want)
		}
		if res.Status == nfs3.OK && res.Count != uint32(len(c.data)) {
			t.Errorf("%q: %d bytes", c.data, res.Count)
		}
	}
	wantStatus(t, "COMMIT at 2^63", r.commit(h, 1<<63, 0).Status, nfs3.ErrInval)

	// The data may cross any number of slices of the stream.
	long := strings.Repeat("0123456789", 5000)
	var inline nfs3.WriteRes
	args := streamed{h, long}
	r.prepare(r.xid.Add(1), nfs3.Program, nfs3.Version, nfs3.ProcWrite, args, 7).send().wait().results(&inline)
	if got := r.content("file"); got != long || inline.Count != 50000 {
		t.Errorf("in many slices: %d bytes, %v", inline.Count, inline.Status)
	}
}

// streamed are arguments of WRITE with inline data.
type streamed struct {
	h    nfs3.Handle
	data string
}

// Encode writes the arguments.
func (a streamed) Encode(e *xdr.Encoder) {
	a.h.Encode(e)
	e.Uint64(0)
	e.Uint32(uint32(len(a.data)))
	e.Uint32(uint32(nfs3.Unstable))
	e.Opaque([]byte(a.data))
}

func TestWritePermissions(t *testing.T) {
	needRoot(t)
	r := newEnv(t, nil)
	r.put("file", "content")
	r.must(os.Chown(r.path("file"), 1001, 1001))
	r.must(unix.Chmod(r.path("file"), 0o6775))
	h := r.handle("file")
	wantStatus(t, "nobody's", r.as(1003, 1003).write(h, 0, "x", nfs3.Unstable).Status, nfs3.ErrAcces)
	if st := r.lstat("file"); st.Mode&0o7777 != 0o6775 {
		t.Errorf("a refused write changed the mode to %o", st.Mode)
	}
	wantStatus(t, "the group's", r.as(1003, 5, 1001).write(h, 0, "x", nfs3.Unstable).Status, nfs3.OK)
	if st := r.lstat("file"); st.Mode&0o7777 != 0o775 {
		t.Errorf("a write by somebody else left the mode %o", st.Mode)
	}
	r.must(unix.Chmod(r.path("file"), 0o4755))
	wantStatus(t, "root's", r.write(h, 0, "x", nfs3.Unstable).Status, nfs3.OK)
	if st := r.lstat("file"); st.Mode&0o7777 != 0o4755 {
		t.Errorf("a write by root left the mode %o", st.Mode)
	}
	// Truncation is a write.
	wantStatus(t, "somebody's truncation", r.as(1003, 1003).setattr(h, nfs3.SetAttrs{SetSize: true}).Status, nfs3.ErrAcces)
	wantStatus(t, "the owner's truncation", r.as(1001, 1001).setattr(h, nfs3.SetAttrs{SetSize: true}).Status, nfs3.OK)
	if st := r.lstat("file"); st.Mode&0o7777 != 0o755 || st.Size != 0 {
		t.Errorf("a truncation left the mode %o, the size %d", st.Mode, st.Size)
	}
	// The owner may write in any mode, as after an open before a chmod.
	r.must(unix.Chmod(r.path("file"), 0))
	owner := r.as(1001, 1001)
	wantStatus(t, "the owner's, mode 0", owner.write(h, 0, "owned", nfs3.Unstable).Status, nfs3.OK)
	if res, got := owner.read(h, 0, 10); got != "owned" {
		t.Errorf("the owner reads %q, %v", got, res.Status)
	}
	if res, _ := r.as(1003, 1001).read(h, 0, 10); res.Status != nfs3.ErrAcces {
		t.Errorf("the group reads: %v", res.Status)
	}
	// An executable program may be read, for paging.
	r.must(unix.Chmod(r.path("file"), 0o711))
	if res, got := r.as(1003, 1003).read(h, 0, 10); got != "owned" {
		t.Errorf("who may execute reads %q, %v", got, res.Status)
	}
}

func TestErrnos(t *testing.T) {
	for err, want := range map[error]nfs3.Status{
		nil: nfs3.OK, unix.ENOSPC: nfs3.ErrNoSpc, unix.EDQUOT: nfs3.ErrDQuot, unix.EROFS: nfs3.ErrROFS, unix.ESTALE: nfs3.ErrStale, unix.EAGAIN: nfs3.ErrJukebox,
		unix.EMFILE: nfs3.ErrJukebox, unix.EFBIG: nfs3.ErrFBig, unix.EMLINK: nfs3.ErrMLink, unix.EXDEV: nfs3.ErrXDev, unix.EBUSY: nfs3.ErrAcces, unix.ETXTBSY: nfs3.ErrAcces, unix.ENOTEMPTY: nfs3.ErrNotEmpty,
		unix.Errno(4095): nfs3.ErrIO, vfs.ErrBadHandle: nfs3.ErrBadHandle, errors.New("other"): nfs3.ErrIO, nfs3.ErrBadType: nfs3.ErrBadType,
	} {
		if got := status(err); got != want {
			t.Errorf("%v became %v, want %v", err, got, want)
		}
	}
}
