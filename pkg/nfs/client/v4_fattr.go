package client

import (
	"bytes"
	"math"
	"math/bits"
	"strconv"

	"sluice.dev/sluice/pkg/nfs/idmap"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/xdr"
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
