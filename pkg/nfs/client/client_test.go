package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

func TestProcedures(t *testing.T) {
	eachEnv(t, func(t *testing.T, e *env) {
		mustNot(t, e.Null(ctx))
		f, err := e.Create(ctx, e.root, "f", nfs3.Guarded, nfs3.SetAttrs{SetMode: true, Mode: 0o640}, nfs3.Verifier{})
		mustNot(t, err)
		if !f.Attr.Present || f.Attr.Attr.Mode != 0o640 {
			t.Errorf("created %+v", f)
		}
		_, err = e.Create(ctx, e.root, "f", nfs3.Guarded, nfs3.SetAttrs{}, nfs3.Verifier{})
		mustBe(t, err, fs.ErrExist)

		mustNot(t, e.SetAttr(ctx, f.Handle, nfs3.SetAttrs{SetUID: true, UID: 77, SetSize: true, Size: 9}, nil))
		a, err := e.GetAttr(ctx, f.Handle)
		mustNot(t, err)
		if a.UID != 77 || a.Size != 9 || a.Type != nfs3.Reg {
			t.Errorf("attributes %+v", a)
		}
		mustBe(t, e.SetAttr(ctx, f.Handle, nfs3.SetAttrs{SetSize: true}, &nfs3.Time{Sec: 12345}), nfs3.ErrNotSync)
		mustNot(t, e.SetAttr(ctx, f.Handle, nfs3.SetAttrs{SetSize: true}, &a.Ctime))

		bits, err := e.Access(ctx, f.Handle, nfs3.AccessRead|nfs3.AccessModify)
		if err != nil || bits != nfs3.AccessRead {
			t.Errorf("access %#x, %v", bits, err)
		}
		d, err := e.Mkdir(ctx, e.root, "d", nfs3.SetAttrs{})
		mustNot(t, err)
		_, err = e.Mknod(ctx, d.Handle, "fifo", nfs3.FIFO, nfs3.SetAttrs{}, nfs3.SpecData{})
		mustNot(t, err)
		target := strings.Repeat("t/", 700)
		l, err := e.Symlink(ctx, d.Handle, "l", target, nfs3.SetAttrs{})
		mustNot(t, err)
		if got, err := e.Readlink(ctx, l.Handle); err != nil || got != target {
			t.Errorf("link to %q, %v", got, err)
		}
		_, err = e.Readlink(ctx, f.Handle)
		mustBe(t, err, nfs3.ErrInval)
		mustNot(t, e.Link(ctx, f.Handle, d.Handle, "f2"))
		mustNot(t, e.Rename(ctx, e.root, "f", d.Handle, "f3"))
		_, err = e.Lookup(ctx, e.root, "f")
		mustBe(t, err, fs.ErrNotExist)
		mustBe(t, e.Rmdir(ctx, e.root, "d"), unix.ENOTEMPTY)
		for _, name := range []string{"f2", "f3", "l", "fifo"} {
			mustNot(t, e.Remove(ctx, d.Handle, name))
		}
		mustNot(t, e.Rmdir(ctx, e.root, "d"))
		st, err := e.FSStat(ctx, e.root)
		if err != nil || st.AvailBytes != 500 {
			t.Errorf("%+v, %v", st, err)
		}
		pc, err := e.PathConf(ctx, e.root)
		if err != nil || pc.NameMax != 255 || !pc.CasePreserving {
			t.Errorf("%+v, %v", pc, err)
		}
		mustNot(t, e.Unmount(ctx, "/export"))
	})
}

func TestErrors(t *testing.T) {
	eachEnv(t, func(t *testing.T, e *env) {
		_, err := e.Mount(ctx, "/nowhere")
		if mustBe(t, err, fs.ErrNotExist); err.Error() != "MNT /nowhere: no such file or directory (NFS3ERR_NOENT)" {
			t.Errorf("%q", err)
		}
		_, err = e.Lookup(ctx, e.root, "x")
		if mustBe(t, err, nfs3.ErrNoEnt); err.Error() != "LOOKUP: no such file or directory (NFS3ERR_NOENT)" {
			t.Errorf("%q", err)
		}
		_, err = e.Lookup(ctx, e.root, strings.Repeat("n", 256))
		mustBe(t, err, unix.ENAMETOOLONG)
		_, err = e.Lookup(ctx, e.root, strings.Repeat("n", 5000)) // not even sent
		mustBe(t, err, unix.ENAMETOOLONG)
		_, err = e.GetAttr(ctx, handleOf(99))
		mustBe(t, err, nfs3.ErrStale)
		_, err = e.GetAttr(ctx, nil)
		mustBe(t, err, nfs3.ErrBadHandle)
		_, err = e.Mount(ctx, "/"+strings.Repeat("n", 1024))
		if err == nil || err.Error() != "MNT: the path has 1025 bytes, MOUNT allows 1024" {
			t.Error(err)
		}
		_, err = e.GetAttr(ctx, make(nfs3.Handle, 65))
		var status *oncrpc.StatusError
		if !errors.As(err, &status) || status.Status.Accept != oncrpc.GarbageArgs {
			t.Error(err)
		}
	})
}

