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
