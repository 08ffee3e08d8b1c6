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

func TestHandlesSurviveRestart(t *testing.T) {
	modes(t, func(t *testing.T, o Options) {
		dir := t.TempDir()
		must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
		write(t, filepath.Join(dir, "a/b/file"), "content")
		must(t, os.Symlink("file", filepath.Join(dir, "a/b/link")))
		fs := reopened(t, dir, o)
		file, sub, link := handleOf(t, fs, "a/b/file"), handleOf(t, fs, "a/b"), handleOf(t, fs, "a/b/link")
		rootHandle := slices.Clone(fs.Root().Handle().Bytes())
		shut(t, fs)

		// Renamed while it was not served.
		must(t, os.Rename(filepath.Join(dir, "a/b/file"), filepath.Join(dir, "elsewhere")))
		fs = open(t, dir, o)
		if !bytes.Equal(rootHandle, fs.Root().Handle().Bytes()) {
			t.Error("the root has another handle")
		}
		if got, err := read(t, fs, file); got != "content" || err != nil {
			t.Errorf("file: %q, %v", got, err)
		}
		for what, h := range map[string][]byte{"directory": sub, "link": link} {
			n, err := resolve(fs, h)
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			n.Release()
		}
		if again := handleOf(t, fs, "elsewhere"); !bytes.Equal(again, file) {
			t.Error("a renamed file has another handle")
		}
	})
}

func TestHandlesWithoutTimesOfBirth(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
	write(t, filepath.Join(dir, "sub/file"), "content")
	o := Options{IndexOnly: true, Recheck: 1, noBirth: true}
	fs := reopened(t, dir, o)
	file := handleOf(t, fs, "sub/file")
	rootHandle := slices.Clone(fs.Root().Handle().Bytes())
	forget(fs)
	if got, err := read(t, fs, file); got != "content" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	for _, path := range []string{".", "sub/.."} {
		if got := handleOf(t, fs, path); !bytes.Equal(got, rootHandle) {
			t.Errorf("%s is not the root", path)
		}
	}
	shut(t, fs)
	fs = open(t, dir, o)
	_, err := read(t, fs, file)
	wantErr(t, "a handle from before the restart", err, unix.ESTALE)
	n, err := resolve(fs, rootHandle)
	must(t, err)
	if n != fs.Root() {
		t.Error("the root's handle leads elsewhere after a restart")
	}
	n.Release()
	if got := handleOf(t, fs, "sub/file"); bytes.Equal(got, file) {
		t.Error("a handle is the same after a restart, though the file could be another one")
	}
}

func TestHandlesAreSigned(t *testing.T) {
	modes(t, func(t *testing.T, o Options) {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "file"), "")
		fs := open(t, dir, o)
		good := handleOf(t, fs, "file")
		bad := map[string][]byte{"empty": {}, "nil": nil, "zeros": make([]byte, 64), "short": good[:len(good)-1],
			"long": append(slices.Clone(good), 0), "too long": append(slices.Clone(good), make([]byte, 64)...), "no tag": good[:len(good)-tagLen]}
		for i := range good {
			b := slices.Clone(good)
			b[i] ^= 0x10
			bad[fmt.Sprintf("byte %d changed", i)] = b
		}
		foreignKey := reopened(t, dir, Options{Key: []byte("another key of file handles"), IndexOnly: o.IndexOnly})
		bad["of another key"] = handleOf(t, foreignKey, "file")
		shut(t, foreignKey)
		foreignScope := reopened(t, dir, Options{Scope: "another", IndexOnly: o.IndexOnly})
		bad["of another scope"] = handleOf(t, foreignScope, "file")
		shut(t, foreignScope)
		for _, cached := range []bool{true, false} {
			for what, h := range bad {
				n, err := resolve(fs, h)
				if n != nil || !errors.Is(err, ErrBadHandle) {
					t.Errorf("%s (cached: %v): %v, %v, want ErrBadHandle", what, cached, n, err)
				}
			}
			forget(fs)
		}
		if _, err := read(t, fs, good); err != nil {
			t.Errorf("the handle itself: %v", err)
		}
		newer := reopened(t, dir, Options{Key: []byte("another key of file handles"), OlderKeys: [][]byte{testKey}, IndexOnly: o.IndexOnly})
		for _, cached := range []bool{false, true} {
			if _, err := read(t, newer, good); err != nil {
				t.Errorf("of an older key (cached: %v): %v", cached, err)
			}
		}
		if newer.fsid != fs.fsid || bytes.Equal(handleOf(t, newer, "file"), good) {
			t.Errorf("with a newer key: fsid %x, was %x; handle %x", newer.fsid, fs.fsid, handleOf(t, newer, "file"))
		}
		shut(t, newer)
	})
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
			fs.table.kill(n)
		}
	}
}

