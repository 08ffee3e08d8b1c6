package vfs

import (
	"errors"

	"golang.org/x/sys/unix"
)

// ReadNow reads from off into b without waiting, up to the end of b or of the file. It fails with
// EAGAIN if not all of it is in memory or n is not open for reading, perhaps after reading a part.
// The caller checks permissions.
func (fs *FS) ReadNow(n *Node, b []byte, off int64) (int, error) {
	fd := int(n.reader.Load())
	if fd < 0 || !fs.readNow.Load() {
		return 0, unix.EAGAIN
	}
	n.used.Store(fs.now())
	if fs.inMemory {
		return pread(fd, b, off)
	}
	got := 0
	for got < len(b) {
		k, err := preadNow(fd, b[got:], off+int64(got))
		if errors.Is(err, unix.EOPNOTSUPP) {
			fs.readNow.Store(false)
			err = unix.EAGAIN
		}
		if err != nil {
			return got, err
		}
		if k == 0 {
			break
		}
		got += k
	}
	return got, nil
}

// Read reads from off into b, less than len(b) only at the end of the file. The caller checks
// permissions.
func (fs *FS) Read(n *Node, b []byte, off int64) (int, error) {
	fd, err := n.readerFD()
	if err != nil {
		return 0, err
	}
	return pread(fd, b, off)
}

func pread(fd int, b []byte, off int64) (int, error) {
	got := 0
	for got < len(b) {
		k, err := unix.Pread(fd, b[got:], off+int64(got))
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return got, err
		}
		if k == 0 {
			break
		}
		got += k
	}
	return got, nil
}

// Write is a write to a file. The zero value is ready, and reusable.
type Write struct {
	Wcc Wcc
	// Opened: the caller opened the file for writing, so its permissions do not matter any more.
	Opened bool
	// Verifier is FS.Verifier from before the write: if it is unchanged after a commit, the data
	// are safe.
	Verifier uint64

	iov []unix.Iovec
}

// maxIOV is the kernel's limit of slices in one call.
const maxIOV = 1024

// Do writes length bytes of data at off as the caller: an owner always may, others by the mode. It
// returns the bytes written, fewer than length only with an error. Node.Sync makes them stable.
func (w *Write) Do(n *Node, data [][]byte, length int, off uint64, c *Cred) (int, error) {
	w.Wcc.HasBefore, w.Wcc.HasAfter = false, false
	if n.kind != unix.S_IFREG {
		return 0, unix.EINVAL
	}
	fd, err := n.writerFD()
	if err != nil {
		return 0, err
	}
	n.change.Lock()
	defer n.change.Unlock()
	return w.doLocked(n, fd, data, length, off, c, true)
}

// Now is Do without waiting. It fails with EAGAIN if it would have to wait, or if Do knows better,
// perhaps after writing a part: Do may then write all of it again. It never waits for writeback.
func (w *Write) Now(n *Node, data [][]byte, length int, off uint64, c *Cred) (int, error) {
	fs := n.fs
	fd := int(n.writer.Load())
	if fd < 0 || !fs.nonblocking || !fs.writeNow.Load() || !n.change.TryLock() {
		return 0, unix.EAGAIN
	}
	defer n.change.Unlock()
	n.used.Store(fs.now())
	w.Wcc.HasBefore, w.Wcc.HasAfter = false, false
	done, err := w.doLocked(n, fd, data, length, off, c, false)
	if err == nil {
		return done, nil
	}
	// the file system has no such writes
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EINVAL) && !fs.inMemory {
		fs.writeNow.Store(false)
	}
	return 0, unix.EAGAIN
}

func (w *Write) doLocked(n *Node, fd int, data [][]byte, length int, off uint64, c *Cred, wait bool) (done int, err error) {
	fs := n.fs
	defer func() { w.Wcc.after(n, done > 0) }()
	if w.Wcc.before(n); !w.Wcc.HasBefore {
		return 0, unix.ESTALE
	}
	if !w.Opened && !fs.Owns(&w.Wcc.Before, c) {
		if wait {
			err = fs.requirePermission(n, &w.Wcc.Before, c, MayWrite)
		} else if may, known := fs.Permit(n, &w.Wcc.Before, c, MayWrite); !known || may == 0 {
			err = unix.EAGAIN
		}
		if err != nil {
			return 0, err
		}
	}
	if off > maxOffset || uint64(length) > maxOffset-off {
		return 0, unix.EFBIG
	}
	w.Verifier = fs.Verifier()
	if length == 0 {
		return 0, nil
	}
	entered, err := fs.ids.enterWriter(c)
	if err != nil {
		return 0, err
	}
	flags := uintptr(0)
	if !wait && !fs.inMemory {
		flags = rwfNowait
	}
	done, err = w.write(fd, data, length, int64(off), flags)
	if done > 0 {
		n.written.Add(1) // not before: a concurrent Sync may miss some of the data
		if !fs.inMemory {
			if from, length := n.fresh.add(int64(off), int64(done)); length > 0 {
				fs.writeBack(n, from, length)
			}
		}
	}
	fs.ids.leaveWriter(entered)
	return done, err
}

func (w *Write) write(fd int, data [][]byte, length int, off int64, flags uintptr) (int, error) {
	w.iov = w.iov[:0]
	for _, b := range data {
		if len(b) > 0 {
			v := unix.Iovec{Base: &b[0]}
			v.SetLen(len(b))
			w.iov = append(w.iov, v)
		}
	}
	done := 0
	left := w.iov
	for len(left) > 0 {
		k, err := pwritev(fd, left[:min(len(left), maxIOV)], off+int64(done), flags)
		if err != nil {
			clear(w.iov)
			return done, err
		}
		done += k
		for k > 0 && uint64(k) >= left[0].Len {
			k -= int(left[0].Len)
			left = left[1:]
		}
		if k > 0 {
			advance(&left[0], k)
		}
	}
	clear(w.iov) // the caller's memory must not stay alive
	if done != length {
		return done, unix.EIO
	}
	return done, nil
}

// Readlink reads the target of a symbolic link into b.
func (fs *FS) Readlink(n *Node, b []byte) (int, error) {
	if n.kind != unix.S_IFLNK {
		return 0, unix.EINVAL
	}
	return readlink(n.path, b)
}
