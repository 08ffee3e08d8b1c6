package server

import (
	"errors"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// byErrno has the statuses of errnos: nfs3.StatusOf allocates, and lookups of missing names are
// frequent.
var byErrno = func() (t [256]nfs3.Status) {
	for i := 1; i < len(t); i++ {
		t[i] = nfs3.StatusOf(unix.Errno(i))
	}
	// Errnos without a status of their own.
	t[unix.EBUSY] = nfs3.ErrAcces   // a mount point
	t[unix.ETXTBSY] = nfs3.ErrAcces // a write to a running program
	t[unix.ELOOP] = nfs3.ErrInval
	t[unix.EOVERFLOW] = nfs3.ErrServerFault
	t[unix.ENOLCK] = nfs3.ErrJukebox
	return t
}()

// status returns the status for an error of vfs.
func status(err error) nfs3.Status {
	if err == nil {
		return nfs3.OK
	}
	if e, ok := err.(unix.Errno); ok && int(e) < len(byErrno) { //nolint:errorlint // vfs does not wrap, and this is hot
		return byErrno[e]
	}
	if errors.Is(err, vfs.ErrBadHandle) {
		return nfs3.ErrBadHandle
	}
	return nfs3.StatusOf(err)
}
