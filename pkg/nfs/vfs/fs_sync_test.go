package vfs

import (
	"errors"
	"os"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/prereq"
)

// Errors without another use, which identify a system call.
const (
	fromFsync     = unix.EUNATCH
	fromFdatasync = unix.ENOCSI
	fromSyncfs    = unix.EL2HLT
)

// failCalls makes system calls fail in all threads of this process, for good, by a seccomp filter.
// The process must run nothing else.
func failCalls(t *testing.T, calls map[uint32]unix.Errno) {
	t.Helper()
	// Load the system call's number, the first word of struct seccomp_data.
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}}
	for call, errno := range calls {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	thread, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	if errno == unix.ENOSYS || errno == unix.EINVAL {
		prereq.Missing(t, "the kernel has no seccomp filters: %v", errno)
	}
	if errno != 0 || thread != 0 {
		t.Fatalf("seccomp: %v, thread %d", errno, thread)
	}
	runtime.KeepAlive(filter)
}

func TestSyncInChild(t *testing.T) {
	inChild(t, nil, t.TempDir(), "TestSync")
	inChild(t, nil, t.TempDir(), "TestSyncFallback")
}

// TestSync makes each system call for syncing fail with an error of its own: every stable operation
// makes the right one.
func TestSync(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("runs in a child")
	}
	dir := t.TempDir()
	write(t, dir+"/file", "content")
	write(t, dir+"/removed", "")
	must(t, os.Mkdir(dir+"/dir", 0o755))
	must(t, os.Symlink("target", dir+"/symlink"))
	fs := open(t, dir, Options{})
	top, file, sub, symlink := fs.Root(), walk(t, fs, "file"), walk(t, fs, "dir"), walk(t, fs, "symlink")
	for _, n := range []*Node{file, sub, symlink} {
		defer n.Release()
	}
	failCalls(t, map[uint32]unix.Errno{unix.SYS_FSYNC: fromFsync, unix.SYS_FDATASYNC: fromFdatasync, unix.SYS_SYNCFS: fromSyncfs})

	var w, w2 Wcc
	var wr Write
	made := func(n *Node, err error) error {
		if err == nil {
			n.Release()
		}
		return err
	}
	mode := &Attrs{SetMode: true, Mode: 0o640}
	times := &Attrs{SetMtime: true, Mtime: unix.Timespec{Sec: 1}}
	var none [8]byte
	if _, err := wr.Do(file, [][]byte{[]byte("x")}, 1, 0, root); err != nil {
		t.Errorf("an unstable write: %v", err)
	}
	for _, c := range []struct {
		name string
		call func() error
		want error
	}{
		{"data of a file", func() error { return file.Sync(true) }, fromFdatasync},
		{"a file", func() error { return file.Sync(false) }, fromFsync},
		{"a directory", func() error { return sub.Sync(false) }, fromFsync},
		{"SetAttr of a file", func() error { return fs.SetAttr(file, mode, root, nil, &w) }, fromFsync},
		{"SetAttr of a directory", func() error { return fs.SetAttr(sub, mode, root, nil, &w) }, fromFsync},
		{"SetAttr of a symbolic link", func() error { return fs.SetAttr(symlink, times, root, nil, &w) }, fromSyncfs},
		{"Create", func() error { return made(fs.Create(top, nameOf(t, "new1"), Shared, none, mode, root, &w)) }, fromFsync},
		{"Create with a guard", func() error { return made(fs.Create(top, nameOf(t, "new2"), Guarded, none, mode, root, &w)) }, fromFsync},
		{"Create with a verifier", func() error { return made(fs.Create(top, nameOf(t, "new3"), Verified, none, mode, root, &w)) }, fromFsync},
		{"Create over a file", func() error {
			return made(fs.Create(top, nameOf(t, "file"), Shared, none, &Attrs{SetSize: true}, root, &w))
		}, fromFsync},
		{"Mkdir", func() error { return made(fs.Mkdir(top, nameOf(t, "new4"), mode, root, &w)) }, fromFsync},
		{"Symlink", func() error { return made(fs.Symlink(top, nameOf(t, "new5"), "target", &Attrs{}, root, &w)) }, fromFsync},
		{"Mknod", func() error { return made(fs.Mknod(top, nameOf(t, "new6"), unix.S_IFIFO, 0, 0, mode, root, &w)) }, fromFsync},
		{"Link", func() error { return fs.Link(file, top, nameOf(t, "new7"), root, &w) }, fromFsync},
		{"Link of a symbolic link", func() error { return fs.Link(symlink, top, nameOf(t, "new8"), root, &w) }, fromFsync},
		{"Rename", func() error { return fs.Rename(top, nameOf(t, "new7"), sub, nameOf(t, "new7"), root, &w, &w2) }, fromFsync},
		{"Remove", func() error { return fs.Remove(top, nameOf(t, "removed"), root, &w) }, fromFsync},
		{"Rmdir", func() error { return fs.Rmdir(top, nameOf(t, "new4"), root, &w) }, fromFsync},
	} {
		before := fs.Verifier()
		if err := c.call(); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if fs.Verifier() == before {
			t.Errorf("%s: the sync failed, and the verifier stayed", c.name)
		}
	}
}

// TestSyncFallback has a file system that cannot sync one file: all of it is synced.
func TestSyncFallback(t *testing.T) {
	if os.Getenv(childEnv) == "" {
		t.Skip("runs in a child")
	}
	dir := t.TempDir()
	write(t, dir+"/file", "content")
	fs := open(t, dir, Options{})
	file := walk(t, fs, "file")
	defer file.Release()
	failCalls(t, map[uint32]unix.Errno{unix.SYS_FSYNC: unix.EINVAL, unix.SYS_FDATASYNC: unix.EINVAL, unix.SYS_SYNCFS: fromSyncfs})
	for _, dataOnly := range []bool{false, true} {
		wantErr(t, "a file", file.Sync(dataOnly), fromSyncfs)
	}
}
