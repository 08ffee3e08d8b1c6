package client

import (
	"context"
	"errors"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/xdr"
)

// Attributes, by use.
var (
	fileAttrs = nfs4.BitmapOf(
		nfs4.AttrType, nfs4.AttrSize, nfs4.AttrFSID, nfs4.AttrFileID, nfs4.AttrMode, nfs4.AttrNumLinks, nfs4.AttrOwner,
		nfs4.AttrOwnerGroup, nfs4.AttrRawDev, nfs4.AttrSpaceUsed, nfs4.AttrTimeAccess, nfs4.AttrTimeMetadata,
		nfs4.AttrTimeModify,
	)
	entryAttrs = fileAttrs.Or(nfs4.BitmapOf(nfs4.AttrRdattrError, nfs4.AttrFileHandle))
	usageAttrs = nfs4.BitmapOf(
		nfs4.AttrFilesAvail, nfs4.AttrFilesFree, nfs4.AttrFilesTotal, nfs4.AttrSpaceAvail, nfs4.AttrSpaceFree,
		nfs4.AttrSpaceTotal,
	)
	infoAttrs = nfs4.BitmapOf(
		nfs4.AttrLinkSupport, nfs4.AttrSymlinkSupport, nfs4.AttrCanSetTime, nfs4.AttrHomogeneous, nfs4.AttrMaxFileSize,
		nfs4.AttrMaxRead, nfs4.AttrMaxWrite, nfs4.AttrTimeDelta,
	)
	nameAttrs = nfs4.BitmapOf(
		nfs4.AttrMaxLink, nfs4.AttrMaxName, nfs4.AttrNoTrunc, nfs4.AttrChownRestricted, nfs4.AttrCaseInsensitive,
		nfs4.AttrCasePreserving,
	)
)

func getAttr(mask nfs4.Bitmap) operation {
	return operation{nfs4.OpGetAttr, &nfs4.GetAttrArgs{Request: mask}}
}

// attrOf makes a GETATTR on a file.
func (c *v4) attrOf(ctx context.Context, file nfs3.Handle, mask nfs4.Bitmap) (a v4Attrs, err error) {
	err = c.do(ctx, false, 0, func(r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		return r.get(nfs4.OpGetAttr, &a)
	}, putFH(file), getAttr(mask))
	a.handle = nil
	return a, err
}

func (c *v4) GetAttr(ctx context.Context, file nfs3.Handle) (nfs3.Attr, error) {
	a, err := c.attrOf(ctx, file, fileAttrs)
	return a.attr, err
}

// SetAttr compares guard by VERIFY.
func (c *v4) SetAttr(ctx context.Context, file nfs3.Handle, attrs nfs3.SetAttrs, guard *nfs3.Time) error {
	ops := compound{putFH(file)}
	if guard != nil {
		var e xdr.Encoder
		e.Reset(make([]byte, 0, 12), nil)
		encodeTime(&e, *guard)
		same := nfs4.Attrs{Mask: nfs4.BitmapOf(nfs4.AttrTimeMetadata), Values: e.Bytes()}
		ops = append(ops, operation{nfs4.OpVerify, &nfs4.VerifyArgs{Attrs: same}})
	}
	ops = append(ops, operation{nfs4.OpSetAttr, &nfs4.SetAttrArgs{Attrs: encodeAttrs(&attrs)}})
	err := c.do(ctx, true, 0, func(r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		if guard != nil {
			if err := r.skip(nfs4.OpVerify); err != nil {
				return err
			}
		}
		return r.next(nfs4.OpSetAttr)
	}, ops...)
	if errors.Is(err, nfs4.ErrNotSame) {
		return failed(nfs3.ProcSetAttr, nfs3.ErrNotSync)
	}
	return err
}

func (c *v4) Access(ctx context.Context, file nfs3.Handle, bits uint32) (granted uint32, err error) {
	var res nfs4.AccessRes
	err = c.do(ctx, false, 0, func(r *results) error {
		if err := r.opened(); err != nil {
			return err
		}
		return r.get(nfs4.OpAccess, &res)
	}, putFH(file), operation{nfs4.OpAccess, &nfs4.AccessArgs{Access: bits}})
	return res.Access, err
}

func (c *v4) FSStat(ctx context.Context, root nfs3.Handle) (nfs3.FSStatRes, error) {
	a, err := c.attrOf(ctx, root, usageAttrs)
	return a.usage, err
}

// FSInfo asks for the file system's sizes, which the session bounds too.
func (c *v4) FSInfo(ctx context.Context, root nfs3.Handle) (nfs3.FSInfoRes, error) {
	a, err := c.attrOf(ctx, root, infoAttrs)
	if err != nil {
		return a.info, err
	}
	read, write := c.session.dataSizes()
	a.info.RTMax, a.info.WTMax = min(a.info.RTMax, read), min(a.info.WTMax, write)
	a.info.RTPref, a.info.WTPref, a.info.DTPref = a.info.RTMax, a.info.WTMax, maxList
	a.info.RTMult, a.info.WTMult = 1, 1
	c.store(&a.info)
	return a.info, nil
}

// maxList is the size of a READDIR's result.
const maxList = 32 << 10

func (c *v4) PathConf(ctx context.Context, file nfs3.Handle) (nfs3.PathConfRes, error) {
	a, err := c.attrOf(ctx, file, nameAttrs)
	return a.names, err
}
