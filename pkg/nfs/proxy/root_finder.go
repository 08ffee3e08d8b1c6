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
	// mountRetry is maxRetry where only MOUNT is missing: many servers never have it where the
	// gateway can reach it.
	mountRetry = time.Minute
)

// rootFinder finds the backend's handles of the export's root, at the start and after each recovery
// of the backend.
type rootFinder struct {
	s      *Server
	ctx    context.Context
	cancel context.CancelFunc
	retry  chan struct{}

	mu                sync.Mutex
	err               error          // of the latest attempt
	mountMissingSince time.Time      // zero if MOUNT answers, or the backend has just recovered
	localAddr         netip.AddrPort // of the connection to the backend
}

func (r *rootFinder) init(s *Server) {
	r.s = s
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.retry = make(chan struct{}, 1)
}

// onHealthChange searches for the roots again when the backend recovers: it may be a different one.
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

// run finds the roots until the server is closed.
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
			r.pause(minRetry) // each waiting call triggers another attempt
		}
		select {
		case <-r.retry:
			wait = minRetry
		case <-retry:
		case <-r.ctx.Done():
		}
	}
}

// pause waits for d, or until the server is closed.
func (r *rootFinder) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.ctx.Done():
	}
}

// setError records the result of an attempt and logs a change.
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

// withoutDigits returns an error's text without numbers: the port differs in each attempt.
func withoutDigits(err error) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, err.Error())
}

// publish sets the roots and resumes the calls that wait for them.
func (r *rootFinder) publish(roots rewrite.Roots) {
	if before := r.s.export.Roots.Load(); before != nil {
		fillMissing(&roots, before)
	}
	r.s.export.Roots.Store(&roots)
	r.s.waiters.resume()
}

// fillMissing copies roots from before that are missing now. The last known root stays protected
// until the backend reports a new one, and a repeated call is rewritten as the first time, even if
// the backend has lost the root or the version.
func fillMissing(roots, before *rewrite.Roots) {
	if roots.V3 == nil {
		roots.V3, roots.FileID3 = before.V3, before.FileID3
	}
	if roots.V4 == nil {
		roots.V4, roots.FileID4 = before.V4, before.FileID4
		roots.Supported4, roots.ExclCreat4 = before.Supported4, before.ExclCreat4
	}
}

// lastError returns the error of the latest attempt, nil if all roots are known, and the local
// address of its connection. A *mountError means that only MOUNT fails.
func (r *rootFinder) lastError() (from netip.AddrPort, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.localAddr, r.err
}

// setLocalAddr records the address from which the backend is asked.
func (r *rootFinder) setLocalAddr(c upstream.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.localAddr = c.Local()
}

// find asks the backend for the roots. It may return roots together with an error, which is a
// *mountError if only MOUNT is missing.
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
		// Ask NFS itself for version 3: MOUNT or rpcbind may be down for a moment.
		err = client.New(client.Config{Requester: conn, Pool: r.s.cfg.Pool}).Null(ctx)
		roots.No3 = unsupported(err)
	}
	err4 := r.findV4(ctx, conn, &roots)
	if r.s.cfg.V3 && !roots.No3 {
		if before := r.s.export.Roots.Load(); roots.V4 != nil && (before == nil || !bytes.Equal(roots.V4, before.V4)) {
			// Version 4 does not need MOUNT, which may block for long.
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
		return &roots, nil // versions that the backend lacks are not offered
	case err4 == nil && errors.As(err, &why):
		roots.NoMount = r.mountOverdue()
		return &roots, why
	}
	return &roots, errors.Join(err, err4)
}

// mountOverdue reports whether MOUNT has been missing for longer than a MNT waits. MOUNT often
// starts later than NFS.
func (r *rootFinder) mountOverdue() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mountMissingSince.IsZero() {
		r.mountMissingSince = time.Now()
	}
	return time.Since(r.mountMissingSince) >= r.s.cfg.MountPatience
}

// findV4 finds the root of version 4, by the backend's highest minor version: all have the same
// handles.
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

// unsupported reports whether an error means that the backend lacks a version.
func unsupported(err error) bool {
	var refused *oncrpc.StatusError
	if errors.As(err, &refused) {
		return refused.Status.Accept == oncrpc.ProgMismatch || refused.Status.Accept == oncrpc.ProgUnavail
	}
	var failed *statusError
	return errors.As(err, &failed) && failed.status == minorMismatch
}

// namesBelow returns the names of path below dir, none if dir is "". It reports whether path is
// below dir.
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

// pathNames returns the names of a path.
func pathNames(path string) (names []string) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}
