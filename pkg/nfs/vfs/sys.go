package vfs

import (
	"bytes"
	"errors"
	"math"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls that allocate in golang.org/x/sys/unix. Paths are NUL-terminated byte slices.

const (
	openPath  = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC
	openDir   = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	beneath   = unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV
	rwfNowait = 0x8
	pathMax   = 4096 // PATH_MAX of linux/limits.h, with the NUL
	atEACCESS = 0x200
)

var empty = []byte{0}

// Stat are the kernel's attributes of an object.
type Stat = unix.Stat_t

func pointer(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func result(r uintptr, e unix.Errno) (int, error) {
	if e != 0 {
		return -1, e
	}
	return int(r), nil
}

// fstat bypasses the scheduler: it does not block on the file systems that use it on a receive
// loop.
func fstat(fd int, st *Stat) error {
	if _, _, e := unix.RawSyscall(unix.SYS_FSTAT, uintptr(fd), uintptr(unsafe.Pointer(st)), 0); e != 0 {
		return e
	}
	return nil
}

func fstatBlocking(fd int, st *Stat) error { return unix.Fstat(fd, st) }

// openBeneath opens a name or a relative path beneath a directory.
func openBeneath(dir int, path []byte, flags uint64) (int, error) {
	how := unix.OpenHow{Flags: flags, Resolve: beneath}
	for {
		r, _, e := unix.Syscall6(unix.SYS_OPENAT2, uintptr(dir), pointer(path), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		if e != unix.EINTR {
			return result(r, e)
		}
	}
}

// procFD is the path "/proc/self/fd/N", NUL-terminated.
type procFD [32]byte

func (p *procFD) set(fd int) []byte {
	b := p[:copy(p[:], "/proc/self/fd/")]
	var digits [20]byte
	at := len(digits)
	for {
		at--
		digits[at] = byte('0' + fd%10)
		if fd /= 10; fd == 0 {
			break
		}
	}
	b = append(b, digits[at:]...)
	return append(b, 0)
}

// reopen opens the object of a descriptor again.
func reopen(fd int, flags int) (int, error) {
	var p procFD
	return openAt(unix.AT_FDCWD, p.set(fd), flags|unix.O_CLOEXEC)
}

func openAt(dir int, path []byte, flags int) (int, error) {
	for {
		r, _, e := unix.Syscall6(unix.SYS_OPENAT, uintptr(dir), pointer(path), uintptr(flags), 0, 0, 0)
		if e != unix.EINTR {
			return result(r, e)
		}
	}
}

// openDeep is openBeneath for a relative path of any length.
func openDeep(dir int, path []byte, flags uint64) (int, error) {
	at := dir
	for len(path) >= pathMax {
		k := bytes.LastIndexByte(path[:pathMax], '/')
		if k <= 0 {
			break // the kernel has the best error
		}
		part := append([]byte(nil), path[:k+1]...)
		part[k] = 0
		next, err := openBeneath(at, part, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC)
		if at != dir {
			unix.Close(at)
		}
		if err != nil {
			return -1, err
		}
		at, path = next, path[k+1:]
	}
	fd, err := openBeneath(at, path, flags)
	if at != dir {
		unix.Close(at)
	}
	return fd, err
}

// pathOf returns the kernel's path of a descriptor, in buf.
func pathOf(fd int, buf []byte) ([]byte, error) {
	var p procFD
	path := p.set(fd)
	at := unix.AT_FDCWD
	r, _, e := unix.RawSyscall6(unix.SYS_READLINKAT, uintptr(at), pointer(path), pointer(buf), uintptr(len(buf)), 0, 0)
	if e != 0 {
		return nil, e
	}
	if int(r) == len(buf) {
		return nil, unix.ENAMETOOLONG
	}
	return buf[:r], nil
}

var aclAttr = []byte("system.posix_acl_access\x00")

// aclOf reports whether an object has an access ACL beyond its mode bits.
func aclOf(fd int) (bool, error) {
	var p procFD
	path := p.set(fd)
	_, _, e := unix.Syscall6(unix.SYS_GETXATTR, pointer(path), pointer(aclAttr), 0, 0, 0, 0)
	switch e {
	case 0:
		return true, nil
	case unix.ENODATA:
		return false, nil
	}
	return false, e
}

// access checks with the kernel whether the calling thread may do all of mode (access(2)) to an
// object.
func access(fd int, mode uint32) error {
	_, _, e := unix.Syscall6(unix.SYS_FACCESSAT2, uintptr(fd), pointer(empty), uintptr(mode), unix.AT_EMPTY_PATH|atEACCESS, 0, 0)
	if e != 0 {
		return e
	}
	return nil
}

// rawHandle is struct file_handle of open_by_handle_at(2).
type rawHandle struct {
	bytes uint32
	typ   int32
	data  [128]byte
}

// nameToHandle fills in h for a name in dir, or for dir itself if the name is empty, and returns
// the mount id.
func nameToHandle(dir int, name []byte, h *rawHandle) (mount int32, err error) {
	flags := 0
	if name[0] == 0 {
		flags = unix.AT_EMPTY_PATH
	}
	h.bytes = uint32(len(h.data))
	_, _, e := unix.Syscall6(unix.SYS_NAME_TO_HANDLE_AT, uintptr(dir), pointer(name), uintptr(unsafe.Pointer(h)), uintptr(unsafe.Pointer(&mount)), uintptr(flags), 0)
	if e != 0 {
		return 0, e
	}
	return mount, nil
}

func openByHandle(mount int, h *rawHandle, flags int) (int, error) {
	for {
		r, _, e := unix.Syscall(unix.SYS_OPEN_BY_HANDLE_AT, uintptr(mount), uintptr(unsafe.Pointer(h)), uintptr(flags|unix.O_CLOEXEC))
		if e != unix.EINTR {
			return result(r, e)
		}
	}
}

func statx(dir int, name []byte, mask uint32, stx *unix.Statx_t) error {
	flags := unix.AT_SYMLINK_NOFOLLOW
	if name[0] == 0 {
		flags |= unix.AT_EMPTY_PATH
	}
	_, _, e := unix.Syscall6(unix.SYS_STATX, uintptr(dir), pointer(name), uintptr(flags), uintptr(mask), uintptr(unsafe.Pointer(stx)), 0)
	if e != 0 {
		return e
	}
	return nil
}

// preadNow reads from the page cache, and fails with EAGAIN if nothing is there.
func preadNow(fd int, b []byte, off int64) (int, error) {
	iov := unix.Iovec{Base: unsafe.SliceData(b)}
	iov.SetLen(len(b))
	r, _, e := unix.Syscall6(unix.SYS_PREADV2, uintptr(fd), uintptr(unsafe.Pointer(&iov)), 1, uintptr(off), uintptr(off>>32), rwfNowait)
	return result(r, e)
}

// pwritev fails with EAGAIN if rwfNowait is among the flags and it would have to wait.
func pwritev(fd int, iov []unix.Iovec, off int64, flags uintptr) (int, error) {
	for {
		r, _, e := unix.Syscall6(unix.SYS_PWRITEV2, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)), uintptr(off), uintptr(off>>32), flags)
		if e != unix.EINTR {
			return result(r, e)
		}
	}
}

// readlink reads the target of a symbolic link by its O_PATH descriptor.
func readlink(fd int, buf []byte) (int, error) {
	r, _, e := unix.Syscall6(unix.SYS_READLINKAT, uintptr(fd), pointer(empty), pointer(buf), uintptr(len(buf)), 0, 0)
	return result(r, e)
}

// retry repeats a system call that a signal interrupted.
func retry(f func() error) error {
	for {
		if err := f(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

func startWriteback(fd int, from, length int64) error {
	return unix.SyncFileRange(fd, from, length, unix.SYNC_FILE_RANGE_WRITE)
}

// advance drops the first k bytes of v, which has more.
func advance(v *unix.Iovec, k int) {
	v.Base = (*byte)(unsafe.Add(unsafe.Pointer(v.Base), k))
	v.SetLen(int(v.Len) - k)
}

const maxOffset = math.MaxInt64

// passing reports whether an error is unrelated to the object.
func passing(err error) bool {
	return scarce(err) || errors.Is(err, unix.EIO)
}

// scarce reports whether descriptors or memory are short.
func scarce(err error) bool {
	return errors.Is(err, unix.EMFILE) || errors.Is(err, unix.ENFILE) || errors.Is(err, unix.ENOMEM)
}

// staleIfGone turns open_by_handle_at(2)'s error for a missing object into ESTALE.
func staleIfGone(err error) error {
	if passing(err) {
		return err
	}
	return unix.ESTALE
}
