package sluicectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/oncrpc"
)

// explain makes one sentence of an error: the attempt, the failure, and the remedy where it is
// known.
func explain(err error) string {
	s := err.Error()
	switch {
	case errors.Is(err, context.Canceled):
		return "interrupted"
	case s == "":
		return "unknown error"
	}
	if strings.HasSuffix(s, ".") || strings.HasSuffix(s, "?") {
		return s
	}
	return s + "."
}

// failure is an error with the attempt, in place of the layers that it came through.
type failure struct {
	what  string
	cause error
}

func (f *failure) Error() string { return f.what + ": " + reason(f.cause) }
func (f *failure) Unwrap() error { return f.cause }

// cannot wraps err with the failed attempt: cannot(err, "read %s", t).
func cannot(err error, format string, args ...any) error {
	return &failure{"cannot " + fmt.Sprintf(format, args...), err}
}

// nfsStatus returns the status in an error, nil if there is none.
func nfsStatus(err error) error {
	var v3 nfs3.Status
	var v4 nfs4.Status
	switch {
	case errors.As(err, &v3):
		return v3
	case errors.As(err, &v4):
		return v4
	}
	return nil
}

// reason returns the useful part of an error's cause.
func reason(err error) string {
	var (
		inner *failure
		path  *fs.PathError
		link  *os.LinkError
		rpc   *oncrpc.StatusError
	)
	switch {
	case errors.As(err, &inner):
		return inner.Error()
	case errors.As(err, &path) && nfsStatus(path.Err) != nil:
		return printable(path.Path) + ": " + nfsStatus(path.Err).Error()
	case errors.As(err, &path) && isPart(filepath.Base(path.Path)):
		return printable(filepath.Dir(path.Path)) + ": " + reason(path.Err)
	case errors.As(err, &path):
		return printable(path.Path) + ": " + reason(path.Err)
	case errors.As(err, &link):
		return printable(link.New) + ": " + reason(link.Err)
	case errors.Is(err, nfs4.ErrMinorVersMismatch):
		return "the server does not have NFS version 4.2; --nfs says which to speak"
	case nfsStatus(err) != nil:
		return nfsStatus(err).Error()
	case errors.As(err, &rpc) && rpc.Program == nfs3.MountProgram && !rpc.Status.Denied && rpc.Status.Accept == oncrpc.ProgUnavail:
		return "the server does not answer MOUNT on this connection; say on which TCP port it does by ?mountport=N"
	case errors.As(err, &rpc) && rpc.Program == nfs3.Program && !rpc.Status.Denied && rpc.Status.Accept == oncrpc.ProgUnavail:
		return "the server has no NFS on this connection"
	case errors.As(err, &rpc) && rpc.Program == nfs3.Program && !rpc.Status.Denied && rpc.Status.Accept == oncrpc.ProgMismatch:
		return fmt.Sprintf("the server has NFS versions %d to %d, not %d", rpc.Status.Low, rpc.Status.High, rpc.Version)
	case errors.As(err, &rpc) && rpc.Status.Denied:
		return "the server denies the call (" + rpc.Status.String() + ")"
	case errors.As(err, &rpc):
		return "the server could not execute the call (" + rpc.Status.String() + ")"
	case mismatch(err) != "":
		return mismatch(err)
	case errors.Is(err, context.DeadlineExceeded):
		return "no answer in time; --timeout says how long to wait"
	case errors.Is(err, unix.ECONNREFUSED):
		return "nothing listens there (connection refused)"
	case errors.Is(err, unix.EHOSTUNREACH), errors.Is(err, unix.ENETUNREACH), errors.Is(err, unix.ETIMEDOUT):
		return "the host cannot be reached (" + err.Error() + ")"
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		return "the connection ended (" + err.Error() + ")"
	}
	var dns *net.DNSError
	if errors.As(err, &dns) {
		return "host " + dns.Name + " is not known"
	}
	return err.Error()
}
