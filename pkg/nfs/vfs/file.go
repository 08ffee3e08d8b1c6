package vfs

import (
	"errors"
	"math"

	"golang.org/x/sys/unix"
)

// File is an open file of its own: an open file description of the kernel, which locks belong to.
// While an object has Files it can be used after its last name was removed.
type File struct {
	n  *Node
	fd int
}

// OpenFile opens a regular file as the process: the caller checks permissions. access is MayRead,
// MayWrite or both. While another process has a lease on the file (fcntl(2)), it fails with EAGAIN.
func (fs *FS) OpenFile(n *Node, access uint32) (*File, error) {
	if n.kind != unix.S_IFREG {
		return nil, unix.EINVAL
	}
	flags := unix.O_RDONLY
	switch access & (MayRead | MayWrite) {
	case MayRead | MayWrite:
		flags = unix.O_RDWR
	case MayWrite:
		flags = unix.O_WRONLY
	}
	fs.table.makeRoom(1)
	fd, err := fs.table.opened(reopen(n.path, flags|unix.O_NOCTTY|unix.O_NONBLOCK))
	if err != nil {
		return nil, err
	}
	fs.table.files.Add(1)
	n.Acquire()
	n.opens.Add(1)
	return &File{n: n, fd: fd}, nil
}

// Node returns the file's object. It is valid until Close.
func (f *File) Node() *Node { return f.n }

// Close releases the file, and the locks of its open file description.
func (f *File) Close() {
	unix.Close(f.fd)
	f.n.fs.table.files.Add(-1)
	if f.n.opens.Add(-1) == 0 {
		var st Stat
		_ = f.n.Stat(&st) // kills it if no link is left
	}
	f.n.Release()
}

// flock makes the argument of fcntl(2) for a range; length 0 means to the end. A range beyond the
// kernel's largest offset is EOVERFLOW.
func flock(typ int16, off, length uint64) (unix.Flock_t, error) {
	if off > math.MaxInt64 {
		return unix.Flock_t{}, unix.EOVERFLOW
	}
	if length > math.MaxInt64-off {
		length = 0
	}
	return unix.Flock_t{Type: typ, Whence: unix.SEEK_SET, Start: int64(off), Len: int64(length)}, nil
}

// Lock locks a range for f, without waiting. typ is unix.F_RDLCK or unix.F_WRLCK; length 0 means to
// the end of the largest file. EAGAIN: another open file description has a conflicting lock. A lock
// of f in the range is replaced.
func (f *File) Lock(typ int16, off, length uint64) error { return f.setLock(typ, off, length) }

// Unlock releases a range.
func (f *File) Unlock(off, length uint64) error { return f.setLock(unix.F_UNLCK, off, length) }

func (f *File) setLock(typ int16, off, length uint64) error {
	l, err := flock(typ, off, length)
	if err != nil {
		return err
	}
	err = retry(func() error { return unix.FcntlFlock(uintptr(f.fd), unix.F_OFD_SETLK, &l) })
	if errors.Is(err, unix.EACCES) { // POSIX allows either
		err = unix.EAGAIN
	}
	return err
}

// TestLock reports whether another open file description has a lock that conflicts, and that lock.
// A length of 0 means to the end.
func (f *File) TestLock(typ int16, off, length uint64) (held bool, heldType int16, heldOff, heldLength uint64, err error) {
	l, err := flock(typ, off, length)
	if err == nil {
		err = retry(func() error { return unix.FcntlFlock(uintptr(f.fd), unix.F_OFD_GETLK, &l) })
	}
	if err != nil || l.Type == unix.F_UNLCK {
		return false, 0, 0, 0, err
	}
	return true, l.Type, uint64(l.Start), uint64(l.Len), nil
}