// A server without the program and a failing server cause different errors.
func TestNoMount(t *testing.T) {
	e := newEnv(t, true)
	none := newLoop(t, &oncrpc.Mux{}, e.pool, true)
	c := client.New(client.Config{Requester: e.loop, Mount: none, Pool: e.pool})
	_, err := c.Mount(ctx, "/export")
	var status *oncrpc.StatusError
	if !errors.As(err, &status) || status.Status.Accept != oncrpc.ProgUnavail {
		t.Fatal(err)
	}
}

func TestCancel(t *testing.T) {
	eachEnv(t, func(t *testing.T, e *env) {
		f, err := e.Create(ctx, e.root, "f", nfs3.Guarded, nfs3.SetAttrs{}, nfs3.Verifier{})
		mustNot(t, err)
		mustNot(t, e.WriteAt(ctx, f.Handle, make([]byte, 100_000), 0, nfs3.Unstable))
		e.fs.mu.Lock()
		e.fs.silent[nfs3.ProcGetAttr], e.fs.silent[nfs3.ProcRead], e.fs.silent[nfs3.ProcWrite] = true, true, true
		e.fs.mu.Unlock()
		ctx, cancel := context.WithTimeout(ctx, time.Millisecond)
		defer cancel()
		_, err = e.GetAttr(ctx, f.Handle)
		mustBe(t, err, context.DeadlineExceeded)
		_, err = e.ReadAt(ctx, f.Handle, make([]byte, 100_000), 0)
		mustBe(t, err, context.DeadlineExceeded)
		mustBe(t, e.WriteAt(ctx, f.Handle, make([]byte, 100_000), 0, nfs3.Unstable), context.DeadlineExceeded)
	})
}

// TestJukebox: calls are repeated while the server answers NFS3ERR_JUKEBOX, until the context ends.
func TestJukebox(t *testing.T) {
	for _, place := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			e := newEnv(t, place)
			f, err := e.Create(ctx, e.root, "f", nfs3.Guarded, nfs3.SetAttrs{}, nfs3.Verifier{})
			mustNot(t, err)
			busy := func(n int, procedures ...uint32) {
				e.fs.mu.Lock()
				defer e.fs.mu.Unlock()
				for _, p := range procedures {
					e.fs.busy[p] = n
				}
			}
			busy(3, nfs3.ProcGetAttr, nfs3.ProcRead, nfs3.ProcWrite, nfs3.ProcCommit, nfs3.ProcRemove)
			began := time.Now()
			_, err = e.GetAttr(ctx, f.Handle)
			mustNot(t, err)
			if d := time.Since(began); d != 700*time.Millisecond {
				t.Errorf("three repetitions took %v", d)
			}
			data := randomBytes(100_000)
			mustNot(t, e.WriteAt(ctx, f.Handle, data, 0, nfs3.Unstable))
			got := make([]byte, len(data))
			_, err = e.ReadAt(ctx, f.Handle, got, 0)
			mustNot(t, err)
			if !bytes.Equal(got, data) {
				t.Error("other data were read")
			}
			mustNot(t, e.Remove(ctx, e.root, "f"))

			var waited []time.Duration
			patient := client.New(client.Config{
				Requester: e.loop, Pool: e.pool,
				OnDelay: func(status error, d time.Duration) {
					mustBe(t, status, nfs3.ErrJukebox)
					waited = append(waited, d)
				},
			})
			busy(3, nfs3.ProcGetAttr)
			_, err = patient.GetAttr(ctx, e.root)
			mustNot(t, err)
			if want := []time.Duration{0, 100 * time.Millisecond, 300 * time.Millisecond}; !slices.Equal(waited, want) {
				t.Errorf("OnDelay was called after %v, want %v", waited, want)
			}

			busy(1000, nfs3.ProcGetAttr)
			ctx, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			_, err = e.GetAttr(ctx, e.root)
			mustBe(t, err, nfs3.ErrJukebox)
			e.fs.mu.Lock()
			if n := 1000 - e.fs.busy[nfs3.ProcGetAttr]; n < 12 || n > 20 { // one in 5 s, in the end
				t.Errorf("%d calls in a minute", n)
			}
			e.fs.mu.Unlock()
		})
	}
}

