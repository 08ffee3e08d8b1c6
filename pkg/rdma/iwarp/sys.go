package iwarp

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The plain calls, without the allocations of the wrappers that take [][]byte. The flags say whether to wait: endpoints clear
// O_NONBLOCK (see wait.go).

// recvmsg uses h for the system call's header.
func recvmsg(fd uintptr, h *unix.Msghdr, iov []unix.Iovec, flags int) (int, syscall.Errno) {
	return msgCall(unix.SYS_RECVMSG, fd, h, iov, flags)
}

// sendmsg uses h for the system call's header.
func sendmsg(fd uintptr, h *unix.Msghdr, iov []unix.Iovec, flags int) (int, syscall.Errno) {
	return msgCall(unix.SYS_SENDMSG, fd, h, iov, flags|unix.MSG_NOSIGNAL)
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

// iovec is p as the kernel wants it.
func iovec(p []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(p)}
	v.SetLen(len(p))
	return v
}
