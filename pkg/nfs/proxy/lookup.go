package proxy

import (
	"context"
	"errors"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// resolve answers a MNT of a path beneath the root, by one LOOKUP for each name: the backend's own MOUNT would follow symbolic links, also
// those that lead out of the export. A MNT is rare, and may hold a goroutine.
func (f *flight) resolve() {
	s := f.s
	s.running.Go(func() {
		ctx, cancel := context.WithTimeout(s.roots.ctx, findWithin)
		defer cancel()
		handle, err := f.walk(ctx)
		var status nfs3.Status
		switch {
		case err == nil:
		case errors.As(err, &status):
		default:
			f.fail("a path could not be looked up for MNT", err)
			return
		}
		if err := f.rw.Mounted(f.call, handle, status); err != nil {
			f.fail("a MNT cannot be answered", err)
			return
		}
		f.call.Respond()
	})
}

// walk returns the handle of the directory that the names lead to.
func (f *flight) walk(ctx context.Context) (nfs3.Handle, error) {
	conn, err := f.s.up.Dial(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Wait()
	defer conn.Close() //nolint:errcheck // it was only asked
	cred, err := f.rw.Cred(f.call)
	if err != nil {
		return nil, err
	}
	nfs := client.New(client.Config{Requester: conn, Pool: f.s.cfg.Pool, Cred: cred})
	at := nfs3.Handle(f.s.export.Roots.Load().V3)
	for _, name := range f.rw.Path {
		object, err := nfs.Lookup(ctx, at, string(name))
		if err != nil {
			return nil, err
		}
		at = object.Handle
	}
	attr, err := nfs.GetAttr(ctx, at)
	if err == nil && attr.Type != nfs3.Dir {
		err = nfs3.ErrNotDir
	}
	return at, err
}
