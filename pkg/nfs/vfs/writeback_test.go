package vfs

import (
	"testing"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/prereq"
)

// TestFresh: writes of a long file lead to its writeback, also a little out of order; others do
// not.
func TestFresh(t *testing.T) {
	const mib = 1 << 20
	for name, c := range map[string]struct {
		at   func(i int64) int64
		want bool
	}{
		"one after the other": {func(i int64) int64 { return i * mib }, true},
		"neighbours change":   {func(i int64) int64 { return (i ^ 1) * mib }, true},
		"backwards":           {func(i int64) int64 { return (1000 - i) * mib }, true},
		"the same again":      {func(int64) int64 { return 0 }, false},
		"far apart":           {func(i int64) int64 { return i * 17 * mib }, false},
	} {
		var f fresh
		covered := map[int64]bool{}
		for i := range int64(64) {
			from, length := f.add(c.at(i), mib)
			if length < 0 || length > 2*earlyWriteback {
				t.Fatalf("%s: a range of %d bytes", name, length)
			}
			for at := from; at < from+length; at += mib {
				covered[at] = true
			}
		}
		if (len(covered) > 0) != c.want {
			t.Errorf("%s: %d MiB of 64 were written back", name, len(covered))
		}
		for i := range int64(64) {
			if c.want && !covered[c.at(i)] {
				t.Errorf("%s: the write at %d was left out", name, c.at(i))
			}
		}
	}
}

// TestEarlyWriteback: the file of a long series of writes is handed to the disk before a sync, and
// stays open until then.
func TestEarlyWriteback(t *testing.T) {
	dir := t.TempDir()
	write(t, dir+"/file", "")
	fs := open(t, dir, Options{})
	fs.inMemory = false // whatever the file system of the test is
	type span struct{ from, length int64 }
	got := make(chan span, 100)
	fs.startWriteback = func(fd int, from, length int64) error {
		var st Stat
		if unix.Fstat(fd, &st) != nil || st.Size < from+length {
			t.Errorf("descriptor %d has %d bytes, the range is %d to %d", fd, st.Size, from, from+length)
		}
		got <- span{from, length}
		return nil
	}
	n := walk(t, fs, "file")
	var w Write
	chunk := make([]byte, 1<<20)
	for i := range 20 {
		if _, err := w.Do(n, [][]byte{chunk}, len(chunk), uint64(i)<<20, root); err != nil {
			t.Fatal(err)
		}
	}
	n.Release()
	for i := range int64(2) {
		if s := <-got; s != (span{i * earlyWriteback, earlyWriteback}) {
			t.Errorf("range %d is %v", i, s)
		}
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
