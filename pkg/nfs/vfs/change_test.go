package vfs

import (
	"os"
	"testing"
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
