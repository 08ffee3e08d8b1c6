package vfs

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
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

// TestIdentitiesDoNotLeak changes threads' identities while others make files as the process.
func TestIdentitiesDoNotLeak(t *testing.T) {
	needRoot(t)
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o777))
	fs := open(t, dir, Options{Sync: func(int, SyncKind) error { return nil }})
	if !fs.Info().Identities {
		prereq.Missing(t, "the process cannot act as others: %q", fs.Info().Notes)
	}
	var wg sync.WaitGroup
	for k := range 4 {
		wg.Go(func() {
			c := &Cred{UID: uint32(1001 + k), GID: uint32(2001 + k), Groups: []uint32{3000, uint32(3001 + k)}}
			for i := range 100 {
				var w Wcc
				n, err := fs.Create(fs.Root(), nameOf(t, fmt.Sprint("user-", k, "-", i)), Guarded, [8]byte{}, &Attrs{}, c, &w)
				if err != nil {
					t.Error(err)
					return
				}
				var st Stat
				if err := n.Stat(&st); err != nil || st.Uid != c.UID || st.Gid != c.GID {
					t.Errorf("made by %d: %d %d, %v", c.UID, st.Uid, st.Gid, err)
				}
				n.Release()
			}
		})
		wg.Go(func() {
			for i := range 100 {
				name := filepath.Join(dir, fmt.Sprint("root-", k, "-", i))
				var st Stat
				if err := os.WriteFile(name, nil, 0o600); err != nil || unix.Stat(name, &st) != nil || st.Uid != 0 || st.Gid != 0 {
					t.Errorf("made by the process: %v %d %d", err, st.Uid, st.Gid)
					return
				}
			}
		})
	}
	wg.Wait()
}
