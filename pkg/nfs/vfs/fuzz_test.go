package vfs

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// FuzzResolve resolves arbitrary handles. Only handles made here may succeed.
func FuzzResolve(f *testing.F) {
	dir := f.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		f.Fatal(err)
	}
	fs, err := Open(dir, Options{Key: testKey})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { fs.Close() })
	var name Name
	if err := name.Set([]byte("file")); err != nil {
		f.Fatal(err)
	}
	n, err := fs.Lookup(fs.Root(), &name, root)
	if err != nil {
		f.Fatal(err)
	}
	defer n.Release()
	known := [][]byte{bytes.Clone(n.Handle().Bytes()), bytes.Clone(fs.Root().Handle().Bytes())}
	for _, h := range known {
		f.Add(h)
		f.Add(h[:len(h)-1])
		f.Add(append(bytes.Clone(h), 0))
	}
	f.Add([]byte{1, 2, 0, 16, 19: 0, 35: 0})
	f.Add([]byte{1, 1, 0, 44, 63: 0})
	f.Fuzz(func(t *testing.T, h []byte) {
		n, err := fs.Resolve(h)
		if err == nil {
			defer n.Release()
			for _, k := range known {
				if bytes.Equal(k, h) {
					return
				}
			}
			t.Errorf("the handle %x leads somewhere", h)
		} else if !errors.Is(err, ErrBadHandle) && !errors.Is(err, unix.ESTALE) {
			// Seeds of another process have the same key, but another directory: they are stale.
			t.Errorf("%x: %v", h, err)
		}
	})
}

// FuzzDirents reads arbitrary entries.
func FuzzDirents(f *testing.F) {
	d, err := unix.Open(f.TempDir(), unix.O_RDONLY, 0)
	if err != nil {
		f.Fatal(err)
	}
	defer unix.Close(d)
	b := make([]byte, 4096)
	n, err := unix.Getdents(d, b)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b[:n])
	f.Add(b[:n-1])
	f.Add(make([]byte, 100))
	f.Fuzz(func(t *testing.T, b []byte) {
		left := len(b)
		for e := Entries(b); e.Next(); {
			if left -= 19; left < 0 || len(e.Name) > len(b) {
				t.Fatal("more entries than bytes")
			}
		}
	})
}
