package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// TestJanitor simulates clients that write and disappear.
func TestJanitor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		syncs := 0
		fail := error(nil)
		o := Options{Sync: func(int, SyncKind) error {
			mu.Lock()
			defer mu.Unlock()
			syncs++
			return fail
		}}
		dir := t.TempDir()
		fs := reopened(t, dir, o)
		defer shut(t, fs)
		write(t, filepath.Join(dir, "file"), "content")
		write(t, filepath.Join(dir, "removed"), "content")
		h := handleOf(t, fs, "file")
		removed := walk(t, fs, "removed")
		_, err := fs.Read(removed, make([]byte, 10), 0)
		must(t, err)
		removed.Release()
		var w Write
		put := func() {
			n, err := fs.Resolve(h)
			must(t, err)
			_, err = w.Do(n, [][]byte{[]byte("x")}, 1, 0, root)
			must(t, err)
			n.Release()
		}
		count := func() int {
			mu.Lock()
			defer mu.Unlock()
			return syncs
		}
		open := fs.Files()
		put()
		must(t, os.Remove(filepath.Join(dir, "removed")))
		time.Sleep(idleTimeout / 2)
		synctest.Wait()
		// without the removed file's two, and with the writer
		if got := fs.Files(); got != open-2+1 {
			t.Errorf("%d files are open, were %d", got, open)
		}
		if count() != 0 {
			t.Error("a fresh write was synced")
		}
		time.Sleep(2 * idleTimeout)
		synctest.Wait()
		if got := fs.Files(); got != open-2 || count() != 1 {
			t.Errorf("%d files are open, were %d; %d syncs", got, open, count())
		}
		if got, err := read(t, fs, h); got != "xontent" || err != nil {
			t.Errorf("%q, %v", got, err)
		}
		// Lost data are a reason for clients to write again.
		put()
		mu.Lock()
		fail = unix.EIO
		mu.Unlock()
		time.Sleep(3 * idleTimeout)
		synctest.Wait()
		if fs.Verifier() != w.Verifier+1 || count() != 2 {
			t.Errorf("the verifier went from %x to %x, %d syncs", w.Verifier, fs.Verifier(), count())
		}
	})
}

// TestUnstableWritesAreNotForgotten has more files with unstable writes than may be open: each is
// synced before it is closed.
func TestUnstableWritesAreNotForgotten(t *testing.T) {
	const files = 100
	var syncs atomic.Int64
	dir := t.TempDir()
	fs := open(t, dir, Options{MaxFiles: 20, Sync: func(int, SyncKind) error { syncs.Add(1); return nil }})
	var w Write
	for i := range files {
		name := fmt.Sprint("file-", i)
		write(t, filepath.Join(dir, name), "")
		n := walk(t, fs, name)
		_, err := w.Do(n, [][]byte{[]byte(name)}, len(name), 0, root)
		must(t, err)
		n.Release()
	}
	for deadline := time.Now().Add(10 * time.Second); fs.Files() > 20; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d files stay open", fs.Files())
		}
		fs.table.makeRoom(0) // as by another open
	}
	open := 0
	for i := range fs.table.shard {
		s := &fs.table.shard[i]
		s.mu.Lock()
		for _, n := range s.nodes {
			if n.written.Load() > 0 && n.dirty() {
				open++
			}
		}
		s.mu.Unlock()
	}
	if got := int(syncs.Load()) + open; got < files {
		t.Errorf("%d files were synced, %d are open with unstable writes: %d are missing", syncs.Load(), open, files-got)
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
