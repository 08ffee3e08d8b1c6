package nfs3

import (
	"errors"
	"io/fs"
	"strconv"

	"golang.org/x/sys/unix"
)

// Status is an nfsstat3 (RFC 1813 section 2.6), or a mountstat3 of MOUNT (appendix I), whose values
// are a subset. It is an error too; errors.Is matches fs.ErrNotExist and the like, and the errno
// with the same meaning.
type Status uint32

// Status codes.
const (
	OK             Status = 0
	ErrPerm        Status = 1
	ErrNoEnt       Status = 2
	ErrIO          Status = 5
	ErrNXIO        Status = 6
	ErrAcces       Status = 13
	ErrExist       Status = 17
	ErrXDev        Status = 18
	ErrNoDev       Status = 19
	ErrNotDir      Status = 20
	ErrIsDir       Status = 21
	ErrInval       Status = 22
	ErrFBig        Status = 27
	ErrNoSpc       Status = 28
	ErrROFS        Status = 30
	ErrMLink       Status = 31
	ErrNameTooLong Status = 63
	ErrNotEmpty    Status = 66
	ErrDQuot       Status = 69
	ErrStale       Status = 70
	ErrRemote      Status = 71
	ErrBadHandle   Status = 10001
	ErrNotSync     Status = 10002
	ErrBadCookie   Status = 10003
	ErrNotSupp     Status = 10004
	ErrTooSmall    Status = 10005
	ErrServerFault Status = 10006
	ErrBadType     Status = 10007
	ErrJukebox     Status = 10008
)

var statuses = map[Status]struct {
	name, text string
	errno      unix.Errno
}{
	OK:             {"NFS3_OK", "no error", 0},
	ErrPerm:        {"NFS3ERR_PERM", "not the owner", unix.EPERM},
	ErrNoEnt:       {"NFS3ERR_NOENT", "no such file or directory", unix.ENOENT},
	ErrIO:          {"NFS3ERR_IO", "input/output error", unix.EIO},
	ErrNXIO:        {"NFS3ERR_NXIO", "no such device or address", unix.ENXIO},
	ErrAcces:       {"NFS3ERR_ACCES", "permission denied", unix.EACCES},
	ErrExist:       {"NFS3ERR_EXIST", "file exists", unix.EEXIST},
	ErrXDev:        {"NFS3ERR_XDEV", "hard link across devices", unix.EXDEV},
	ErrNoDev:       {"NFS3ERR_NODEV", "no such device", unix.ENODEV},
	ErrNotDir:      {"NFS3ERR_NOTDIR", "not a directory", unix.ENOTDIR},
	ErrIsDir:       {"NFS3ERR_ISDIR", "is a directory", unix.EISDIR},
	ErrInval:       {"NFS3ERR_INVAL", "invalid argument", unix.EINVAL},
	ErrFBig:        {"NFS3ERR_FBIG", "file too large", unix.EFBIG},
	ErrNoSpc:       {"NFS3ERR_NOSPC", "no space left", unix.ENOSPC},
	ErrROFS:        {"NFS3ERR_ROFS", "read-only file system", unix.EROFS},
	ErrMLink:       {"NFS3ERR_MLINK", "too many hard links", unix.EMLINK},
	ErrNameTooLong: {"NFS3ERR_NAMETOOLONG", "name too long", unix.ENAMETOOLONG},
	ErrNotEmpty:    {"NFS3ERR_NOTEMPTY", "directory not empty", unix.ENOTEMPTY},
	ErrDQuot:       {"NFS3ERR_DQUOT", "quota exceeded", unix.EDQUOT},
	ErrStale:       {"NFS3ERR_STALE", "stale file handle", unix.ESTALE},
	ErrRemote:      {"NFS3ERR_REMOTE", "too many levels of remote in path", unix.EREMOTE},
	ErrBadHandle:   {"NFS3ERR_BADHANDLE", "bad file handle", unix.ESTALE},
	ErrNotSync:     {"NFS3ERR_NOT_SYNC", "the file changed in the meantime", unix.EBUSY},
	ErrBadCookie:   {"NFS3ERR_BAD_COOKIE", "stale directory cookie", unix.ESTALE},
	ErrNotSupp:     {"NFS3ERR_NOTSUPP", "operation not supported", unix.EOPNOTSUPP},
	ErrTooSmall:    {"NFS3ERR_TOOSMALL", "buffer or request too small", unix.EINVAL},
	ErrServerFault: {"NFS3ERR_SERVERFAULT", "server fault", unix.EIO},
	ErrBadType:     {"NFS3ERR_BADTYPE", "type not supported by the server", unix.EINVAL},
	ErrJukebox:     {"NFS3ERR_JUKEBOX", "the server needs more time, try again", unix.EAGAIN},
}

// String returns the name in RFC 1813, like "NFS3ERR_NOENT".
func (s Status) String() string {
	if v, ok := statuses[s]; ok {
		return v.name
	}
	return "nfsstat3(" + strconv.FormatUint(uint64(s), 10) + ")"
}

// Error returns the status's meaning and name: "no such file or directory (NFS3ERR_NOENT)".
func (s Status) Error() string {
	if v, ok := statuses[s]; ok {
		return v.text + " (" + v.name + ")"
	}
	return "unknown status " + s.String()
}

// Err returns s as an error, nil for OK.
func (s Status) Err() error {
	if s == OK {
		return nil
	}
	return s
}

// Is lets errors.Is find fs.ErrNotExist, fs.ErrExist, fs.ErrPermission, and errnos.
func (s Status) Is(target error) bool {
	errno := statuses[s].errno
	return errno != 0 && (errno == target || errno.Is(target))
}

// StatusOf returns the status for the error of a system call: the one with the errno's meaning, or
// ErrIO. It returns a Status inside err unchanged, and OK for nil.
func StatusOf(err error) Status {
	if err == nil {
		return OK
	}
	var s Status
	if errors.As(err, &s) {
		return s
	}
	var errno unix.Errno
	if errors.As(err, &errno) {
		return statusOfErrno(errno)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return ErrNoEnt
	case errors.Is(err, fs.ErrExist):
		return ErrExist
	case errors.Is(err, fs.ErrPermission):
		return ErrAcces
	}
	return ErrIO
}

func statusOfErrno(errno unix.Errno) Status {
	switch errno {
	case unix.EPERM:
		return ErrPerm
	case unix.ENOENT:
		return ErrNoEnt
	case unix.ENXIO:
		return ErrNXIO
	case unix.EACCES:
		return ErrAcces
	case unix.EEXIST:
		return ErrExist
	case unix.EXDEV:
		return ErrXDev
	case unix.ENODEV:
		return ErrNoDev
	case unix.ENOTDIR:
		return ErrNotDir
	case unix.EISDIR:
		return ErrIsDir
	case unix.EINVAL:
		return ErrInval
	case unix.EFBIG:
		return ErrFBig
	case unix.ENOSPC:
		return ErrNoSpc
	case unix.EROFS:
		return ErrROFS
	case unix.EMLINK:
		return ErrMLink
	case unix.ENAMETOOLONG:
		return ErrNameTooLong
	case unix.ENOTEMPTY:
		return ErrNotEmpty
	case unix.EDQUOT:
		return ErrDQuot
	case unix.ESTALE:
		return ErrStale
	case unix.EOPNOTSUPP, unix.ENOSYS:
		return ErrNotSupp
	case unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE:
		return ErrJukebox // the client waits and retries
	}
	return ErrIO
}
