package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/proxy/rewrite"
	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/oncrpc/rpcbind"
)

const (
	// findWithin bounds one attempt to find the roots.
	findWithin = 20 * time.Second
	firstRetry = 100 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// finder finds the backend's handles of the export's root, at the start and whenever the backend comes back.
type finder struct {
	s      *Server
	ctx    context.Context
	cancel context.CancelFunc
	again  chan struct{}

	mu      sync.Mutex
	failure error          // why the last attempt failed
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
		r.mu.Lock()
		told := err == nil || r.failure != nil && r.failure.Error() == err.Error()
		r.failure = err
		r.mu.Unlock()
		var retry <-chan time.Time
		if roots != nil {
			if before := r.s.export.Roots.Load(); before != nil {
				keep(roots, before)
			}
			r.s.export.Roots.Store(roots)
			r.s.waiting.release()
		}
		if err == nil {
			wait = firstRetry
		} else {
			if !told && r.ctx.Err() == nil {
				r.s.log.Error("the export's root cannot be found at the backend; it is tried again and again",
					"backend", r.s.address(), "path", r.s.cfg.Path, "error", err)
			}
			retry = time.After(wait)
			wait = min(2*wait, lastRetry)
		}
		select {
		case <-r.again:
		case <-retry:
		case <-r.ctx.Done():
		}
	}
}

// keep takes over from before what was not found this time. A root that was known is guarded until another takes its place, and a call that is sent again
// has to be rewritten as it was: also while the backend does not tell the root, and when it no longer has the version.
func keep(roots, before *rewrite.Roots) {
	if roots.V3 == nil {
		roots.V3, roots.FileID3 = before.V3, before.FileID3
	}
	if roots.V4 == nil {
		roots.V4, roots.FileID4 = before.V4, before.FileID4
	}
}

// failed returns why the roots are not known, or may be outdated, nil if all is well; and where the backend was asked from.
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

// find asks the backend. With an error it may have found the root for one version and not for another.
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
	var errs []error
	if r.s.cfg.V3 {
		// NFS itself is asked whether it has version 3: MOUNT may be away for a moment, and rpcbind too.
		err := client.New(client.Config{Requester: conn, Pool: r.s.cfg.Pool}).Null(ctx)
		if roots.No3 = lacks(err); !roots.No3 {
			err = r.find3(ctx, conn, &roots)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("version 3: %w", err))
		}
	}
	lacking := 0
	for minor := len(r.s.cfg.Minor) - 1; minor >= 0; minor-- {
		if !r.s.cfg.Minor[minor] {
			continue
		}
		err := r.find4(ctx, conn, uint32(minor), &roots)
		if err == nil {
			errs = errs[:len(errs)-lacking] // the other minor versions have the same handles
			roots.No4 = false
			break
		}
		errs = append(errs, fmt.Errorf("version 4.%d: %w", minor, err))
		if roots.No4 = lacks(err); !roots.No4 {
			break
		}
		roots.NoMinor[minor] = true
		lacking++
	}
	switch {
	case roots.V3 != nil && (roots.V4 != nil || roots.No4), roots.V4 != nil && roots.No3:
		return &roots, nil // what the backend does not have is not offered
	case roots.V3 == nil && roots.V4 == nil:
		return nil, errors.Join(errs...)
	}
	return &roots, errors.Join(errs...)
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

// find3 asks MOUNT, and then for the root's attributes.
func (r *finder) find3(ctx context.Context, conn upstream.Conn, roots *rewrite.Roots) error {
	cred, err := client.ProcessCred()
	if err != nil {
		return err
	}
	cfg := client.Config{Requester: conn, Pool: r.s.cfg.Pool, Cred: cred}
	root, err := nfs3.Handle(nil), errNoMount
	if r.s.cfg.Network == "rdma" && r.s.cfg.MountPort == 0 {
		// Another gateway answers MOUNT by the same connection.
		if root, err = client.New(cfg).Mount(ctx, r.s.cfg.Path); lacks(err) {
			err = errNoMount
		}
	}
	if errors.Is(err, errNoMount) {
		mount, e := r.dialMount(ctx)
		if e != nil {
			return e
		}
		if mount != nil {
			defer mount.Wait()
			defer mount.Close() //nolint:errcheck // it was only asked
			cfg.Mount = mount
			r.asks(mount)
		}
		root, err = client.New(cfg).Mount(ctx, r.s.cfg.Path)
	}
	if err != nil {
		return err
	}
	r.asks(conn)
	attr, err := client.New(cfg).GetAttr(ctx, root)
	if err != nil {
		return err
	}
	if attr.Type != nfs3.Dir {
		return errNoDirectory
	}
	roots.V3, roots.FileID3 = root, attr.FileID
	return nil
}

var (
	errNoDirectory = errors.New("the path leads to no directory")
	errNoMount     = errors.New("MOUNT was not found yet")
)

// dialMount connects to the backend's MOUNT service: at the port of the configuration, or where its rpcbind says. A backend without
// rpcbind may answer MOUNT where it answers NFS: then the connection is nil.
func (r *finder) dialMount(ctx context.Context) (upstream.Conn, error) {
	server, port := r.s.cfg.Server, r.s.cfg.MountPort
	if port == 0 {
		rb, err := rpcbind.Dial(ctx, []rpcbind.Address{{Network: "tcp", Address: net.JoinHostPort(server, "111")}})
		if errors.Is(err, rpcbind.ErrAbsent) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		defer rb.Close() //nolint:errcheck // it was only asked
		at, err := rb.GetAddr(ctx, nfs3.MountProgram, nfs3.MountVersion, netID(server))
		if err != nil {
			return nil, err
		}
		if port = int(at.Port()); port == 0 {
			return nil, nil
		}
	}
	return r.s.up.DialTCP(ctx, net.JoinHostPort(server, strconv.Itoa(port)))
}

// netID is the network identifier that rpcbind is asked for.
func netID(server string) string {
	if a, err := netip.ParseAddr(server); err == nil {
		return rpcbind.NetID("tcp", a)
	}
	return rpcbind.TCP
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
