package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/proxy/rewrite"
	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/oncrpc/rpcbind"
)

// rpcbindTimeout bounds the query to the backend's rpcbind, which a firewall may drop silently.
const rpcbindTimeout = 5 * time.Second

var errNotDirectory = errors.New("path is not a directory")

// mountError is the failure to reach the backend's MOUNT.
type mountError struct{ err error }

func (e *mountError) Error() string { return "MOUNT does not answer: " + e.err.Error() }
func (e *mountError) Unwrap() error { return e.err }

// onlyMountMissing reports whether MOUNT is the only failure: an error that joins others is none.
func onlyMountMissing(err error) bool {
	_, only := err.(*mountError) //nolint:errorlint // see above
	return only
}

// findV3 asks MOUNT for the root, then NFS for its attributes.
func (r *rootFinder) findV3(ctx context.Context, conn upstream.Conn, roots *rewrite.Roots) error {
	cred, err := client.ProcessCred()
	if err != nil {
		return err
	}
	cfg := client.Config{Requester: conn, Pool: r.s.cfg.Pool, Cred: cred}
	var m mounted
	elsewhere := r.s.cfg.Network != "rdma" || r.s.cfg.MountPort != 0
	if !elsewhere {
		// Another gateway answers MOUNT on the same connection.
		m, err = r.askMount(ctx, client.New(cfg))
		elsewhere = unsupported(err)
	}
	if elsewhere {
		m, err = r.dialMount(ctx, cfg)
	}
	if err != nil {
		return err
	}
	r.setLocalAddr(conn)
	nfs := client.New(cfg)
	root, err := r.resolveWithin(ctx, nfs, m)
	if err != nil {
		return err
	}
	attr, err := nfs.GetAttr(ctx, root)
	if err != nil {
		return err
	}
	if attr.Type != nfs3.Dir {
		return errNotDirectory
	}
	roots.V3, roots.FileID3 = root, attr.FileID
	return nil
}

// mounted holds the handles from MOUNT: of the export's path, and of Config.Within or nil.
type mounted struct{ path, within nfs3.Handle }

// askMount mounts both directories.
func (r *rootFinder) askMount(ctx context.Context, mount *client.Client) (m mounted, err error) {
	if m.path, err = mount.Mount(ctx, r.s.cfg.Path); err != nil || r.s.cfg.Within == "" {
		return m, err
	}
	if m.within, err = mount.Mount(ctx, r.s.cfg.Within); err != nil {
		err = fmt.Errorf("mount the directory that bounds the path: %w", err)
	}
	return m, err
}

// resolveWithin returns the export's root. MOUNT may have followed symbolic links, even ones made
// by clients. So only the handle of Config.Within is taken from MOUNT; the names below it are
// looked up, which fails at a symbolic link. If LOOKUP and MOUNT find different directories,
// because a file system is mounted there and hidden from LOOKUP, there is no root.
func (r *rootFinder) resolveWithin(ctx context.Context, nfs *client.Client, m mounted) (nfs3.Handle, error) {
	if m.within == nil {
		return m.path, nil
	}
	at := m.within
	names, _ := namesBelow(r.s.cfg.Within, r.s.cfg.Path)
	for _, name := range names {
		found, err := nfs.Lookup(ctx, at, name)
		if err != nil {
			return nil, fmt.Errorf("LOOKUP of %q below %q, without following symbolic links: %w",
				name, r.s.cfg.Within, err)
		}
		at = found.Handle
	}
	looked, err := nfs.GetAttr(ctx, at)
	if err != nil {
		return nil, err
	}
	asked, err := nfs.GetAttr(ctx, m.path)
	if err != nil {
		return nil, err
	}
	if looked.FileID != asked.FileID {
		return nil, fmt.Errorf("MNT of %q and LOOKUP below %q find different directories: by a symbolic link, or a file system mounted there",
			r.s.cfg.Path, r.s.cfg.Within)
	}
	return at, nil
}

// dialMount asks the backend's MOUNT service, at the NFS port if its own is unknown. An unreachable
// service is a *mountError; errors from MOUNT are not.
func (r *rootFinder) dialMount(ctx context.Context, cfg client.Config) (mounted, error) {
	port, unknown := r.mountPort(ctx)
	if unknown == nil {
		mount, err := r.s.backend.DialTCP(ctx, net.JoinHostPort(r.s.cfg.Server, strconv.Itoa(port)))
		if err != nil {
			return mounted{}, &mountError{err}
		}
		defer mount.Wait()
		defer mount.Close() //nolint:errcheck // it was only asked
		cfg.Mount = mount
		r.setLocalAddr(mount)
	}
	m, err := r.askMount(ctx, client.New(cfg))
	if err == nil || errors.As(err, new(nfs3.Status)) || errors.As(err, new(*oncrpc.StatusError)) && !unsupported(err) {
		return m, err
	}
	if unknown != nil {
		err = fmt.Errorf("%w; at the NFS port: %w", unknown, err)
	}
	return mounted{}, &mountError{err}
}

// mountPort returns the port of the backend's MOUNT service, from the configuration or from its
// rpcbind.
func (r *rootFinder) mountPort(ctx context.Context) (int, error) {
	if r.s.cfg.MountPort != 0 {
		return r.s.cfg.MountPort, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rpcbindTimeout)
	defer cancel()
	server := r.s.cfg.Server
	rb, err := rpcbind.Dial(ctx, []rpcbind.Address{{Network: "tcp", Address: net.JoinHostPort(server, "111")}})
	if err != nil {
		return 0, err
	}
	defer rb.Close() //nolint:errcheck // it was only asked
	at, err := rb.GetAddr(ctx, nfs3.MountProgram, nfs3.MountVersion, netID(server))
	if err == nil && at.Port() == 0 {
		err = errors.New("rpcbind has no MOUNT registered")
	}
	return int(at.Port()), err
}

// netID returns the network identifier for rpcbind.
func netID(server string) string {
	if a, err := netip.ParseAddr(server); err == nil {
		return rpcbind.NetID("tcp", a)
	}
	return rpcbind.TCP
}
