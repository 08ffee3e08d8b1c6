package vfs

import "golang.org/x/sys/unix"

// Birth returns the object's time of birth; false if the file system has none.
func (n *Node) Birth() (t unix.Timespec, ok bool) {
	var stx unix.Statx_t
	if statx(n.path, empty, unix.STATX_BTIME, &stx) != nil || stx.Mask&unix.STATX_BTIME == 0 {
		return t, false
	}
	return unix.Timespec{Sec: stx.Btime.Sec, Nsec: int64(stx.Btime.Nsec)}, true
}
