package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

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
	found.kill()
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
