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

// TestWriteNow: a write without waiting changes the same as one that may wait, or nothing.
func TestWriteNow(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", "content")
	fs := open(t, dir, Options{})
	if !fs.Nonblocking() {
		prereq.Missing(t, "the file system of the test may wait")
	}
	fs.inMemory = true // not all have writes that do not wait
	n := walk(t, fs, "file")
	defer n.Release()
	var w Write
	now := func(c *Cred) (int, error) { return w.Now(n, [][]byte{[]byte("CON"), []byte("T")}, 4, 0, c) }
	_, err := now(root)
	wantErr(t, "a file that is not open", err, unix.EAGAIN)
	if _, err := w.Do(n, [][]byte{[]byte("con")}, 3, 0, root); err != nil {
		t.Fatal(err)
	}
	n.change.Lock()
	_, err = now(root)
	n.change.Unlock()
	wantErr(t, "during another change", err, unix.EAGAIN)
	if fs.ids.able {
		_, err = now(&Cred{UID: 1001, GID: 1001})
		wantErr(t, "without permission", err, unix.EAGAIN)
	}
	if got, err := read(t, fs, n.Handle().Bytes()); got != "content" || err != nil {
		t.Fatalf("the file has %q, %v", got, err)
	}
	done, err := now(root)
	if done != 4 || err != nil || !w.Wcc.HasBefore || !w.Wcc.HasAfter || w.Wcc.After.Size != 7 || !n.dirty() {
		t.Errorf("%d bytes, %v, %+v", done, err, w.Wcc)
	}
	if got, err := read(t, fs, n.Handle().Bytes()); got != "CONTent" || err != nil {
		t.Errorf("the file has %q, %v", got, err)
	}
	fs.inMemory = false
	for range 2 { // it works, or the file system has none and no more are tried
		if _, err = now(root); err != nil {
			wantErr(t, "by RWF_NOWAIT", err, unix.EAGAIN)
		}
	}
}
