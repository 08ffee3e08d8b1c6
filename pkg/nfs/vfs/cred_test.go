package vfs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/prereq"
)

// TestIDThatDoesNotExist: the kernel ignores a change to the id -1, which would leave the caller as
// the process.
func TestIDThatDoesNotExist(t *testing.T) {
	needRoot(t)
	const none = ^uint32(0)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o755))
	write(t, filepath.Join(dir, "file"), "content")
	must(t, os.Chmod(filepath.Join(dir, "file"), 0o666))
	fs := open(t, dir, Options{})
	if !fs.Info().Identities {
		prereq.Missing(t, "the process cannot act as others: %q", fs.Info().Notes)
	}
	file := walk(t, fs, "file")
	defer file.Release()
	for _, c := range []*Cred{
		{UID: none, GID: 1001}, {UID: 1001, GID: none}, {UID: none, GID: none}, {UID: 1001, GID: 1001, Groups: []uint32{none}},
	} {
		var w Wcc
		_, err := fs.Create(fs.Root(), nameOf(t, "new"), Guarded, [8]byte{}, &Attrs{}, c, &w)
		wantErr(t, "create", err, unix.EACCES)
		wantErr(t, "remove", fs.Remove(fs.Root(), nameOf(t, "file"), c, &w), unix.EACCES)
		wantErr(t, "chmod", fs.SetAttr(file, &Attrs{SetMode: true, Mode: 0o4755}, c, nil, &w), unix.EACCES)
	}
	var wr Write
	_, err := wr.Do(file, [][]byte{[]byte("changed")}, 7, 0, &Cred{UID: none, GID: 1001})
	wantErr(t, "write", err, unix.EACCES)
}

// TestTruncateByWriter: a client's ftruncate(2) is a size with the server's time. A writer may set
// both.
func TestTruncateByWriter(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	write(t, path, "content")
	must(t, os.Chmod(path, 0o666))
	past := unix.Timespec{Sec: 1_000_000_000}
	must(t, unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{past, past}, 0))
	fs := open(t, dir, Options{})
	file := walk(t, fs, "file")
	defer file.Release()
	now := unix.Timespec{Nsec: unix.UTIME_NOW}
	for _, size := range []uint64{0, 0, 5} {
		var w Wcc
		if err := fs.SetAttr(file, &Attrs{SetSize: true, Size: size, SetMtime: true, Mtime: now}, alice, nil, &w); err != nil {
			t.Errorf("size %d with the server's time: %v", size, err)
		}
		if w.After.Size != int64(size) || w.After.Mtim.Sec == past.Sec {
			t.Errorf("size %d: after it %+v", size, w.After)
		}
	}
}
