package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/prereq"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	testKey = []byte("0123456789abcdef0123456789abcdef")
	root    = &Cred{}
	alice   = &Cred{UID: 1001, GID: 1001}
	bob     = &Cred{UID: 1002, GID: 1002, Groups: []uint32{2000}}
)

func needRoot(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		prereq.Missing(t, "it has to be root")
	}
}

// modes runs a test with each available kind of handle.
func modes(t *testing.T, f func(t *testing.T, o Options)) {
	t.Helper()
	for _, indexOnly := range []bool{false, true} {
		if !indexOnly && os.Geteuid() != 0 && os.Getenv(childEnv) != "" {
			continue // the kernel's handles are root's
		}
		o := Options{Key: testKey, IndexOnly: indexOnly, Recheck: 1}
		name := "kernel"
		if indexOnly {
			name = "index"
		}
		t.Run(name, func(t *testing.T) {
			if fs := open(t, t.TempDir(), o); !indexOnly && fs.Info().Handles != "kernel" {
				prereq.Missing(t, "the kernel's handles cannot be had: %q", fs.Info().Notes)
			}
			f(t, o)
		})
	}
}

func open(t *testing.T, dir string, o Options) *FS {
	t.Helper()
	fs := reopened(t, dir, o)
	t.Cleanup(func() { shut(t, fs) })
	return fs
}

// reopened is open without a cleanup.
func reopened(t *testing.T, dir string, o Options) *FS {
	t.Helper()
	if o.Key == nil {
		o.Key = testKey
	}
	fs, err := Open(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	return fs
}

// shut closes fs, and fails if a node was not released.
func shut(t *testing.T, fs *FS) {
	t.Helper()
	for i := range fs.table.shard {
		s := &fs.table.shard[i]
		s.mu.Lock()
		nodes := slices.Collect(maps.Values(s.nodes))
		s.mu.Unlock()
		for _, n := range nodes {
			want := map[bool]int32{true: 1}[n == fs.root]
			for tries := 0; n.refs.Load() != want; tries++ { // the janitor may use it
				if time.Sleep(time.Millisecond); tries > 1000 {
					path, _ := pathOf(n.path, make([]byte, 4096))
					t.Errorf("%s has %d references at the end", path, n.refs.Load()-want)
					break
				}
			}
		}
	}
	if err := fs.Close(); err != nil {
		t.Error(err)
	}
	if left := fs.table.files.Load(); left != 0 {
		t.Errorf("%d files are counted as open after Close", left)
	}
}

func nameOf(t *testing.T, s string) *Name {
	t.Helper()
	var n Name
	if err := n.Set([]byte(s)); err != nil {
		t.Fatalf("name %q: %v", s, err)
	}
	return &n
}

// walk looks up a path beneath the root. The node is released at the end of the test at the latest.
func walk(t *testing.T, fs *FS, path string) *Node {
	t.Helper()
	n, err := tryWalk(t, fs, path, root)
	if err != nil {
		t.Fatalf("walk %s: %v", path, err)
	}
	return n
}

func tryWalk(t *testing.T, fs *FS, path string, c *Cred) (*Node, error) {
	t.Helper()
	n, err := fs.Resolve(fs.Root().Handle().Bytes())
	if err != nil {
		return nil, err
	}
	for _, s := range strings.Split(path, "/") {
		next, err := fs.Lookup(n, nameOf(t, s), c)
		n.Release()
		if err != nil {
			return nil, err
		}
		n = next
	}
	return n, nil
}

func handleOf(t *testing.T, fs *FS, path string) []byte {
	t.Helper()
	n := walk(t, fs, path)
	defer n.Release()
	return slices.Clone(n.Handle().Bytes())
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

// resolve is FS.Resolve, repeated while a search is running.
func resolve(fs *FS, h []byte) (n *Node, err error) {
	for {
		if n, err = fs.Resolve(h); !errors.Is(err, unix.EAGAIN) {
			return n, err
		}
	}
}

func read(t *testing.T, fs *FS, h []byte) (string, error) {
	t.Helper()
	n, err := resolve(fs, h)
	if err != nil {
		return "", err
	}
	defer n.Release()
	b := make([]byte, 1000)
	k, err := fs.Read(n, b, 0)
	return string(b[:k]), err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestSetKeys replaces keys while objects are open. Handles of all keys are accepted, handles of a
// removed key are not.
func TestSetKeys(t *testing.T) {
	modes(t, func(t *testing.T, o Options) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "file"), "")
		fs := open(t, dir, o)
		newKey := []byte("another key of file handles")
		accepted := func(when string, h []byte, want bool) {
			t.Helper()
			for _, cached := range []bool{true, false} {
				n, err := resolve(fs, h)
				if n != nil {
					n.Release()
				}
				if want && err != nil || !want && !errors.Is(err, ErrBadHandle) {
					t.Errorf("%s (cached: %v): %v, want it accepted: %v", when, cached, err, want)
				}
				forget(fs)
				// makes it cached again
				if _, err := read(t, fs, handleOf(t, fs, "file")); err != nil {
					t.Fatal(err)
				}
			}
		}
		old, oldRoot := handleOf(t, fs, "file"), slices.Clone(fs.Root().Handle().Bytes())
		for _, bad := range [][][]byte{nil, {newKey, newKey[:MinKey-1]}} {
			if err := fs.SetKeys(bad); err == nil {
				t.Errorf("%q are taken as keys", bad)
			}
		}
		if got := handleOf(t, fs, "file"); !bytes.Equal(got, old) {
			t.Errorf("%x, want %x as before", got, old)
		}
		if err := fs.SetKeys([][]byte{newKey, testKey}); err != nil {
			t.Fatal(err)
		}
		now, nowRoot := handleOf(t, fs, "file"), slices.Clone(fs.Root().Handle().Bytes())
		if bytes.Equal(now, old) || bytes.Equal(nowRoot, oldRoot) || !SameObject(now, old) || !SameObject(nowRoot, oldRoot) {
			t.Errorf("file %x, was %x; root %x, was %x", now, old, nowRoot, oldRoot)
		}
		if SameObject(now, nowRoot) {
			t.Error("the root and a file are the same object")
		}
		for when, h := range map[string][]byte{"old": old, "old root": oldRoot, "new": now, "new root": nowRoot} {
			accepted(when, h, true)
		}
		if err := fs.SetKeys([][]byte{newKey}); err != nil {
			t.Fatal(err)
		}
		if got := handleOf(t, fs, "file"); !bytes.Equal(got, now) {
			t.Errorf("%x, want %x as before", got, now)
		}
		accepted("a key that is gone", old, false)
		accepted("a key that is gone, the root", oldRoot, false)
		accepted("the key that is left", now, true)
	})
}

// forget closes all unused nodes of fs.
func forget(fs *FS) {
	for i := range fs.table.shard {
		s := &fs.table.shard[i]
		for _, n := range s.nodes {
			n.kill()
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
