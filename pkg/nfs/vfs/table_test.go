package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/prereq"
)

func TestFilesAreBounded(t *testing.T) {
	modes(t, func(t *testing.T, o Options) {
		const files, limit = 300, 40
		o.MaxFiles = limit
		dir := t.TempDir()
		fs := open(t, dir, o)
		var handles [][]byte
		for i := range files {
			name := fmt.Sprint("file-", i)
			write(t, filepath.Join(dir, name), name)
			h := handleOf(t, fs, name)
			if got, err := read(t, fs, h); got != name || err != nil {
				t.Fatalf("%s: %q, %v", name, got, err)
			}
			handles = append(handles, h)
			if n := fs.Files(); n > limit+3 { // nodes in use may exceed the bound
				t.Fatalf("%d files are open after %d", n, i)
			}
		}
		for i, h := range handles {
			if got, err := read(t, fs, h); got != fmt.Sprint("file-", i) || err != nil {
				t.Fatalf("file-%d: %q, %v", i, got, err)
			}
		}
		// All in use at once: above the bound, and nothing fails.
		var nodes []*Node
		for _, h := range handles[:100] {
			n, err := fs.Resolve(h)
			must(t, err)
			nodes = append(nodes, n)
		}
		for _, n := range nodes {
			n.Release()
		}
		_, _ = read(t, fs, handles[200])
		if n := fs.Files(); n > limit+3 {
			t.Errorf("%d files stay open", n)
		}
	})
}

// TestJanitor simulates clients that write and disappear.
func TestJanitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		syncs := 0
		fail := error(nil)
		o := Options{Sync: func(int, SyncKind) error {
			mu.Lock()
			defer mu.Unlock()
			syncs++
			return fail
		}}
		dir := t.TempDir()
		fs := reopened(t, dir, o)
		defer shut(t, fs)
		write(t, filepath.Join(dir, "file"), "content")
		write(t, filepath.Join(dir, "removed"), "content")
		h := handleOf(t, fs, "file")
		removed := walk(t, fs, "removed")
		_, err := fs.Read(removed, make([]byte, 10), 0)
		must(t, err)
		removed.Release()
		var w Write
		put := func() {
			n, err := fs.Resolve(h)
			must(t, err)
			_, err = w.Do(n, [][]byte{[]byte("x")}, 1, 0, root)
			must(t, err)
			n.Release()
		}
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return syncs
		}
		open := fs.Files()
		put()
		must(t, os.Remove(filepath.Join(dir, "removed")))
		time.Sleep(idleTimeout / 2)
		synctest.Wait()
		// without the removed file's two, and with the writer
		if got := fs.Files(); got != open-2+1 {
			t.Errorf("%d files are open, were %d", got, open)
		}
		if count() != 0 {
			t.Error("a fresh write was synced")
		}
		time.Sleep(2 * idleTimeout)
		synctest.Wait()
		if got := fs.Files(); got != open-2 || count() != 1 {
			t.Errorf("%d files are open, were %d; %d syncs", got, open, count())
		}
		if got, err := read(t, fs, h); got != "xontent" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		// Lost data are a reason for clients to write again.
		put()
		mu.Lock()
		fail = unix.EIO
		mu.Unlock()
		time.Sleep(3 * idleTimeout)
		synctest.Wait()
		if fs.Verifier() != w.Verifier+1 || count() != 2 {
			t.Errorf("the verifier went from %x to %x, %d syncs", w.Verifier, fs.Verifier(), count())
		}
	})
}

// TestUnstableWritesAreNotForgotten has more files with unstable writes than may be open: each is
// synced before it is closed.
func TestUnstableWritesAreNotForgotten(t *testing.T) {
	const files = 100
	var syncs atomic.Int64
	dir := t.TempDir()
	fs := open(t, dir, Options{MaxFiles: 20, Sync: func(int, SyncKind) error { syncs.Add(1); return nil }})
	var w Write
	for i := range files {
		name := fmt.Sprint("file-", i)
		write(t, filepath.Join(dir, name), "")
		n := walk(t, fs, name)
		_, err := w.Do(n, [][]byte{[]byte(name)}, len(name), 0, root)
		must(t, err)
		n.Release()
	}
	for deadline := time.Now().Add(10 * time.Second); fs.Files() > 20; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d files stay open", fs.Files())
		}
		fs.table.makeRoom(0) // as by another open
	}
	open := 0
	for i := range fs.table.shard {
		s := &fs.table.shard[i]
		s.mu.Lock()
		for _, n := range s.nodes {
			if n.written.Load() > 0 && n.dirty() {
				open++
			}
		}
		s.mu.Unlock()
	}
	if got := int(syncs.Load()) + open; got < files {
		t.Errorf("%d files were synced, %d are open with unstable writes: %d are missing", syncs.Load(), open, files-got)
	}
}

