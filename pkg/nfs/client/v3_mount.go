package client

import (
	"bytes"
	"context"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// maxMountReply bounds the results of MNT. MOUNT has no binding (RFC 8267 section 4.2), so the
// caller bounds its replies.
const maxMountReply = 4 + nfs3.HandleLen + 4 + 4*nfs3.MaxFlavors

// Mount asks MOUNT for the handle, and FSINFO for the sizes.
func (c *v3) Mount(ctx context.Context, path string) (nfs3.Handle, error) {
	var res nfs3.MountRes
	r, err := c.doMount(ctx, nfs3.MountProcMnt, path, &res)
	if err != nil {
		return nil, err
	}
	root := nfs3.Handle(bytes.Clone(res.Handle))
	r.Free()
	if res.Status != nfs3.OK {
		return nil, fmt.Errorf("MNT %s: %w", path, res.Status)
	}
	_, err = c.FSInfo(ctx, root)
	return root, err
}

// Unmount removes this client's entry for a directory from the server's mount list. It frees
// nothing.
func (c *v3) Unmount(ctx context.Context, path string) error {
	r, err := c.doMount(ctx, nfs3.MountProcUmnt, path, void{})
	if err != nil {
		return err
	}
	r.Free()
	return nil
}

func (c *v3) doMount(ctx context.Context, procedure uint32, path string, res decoder) (*oncrpc.Request, error) {
	name := nfs3.MountProcedureName(procedure)
	if len(path) > nfs3.MaxMountPath {
		return nil, fmt.Errorf("%s: the path has %d bytes, MOUNT allows %d", name, len(path), nfs3.MaxMountPath)
	}
	size := oncrpc.MinCallLen + xdr.Round(len(c.cred.Body)) + 4 + xdr.Round(len(path))
	r, e, err := oncrpc.NewRequest(c.pool, nfs3.MountProgram, nfs3.MountVersion, procedure, c.cred, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	e.String(path)
	r.Plan.MaxReply = replyLen(maxMountReply)
	if err := finish(oncrpc.Do(ctx, c.mount, r), r, res); err != nil {
		r.Free()
		return nil, fmt.Errorf("%s %s: %w", name, path, err)
	}
	return r, nil
}
