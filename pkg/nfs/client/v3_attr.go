package client

import (
	"context"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

func (c *v3) GetAttr(ctx context.Context, file nfs3.Handle) (nfs3.Attr, error) {
	var res nfs3.GetAttrRes
	r, err := c.do(ctx, nfs3.ProcGetAttr, &nfs3.GetAttrArgs{Object: file}, 0, &res)
	if err != nil {
		return nfs3.Attr{}, err
	}
	r.Free()
	return res.Attr, failed(nfs3.ProcGetAttr, res.Status)
}

func (c *v3) SetAttr(ctx context.Context, file nfs3.Handle, attrs nfs3.SetAttrs, guard *nfs3.Time) error {
	args := nfs3.SetAttrArgs{Object: file, New: attrs}
	if guard != nil {
		args.Guard, args.GuardCtime = true, *guard
	}
	var res nfs3.SetAttrRes
	r, err := c.do(ctx, nfs3.ProcSetAttr, &args, 0, &res)
	if err != nil {
		return err
	}
	r.Free()
	return failed(nfs3.ProcSetAttr, res.Status)
}

func (c *v3) Access(ctx context.Context, file nfs3.Handle, bits uint32) (granted uint32, err error) {
	var res nfs3.AccessRes
	r, err := c.do(ctx, nfs3.ProcAccess, &nfs3.AccessArgs{Object: file, Access: bits}, 0, &res)
	if err != nil {
		return 0, err
	}
	r.Free()
	return res.Access, failed(nfs3.ProcAccess, res.Status)
}

func (c *v3) FSStat(ctx context.Context, root nfs3.Handle) (nfs3.FSStatRes, error) {
	var res nfs3.FSStatRes
	r, err := c.do(ctx, nfs3.ProcFSStat, &nfs3.FSStatArgs{Object: root}, 0, &res)
	if err != nil {
		return res, err
	}
	r.Free()
	return res, failed(nfs3.ProcFSStat, res.Status)
}

func (c *v3) FSInfo(ctx context.Context, root nfs3.Handle) (nfs3.FSInfoRes, error) {
	var res nfs3.FSInfoRes
	r, err := c.do(ctx, nfs3.ProcFSInfo, &nfs3.FSInfoArgs{Object: root}, 0, &res)
	if err != nil {
		return res, err
	}
	r.Free()
	if res.Status == nfs3.OK {
		c.store(&res)
	}
	return res, failed(nfs3.ProcFSInfo, res.Status)
}

func (c *v3) PathConf(ctx context.Context, file nfs3.Handle) (nfs3.PathConfRes, error) {
	var res nfs3.PathConfRes
	r, err := c.do(ctx, nfs3.ProcPathConf, &nfs3.PathConfArgs{Object: file}, 0, &res)
	if err != nil {
		return res, err
	}
	r.Free()
	return res, failed(nfs3.ProcPathConf, res.Status)
}
