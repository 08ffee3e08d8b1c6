package client

import (
	"context"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

// GetAttr returns a file's attributes.
func (c *Client) GetAttr(ctx context.Context, file nfs3.Handle) (nfs3.Attr, error) {
	var res nfs3.GetAttrRes
	r, err := c.do(ctx, nfs3.ProcGetAttr, &nfs3.GetAttrArgs{Object: file}, 0, &res)
	if err != nil {
		return nfs3.Attr{}, err
	}
	r.Free()
	return res.Attr, failed(nfs3.ProcGetAttr, res.Status)
}

// SetAttr sets attributes of a file; Size truncates or extends it. With guard, it sets nothing
// unless the file's ctime is *guard.
func (c *Client) SetAttr(ctx context.Context, file nfs3.Handle, attrs nfs3.SetAttrs, guard *nfs3.Time) error {
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

// Access returns the subset of the nfs3.Access bits that the caller has.
func (c *Client) Access(ctx context.Context, file nfs3.Handle, bits uint32) (granted uint32, err error) {
	var res nfs3.AccessRes
	r, err := c.do(ctx, nfs3.ProcAccess, &nfs3.AccessArgs{Object: file, Access: bits}, 0, &res)
	if err != nil {
		return 0, err
	}
	r.Free()
	return res.Access, failed(nfs3.ProcAccess, res.Status)
}

// FSStat returns the usage of a file system.
func (c *Client) FSStat(ctx context.Context, root nfs3.Handle) (nfs3.FSStatRes, error) {
	var res nfs3.FSStatRes
	r, err := c.do(ctx, nfs3.ProcFSStat, &nfs3.FSStatArgs{Object: root}, 0, &res)
	if err != nil {
		return res, err
	}
	r.Free()
	return res, failed(nfs3.ProcFSStat, res.Status)
}

// FSInfo returns the properties of a file system. Transfers use the sizes of the last result.
func (c *Client) FSInfo(ctx context.Context, root nfs3.Handle) (nfs3.FSInfoRes, error) {
	var res nfs3.FSInfoRes
	r, err := c.do(ctx, nfs3.ProcFSInfo, &nfs3.FSInfoArgs{Object: root}, 0, &res)
	if err != nil {
		return res, err
	}
	r.Free()
	if res.Status == nfs3.OK {
		c.rtmax.Store(res.RTMax)
		c.wtmax.Store(res.WTMax)
		c.dtpref.Store(res.DTPref)
	}
	return res, failed(nfs3.ProcFSInfo, res.Status)
}

// PathConf returns a file system's rules for names.
func (c *Client) PathConf(ctx context.Context, file nfs3.Handle) (nfs3.PathConfRes, error) {
	var res nfs3.PathConfRes
	r, err := c.do(ctx, nfs3.ProcPathConf, &nfs3.PathConfArgs{Object: file}, 0, &res)
	if err != nil {
		return res, err
	}
	r.Free()
	return res, failed(nfs3.ProcPathConf, res.Status)
}

// ReadSize is the size of a transfer's READs, in bytes: FSINFO's, or 64 KiB before the first
// FSINFO.
func (c *Client) ReadSize() int { return transferSize(c.rtmax.Load()) }

// WriteSize is the size of a transfer's WRITEs, in bytes, as for ReadSize.
func (c *Client) WriteSize() int { return transferSize(c.wtmax.Load()) }

// transferSize bounds a server's size, and rounds it down to 4 KiB where it is larger.
func transferSize(said uint32) int {
	const before = 64 << 10
	n := int(min(said, nfs3.MaxData))
	switch {
	case n == 0:
		return before
	case n > 4096:
		return n &^ 4095
	}
	return n
}