// TestResolve: an entry comes with its directory and name, which say where a missing one would be.
func TestResolve(t *testing.T) {
	eachEnv(t, func(t *testing.T, e *env) {
		d, err := e.Mkdir(ctx, e.root, "d", nfs3.SetAttrs{})
		mustNot(t, err)
		f, err := e.Create(ctx, d.Handle, "f", nfs3.Unchecked, nfs3.SetAttrs{}, nfs3.Verifier{})
		mustNot(t, err)
		for name, target := range map[string]string{"to-f": "d/f", "to-d": "/d", "dangling": "d/none", "lost": "none/none"} {
			_, err := e.Symlink(ctx, e.root, name, target, nfs3.SetAttrs{})
			mustNot(t, err)
		}
		for _, c := range []struct {
			path   string
			dir    nfs3.Handle
			name   string
			object nfs3.Handle
			err    error
		}{
			{"/d/f", d.Handle, "f", f.Handle, nil},
			{"to-f", d.Handle, "f", f.Handle, nil},
			{"to-d/f", d.Handle, "f", f.Handle, nil},
			{"to-d", e.root, "d", d.Handle, nil},
			{"to-d/", e.root, "d", d.Handle, nil},
			{"d/new", d.Handle, "new", nil, fs.ErrNotExist},
			{"dangling", d.Handle, "none", nil, fs.ErrNotExist},
			{"/", nil, "", e.root, nil},
			{"none/new", nil, "", nil, fs.ErrNotExist},
			{"new/", nil, "", nil, fs.ErrNotExist},
			{"lost", nil, "", nil, fs.ErrNotExist},
			{"dangling/f", nil, "", nil, fs.ErrNotExist},
			{"d/f/x", nil, "", nil, unix.ENOTDIR},
		} {
			dir, name, o, err := e.Resolve(ctx, e.root, c.path)
			if !bytes.Equal(dir.Handle, c.dir) || name != c.name || !bytes.Equal(o.Handle, c.object) || !errors.Is(err, c.err) {
				t.Errorf("%s: %x, %q, %x, %v", c.path, dir.Handle, name, o.Handle, err)
			}
		}
	})
}

func randomBytes(n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b)
	return b
}

func TestReadWrite(t *testing.T) {
	eachEnv(t, func(t *testing.T, e *env) {
		f, err := e.Create(ctx, e.root, "f", nfs3.Guarded, nfs3.SetAttrs{}, nfs3.Verifier{})
		mustNot(t, err)
		for _, stable := range []nfs3.Stability{nfs3.Unstable, nfs3.DataSync, nfs3.FileSync} {
			for _, n := range []int{1, 3, 4, 8191, 8192, 8193, 100_001} {
				for _, offset := range []uint64{0, 5, 8192} {
					for _, short := range []int{0, 1000} {
						e.fs.mu.Lock()
						e.fs.shortRead, e.fs.shortWrite, e.fs.commits, e.fs.stableWrites = short, short, 0, 0
						e.fs.mu.Unlock()
						mustNot(t, e.SetAttr(ctx, f.Handle, nfs3.SetAttrs{SetSize: true}, nil))
						data := randomBytes(n)
						mustNot(t, e.WriteAt(ctx, f.Handle, data, offset, stable))
						e.fs.mu.Lock()
						commits := e.fs.commits
						e.fs.mu.Unlock()
						if (commits == 1) != (stable == nfs3.Unstable) {
							t.Errorf("%v: %d COMMITs", stable, commits)
						}
						got := make([]byte, n+10)
						m, err := e.ReadAt(ctx, f.Handle, got, offset)
						if !errors.Is(err, io.EOF) || m != n || !bytes.Equal(got[:n], data) {
							t.Fatalf("%d bytes at %d, short %d: read %d, %v, equal %v", n, offset, short, m, err, bytes.Equal(got[:m], data[:m]))
						}
					}
				}
			}
		}
		if n, err := e.ReadAt(ctx, f.Handle, nil, 0); n != 0 || err != nil {
			t.Error(n, err)
		}
		_, err = e.ReadAt(ctx, f.Handle, make([]byte, 8), 1<<63-4)
		if err == nil || !strings.Contains(err.Error(), "end behind the largest offset") {
			t.Error(err)
		}
		// Errors of a sink and a source are returned unchanged.
		_, err = e.Download(ctx, f.Handle, 0, 100_000, func([][]byte) error { return io.ErrShortWrite })
		mustBe(t, err, io.ErrShortWrite)
		err = e.Upload(ctx, f.Handle, strings.NewReader("short"), 0, 100_000, client.UploadOptions{})
		mustBe(t, err, io.ErrUnexpectedEOF)
	})
}

