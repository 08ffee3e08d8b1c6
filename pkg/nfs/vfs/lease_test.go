package vfs

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/prereq"
)

// TestLease takes leases of a file, and breaks one by a local writer.
func TestLease(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "content")
	f, err := os.Open(path)
	must(t, err)
	if _, err := unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_RDLCK); err != nil {
		prereq.Missing(t, "no lease can be had: %v", err)
	}
	f.Close()
	fs := open(t, filepath.Dir(path), Options{})
	n := walk(t, fs, "file")
	defer n.Release()
	if !fs.Quiet(n, 1) || fs.Quiet(n, 2) {
		t.Error("Quiet must count the caller's reference alone")
	}
	// Unstable writes, and other users, prevent a lease.
	var w Write
	_, err = w.Do(n, [][]byte{[]byte("changed")}, 7, 0, root)
	must(t, err)
	_, err = fs.Lease(n, 1)
	wantErr(t, "a lease of a file with unstable writes", err, unix.EAGAIN)
	must(t, n.Sync(false))
	n.Acquire()
	_, err = fs.Lease(n, 1)
	wantErr(t, "a lease of a file in use", err, unix.EAGAIN)
	n.Release()
	before := fs.Files()
	reader, err := fs.OpenFile(n, MayRead)
	must(t, err)
	a, err := fs.Lease(n, 1) // closes the descriptor that the write has left
	must(t, err)
	b, err := fs.Lease(n, 1)
	must(t, err)
	if a.Broken() || b.Broken() {
		t.Error("broken from the start")
	}
	_, err = w.Do(n, [][]byte{[]byte("changed")}, 7, 0, root)
	wantErr(t, "a write to a leased file", err, unix.EAGAIN)
	if !a.Broken() || !b.Broken() {
		t.Error("a writer must break the leases")
	}
	a.Close()
	done := make(chan error)
	go func() {
		local, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err == nil {
			err = local.Close()
		}
		done <- err
	}()
	select {
	case err := <-done:
		t.Errorf("a local writer did not wait: %v", err)
	case <-time.After(10 * time.Millisecond):
	}
	b.Close()
	must(t, <-done)
	writer, err := fs.OpenFile(n, MayWrite)
	must(t, err)
	_, err = fs.Lease(n, 1)
	wantErr(t, "a lease of a file open for writing", err, unix.EAGAIN)
	writer.Close()
	reader.Close()
	if after := fs.Files(); after != before-1 { // without the writer
		t.Errorf("%d descriptors, %d before", after, before)
	}
	_, err = fs.Lease(fs.Root(), 1)
	wantErr(t, "a lease of a directory", err, unix.EINVAL)
}
