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

// rpcbindTimeout bounds the question to the backend's rpcbind, which a firewall may drop silently.
const rpcbindTimeout = 5 * time.Second

var errNotDirectory = errors.New("path is not a directory")

// mountError says why the backend's MOUNT cannot be asked.
type mountError struct{ err error }

func (e *mountError) Error() string { return "MOUNT does not answer: " + e.err.Error() }
func (e *mountError) Unwrap() error { return e.err }

// onlyMountMissing tells that nothing else is wrong: that an error is not just one of several.
func onlyMountMissing(err error) bool {
	_, only := err.(*mountError) //nolint:errorlint // see above
	return only
}

// findV3 asks MOUNT, and then for the root's attributes.
func (r *rootFinder) findV3(ctx context.Context, conn upstream.Conn, roots *rewrite.Roots) error {
	cred, err := client.ProcessCred()
	if err != nil {
		return err
	}
	cfg := client.Config{Requester: conn, Pool: r.s.cfg.Pool, Cred: cred}
	var m mounted
	elsewhere := r.s.cfg.Network != "rdma" || r.s.cfg.MountPort != 0
	if !elsewhere {
		// Another gateway answers MOUNT by the same connection.
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

// mounted are handles that MOUNT has told: of the export's path, and of the directory that it may
// not leave, nil if there is none.
type mounted struct{ path, within nfs3.Handle }

// askMount asks MOUNT for both.
func (r *rootFinder) askMount(ctx context.Context, mount *client.Client) (m mounted, err error) {
	if m.path, err = mount.Mount(ctx, r.s.cfg.Path); err != nil || r.s.cfg.Within == "" {
		return m, err
	}
	if m.within, err = mount.Mount(ctx, r.s.cfg.Within); err != nil {
		err = fmt.Errorf("mount the directory that bounds the path: %w", err)
	}
	return m, err
}

// resolveWithin returns the export's root. MOUNT may have followed symbolic links to it, also those that
// clients have made, so only a bound that was configured is taken from it, and the names below are
// looked up: a symbolic link has no names in it. Where a file system is mounted on a directory and
// not passed on to those who look it up, LOOKUP and MOUNT have two directories; then the gateway
// has none.
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

// dialMount asks the backend's MOUNT service. Where its port cannot be learnt, it may answer where NFS does. That nobody does is a *mountError; what MOUNT
// itself says is not.
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

// mountPort returns the port of the backend's MOUNT service: that of the configuration, or what its rpcbind says.
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

// netID is the network identifier that rpcbind is asked for.
func netID(server string) string {
	if a, err := netip.ParseAddr(server); err == nil {
		return rpcbind.NetID("tcp", a)
	}
	return rpcbind.TCP
}
