package vfs

import (
	"errors"
	"testing"

	"golang.org/x/sys/unix"
)

// TestFSIDOfSubvolume has objects with another device number than the root's, as in btrfs's
// subvolumes: the number changes with each mount, the subvolume's own id stays.
func TestFSIDOfSubvolume(t *testing.T) {
	fs := open(t, t.TempDir(), Options{Scope: "a"})
	const one, two = 5 << 32, 6 << 32
	ids := map[int]int32{1: one >> 32, 2: two >> 32}
	fs.statfs = func(fd int, s *unix.Statfs_t) error {
		id, ok := ids[fd]
		if !ok {
			return errors.New("asked again")
		}
		s.Type, s.Fsid = unix.BTRFS_SUPER_MAGIC, unix.Fsid{Val: [2]int32{id, -7}}
		return nil
	}
	fsid := func(fd int, dev uint64) uint64 {
		fs.learnSubvolume(fd, dev)
		return fs.FSID(&Stat{Dev: dev})
	}
	first, second := fsid(1, 1001), fsid(2, 1002)
	if first == second || first == fs.fsid || second == fs.fsid {
		t.Errorf("subvolumes %x and %x, the root %x: want three ids", first, second, fs.fsid)
	}
	if again := fsid(-1, 1001); again != first {
		t.Errorf("the same subvolume has %x, had %x", again, first)
	}
	if fs.FSID(&Stat{Dev: fs.rootDev}) != fs.fsid {
		t.Error("the root's file system has another id")
	}
	fs.subvolumes.Store(nil) // as after a restart, with other device numbers
	if a, b := fsid(1, 2001), fsid(2, 1001); a != first || b != second {
		t.Errorf("after another mount: %x and %x, were %x and %x", a, b, first, second)
	}
}
