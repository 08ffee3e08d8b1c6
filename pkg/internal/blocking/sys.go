package blocking

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The plain calls, without the allocations of the wrappers that take [][]byte.

// Recvmsg reads available bytes into iov. It uses h for the system call's header. It waits unless
// flags or the descriptor forbid that.
func Recvmsg(fd uintptr, h *unix.Msghdr, iov []unix.Iovec, flags int) (int, syscall.Errno) {
	return msgCall(unix.SYS_RECVMSG, fd, h, iov, flags)
}

// Sendmsg sends as much of iov as possible without waiting. It uses h for the system call's header.
func Sendmsg(fd uintptr, h *unix.Msghdr, iov []unix.Iovec) (int, syscall.Errno) {
	return msgCall(unix.SYS_SENDMSG, fd, h, iov, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
}

// msgCall repeats the call when a signal interrupted it.
func msgCall(call, fd uintptr, h *unix.Msghdr, iov []unix.Iovec, flags int) (int, syscall.Errno) {
	h.Iov = unsafe.SliceData(iov)
	h.SetIovlen(len(iov))
	for {
		n, _, errno := syscall.Syscall(call, fd, uintptr(unsafe.Pointer(h)), uintptr(flags))
		if errno == 0 {
			return int(n), 0
		}
		if errno != syscall.EINTR {
			return 0, errno
		}
	}
}

// Iovec is p as the kernel wants it.
func Iovec(p []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(p)}
	v.SetLen(len(p))
	return v
}
