package vfs

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// advance drops the first k bytes of v, which has more.
func advance(v *unix.Iovec, k int) {
	v.Base = (*byte)(unsafe.Add(unsafe.Pointer(v.Base), k))
	v.SetLen(int(v.Len) - k)
}
