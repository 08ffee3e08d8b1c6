package vfs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

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
