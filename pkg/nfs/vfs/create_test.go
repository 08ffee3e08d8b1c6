package vfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFewDescriptorsForCreateInChild has a process whose descriptors are used up by unused objects.
func TestFewDescriptorsForCreateInChild(t *testing.T) {
	inChild(t, nil, t.TempDir(), "TestFewDescriptorsForCreate/kernel", "TestFewDescriptorsForCreate/index")
}

func TestFewDescriptorsForCreate(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("runs in a child")
	}
	modes(t, func(t *testing.T, o Options) {
		o.MaxFiles = 10000
		dir := t.TempDir()
		fs := open(t, dir, o)
		for i := range 100 {
			write(t, filepath.Join(dir, fmt.Sprint(i)), "")
			walk(t, fs, fmt.Sprint(i)).Release()
		}
		var was unix.Rlimit
		must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
		must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 60, Max: was.Max}))
		defer func() { _ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was) }()
		var w Wcc
		for failures := 0; ; failures++ {
			n, err := fs.Create(fs.Root(), nameOf(t, "new"), Guarded, [8]byte{}, &Attrs{}, root, &w)
			if err == nil {
				n.Release()
				break
			}
			wantErr(t, "without descriptors", err, unix.EMFILE)
			if failures > 10 {
				t.Fatalf("%v again and again, %d files are open", err, fs.Files())
			}
		}
	})
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
