package server

import (
	"errors"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/vfs"
)

// byErrno4 has the statuses of errnos for version 4, as byErrno for version 3.
var byErrno4 = func() (t [256]nfs4.Status) {
	for i := 1; i < len(t); i++ {
		t[i] = nfs4.StatusOf(unix.Errno(i))
	}
	return t
}()

// status4 returns the status for an error of vfs.
func status4(err error) nfs4.Status {
	if err == nil {
		return nfs4.OK
	}
	if e, ok := err.(unix.Errno); ok && int(e) < len(byErrno4) { //nolint:errorlint // vfs does not wrap, and this is hot
		return byErrno4[e]
	}
	if errors.Is(err, vfs.ErrBadHandle) {
		return nfs4.ErrBadHandle
	}
	return nfs4.StatusOf(err)
}
