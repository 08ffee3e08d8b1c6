package vfs

import (
	"crypto/sha256"
	"encoding/binary"
	"maps"

	"golang.org/x/sys/unix"
)

// identify returns the id of a name in dir, or of dir itself for an empty name. EXDEV: a mount
// point.
func (fs *FS) identify(dir int, name []byte) (i objectID, err error) {
	if fs.kernel {
		var h rawHandle
		mount, err := nameToHandle(dir, name, &h)
		if err != nil {
			return i, err
		}
		if mount != fs.mountID {
			return i, unix.EXDEV
		}
		i, ok := kernelID(&h)
		if !ok {
			return i, unix.EOVERFLOW
		}
		return i, nil
	}
	var stx unix.Statx_t
	if err := statx(dir, name, unix.STATX_INO|unix.STATX_BTIME|unix.STATX_MNT_ID, &stx); err != nil {
		return i, err
	}
	if stx.Mnt_id != fs.mntID {
		return i, unix.EXDEV
	}
	if i = indexID(stx.Ino, fs.birthOf(&stx)); i == fs.rootPlace {
		i = fs.root.id
	}
	return i, nil
}

// birthOf is the second half of an index id.
func (fs *FS) birthOf(stx *unix.Statx_t) uint64 {
	if fs.birth != 0 {
		return fs.birth
	}
	return uint64(stx.Btime.Sec)*1e9 + uint64(stx.Btime.Nsec)
}

// inodeOf returns the inode number of an id.
func (fs *FS) inodeOf(i *objectID) (uint64, error) {
	if i.kind() == kindIndex {
		return i.ino(), nil
	}
	var h rawHandle
	i.raw(&h)
	fd, err := fs.table.opened(openByHandle(fs.mount, &h, openPath))
	if err != nil {
		return 0, staleIfGone(err)
	}
	defer unix.Close(fd)
	var st Stat
	err = fstatBlocking(fd, &st)
	return st.Ino, err
}

// FSID returns the id of the object's file system, the same after a restart. A btrfs subvolume has
// its own, as it has its own inode numbers. So has each layer of an overlayfs without unique inode
// numbers (xino=off); its id comes from the device number, which another mount may change.
func (fs *FS) FSID(st *Stat) uint64 {
	if st.Dev == fs.rootDev {
		return fs.fsid
	}
	number := st.Dev
	if known := fs.subvolumes.Load(); known != nil {
		if id, ok := (*known)[st.Dev]; ok {
			number = id
		}
	}
	return fs.fsid ^ (number*0x9e3779b97f4a7c15 | 1)
}

// fsidOf returns the id of a file system: the same after a restart, and with other keys.
func fsidOf(scope string) uint64 {
	sum := sha256.Sum256([]byte("sluice fsid\x00" + scope))
	return binary.BigEndian.Uint64(sum[:])
}

// learnSubvolume records the lasting id of an object's subvolume, since the device number changes
// with each mount.
func (fs *FS) learnSubvolume(fd int, dev uint64) {
	known := fs.subvolumes.Load()
	if dev == fs.rootDev || known != nil && (*known)[dev] != 0 {
		return
	}
	var s unix.Statfs_t
	if fs.statfs(fd, &s) != nil || s.Type != unix.BTRFS_SUPER_MAGIC {
		return
	}
	more := map[uint64]uint64{dev: uint64(uint32(s.Fsid.Val[0]))<<32 | uint64(uint32(s.Fsid.Val[1]))}
	if known != nil {
		maps.Copy(more, *known)
	}
	if !fs.subvolumes.CompareAndSwap(known, &more) {
		fs.learnSubvolume(fd, dev)
	}
}