func TestStaleAfterRemoval(t *testing.T) {
	modes(t, func(t *testing.T, o Options) {
		for _, cached := range []bool{true, false} {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "file"), "")
			must(t, os.Mkdir(filepath.Join(dir, "dir"), 0o755))
			fs := open(t, dir, o)
			file, sub := handleOf(t, fs, "file"), handleOf(t, fs, "dir")
			if !cached {
				forget(fs)
			}
			must(t, os.Remove(filepath.Join(dir, "file")))
			must(t, os.Remove(filepath.Join(dir, "dir")))
			for what, h := range map[string][]byte{"file": file, "directory": sub} {
				n, err := resolve(fs, h)
				if err == nil {
					var st Stat
					err = n.Stat(&st)
					n.Release()
				}
				wantErr(t, fmt.Sprint(what, " cached ", cached), err, unix.ESTALE)
			}
			write(t, filepath.Join(dir, "file"), "new") // perhaps with the old inode number
			if _, err := read(t, fs, file); !errors.Is(err, unix.ESTALE) {
				t.Errorf("a new file has the handle of an old one: %v", err)
			}
		}
	})
}

func TestNothingOutside(t *testing.T) {
	modes(t, func(t *testing.T, o Options) {
		top := t.TempDir()
		dir := filepath.Join(top, "export")
		must(t, os.MkdirAll(filepath.Join(dir, "sub/deep"), 0o755))
		write(t, filepath.Join(top, "secret"), "secret")
		write(t, filepath.Join(dir, "sub/deep/file"), "")
		write(t, filepath.Join(dir, "moved"), "")
		write(t, filepath.Join(dir, "linked"), "")
		for name, target := range map[string]string{"up": "..", "rootlink": "/", "abs": filepath.Join(top, "secret"), "rel": "../secret"} {
			must(t, os.Symlink(target, filepath.Join(dir, name)))
		}
		fs := open(t, dir, o)
		for _, name := range []string{"up", "rootlink", "abs", "rel"} {
			n := walk(t, fs, name)
			if n.Kind() != unix.S_IFLNK {
				t.Errorf("%s was followed", name)
			}
			_, err := fs.Lookup(n, nameOf(t, "secret"), root)
			wantErr(t, "lookup in "+name, err, unix.ENOTDIR)
			_, err = fs.Read(n, make([]byte, 10), 0)
			wantErr(t, "read "+name, err, unix.EINVAL)
			n.Release()
		}
		up := walk(t, fs, "..")
		if up != fs.Root() {
			t.Error(".. of the root is not the root")
		}
		up.Release()
		up = walk(t, fs, "sub/deep/../../..")
		if up != fs.Root() {
			t.Error("many .. do not end at the root")
		}
		up.Release()

		outside := filepath.Join(top, "outside")
		must(t, os.Mkdir(outside, 0o755))
		for _, cached := range []bool{true, false} {
			handles := map[string][]byte{"moved": handleOf(t, fs, "moved"), "sub": handleOf(t, fs, "sub"),
				"sub/deep": handleOf(t, fs, "sub/deep"), "sub/deep/file": handleOf(t, fs, "sub/deep/file")}
			deep := walk(t, fs, "sub/deep")
			if !cached {
				forget(fs)
			}
			must(t, os.Rename(filepath.Join(dir, "sub"), filepath.Join(outside, "sub")))
			must(t, os.Rename(filepath.Join(dir, "moved"), filepath.Join(outside, "moved")))
			if _, err := fs.Lookup(deep, nameOf(t, ".."), root); err == nil {
				t.Error(".. of a directory that was moved out leads outside")
			}
			deep.Release()
			for what, h := range handles {
				n, err := resolve(fs, h)
				if err == nil {
					n.Release()
				}
				wantErr(t, fmt.Sprint(what, " moved out, cached ", cached), err, unix.ESTALE)
			}
			must(t, os.Rename(filepath.Join(outside, "sub"), filepath.Join(dir, "sub")))
			must(t, os.Rename(filepath.Join(outside, "moved"), filepath.Join(dir, "moved")))
			clear(fs.locator.missing) // it would hold for a while
			for what, h := range handles {
				n, err := resolve(fs, h)
				if err != nil {
					t.Errorf("%s moved back: %v", what, err)
					continue
				}
				n.Release()
			}
		}
		// A file with a name inside and one outside is inside, until the one inside goes.
		must(t, os.Link(filepath.Join(dir, "linked"), filepath.Join(outside, "linked")))
		h := handleOf(t, fs, "linked")
		for _, cached := range []bool{true, false} {
			if !cached {
				forget(fs)
			}
			if _, err := read(t, fs, h); err != nil {
				t.Errorf("linked outside too, cached %v: %v", cached, err)
			}
		}
		must(t, os.Remove(filepath.Join(dir, "linked")))
		for _, cached := range []bool{true, false} {
			if !cached {
				forget(fs)
			}
			_, err := read(t, fs, h)
			wantErr(t, fmt.Sprint("linked only outside, cached ", cached), err, unix.ESTALE)
		}
	})
}
