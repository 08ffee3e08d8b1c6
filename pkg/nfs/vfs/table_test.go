package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
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

// TestFewDescriptorsInChild has a process with fewer descriptors than configured.
func TestFewDescriptorsInChild(t *testing.T) {
	inChild(t, nil, t.TempDir(), "TestFewDescriptors/kernel", "TestFewDescriptors/index")
}

func TestFewDescriptors(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("runs in a child")
	}
	modes(t, func(t *testing.T, o Options) {
		var was unix.Rlimit
		must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
		o.MaxFiles = 10000
		dir := t.TempDir()
		for i := range 200 {
			write(t, filepath.Join(dir, fmt.Sprint(i)), fmt.Sprint(i))
		}
		fs := open(t, dir, o)
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 60, Max: was.Max}))
		defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) }()
		failures := 0
		for i := range 200 {
			for {
				n, err := tryWalk(t, fs, fmt.Sprint(i), root)
				if err == nil {
					_, err = fs.Read(n, make([]byte, 10), 0)
					n.Release()
				}
				if err == nil {
					break
				}
				wantErr(t, "without descriptors", err, unix.EMFILE)
				if failures++; failures > 10 {
					t.Fatalf("file %d: %v again and again", i, err)
				}
			}
		}
		if failures == 0 {
			t.Error("there were descriptors enough")
		}
	})
}
