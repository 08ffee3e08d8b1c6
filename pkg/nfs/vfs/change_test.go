package vfs

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Every change through the file system moves the change attribute, within a tick of the clock too.
func TestChangeGrows(t *testing.T) {
	dir := t.TempDir()
	fs := open(t, dir, Options{Key: testKey})
	self := &Cred{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	var name, second Name
	_ = name.Set([]byte("file"))
	_ = second.Set([]byte("second"))
	last := uint64(0)
	check := func(what string, w *Wcc) {
		t.Helper()
		if !w.HasBefore || !w.HasAfter || w.ChangeAfter <= w.ChangeBefore || w.ChangeBefore < last {
			t.Errorf("%s: change %d to %d, the last one was %d", what, w.ChangeBefore, w.ChangeAfter, last)
		}
		last = w.ChangeAfter
	}
	for range 10 {
		var w Wcc
		n, err := fs.Create(fs.Root(), &name, Guarded, [8]byte{}, &Attrs{}, self, &w)
		if err != nil || !w.Created {
			t.Fatal(err, w.Created)
		}
		check("create", &w)
		w = Wcc{}
		again, err := fs.Create(fs.Root(), &name, Shared, [8]byte{}, &Attrs{}, self, &w)
		if err != nil || w.Created || w.ChangeAfter != last {
			t.Errorf("create over: %v, created %v, change %d", err, w.Created, w.ChangeAfter)
		}
		again.Release()
		w = Wcc{}
		if err := fs.Link(n, fs.Root(), &second, self, &w); err != nil {
			t.Fatal(err)
		}
		check("link", &w)
		n.Release()
		for _, x := range []*Name{&name, &second} {
			w = Wcc{}
			if err := fs.Remove(fs.Root(), x, self, &w); err != nil {
				t.Fatal(err)
			}
			check("remove", &w)
		}
	}
}

// EXCLUSIVE4_1 sets attributes besides the times that hold the verifier.
func TestExclusiveAttributes(t *testing.T) {
	dir := t.TempDir()
	fs := open(t, dir, Options{Key: testKey})
	self := &Cred{UID: uint32(os.Geteuid()), GID: uint32(os.Getegid())}
	var name Name
	_ = name.Set([]byte("file"))
	attrs := Attrs{SetMode: true, Mode: 0o604, SetSize: true, Size: 77}
	for i := range 2 {
		var w Wcc
		n, err := fs.Create(fs.Root(), &name, Verified, [8]byte{1}, &attrs, self, &w)
		if err != nil || w.Created != (i == 0) {
			t.Fatalf("try %d: %v, created %v", i, err, w.Created)
		}
		var st Stat
		if err := n.Stat(&st); err != nil || st.Mode&0o777 != 0o604 || st.Size != 77 {
			t.Errorf("mode %o, %d bytes, %v", st.Mode, st.Size, err)
		}
		n.Release()
	}
	if _, err := fs.Create(fs.Root(), &name, Verified, [8]byte{2}, &attrs, self, &Wcc{}); !errors.Is(err, unix.EEXIST) {
		t.Errorf("another verifier: %v", err)
	}
}
