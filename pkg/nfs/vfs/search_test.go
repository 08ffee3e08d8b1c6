package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

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

// TestSearchWithoutDescriptorsInChild has a process that cannot open directories for a while.
func TestSearchWithoutDescriptorsInChild(t *testing.T) {
	inChild(t, nil, t.TempDir(), "TestSearchWithoutDescriptors")
}

func TestSearchWithoutDescriptors(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("runs in a child")
	}
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "a/b"), 0o755))
	write(t, filepath.Join(dir, "a/b/file"), "content")
	o := Options{IndexOnly: true}
	fs := reopened(t, dir, o)
	file := handleOf(t, fs, "a/b/file")
	shut(t, fs)
	fs = open(t, dir, o)
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 3, Max: was.Max}))
	_, err := fs.Resolve(file)
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	wantErr(t, "without descriptors", err, unix.EAGAIN)
	if got, err := read(t, fs, file); got != "content" || err != nil {
		t.Errorf("with descriptors again: %q, %v", got, err)
	}
}
