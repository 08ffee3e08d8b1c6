package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestListingAfterPause pauses between two parts of a list for longer than a directory stays open.
func TestListingAfterPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const files = 50
		dir := t.TempDir()
		must(t, os.Mkdir(filepath.Join(dir, "sub"), 0o755))
		for i := range files {
			write(t, filepath.Join(dir, "sub", fmt.Sprint("file-", i)), "")
		}
		fs := reopened(t, dir, Options{})
		defer shut(t, fs)
		seen := map[string]bool{}
		cookie, parts := int64(0), 0
		for b := make([]byte, 512); ; parts++ {
			n := walk(t, fs, "sub")
			k, err := fs.ReadDir(n, cookie, b)
			n.Release()
			must(t, err)
			if k == 0 {
				break
			}
			for e := Entries(b[:k]); e.Next(); cookie = e.Off {
				if seen[string(e.Name)] {
					t.Fatalf("part %d: %s came twice", parts, e.Name)
				}
				seen[string(e.Name)] = true
			}
			time.Sleep(2 * idleTimeout)
			synctest.Wait()
		}
		if len(seen) != files+2 || parts < 3 {
			t.Errorf("%d names in %d parts", len(seen), parts)
		}
	})
}

// TestHiddenList lists a root with buffers of several lengths: each name once, and not the hidden
// one.
func TestHiddenList(t *testing.T) {
	for _, files := range []int{0, 1, 40} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, ".secret", "sub", ".secret"), 0o700); err != nil {
			t.Fatal(err)
		}
		for i := range files {
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("a name %d", i)), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		fs := open(t, dir, Options{Key: testKey, Hidden: ".secret"})
		for size := 48; size < 600; size += 24 {
			seen := map[string]bool{}
			b := make([]byte, size)
			for cookie := int64(0); ; {
				n, err := fs.ReadDir(fs.Root(), cookie, b)
				if err != nil {
					t.Fatal(err)
				}
				if n == 0 {
					break
				}
				for e := Entries(b[:n]); e.Next(); cookie = e.Off {
					if seen[string(e.Name)] || string(e.Name) == ".secret" {
						t.Errorf("%d files, %d bytes: %q is listed", files, size, e.Name)
					}
					seen[string(e.Name)] = true
				}
			}
			if len(seen) != files+2 {
				t.Errorf("%d files, %d bytes: %d names, want %d", files, size, len(seen), files+2)
			}
		}
	}
}
