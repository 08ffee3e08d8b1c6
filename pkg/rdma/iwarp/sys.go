package iwarp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The plain calls, without the allocations of the wrappers that take [][]byte.

func readv(fd uintptr, iov []unix.Iovec) (int, syscall.Errno) {
	return vectored(unix.SYS_READV, fd, iov)
}

func writev(fd uintptr, iov []unix.Iovec) (int, syscall.Errno) {
	return vectored(unix.SYS_WRITEV, fd, iov)
}

// vectored repeats the call when a signal interrupted it.
func vectored(call, fd uintptr, iov []unix.Iovec) (int, syscall.Errno) {
	for {
		n, _, errno := syscall.Syscall(call, fd, uintptr(unsafe.Pointer(unsafe.SliceData(iov))), uintptr(len(iov)))
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// iovec is p as the kernel wants it.
func iovec(p []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(p)}
	v.SetLen(len(p))
	return v
}
