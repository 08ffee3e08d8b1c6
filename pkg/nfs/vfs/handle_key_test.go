package vfs

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
)

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
