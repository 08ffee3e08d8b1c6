package vfs

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

// Operations on ranges of files. The callers check permissions.

// checkRange returns the errors that a range of a file has whatever the file is.
func checkRange(n *Node, off, length uint64) error {
	switch {
	case n.kind == unix.S_IFDIR:
		return unix.EISDIR
	case n.kind != unix.S_IFREG:
		return unix.EINVAL
	case off > math.MaxInt64 || length > math.MaxInt64-off:
		return unix.EFBIG
	}
	return nil
}

// Allocate reserves space for a range, and makes the file longer if it ends before the range. Data
// stay.
func (fs *FS) Allocate(n *Node, off, length uint64, c *Cred, w *Wcc) error {
	return fs.fallocate(n, 0, off, length, c, w)
}

// Deallocate turns a range into a hole. The file keeps its length.
func (fs *FS) Deallocate(n *Node, off, length uint64, c *Cred, w *Wcc) error {
	return fs.fallocate(n, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, off, length, c, w)
}

func (fs *FS) fallocate(n *Node, mode uint32, off, length uint64, c *Cred, w *Wcc) error {
	if err := checkRange(n, off, length); err != nil {
		return err
	}
	fd, err := n.writerFD()
	if err != nil {
		return err
	}
	err = fs.changing(n, c, w, func() error {
		return retry(func() error { return unix.Fallocate(fd, mode, int64(off), int64(length)) })
	})
	if err != nil {
		return err
	}
	return n.Sync(false)
}

// Seek returns the offset of the next data, or of the next hole, from off on; the end of the file
// counts as a hole. ENXIO: off is not in the file, or no data follow.
func (fs *FS) Seek(n *Node, off uint64, hole bool) (uint64, error) {
	if err := checkRange(n, off, 0); err != nil {
		if errors.Is(err, unix.EFBIG) {
			err = unix.ENXIO
		}
		return 0, err
	}
	fd, err := n.readerFD()
	if err != nil {
		return 0, err
	}
	whence := unix.SEEK_DATA
	if hole {
		whence = unix.SEEK_HOLE
	}
	at, err := unix.Seek(fd, int64(off), whence)
	return uint64(at), err
}

// copyStep bounds the bytes of one Copy, which excludes other changes of the target.
const copyStep = 4 << 20

// Copy copies at most length bytes between files, inside the kernel where the file system can. It
// returns the bytes copied; 0 without an error is the end of src. Node.Sync makes them stable.
func (fs *FS) Copy(src *Node, srcOff uint64, dst *Node, dstOff, length uint64, c *Cred, w *Wcc) (uint64, error) {
	in, out, err := copyFDs(src, srcOff, dst, dstOff, length)
	if err != nil {
		return 0, err
	}
	done := 0
	err = fs.changing(dst, c, w, func() error {
		from, to := int64(srcOff), int64(dstOff)
		return retry(func() (err error) {
			done, err = unix.CopyFileRange(in, &from, out, &to, int(min(length, copyStep)), 0)
			return err
		})
	})
	if done > 0 {
		dst.written.Add(1)
	}
	return uint64(max(done, 0)), err
}

// Clone makes a range of dst share the blocks of a range of src, and syncs it. Length 0 means to
// the end of src. EOPNOTSUPP: the file system cannot.
func (fs *FS) Clone(src *Node, srcOff uint64, dst *Node, dstOff, length uint64, c *Cred, w *Wcc) error {
	in, out, err := copyFDs(src, srcOff, dst, dstOff, length)
	if err != nil {
		return err
	}
	r := unix.FileCloneRange{Src_fd: int64(in), Src_offset: srcOff, Src_length: length, Dest_offset: dstOff}
	err = fs.changing(dst, c, w, func() error {
		return retry(func() error { return unix.IoctlFileCloneRange(out, &r) })
	})
	if err != nil {
		return err
	}
	return dst.Sync(false)
}

func copyFDs(src *Node, srcOff uint64, dst *Node, dstOff, length uint64) (in, out int, err error) {
	if err = checkRange(src, srcOff, length); err == nil {
		err = checkRange(dst, dstOff, length)
	}
	if err == nil {
		in, err = src.readerFD()
	}
	if err == nil {
		out, err = dst.writerFD()
	}
	return in, out, err
}

// Advise passes advice about a range to the kernel; advice is one of unix.FADV_*.
func (fs *FS) Advise(n *Node, off, length uint64, advice int) error {
	if err := checkRange(n, off, 0); err != nil {
		return err
	}
	fd, err := n.readerFD()
	if err != nil {
		return err
	}
	return unix.Fadvise(fd, int64(off), int64(min(length, math.MaxInt64)), advice)
}
