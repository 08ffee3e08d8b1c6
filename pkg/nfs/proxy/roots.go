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
	// findWithin bounds one attempt to find the roots.
	findWithin = 20 * time.Second
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
	// lastNoMount is as long as lastRetry where only MOUNT is missing: many servers never have it where the gateway can reach it.
	lastNoMount = time.Minute
)

// finder finds the backend's handles of the export's root, at the start and whenever the backend comes back.
type finder struct {
	s      *Server
	ctx    context.Context
	cancel context.CancelFunc
	again  chan struct{}

	mu      sync.Mutex
	failure error          // why the last attempt failed
	lacking time.Time      // since when the backend has had no MOUNT that could be asked, zero if it has one, or just came
	from    netip.AddrPort // where it was asked from
}

func (r *finder) init(s *Server) {
	r.s = s
	r.ctx, r.cancel = context.WithCancel(context.Background())
	r.again = make(chan struct{}, 1)
}

// changed has the roots found again when the backend answers again: it was away, and may be another one.
func (r *finder) changed(healthy bool) {
	if healthy {
		r.mu.Lock()
		r.lacking = time.Time{}
		r.mu.Unlock()
		r.look()
	}
}

func (r *finder) look() {
	select {
	case r.again <- struct{}{}:
	default:
	}
}

// run finds the roots until close.
func (r *finder) run() {
	wait := firstRetry
	for r.ctx.Err() == nil {
		roots, err := r.find()
		r.tell(err)
		if roots != nil {
			r.publish(*roots)
		}
		var retry <-chan time.Time
		if err != nil {
			last := lastRetry
			if lacksMount(err) && roots.NoMount {
				last = lastNoMount
			}
			wait = min(wait, last)
			retry = time.After(wait)
			wait *= 2
			r.pause(firstRetry) // each call that has to wait asks for another attempt
		}
		select {
		case <-r.again:
			wait = firstRetry
		case <-retry:
		case <-r.ctx.Done():
		}
	}
}

// pause waits so long, or until close.
func (r *finder) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-r.ctx.Done():
	}
}

// tell notes what came of an attempt, and logs what is new.
func (r *finder) tell(err error) {
	r.mu.Lock()
	before := r.failure
	r.failure = err
	r.mu.Unlock()
	switch {
	case err == nil || r.ctx.Err() != nil || before != nil && wording(before) == wording(err):
	case !lacksMount(err):
		r.s.log.Error("the export's root cannot be found at the backend; it is tried again and again",
			"backend", r.s.address(), "path", r.s.cfg.Path, "error", err)
	case !lacksMount(before):
		r.s.log.Warn("the root of version 3 cannot be found at the backend, which serves version 4; it is tried again now and then",
			"backend", r.s.address(), "path", r.s.cfg.Path, "error", err)
	}
}

// wording is the text of an error without numbers: each attempt has a port of its own.
func wording(err error) string {
	return strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, err.Error())
}

// publish has calls use the roots, and sends those on their way that wait for them.
func (r *finder) publish(roots rewrite.Roots) {
	if before := r.s.export.Roots.Load(); before != nil {
		keep(&roots, before)
	}
	r.s.export.Roots.Store(&roots)
	r.s.waiting.release()
}

// keep takes over from before what was not found this time. A root that was known is guarded until another takes its place, and a call that is sent again
// has to be rewritten as it was: also while the backend does not tell the root, and when it no longer has the version.
func keep(roots, before *rewrite.Roots) {
	if roots.V3 == nil {
		roots.V3, roots.FileID3 = before.V3, before.FileID3
	}
	if roots.V4 == nil {
		roots.V4, roots.FileID4 = before.V4, before.FileID4
		roots.Supported4, roots.ExclCreat4 = before.Supported4, before.ExclCreat4
	}
}

// failed returns why the roots are not known, or may be outdated, nil if all is well; and where the backend was asked from. A *noMountError tells
// that all is well but MOUNT.
func (r *finder) failed() (from netip.AddrPort, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.from, r.failure
}

