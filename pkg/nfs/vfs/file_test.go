package vfs

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

func openFile(t *testing.T, fs *FS, n *Node, access uint32) *File {
	t.Helper()
	f, err := fs.OpenFile(n, access)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func lookupName(t *testing.T, fs *FS, name string) *Node {
	t.Helper()
	var n Name
	if err := n.Set([]byte(name)); err != nil {
		t.Fatal(err)
	}
	node, err := fs.LookupSelf(fs.Root(), &n)
	if err != nil {
		t.Fatal(err)
	}
	return node
}

// Locks belong to the open file description: two of one object conflict, and others see them.
func TestLocks(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fs := open(t, dir, Options{Key: testKey})
	n := lookupName(t, fs, "file")
	defer n.Release()
	a, b := openFile(t, fs, n, MayRead|MayWrite), openFile(t, fs, n, MayRead|MayWrite)
	defer b.Close()
	want := func(what string, got, want error) {
		t.Helper()
		if !errors.Is(got, want) {
			t.Errorf("%s: %v, must be %v", what, got, want)
		}
	}
	want("a writes", a.Lock(unix.F_WRLCK, 10, 10), nil)
	want("b reads the same", b.Lock(unix.F_RDLCK, 15, 1), unix.EAGAIN)
	want("b writes elsewhere", b.Lock(unix.F_WRLCK, 20, 0), nil)
	want("a writes to the end", a.Lock(unix.F_WRLCK, 15, 0), unix.EAGAIN)
	want("a goes beyond", a.Lock(unix.F_WRLCK, 1<<63, 1), unix.EOVERFLOW)
	held, typ, off, length, err := b.TestLock(unix.F_RDLCK, 0, 0)
	if !held || typ != unix.F_WRLCK || off != 10 || length != 10 || err != nil {
		t.Errorf("held %v: type %d at %d, %d bytes: %v", held, typ, off, length, err)
	}
	want("a unlocks a part", a.Unlock(10, 5), nil)
	if held, _, _, _, err := b.TestLock(unix.F_WRLCK, 10, 5); held || err != nil {
		t.Errorf("the part is held: %v, %v", held, err)
	}
	other, err := os.OpenFile(filepath.Join(dir, "file"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: 15, Len: 5}
	want("a local process", unix.FcntlFlock(other.Fd(), unix.F_OFD_SETLK, &l), unix.EAGAIN)
	a.Close()
	want("a local process, after the close", unix.FcntlFlock(other.Fd(), unix.F_OFD_SETLK, &l), nil)
}

// An object with Files outlives its last name, and is stale after the last Close.
func TestUnlinkedOpen(t *testing.T) {
	modes(t, func(t *testing.T, o Options) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "file"), []byte("data"), 0o600); err != nil {
			t.Fatal(err)
		}
		fs := open(t, dir, o)
		n := lookupName(t, fs, "file")
		f := openFile(t, fs, n, MayRead)
		handle := append([]byte(nil), n.Handle().Bytes()...)
		n.Release()
		var name Name
		_ = name.Set([]byte("file"))
		if err := fs.Remove(fs.Root(), &name, &Cred{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}, &Wcc{}); err != nil {
			t.Fatal(err)
		}
		n, err := fs.Resolve(handle)
		if err != nil {
			t.Fatalf("the open file: %v", err)
		}
		b := make([]byte, 4)
		if k, err := fs.Read(n, b, 0); err != nil || string(b[:k]) != "data" {
			t.Errorf("it reads %q, %v", b[:k], err)
		}
		n.Release()
		f.Close()
		if n, err := fs.Resolve(handle); !errors.Is(err, unix.ESTALE) {
			t.Errorf("the closed file: %v, %v", n, err)
		}
		if files := fs.Files(); files > 4 {
			t.Errorf("%d files are open", files)
		}
	})
}
