package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/proxy/rewrite"
	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
	"sluice.dev/sluice/pkg/oncrpc"
)

const (
	// findTimeout bounds one attempt to find the roots.
	findTimeout = 20 * time.Second
	minRetry    = 100 * time.Millisecond
	maxRetry    = 5 * time.Second
	// mountRetry is as long as maxRetry where only MOUNT is missing: many servers never have it where the gateway can reach it.
	mountRetry = time.Minute
)

// rootFinder finds the backend's handles of the export's root, at the start and whenever the backend comes back.
type rootFinder struct {
	s      *Server
	ctx    context.Context
	cancel context.CancelFunc
	retry  chan struct{}

	mu                sync.Mutex
	err               error          // why the last attempt failed
	mountMissingSince time.Time      // since when the backend has had no MOUNT that could be asked, zero if it has one, or just came
	localAddr         netip.AddrPort // where it was asked from
}

func (r *rootFinder) init(s *Server) {
	r.s = s
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.retry = make(chan struct{}, 1)
}

// onHealthChange has the roots found again when the backend answers again: it was away, and may be another one.
func (r *rootFinder) onHealthChange(healthy bool) {
	if healthy {
		r.mu.Lock()
		r.mountMissingSince = time.Time{}
		r.mu.Unlock()
		r.trigger()
	}
}

func (r *rootFinder) trigger() {
	select {
	case r.retry <- struct{}{}:
	default:
	}
}

// run finds the roots until close.
func (r *rootFinder) run() {
	wait := minRetry
	for r.ctx.Err() == nil {
		roots, err := r.find()
		r.setError(err)
		if roots != nil {
			r.publish(*roots)
		}
		var retry <-chan time.Time
		if err != nil {
			last := maxRetry
			if onlyMountMissing(err) && roots.NoMount {
				last = mountRetry
			}
			wait = min(wait, last)
			retry = time.After(wait)
			wait *= 2
			r.pause(minRetry) // each call that has to wait asks for another attempt
		}
		select {
		case <-r.retry:
			wait = minRetry
		case <-retry:
		case <-r.ctx.Done():
		}
	}
}

// pause waits so long, or until close.
func (r *rootFinder) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.ctx.Done():
	}
}

// setError notes what came of an attempt, and logs what is new.
func (r *rootFinder) setError(err error) {
	r.mu.Lock()
	before := r.err
	r.err = err
	r.mu.Unlock()
	switch {
	case err == nil || r.ctx.Err() != nil || before != nil && withoutDigits(before) == withoutDigits(err):
	case !onlyMountMissing(err):
		r.s.log.Error("export root not found at the backend; retrying",
			"backend", r.s.address(), "path", r.s.cfg.Path, "error", err)
	case !onlyMountMissing(before):
		r.s.log.Warn("NFSv3 root not found at the backend, which serves version 4; retrying",
			"backend", r.s.address(), "path", r.s.cfg.Path, "error", err)
	}
}

// withoutDigits is the text of an error without numbers: each attempt has a port of its own.
func withoutDigits(err error) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, err.Error())
}

// publish has calls use the roots, and sends those on their way that wait for them.
func (r *rootFinder) publish(roots rewrite.Roots) {
	if before := r.s.export.Roots.Load(); before != nil {
		fillMissing(&roots, before)
	}
	r.s.export.Roots.Store(&roots)
	r.s.waiters.resume()
}

// fillMissing takes over from before what was not found this time. A root that was known is guarded until another takes its place, and a call that is sent again
// has to be rewritten as it was: also while the backend does not tell the root, and when it no longer has the version.
func fillMissing(roots, before *rewrite.Roots) {
	if roots.V3 == nil {
		roots.V3, roots.FileID3 = before.V3, before.FileID3
	}
	if roots.V4 == nil {
		roots.V4, roots.FileID4 = before.V4, before.FileID4
		roots.Supported4, roots.ExclCreat4 = before.Supported4, before.ExclCreat4
	}
}