// TestSearch resolves handles without a remembered place.
func TestSearch(t *testing.T) {
	dir := t.TempDir()
	o := Options{IndexOnly: true, Recheck: 1}
	var handles [][]byte
	fs := reopened(t, dir, o)
	for i := range 50 {
		sub := filepath.Join(dir, fmt.Sprint(i), "deep", "er")
		must(t, os.MkdirAll(sub, 0o755))
		write(t, filepath.Join(sub, "file"), fmt.Sprint(i))
		handles = append(handles, handleOf(t, fs, fmt.Sprint(i, "/deep/er/file")))
	}
	gone := handleOf(t, fs, "7/deep")
	shut(t, fs)
	must(t, os.RemoveAll(filepath.Join(dir, "7")))
	fs = open(t, dir, o)
	var wg sync.WaitGroup
	for i, h := range handles {
		wg.Go(func() {
			got, err := read(t, fs, h)
			if i == 7 {
				wantErr(t, "a removed file", err, unix.ESTALE)
			} else if got != fmt.Sprint(i) || err != nil {
				t.Errorf("file %d: %q, %v", i, got, err)
			}
		})
	}
	wg.Wait()
	for range 2 { // the second time without a search
		_, err := resolve(fs, gone)
		wantErr(t, "a removed directory", err, unix.ESTALE)
	}
	if len(fs.locator.wanted) != 0 {
		t.Errorf("%d objects are still wanted", len(fs.locator.wanted))
	}
	// Places follow a rename through the file system, directories included.
	var w Wcc
	must(t, fs.Rename(fs.Root(), nameOf(t, "3"), fs.Root(), nameOf(t, "three"), root, &w, &w))
	forget(fs)
	before := fs.Searches()
	if got, err := read(t, fs, handles[3]); got != "3" || err != nil {
		t.Errorf("in a renamed directory: %q, %v", got, err)
	}
	if n := fs.Searches(); n != before || n == 0 {
		t.Errorf("a renamed directory was searched: %d searches, %d before", n, before)
	}
}

