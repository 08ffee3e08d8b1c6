package vfs

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

const maxOffset = math.MaxInt64

// ReadNow reads what is in memory into b, from off on: as much as there is up to the end of b or of the file, and fails with EAGAIN if that cannot
// be done without waiting, or n is not open for reading yet. It may have read a part then. Permissions are the caller's to check.
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

// Read reads into b from off on, less than len(b) only at the end of the file. Permissions are the caller's to check.
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

// Write is a write to a file. The zero value is ready; it may be used again and again.
type Write struct {
	Wcc Wcc
	// Verifier is what FS.Verifier was before the data were taken: if it is still the same after they were committed, they are safe.
	Verifier uint64

	iov []unix.Iovec
}

// maxIOV is how many slices the kernel takes at once.
const maxIOV = 1024

// Do writes data, which have length bytes, at off, as the caller: with the owner's right, or that of the mode. It returns how many bytes
// were written, less than length only with an error. They are not on stable storage: Node.Sync brings them there.
func (w *Write) Do(n *Node, data [][]byte, length int, off uint64, c *Cred) (int, error) {
	fs := n.fs
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
	defer w.Wcc.after(n)
	if err := n.Stat(&w.Wcc.Before); err != nil {
		return 0, err
	}
	w.Wcc.HasBefore = true
	if !fs.Owns(&w.Wcc.Before, c) {
		if err := fs.requirePermission(n, &w.Wcc.Before, c, MayWrite); err != nil {
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
	done, err := w.write(fd, data, length, int64(off))
	n.written.Add(1) // not before: a Sync meanwhile does not bring all of it to stable storage
	fs.ids.leaveWriter(entered)
	return done, err
}

func (w *Write) write(fd int, data [][]byte, length int, off int64) (int, error) {
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
		k, err := pwritev(fd, left[:min(len(left), maxIOV)], off+int64(done))
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
	clear(w.iov) // they are the caller's memory, and keep it alive
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

// ReadDir fills b with entries of a directory, for a Dirents to walk through, from the cookie on: 0, or the Off of an entry, behind which it goes on.
// 0 bytes are the end. The caller checks permissions.
func (fs *FS) ReadDir(n *Node, cookie int64, b []byte) (int, error) {
	if !n.IsDir() {
		return 0, unix.ENOTDIR
	}
	fd, err := n.readerFD()
	if err != nil {
		return 0, err
	}
	n.listing.Lock()
	defer n.listing.Unlock()
	// At the start the directory is read anew, whatever the descriptor remembers.
	if n.position != cookie || cookie == 0 {
		if _, err := unix.Seek(fd, cookie, unix.SEEK_SET); err != nil {
			n.position = -1
			return 0, err
		}
	}
	var got int
	err = retry(func() (err error) {
		got, err = unix.Getdents(fd, b)
		return err
	})
	n.position = -1
	if err != nil {
		return 0, err
	}
	for e := (Dirents{b: b[:got]}); e.Next(); {
		n.position = e.Off
	}
	return got, nil
}

// Entries returns what walks through the entries in b.
func Entries(b []byte) Dirents { return Dirents{b: b} }
