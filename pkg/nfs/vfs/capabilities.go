package vfs

import (
	"math"

	"golang.org/x/sys/unix"
)

// Capabilities are a file system's constant properties.
type Capabilities struct {
	MaxFileSize     uint64
	TimeGranularity uint32 // nanoseconds, 1e9 at most
	MaxLinks        uint32
	MaxName         uint32
	BlockSize       uint32
	CaseInsensitive bool
	NoLinks         bool // no hard links
	NoSymbolicLinks bool
	ACLs            bool // POSIX access control lists
	Xattrs          bool // extended attributes of users
	Births          bool // times of birth
}

// maxLinks are limits that the kernel does not report.
var maxLinks = map[int64]uint32{
	unix.EXT4_SUPER_MAGIC: 65000, unix.XFS_SUPER_MAGIC: math.MaxInt32, unix.BTRFS_SUPER_MAGIC: 65535,
	unix.F2FS_SUPER_MAGIC: math.MaxInt32, unix.TMPFS_MAGIC: math.MaxInt32, unix.RAMFS_MAGIC: math.MaxInt32,
	unix.OVERLAYFS_SUPER_MAGIC: 65000, unix.MSDOS_SUPER_MAGIC: 1,
}

// probeCapabilities queries a nameless file; where none is possible, it assumes the usual.
func probeCapabilities(dir int, s *unix.Statfs_t) Capabilities {
	t := Capabilities{MaxFileSize: math.MaxInt64, TimeGranularity: 1, MaxLinks: maxLinks[s.Type], MaxName: uint32(s.Namelen), BlockSize: uint32(s.Bsize)}
	if t.MaxLinks == 0 {
		t.MaxLinks = 127 // POSIX's answer for an unknown limit
	}
	if s.Type == unix.MSDOS_SUPER_MAGIC {
		t.CaseInsensitive, t.NoLinks, t.NoSymbolicLinks = true, true, true
	}
	fd, err := unix.Openat(dir, ".", unix.O_TMPFILE|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return t
	}
	defer unix.Close(fd)
	// The largest file offset is the largest file size.
	low, high := int64(0), int64(math.MaxInt64)
	for low < high {
		mid := low + (high-low)/2 + 1
		if _, err := unix.Seek(fd, mid, unix.SEEK_SET); err == nil {
			low = mid
		} else {
			high = mid - 1
		}
	}
	if low > 0 {
		t.MaxFileSize = uint64(low)
	}
	const nines = 999_999_999
	ts := []unix.Timespec{{Nsec: unix.UTIME_OMIT}, {Sec: 1_000_000_000, Nsec: nines}}
	var st Stat
	if unix.UtimesNanoAt(fd, "", ts, unix.AT_EMPTY_PATH) == nil && unix.Fstat(fd, &st) == nil {
		if st.Mtim.Sec == 1_000_000_000 {
			t.TimeGranularity = uint32(1 + nines - st.Mtim.Nsec)
		}
	}
	return t
}
