package vfs

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/prereq"
)

// TestLeasedFile: another process has a lease on the file, as Samba does. The kernel would block an
// opener for up to 45 seconds, so a few callers would occupy all workers.
func TestLeasedFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "content")
	fs := open(t, filepath.Dir(path), Options{})
	n := walk(t, fs, "file")
	defer n.Release()
	f, err := os.Open(path)
	must(t, err)
	defer f.Close()
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		prereq.Missing(t, "no lease can be had: %v", err)
	}
	var w Write
	_, err = w.Do(n, [][]byte{[]byte("changed")}, 7, 0, root)
	wantErr(t, "writing a leased file", err, unix.EAGAIN)
	_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_UNLCK)
	must(t, err)
	if _, err = w.Do(n, [][]byte{[]byte("changed")}, 7, 0, root); err != nil {
		t.Errorf("when the lease was given back: %v", err)
	}
}
