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

// rpcbindWithin bounds the question to the backend's rpcbind, which a firewall may drop silently.
const rpcbindWithin = 5 * time.Second

var errNoDirectory = errors.New("the path leads to no directory")

// noMountError says why the backend's MOUNT cannot be asked.
type noMountError struct{ err error }

func (e *noMountError) Error() string { return "MOUNT does not answer: " + e.err.Error() }
func (e *noMountError) Unwrap() error { return e.err }

// lacksMount tells that nothing else is wrong: that an error is not just one of several.
func lacksMount(err error) bool {
	_, only := err.(*noMountError) //nolint:errorlint // see above
	return only
}

// find3 asks MOUNT, and then for the root's attributes.
func (r *finder) find3(ctx context.Context, conn upstream.Conn, roots *rewrite.Roots) error {
	cred, err := client.ProcessCred()
	if err != nil {
		return err
	}
	cfg := client.Config{Requester: conn, Pool: r.s.cfg.Pool, Cred: cred}
	var root nfs3.Handle
	elsewhere := r.s.cfg.Network != "rdma" || r.s.cfg.MountPort != 0
	if !elsewhere {
		// Another gateway answers MOUNT by the same connection.
		root, err = client.New(cfg).Mount(ctx, r.s.cfg.Path)
		elsewhere = lacks(err)
	}
	if elsewhere {
		root, err = r.mount(ctx, cfg)
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

// mount asks the backend's MOUNT service. Where its port cannot be learnt, it may answer where NFS does. That nobody does is a *noMountError; what MOUNT
// itself says is not.
func (r *finder) mount(ctx context.Context, cfg client.Config) (nfs3.Handle, error) {
	port, unknown := r.mountPort(ctx)
	if unknown == nil {
		mount, err := r.s.up.DialTCP(ctx, net.JoinHostPort(r.s.cfg.Server, strconv.Itoa(port)))
		if err != nil {
			return nil, &noMountError{err}
		}
		defer mount.Wait()
		defer mount.Close() //nolint:errcheck // it was only asked
		cfg.Mount = mount
		r.asks(mount)
	}
	root, err := client.New(cfg).Mount(ctx, r.s.cfg.Path)
	if err == nil || errors.As(err, new(nfs3.Status)) || errors.As(err, new(*oncrpc.StatusError)) && !lacks(err) {
		return root, err
	}
	if unknown != nil {
		err = fmt.Errorf("%w; and at the port of NFS: %w", unknown, err)
	}
	return nil, &noMountError{err}
}

// mountPort returns the port of the backend's MOUNT service: that of the configuration, or what its rpcbind says.
func (r *finder) mountPort(ctx context.Context) (int, error) {
	if r.s.cfg.MountPort != 0 {
		return r.s.cfg.MountPort, nil
	}
	ctx, cancel := context.WithTimeout(ctx, rpcbindWithin)
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