// TestIdentitiesDoNotLeak changes threads' identities while others make files as the process.
func TestIdentitiesDoNotLeak(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o777))
	fs := open(t, dir, Options{Sync: func(int, SyncKind) error { return nil }})
	if !fs.Info().Identities {
		prereq.Missing(t, "the process cannot act as others: %q", fs.Info().Notes)
	}
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			c := &Cred{UID: uint32(1001 + k), GID: uint32(2001 + k), Groups: []uint32{3000, uint32(3001 + k)}}
			for i := range 100 {
				var w Wcc
				n, err := fs.Create(fs.Root(), nameOf(t, fmt.Sprint("user-", k, "-", i)), Guarded, [8]byte{}, &Attrs{}, c, &w)
				if err != nil {
					t.Error(err)
					return
				}
				var st Stat
				if err := n.Stat(&st); err != nil || st.Uid != c.UID || st.Gid != c.GID {
					t.Errorf("made by %d: %d %d, %v", c.UID, st.Uid, st.Gid, err)
				}
				n.Release()
			}
		})
		wg.Go(func() {
			for i := range 100 {
				name := filepath.Join(dir, fmt.Sprint("root-", k, "-", i))
				var st Stat
				if err := os.WriteFile(name, nil, 0o600); err != nil || unix.Stat(name, &st) != nil || st.Uid != 0 || st.Gid != 0 {
					t.Errorf("made by the process: %v %d %d", err, st.Uid, st.Gid)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestPermissionsOfGroups(t *testing.T) {
	d := identities{able: true, override: true}
	st := Stat{Mode: unix.S_IFREG | 0o751, Uid: 10, Gid: 20}
	for _, c := range []struct {
		cred Cred
		want uint32
	}{
		{Cred{UID: 10, GID: 5}, 7}, {Cred{UID: 11, GID: 20}, 5}, {Cred{UID: 11, GID: 5, Groups: []uint32{7, 20}}, 5}, {Cred{UID: 11, GID: 5}, 1}, {Cred{}, 7},
	} {
		if got := d.byMode(&st, &c.cred); got != c.want {
			t.Errorf("%+v may %o, want %o", c.cred, got, c.want)
		}
	}
}

// TestACLsAreLookedUpOnce, as long as the object's ctime stays.
func TestACLsAreLookedUpOnce(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "")
	fs := open(t, dir, Options{})
	if !fs.acls {
		prereq.Missing(t, "the file system of temporary files has no ACLs")
	}
	n := walk(t, fs, "file")
	defer n.Release()
	var st Stat
	must(t, n.Stat(&st))
	if _, known := fs.Permit(n, &st, root, MayRead); known {
		t.Error("the kernel was not asked, and nobody else")
	}
	if _, err := fs.PermitBlocking(n, &st, root, MayRead); err != nil {
		t.Error(err)
	}
	if _, known := fs.Permit(n, &st, root, MayRead); !known {
		t.Error("asked once, and not known")
	}
	time.Sleep(time.Duration(2 * coarse))
	fs.Permit(n, &st, root, MayRead)
	if n.acl.Load() == 0 {
		t.Error("what is known of an old file is not kept")
	}
}

func TestLoadKey(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	var wg sync.WaitGroup
	keys := make([][]byte, 8)
	for i := range keys {
		wg.Go(func() {
			var err error
			if keys[i], err = LoadKey(path); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, k := range keys {
		if len(k) != 32 || !slices.Equal(k, keys[0]) {
			t.Errorf("keys %x and %x", k, keys[0])
		}
	}
	left, err := os.ReadDir(dir)
	must(t, err)
	info, err := os.Stat(path)
	must(t, err)
	if len(left) != 1 || info.Mode() != 0o600 {
		t.Errorf("%d files, mode %v", len(left), info.Mode())
	}
	if _, err := LoadKey(filepath.Join(dir, "no/such/directory")); err == nil {
		t.Error("a key in no directory")
	}
}

func TestOptions(t *testing.T) {
	dir := t.TempDir()
	for what, o := range map[string]Options{"no key": {}, "short key": {Key: []byte("short")}, "files": {Key: testKey, MaxFiles: -1}, "recheck": {Key: testKey, Recheck: -1}} {
		if fs, err := Open(dir, o); err == nil {
			fs.Close()
			t.Errorf("%s: no error", what)
		}
	}
	write(t, filepath.Join(dir, "file"), "")
	for _, path := range []string{filepath.Join(dir, "file"), filepath.Join(dir, "nothing")} {
		if fs, err := Open(path, Options{Key: testKey}); err == nil {
			fs.Close()
			t.Errorf("%s: no error", path)
		}
	}
}

// TestTogether runs everything at once, for the race detector and the reference counts.
func TestTogether(t *testing.T) {
	modes(t, func(t *testing.T, o Options) {
		o.MaxFiles = 30
		o.Sync = func(int, SyncKind) error { return nil }
		dir := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(dir, "d"), 0o777))
		fs := open(t, dir, o)
		var wg sync.WaitGroup
		for k := range 6 {
			wg.Go(func() {
				var w, w2 Wcc
				var write Write
				for i := range 60 {
					name, other := nameOf(t, fmt.Sprint("f", (k+i)%5)), nameOf(t, fmt.Sprint("f", i%5))
					d, err := tryWalk(t, fs, "d", root)
					if err != nil {
						t.Error(err)
						return
					}
					if n, err := fs.Create(d, name, Shared, [8]byte{}, &Attrs{}, root, &w); err == nil {
						_, _ = write.Do(n, [][]byte{[]byte("data")}, 4, uint64(i), root)
						_ = n.Sync(false)
						_, _ = fs.Read(n, make([]byte, 10), 0)
						n.Release()
					}
					_ = fs.Rename(d, name, fs.Root(), other, root, &w, &w2)
					_ = fs.Rename(fs.Root(), other, d, name, root, &w, &w2)
					if n, err := fs.Lookup(d, name, root); err == nil {
						_ = fs.Link(n, fs.Root(), nameOf(t, fmt.Sprint("link", i%3)), root, &w)
						n.Release()
					}
					_ = fs.Remove(d, name, root, &w)
					_ = fs.Remove(fs.Root(), nameOf(t, fmt.Sprint("link", i%3)), root, &w)
					_, _ = fs.ReadDir(d, 0, make([]byte, 4096))
					d.Release()
				}
			})
		}
		wg.Wait()
	})
}

// TestReleaseAmongOthers finds and kills a node between the two steps of its release: the finder
// can still use it.
func TestReleaseAmongOthers(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "file"), "content")
	fs := open(t, dir, Options{})
	n := walk(t, fs, "file")
	h := slices.Clone(n.Handle().Bytes())
	if n.refs.Add(-1) != 0 {
		t.Fatal("somebody else uses the node")
	}
	found, err := fs.Resolve(h)
	must(t, err)
	if found != n {
		t.Fatal("the node was not found again")
	}
	fs.table.kill(found)
	n.closeIfUnused()
	b := make([]byte, 10)
	if k, err := fs.Read(found, b, 0); string(b[:k]) != "content" || err != nil {
		t.Errorf("%q, %v", b[:k], err)
	}
	found.Release()
	if !n.closed.Load() {
		t.Error("nobody uses the node, and it is not closed")
	}
}
