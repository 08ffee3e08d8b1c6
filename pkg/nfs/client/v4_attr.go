package client

import (
	"bytes"
	"context"
	"errors"
	"math"
	"math/bits"
	"strconv"

	"sluice.dev/sluice/pkg/nfs/idmap"
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

// v4Attrs are decoded attributes. Those that the server left out are zero.
type v4Attrs struct {
	has    nfs4.Bitmap
	attr   nfs3.Attr
	handle []byte // a view of the message
	lease  uint32
	usage  nfs3.FSStatRes
	info   nfs3.FSInfoRes
	names  nfs3.PathConfRes
}

func getAttr(mask nfs4.Bitmap) operation {
	return operation{nfs4.OpGetAttr, &nfs4.GetAttrArgs{Request: mask}}
}

// Decode reads a fattr4.
func (a *v4Attrs) Decode(d *xdr.Decoder) {
	var list nfs4.Attrs
	list.Decode(d)
	if err := a.set(&list); err != nil {
		d.Fail("attributes: %v", err)
	}
}

func (a *v4Attrs) set(list *nfs4.Attrs) error {
	*a = v4Attrs{has: list.Mask}
	var d xdr.Decoder
	d.ResetBytes(list.Values)
	for w, word := range list.Mask {
		for ; word != 0; word &= word - 1 {
			a.decode(&d, w*32+bits.TrailingZeros32(word))
		}
	}
	return d.Err()
}

func (a *v4Attrs) decode(d *xdr.Decoder, n int) {
	switch n {
	case nfs4.AttrType:
		a.attr.Type = nfs3.Type(d.Uint32())
	case nfs4.AttrSize:
		a.attr.Size = d.Uint64()
	case nfs4.AttrFSID:
		major, minor := d.Uint64(), d.Uint64()
		a.attr.FSID = major<<32 ^ minor
	case nfs4.AttrFileID:
		a.attr.FileID = d.Uint64()
	case nfs4.AttrMode:
		a.attr.Mode = d.Uint32()
	case nfs4.AttrNumLinks:
		a.attr.Nlink = d.Uint32()
	case nfs4.AttrOwner:
		a.attr.UID = ownerID(d.Opaque(nfs4.MaxOpaque), idmap.Users)
	case nfs4.AttrOwnerGroup:
		a.attr.GID = ownerID(d.Opaque(nfs4.MaxOpaque), idmap.Groups)
	case nfs4.AttrRawDev:
		a.attr.Rdev = nfs3.SpecData{Major: d.Uint32(), Minor: d.Uint32()}
	case nfs4.AttrSpaceUsed:
		a.attr.Used = d.Uint64()
	case nfs4.AttrTimeAccess:
		a.attr.Atime = decodeTime(d)
	case nfs4.AttrTimeMetadata:
		a.attr.Ctime = decodeTime(d)
	case nfs4.AttrTimeModify:
		a.attr.Mtime = decodeTime(d)
	case nfs4.AttrRdattrError:
		d.Uint32()
	case nfs4.AttrFileHandle:
		a.handle = d.Opaque(nfs4.MaxHandle)
	case nfs4.AttrLeaseTime:
		a.lease = d.Uint32()
	default:
		a.decodeFS(d, n)
	}
}

// decodeFS reads an attribute of the file system.
func (a *v4Attrs) decodeFS(d *xdr.Decoder, n int) {
	property := func(bit uint32) {
		if d.Bool() {
			a.info.Properties |= bit
		}
	}
	size := func() uint32 { return uint32(min(d.Uint64(), math.MaxUint32)) }
	switch n {
	case nfs4.AttrFilesAvail:
		a.usage.AvailFiles = d.Uint64()
	case nfs4.AttrFilesFree:
		a.usage.FreeFiles = d.Uint64()
	case nfs4.AttrFilesTotal:
		a.usage.TotalFiles = d.Uint64()
	case nfs4.AttrSpaceAvail:
		a.usage.AvailBytes = d.Uint64()
	case nfs4.AttrSpaceFree:
		a.usage.FreeBytes = d.Uint64()
	case nfs4.AttrSpaceTotal:
		a.usage.TotalBytes = d.Uint64()
	case nfs4.AttrLinkSupport:
		property(nfs3.FSFLink)
	case nfs4.AttrSymlinkSupport:
		property(nfs3.FSFSymlink)
	case nfs4.AttrHomogeneous:
		property(nfs3.FSFHomogeneous)
	case nfs4.AttrCanSetTime:
		property(nfs3.FSFCanSetTime)
	case nfs4.AttrMaxFileSize:
		a.info.MaxFileSize = d.Uint64()
	case nfs4.AttrMaxRead:
		a.info.RTMax = size()
	case nfs4.AttrMaxWrite:
		a.info.WTMax = size()
	case nfs4.AttrTimeDelta:
		a.info.TimeDelta = decodeTime(d)
	case nfs4.AttrMaxLink:
		a.names.LinkMax = d.Uint32()
	case nfs4.AttrMaxName:
		a.names.NameMax = d.Uint32()
	case nfs4.AttrNoTrunc:
		a.names.NoTrunc = d.Bool()
	case nfs4.AttrChownRestricted:
		a.names.ChownRestricted = d.Bool()
	case nfs4.AttrCaseInsensitive:
		a.names.CaseInsensitive = d.Bool()
	case nfs4.AttrCasePreserving:
		a.names.CasePreserving = d.Bool()
	default:
		d.Fail("attribute %d was not asked for", n)
	}
}

func decodeTime(d *xdr.Decoder) nfs3.Time {
	var t nfs4.Time
	t.Decode(d)
	return nfs3.Time{Sec: uint32(t.Sec), Nsec: t.Nsec}
}

// nobody is the id of an owner whom this host does not know.
const nobody = 65534

// ownerID returns the id of an owner: a number, or a name of this host at any domain.
func ownerID(owner []byte, in *idmap.Map) uint32 {
	if id, err := strconv.ParseUint(string(owner), 10, 32); err == nil {
		return uint32(id)
	}
	name, _, _ := bytes.Cut(owner, []byte("@"))
	if id, ok := in.ID(name); ok {
		return id
	}
	return nobody
}

// encodeAttrs returns attributes to set, with owners as numbers.
func encodeAttrs(s *nfs3.SetAttrs) nfs4.Attrs {
	var a nfs4.Attrs
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 128), nil)
	if s.SetSize {
		a.Mask.Add(nfs4.AttrSize)
		e.Uint64(s.Size)
	}
	if s.SetMode {
		a.Mask.Add(nfs4.AttrMode)
		e.Uint32(s.Mode)
	}
	if s.SetUID {
		a.Mask.Add(nfs4.AttrOwner)
		e.String(strconv.FormatUint(uint64(s.UID), 10))
	}
	if s.SetGID {
		a.Mask.Add(nfs4.AttrOwnerGroup)
		e.String(strconv.FormatUint(uint64(s.GID), 10))
	}
	setTime := func(n uint32, how nfs3.TimeHow, t nfs3.Time) {
		if how == nfs3.DontChange {
			return
		}
		a.Mask.Add(n)
		e.Bool(how == nfs3.SetToClientTime)
		if how == nfs3.SetToClientTime {
			encodeTime(&e, t)
		}
	}
	setTime(nfs4.AttrTimeAccessSet, s.AtimeHow, s.Atime)
	setTime(nfs4.AttrTimeModifySet, s.MtimeHow, s.Mtime)
	a.Values = e.Bytes()
	return a
}

func encodeTime(e *xdr.Encoder, t nfs3.Time) {
	(&nfs4.Time{Sec: int64(t.Sec), Nsec: t.Nsec}).Encode(e)
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