// Read and Write of a pool's buffer: one call each.
func TestBuffers(t *testing.T) {
	eachEnv(t, func(t *testing.T, e *env) {
		f, err := e.Create(ctx, e.root, "f", nfs3.Guarded, nfs3.SetAttrs{}, nfs3.Verifier{})
		mustNot(t, err)
		b, err := e.pool.Get(5001)
		mustNot(t, err)
		copy(b.B, randomBytes(5001))
		res, err := e.Write(ctx, f.Handle, 3, b, nfs3.DataSync)
		if err != nil || res.Count != 5001 || res.Committed != nfs3.DataSync {
			t.Errorf("%+v, %v", res, err)
		}
		if _, err := e.Commit(ctx, f.Handle, 0, 0); err != nil {
			t.Error(err)
		}
		in, err := e.pool.Get(6000)
		mustNot(t, err)
		n, eof, err := e.Read(ctx, f.Handle, 3, in)
		if err != nil || n != 5001 || !eof || !bytes.Equal(in.B[:n], b.B) {
			t.Errorf("%d bytes, eof %v, %v", n, eof, err)
		}
		b.B = b.B[:0]
		if _, err := e.Write(ctx, f.Handle, 0, b, nfs3.Unstable); err == nil || err.Error() != "WRITE: 0 bytes, must be 1 to 1048576" {
			t.Error(err)
		}
		b.Release()
		in.Release()
	})
}

// A server that restarts loses uncommitted data: the client writes them again.
func TestRewrite(t *testing.T) {
	for after := 1; after <= 14; after++ {
		e := newEnv(t, true)
		f, err := e.Create(ctx, e.root, "f", nfs3.Guarded, nfs3.SetAttrs{}, nfs3.Verifier{})
		mustNot(t, err)
		e.fs.mu.Lock()
		e.fs.restartAfter = after
		e.fs.mu.Unlock()
		data := randomBytes(100_000) // 13 WRITEs
		var progress int64
		err = e.Upload(ctx, f.Handle, bytes.NewReader(data), 0, uint64(len(data)), client.UploadOptions{Progress: func(n int64) { progress += n }})
		mustNot(t, err)
		if progress != int64(len(data)) {
			t.Errorf("after %d: progress %d", after, progress)
		}
		e.loop.serving.Wait()
		got := e.fs.files[2].committed
		if !bytes.Equal(got, data) {
			t.Fatalf("after %d: %d bytes are committed, and other ones", after, len(got))
		}
	}
	e := newEnv(t, true)
	e.fs.restartEvery = true
	f, err := e.Create(ctx, e.root, "f", nfs3.Guarded, nfs3.SetAttrs{}, nfs3.Verifier{})
	mustNot(t, err)
	err = e.WriteAt(ctx, f.Handle, make([]byte, 100_000), 0, nfs3.Unstable)
	if err == nil || !strings.Contains(err.Error(), "its write verifier keeps changing") {
		t.Fatal(err)
	}
}

func TestReadDirPlus(t *testing.T) {
	eachEnv(t, func(t *testing.T, e *env) {
		want := map[string]bool{}
		for i := range 300 {
			name := fmt.Sprintf("file with a rather long name %03d", i)
			_, err := e.Create(ctx, e.root, name, nfs3.Guarded, nfs3.SetAttrs{}, nfs3.Verifier{})
			mustNot(t, err)
			want[name] = true
		}
		list := func() (n int, err error) {
			for entry, err := range e.ReadDirPlus(ctx, e.root) {
				if err != nil {
					return n, err
				}
				if n++; !want[entry.Name] {
					t.Fatalf("entry %q", entry.Name)
				}
				if entry.Handle != nil && !bytes.Equal(entry.Handle, handleOf(entry.FileID)) {
					t.Fatalf("%q has handle %x", entry.Name, entry.Handle)
				}
			}
			return n, nil
		}
		for _, plain := range []bool{false, true} {
			e.fs.noPlus = plain
			if n, err := list(); err != nil || n != len(want) {
				t.Errorf("plain %v: %d entries, %v", plain, n, err)
			}
		}
		for _, err := range e.ReadDirPlus(ctx, e.root) {
			mustNot(t, err)
			break // an iteration may stop early
		}
		e.fs.stuckList = true
		if _, err := list(); err == nil || !strings.Contains(err.Error(), "is stuck at cookie 300") {
			t.Error(err)
		}
		_, err := e.Lookup(ctx, e.root, "file with a rather long name 000")
		mustNot(t, err)
		for _, err := range e.ReadDirPlus(ctx, handleOf(2)) {
			mustBe(t, err, unix.ENOTDIR)
		}
	})
}