// asks notes where the backend sees the next question come from.
func (r *finder) asks(c upstream.Conn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.from = c.Local()
}

// find asks the backend. With an error it may have found the root for one version and not for another; the error is a *noMountError if only MOUNT is missing.
func (r *finder) find() (*rewrite.Roots, error) {
	ctx, cancel := context.WithTimeout(r.ctx, findWithin)
	defer cancel()
	conn, err := r.s.up.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Wait()
	defer conn.Close() //nolint:errcheck // it was only asked
	r.asks(conn)
	var roots rewrite.Roots
	if r.s.cfg.V3 {
		// NFS itself is asked whether it has version 3: MOUNT may be away for a moment, and rpcbind too.
		err = client.New(client.Config{Requester: conn, Pool: r.s.cfg.Pool}).Null(ctx)
		roots.No3 = lacks(err)
	}
	err4 := r.findMinor(ctx, conn, &roots)
	if r.s.cfg.V3 && !roots.No3 {
		if before := r.s.export.Roots.Load(); roots.V4 != nil && (before == nil || !bytes.Equal(roots.V4, before.V4)) {
			// MOUNT may keep the gateway waiting, version 4 has no need of it.
			r.tell(nil)
			r.publish(roots)
		}
		err = r.find3(ctx, conn, &roots)
	}
	if err != nil {
		err = fmt.Errorf("version 3: %w", err)
	}
	var why *noMountError
	switch {
	case roots.V3 == nil && roots.V4 == nil:
		return nil, errors.Join(err, err4)
	case roots.V3 != nil && (roots.V4 != nil || roots.No4), roots.V4 != nil && roots.No3:
		return &roots, nil // what the backend does not have is not offered
	case err4 == nil && errors.As(err, &why):
		roots.NoMount = r.noMount()
		return &roots, why
	}
	return &roots, errors.Join(err, err4)
}

// noMount reports whether the backend's MOUNT, which cannot be asked now, could not be for too long
// for a MNT to wait: MOUNT often starts later than NFS.
func (r *finder) noMount() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.lacking.IsZero() {
		r.lacking = time.Now()
	}
	return time.Since(r.lacking) >= r.s.cfg.MountPatience
}

// findMinor finds the root of version 4, by the highest minor version that the backend has: the others have the same handles.
func (r *finder) findMinor(ctx context.Context, conn upstream.Conn, roots *rewrite.Roots) error {
	var errs []error
	for minor := len(r.s.cfg.Minor) - 1; minor >= 0; minor-- {
		if !r.s.cfg.Minor[minor] {
			continue
		}
		err := r.find4(ctx, conn, uint32(minor), roots)
		if err == nil {
			roots.No4 = false
			return nil
		}
		errs = append(errs, fmt.Errorf("version 4.%d: %w", minor, err))
		if roots.No4 = lacks(err); !roots.No4 {
			break
		}
		roots.NoMinor[minor] = true
	}
	return errors.Join(errs...)
}

// lacks reports whether an error says that the backend does not have a version.
func lacks(err error) bool {
	var refused *oncrpc.StatusError
	if errors.As(err, &refused) {
		return refused.Status.Accept == oncrpc.ProgMismatch || refused.Status.Accept == oncrpc.ProgUnavail
	}
	var failed *statusError
	return errors.As(err, &failed) && failed.status == minorMismatch
}

// below returns the names on a path below a directory, none if that is "". It reports whether the
// path lies there.
func below(dir, path string) (names []string, ok bool) {
	if dir == "" {
		return nil, true
	}
	above := components(dir)
	names = components(path)
	if len(above) > len(names) || !slices.Equal(above, names[:len(above)]) {
		return nil, false
	}
	return names[len(above):], true
}

// components returns the names on a path.
func components(path string) (names []string) {
	for name := range strings.SplitSeq(path, "/") {
		if name != "" {
			names = append(names, name)
		}
	}
	return names
}