// lastError returns why the roots are not known, or may be outdated, nil if all is well; and where the backend was asked from. A *mountError tells
// that all is well but MOUNT.
func (r *rootFinder) lastError() (from netip.AddrPort, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.localAddr, r.err
}

// setLocalAddr notes where the backend sees the next question come from.
func (r *rootFinder) setLocalAddr(c upstream.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.localAddr = c.Local()
}

// find asks the backend. With an error it may have found the root for one version and not for another; the error is a *mountError if only MOUNT is missing.
func (r *rootFinder) find() (*rewrite.Roots, error) {
	ctx, cancel := context.WithTimeout(r.ctx, findTimeout)
	defer cancel()
	conn, err := r.s.backend.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Wait()
	defer conn.Close() //nolint:errcheck // it was only asked
	r.setLocalAddr(conn)
	var roots rewrite.Roots
	if r.s.cfg.V3 {
		// NFS itself is asked whether it has version 3: MOUNT may be away for a moment, and rpcbind too.
		err = client.New(client.Config{Requester: conn, Pool: r.s.cfg.Pool}).Null(ctx)
		roots.No3 = unsupported(err)
	}
	err4 := r.findV4(ctx, conn, &roots)
	if r.s.cfg.V3 && !roots.No3 {
		if before := r.s.export.Roots.Load(); roots.V4 != nil && (before == nil || !bytes.Equal(roots.V4, before.V4)) {
			// MOUNT may keep the gateway waiting, version 4 has no need of it.
			r.setError(nil)
			r.publish(roots)
		}
		err = r.findV3(ctx, conn, &roots)
	}
	if err != nil {
		err = fmt.Errorf("version 3: %w", err)
	}
	var why *mountError
	switch {
	case roots.V3 == nil && roots.V4 == nil:
		return nil, errors.Join(err, err4)
	case roots.V3 != nil && (roots.V4 != nil || roots.No4), roots.V4 != nil && roots.No3:
		return &roots, nil // what the backend does not have is not offered
	case err4 == nil && errors.As(err, &why):
		roots.NoMount = r.mountOverdue()
		return &roots, why
	}
	return &roots, errors.Join(err, err4)
}

// mountOverdue reports whether the backend's MOUNT, which cannot be asked now, could not be for too long
// for a MNT to wait: MOUNT often starts later than NFS.
func (r *rootFinder) mountOverdue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mountMissingSince.IsZero() {
		r.mountMissingSince = time.Now()
	}
	return time.Since(r.mountMissingSince) >= r.s.cfg.MountPatience
}

// findV4 finds the root of version 4, by the highest minor version that the backend has: the others have the same handles.
func (r *rootFinder) findV4(ctx context.Context, conn upstream.Conn, roots *rewrite.Roots) error {
	var errs []error
	for minor := len(r.s.cfg.Minor) - 1; minor >= 0; minor-- {
		if !r.s.cfg.Minor[minor] {
			continue
		}
		err := r.findV4Minor(ctx, conn, uint32(minor), roots)
		if err == nil {
			roots.No4 = false
			return nil
		}
		errs = append(errs, fmt.Errorf("version 4.%d: %w", minor, err))
		if roots.No4 = unsupported(err); !roots.No4 {
			break
		}
		roots.NoMinor[minor] = true
	}
	return errors.Join(errs...)
}

// unsupported reports whether an error says that the backend does not have a version.
func unsupported(err error) bool {
	var refused *oncrpc.StatusError
	if errors.As(err, &refused) {
		return refused.Status.Accept == oncrpc.ProgMismatch || refused.Status.Accept == oncrpc.ProgUnavail
	}
	var failed *statusError
	return errors.As(err, &failed) && failed.status == minorMismatch
}

// namesBelow returns the names on a path below a directory, none if that is "". It reports whether the
// path lies there.
func namesBelow(dir, path string) (names []string, ok bool) {
	if dir == "" {
		return nil, true
	}
	above := pathNames(dir)
	names = pathNames(path)
	if len(above) > len(names) || !slices.Equal(above, names[:len(above)]) {
		return nil, false
	}
	return names[len(above):], true
}

// pathNames returns the names on a path.
func pathNames(path string) (names []string) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}