func TestWalk(t *testing.T) {
	for _, bare := range []bool{false, true} { // whether the server omits all optional fields
		eachEnv(t, func(t *testing.T, e *env) {
			e.fs.noAttrs, e.fs.noHandles = bare, bare
			mkdir := func(dir nfs3.Handle, name string) nfs3.Handle {
				t.Helper()
				o, err := e.Mkdir(ctx, dir, name, nfs3.SetAttrs{})
				mustNot(t, err)
				return o.Handle
			}
			link := func(dir nfs3.Handle, name, target string) {
				t.Helper()
				_, err := e.Symlink(ctx, dir, name, target, nfs3.SetAttrs{})
				mustNot(t, err)
			}
			a := mkdir(e.root, "a")
			b := mkdir(a, "b")
			f, err := e.Create(ctx, b, "f", nfs3.Unchecked, nfs3.SetAttrs{}, nfs3.Verifier{})
			mustNot(t, err)
			link(a, "to-b", "b")
			link(e.root, "deep", "a/to-b")
			link(b, "up", "../..")
			link(b, "abs", "/a/b/f")
			link(e.root, "loop", "loop2")
			link(e.root, "loop2", "loop")
			link(e.root, "dangling", "a/none")
			for _, c := range []struct {
				path   string
				follow bool
				want   nfs3.Handle
			}{
				{"", true, e.root}, {"/", true, e.root}, {".", true, e.root}, {"..", true, e.root}, {"/../../a/..", true, e.root},
				{"a", true, a}, {"/a/", true, a}, {"a//b", true, b}, {"a/./b", true, b}, {"a/b/../b/f", true, f.Handle},
				{"deep", true, b}, {"deep/f", false, f.Handle}, {"deep/..", true, a}, {"deep/", false, b},
				{"a/b/up", true, e.root}, {"a/b/abs", true, f.Handle}, {"a/b/up/a", true, a},
			} {
				o, err := e.Walk(ctx, e.root, c.path, c.follow)
				if err != nil || !bytes.Equal(o.Handle, c.want) || !o.Attr.Present {
					t.Errorf("%q: %x, %v, must be %x", c.path, o.Handle, err, c.want)
				}
			}
			o, err := e.Walk(ctx, e.root, "deep", false)
			if err != nil || o.Attr.Attr.Type != nfs3.Lnk {
				t.Errorf("%+v, %v", o, err)
			}
			for path, want := range map[string]error{"none": fs.ErrNotExist, "a/none/x": fs.ErrNotExist, "a/b/f/x": unix.ENOTDIR, "loop": unix.ELOOP, "dangling": fs.ErrNotExist} {
				_, err := e.Walk(ctx, e.root, path, true)
				mustBe(t, err, want)
			}
			_, err = e.Walk(ctx, e.root, "a/none/x", true)
			if got := err.Error(); got != "walk /a/none: LOOKUP: no such file or directory (NFS3ERR_NOENT)" {
				t.Errorf("%q", got)
			}
			dir, name, err := e.WalkParent(ctx, e.root, "/deep/new")
			if err != nil || name != "new" || !bytes.Equal(dir.Handle, b) {
				t.Errorf("%x %q %v", dir.Handle, name, err)
			}
			dir, name, err = e.WalkParent(ctx, e.root, "top/")
			if err != nil || name != "top" || !bytes.Equal(dir.Handle, e.root) {
				t.Errorf("%x %q %v", dir.Handle, name, err)
			}
			for _, path := range []string{"", "/", "a/..", "."} {
				_, _, err := e.WalkParent(ctx, e.root, path)
				mustBe(t, err, unix.EINVAL)
			}
		})
	}
}
