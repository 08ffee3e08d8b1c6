package server

import (
	"bytes"
	"math/bits"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
)

// Attributes, by use (RFC 8881 section 5).
var (
	// cheapAttrs come from stat(2) and the server's constants.
	cheapAttrs = nfs4.BitmapOf(
		nfs4.AttrSupported, nfs4.AttrType, nfs4.AttrFHExpireType, nfs4.AttrChange, nfs4.AttrSize, nfs4.AttrLinkSupport,
		nfs4.AttrSymlinkSupport, nfs4.AttrNamedAttr, nfs4.AttrFSID, nfs4.AttrUniqueHandles, nfs4.AttrLeaseTime,
		nfs4.AttrRdattrError, nfs4.AttrACLSupport, nfs4.AttrCanSetTime, nfs4.AttrCaseInsensitive, nfs4.AttrCasePreserving,
		nfs4.AttrChownRestricted, nfs4.AttrFileHandle, nfs4.AttrFileID, nfs4.AttrHomogeneous, nfs4.AttrMaxFileSize,
		nfs4.AttrMaxLink, nfs4.AttrMaxName, nfs4.AttrMaxRead, nfs4.AttrMaxWrite, nfs4.AttrMode, nfs4.AttrNoTrunc,
		nfs4.AttrNumLinks, nfs4.AttrOwner, nfs4.AttrOwnerGroup, nfs4.AttrRawDev, nfs4.AttrSpaceUsed,
		nfs4.AttrTimeAccess, nfs4.AttrTimeDelta, nfs4.AttrTimeMetadata, nfs4.AttrTimeModify, nfs4.AttrMountedOnFileID,
		nfs4.AttrSuppAttrExclCreat, nfs4.AttrFSCharsetCap, nfs4.AttrCloneBlkSize, nfs4.AttrXattrSupport,
	)
	usageAttrs = nfs4.BitmapOf(
		nfs4.AttrFilesAvail, nfs4.AttrFilesFree, nfs4.AttrFilesTotal, nfs4.AttrSpaceAvail, nfs4.AttrSpaceFree,
		nfs4.AttrSpaceTotal,
	)
	// objectAttrs take more system calls on the object.
	objectAttrs = nfs4.BitmapOf(nfs4.AttrACL, nfs4.AttrTimeCreate)
	// setOnlyAttrs cannot be read (RFC 8881 section 5.5, RFC 8275 section 5).
	setOnlyAttrs = nfs4.BitmapOf(nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet, nfs4.AttrModeUmask)
	// settableAttrs can be set.
	settableAttrs = nfs4.BitmapOf(
		nfs4.AttrSize, nfs4.AttrACL, nfs4.AttrMode, nfs4.AttrOwner, nfs4.AttrOwnerGroup, nfs4.AttrTimeAccessSet,
		nfs4.AttrTimeModifySet, nfs4.AttrModeUmask,
	)
	// verifierAttrs hold the verifier of an exclusive create, which must not set verifierSetters.
	verifierAttrs   = nfs4.BitmapOf(nfs4.AttrTimeAccess, nfs4.AttrTimeModify)
	verifierSetters = nfs4.BitmapOf(nfs4.AttrTimeAccessSet, nfs4.AttrTimeModifySet)
	ownerAttrs      = nfs4.BitmapOf(nfs4.AttrOwner, nfs4.AttrOwnerGroup)
	// sizedAttrs have values of any length.
	sizedAttrs = nfs4.BitmapOf(
		nfs4.AttrSupported, nfs4.AttrACL, nfs4.AttrFileHandle, nfs4.AttrOwner, nfs4.AttrOwnerGroup, nfs4.AttrSuppAttrExclCreat,
	)
	// attrs42 are those of version 4.2.
	attrs42 = nfs4.BitmapOf(nfs4.AttrCloneBlkSize, nfs4.AttrModeUmask, nfs4.AttrXattrSupport)
)

// supportedAttrs returns the attributes that the server has in a minor version.
func (s *Server) supportedAttrs(minor uint32) nfs4.Bitmap {
	b := cheapAttrs.Or(usageAttrs).Or(objectAttrs).Or(setOnlyAttrs)
	t := s.fs.Capabilities()
	if !t.ACLs {
		b = b.Minus(nfs4.BitmapOf(nfs4.AttrACL))
	}
	if !t.Births {
		b = b.Minus(nfs4.BitmapOf(nfs4.AttrTimeCreate))
	}
	if minor < 2 {
		b = b.Minus(attrs42)
	}
	return b
}

// attrSource is the object whose attributes are encoded.
type attrSource struct {
	node   *vfs.Node // nil: objectAttrs must not be asked for
	handle []byte
	st     *vfs.Stat
	change uint64
	err    nfs4.Status // rdattr_error
}

// v4io is the memory of the operations on files.
type v4io struct {
	attrBuf   []byte // values of attributes
	aces      []nfs4.ACE
	writing   vfs.Write
	writeArgs nfs4.WriteArgs
	makeArgs  nfs4.CreateArgs
	wcc, wcc2 vfs.Wcc
	name      vfs.Name
	name2     vfs.Name
	data      [maxItems][1][]byte
	items     int
}

// maxItems bounds the data of READ and READLINK that a reply places directly.
const maxItems = 8

// endIO drops views of the call's memory.
func (c *compound) endIO() {
	clear(c.writeArgs.Data)
	clear(c.makeArgs.Link)
	c.writing.Opened = false
	c.items = 0 // the reply still needs the data
}

// minAttrBuf is the first length of the memory for attributes, which grows for long ACLs.
const minAttrBuf = 1 << 10

// attrValues encodes the values of attributes, in the order of their numbers. The result is valid
// until the next use.
func (c *compound) attrValues(mask nfs4.Bitmap, src *attrSource) ([]byte, nfs4.Status) {
	if c.attrBuf == nil {
		c.attrBuf = make([]byte, 0, minAttrBuf)
	}
	var usage vfs.Usage
	if mask.And(usageAttrs) != (nfs4.Bitmap{}) {
		var err error
		if usage, err = c.s.fs.Usage(); err != nil {
			return nil, status4(err)
		}
	}
	for {
		var e xdr.Encoder
		e.Reset(c.attrBuf[:0], nil)
		for w, word := range mask {
			for ; word != 0; word &= word - 1 {
				bit := word & -word
				if st := c.putAttr(&e, uint32(w*32+bits.TrailingZeros32(bit)), src, &usage); st != nfs4.OK {
					return nil, st
				}
			}
		}
		if !e.Overflow() {
			return e.Bytes(), nfs4.OK
		}
		c.attrBuf = make([]byte, 0, 2*cap(c.attrBuf))
	}
}

func (c *compound) putAttr(e *xdr.Encoder, n uint32, src *attrSource, usage *vfs.Usage) nfs4.Status {
	st, fs := src.st, c.s.fs
	switch n {
	case nfs4.AttrSupported:
		b := c.s.supportedAttrs(c.head.Minor)
		b.Encode(e)
	case nfs4.AttrType:
		e.Uint32(uint32(types[st.Mode>>12&15])) // as in version 3
	case nfs4.AttrFHExpireType:
		e.Uint32(nfs4.FHPersistent)
	case nfs4.AttrChange:
		e.Uint64(src.change)
	case nfs4.AttrSize:
		e.Uint64(uint64(st.Size))
	case nfs4.AttrFSID:
		e.Uint64(fs.FSID(st))
		e.Uint64(0)
	case nfs4.AttrNamedAttr:
		e.Bool(false)
	case nfs4.AttrUniqueHandles, nfs4.AttrCanSetTime, nfs4.AttrCasePreserving, nfs4.AttrChownRestricted, nfs4.AttrHomogeneous, nfs4.AttrNoTrunc:
		e.Bool(true)
	case nfs4.AttrLeaseTime:
		e.Uint32(uint32(c.s.v4.state.Config().Lease.Seconds()))
	case nfs4.AttrRdattrError:
		e.Uint32(uint32(src.err))
	case nfs4.AttrACL:
		return c.putACL(e, src)
	case nfs4.AttrFileHandle:
		e.Opaque(src.handle)
	case nfs4.AttrFileID, nfs4.AttrMountedOnFileID:
		e.Uint64(st.Ino)
	case nfs4.AttrMaxRead, nfs4.AttrMaxWrite:
		e.Uint64(nfs4.MaxData)
	case nfs4.AttrMode:
		e.Uint32(st.Mode & 0o7777)
	case nfs4.AttrNumLinks:
		e.Uint32(uint32(st.Nlink))
	case nfs4.AttrOwner:
		c.putOwner(e, st.Uid, false)
	case nfs4.AttrOwnerGroup:
		c.putOwner(e, st.Gid, true)
	case nfs4.AttrRawDev:
		e.Uint32(unix.Major(st.Rdev))
		e.Uint32(unix.Minor(st.Rdev))
	case nfs4.AttrSpaceUsed:
		e.Uint64(uint64(st.Blocks) * 512)
	case nfs4.AttrTimeAccess:
		putTime(e, st.Atim)
	case nfs4.AttrTimeMetadata:
		putTime(e, st.Ctim)
	case nfs4.AttrTimeModify:
		putTime(e, st.Mtim)
	case nfs4.AttrTimeCreate:
		t, _ := src.node.Birth()
		putTime(e, t)
	case nfs4.AttrSuppAttrExclCreat:
		b := c.s.supportedAttrs(c.head.Minor).And(settableAttrs).Minus(verifierSetters)
		b.Encode(e)
	case nfs4.AttrFSCharsetCap:
		e.Uint32(nfs4.FSCharsetContainsNonUTF8)
	case nfs4.AttrXattrSupport:
		e.Bool(fs.Capabilities().Xattrs)
	default:
		c.putFSAttr(e, n, usage)
	}
	return nfs4.OK
}

// putFSAttr encodes an attribute of the file system.
func (c *compound) putFSAttr(e *xdr.Encoder, n uint32, usage *vfs.Usage) {
	t := c.s.fs.Capabilities()
	switch n {
	case nfs4.AttrLinkSupport:
		e.Bool(!t.NoLinks)
	case nfs4.AttrSymlinkSupport:
		e.Bool(!t.NoSymbolicLinks)
	case nfs4.AttrACLSupport:
		support := uint32(0)
		if t.ACLs {
			support = nfs4.ACLSupportAllow | nfs4.ACLSupportDeny
		}
		e.Uint32(support)
	case nfs4.AttrCaseInsensitive:
		e.Bool(t.CaseInsensitive)
	case nfs4.AttrMaxFileSize:
		e.Uint64(t.MaxFileSize)
	case nfs4.AttrMaxLink:
		e.Uint32(t.MaxLinks)
	case nfs4.AttrMaxName:
		e.Uint32(min(t.MaxName, vfs.MaxName))
	case nfs4.AttrFilesAvail, nfs4.AttrFilesFree:
		e.Uint64(usage.FreeFiles)
	case nfs4.AttrFilesTotal:
		e.Uint64(usage.TotalFiles)
	case nfs4.AttrSpaceAvail:
		e.Uint64(usage.AvailBytes)
	case nfs4.AttrSpaceFree:
		e.Uint64(usage.FreeBytes)
	case nfs4.AttrSpaceTotal:
		e.Uint64(usage.TotalBytes)
	case nfs4.AttrTimeDelta:
		delta := nfs4.Time{Sec: int64(t.TimeGranularity / 1e9), Nsec: t.TimeGranularity % 1e9}
		delta.Encode(e)
	case nfs4.AttrCloneBlkSize:
		e.Uint32(t.BlockSize)
	}
}

func putTime(e *xdr.Encoder, t unix.Timespec) {
	e.Uint64(uint64(t.Sec))
	e.Uint32(uint32(t.Nsec))
}

// source makes the current object the source of attributes, from c.stat.
func (c *compound) source() attrSource {
	return attrSource{node: c.cur, handle: c.cur.Handle().Bytes(), st: &c.stat, change: c.cur.Change(&c.stat)}
}

// getAttr is GETATTR (RFC 8881 section 18.7).
func (c *compound) getAttr() nfs4.Status {
	var a nfs4.GetAttrArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	if a.Request.And(setOnlyAttrs) != (nfs4.Bitmap{}) {
		return nfs4.ErrInval
	}
	mask := a.Request.And(c.s.supportedAttrs(c.head.Minor))
	if !c.mayWait && (!c.s.fs.Nonblocking() || mask.Minus(cheapAttrs) != (nfs4.Bitmap{})) {
		return wait
	}
	if st := c.statFor(mask); st != nfs4.OK {
		return st
	}
	src := c.source()
	values, st := c.attrValues(mask, &src)
	if st != nfs4.OK {
		return st
	}
	if !c.need(maxBitmapLen + 4 + len(values)) {
		return c.tooBig()
	}
	res := nfs4.Attrs{Mask: mask, Values: values}
	res.Encode(c.e)
	return nfs4.OK
}

// maxBitmapLen is the longest encoding of a bitmap in results.
const maxBitmapLen = 4 + 3*4

// verify and nVerify are VERIFY and NVERIFY (RFC 8881 sections 18.31 and 18.15).
func (c *compound) verify() nfs4.Status  { return c.compare(nfs4.OK, nfs4.ErrNotSame) }
func (c *compound) nVerify() nfs4.Status { return c.compare(nfs4.ErrSame, nfs4.OK) }

func (c *compound) compare(same, other nfs4.Status) nfs4.Status {
	if !c.mayWait {
		return wait
	}
	c.guarded = true
	var a nfs4.VerifyArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	mask := a.Attrs.Mask
	switch {
	case a.Attrs.More || mask.Minus(c.s.supportedAttrs(c.head.Minor)) != (nfs4.Bitmap{}):
		return nfs4.ErrAttrNotSupp
	case mask.And(setOnlyAttrs) != (nfs4.Bitmap{}) || mask.Has(nfs4.AttrRdattrError):
		return nfs4.ErrInval
	}
	if st := c.statFor(mask); st != nfs4.OK {
		return st
	}
	src := c.source()
	values, st := c.attrValues(mask, &src)
	if st != nfs4.OK {
		return st
	}
	switch {
	case bytes.Equal(values, a.Attrs.Values):
		return same
	case len(values) != len(a.Attrs.Values) && mask.And(sizedAttrs) == (nfs4.Bitmap{}):
		return nfs4.ErrBadXDR
	}
	return other
}

// setAttrs are attributes to set.
type setAttrs struct {
	vfs.Attrs
	// Mask are the attributes.
	Mask nfs4.Bitmap
	// Umask, with SetUmask, applies to Mode unless the new object inherits an ACL (RFC 8275).
	SetUmask bool
	Umask    uint32
	SetACL   bool
	ACL      []nfs4.ACE
}

// settable decodes attributes to set.
func (c *compound) settable(raw *nfs4.Attrs, out *setAttrs) nfs4.Status {
	*out = setAttrs{Mask: raw.Mask}
	switch supported := c.s.supportedAttrs(c.head.Minor); {
	case raw.More || raw.Mask.Minus(supported) != (nfs4.Bitmap{}):
		return nfs4.ErrAttrNotSupp
	case raw.Mask.Minus(settableAttrs) != (nfs4.Bitmap{}):
		return nfs4.ErrInval
	}
	var d xdr.Decoder
	d.ResetBytes(raw.Values)
	status := nfs4.OK
	fail := func(st nfs4.Status) {
		if status == nfs4.OK {
			status = st
		}
	}
	if out.SetSize = out.Mask.Has(nfs4.AttrSize); out.SetSize {
		out.Size = d.Uint64()
	}
	if out.SetACL = out.Mask.Has(nfs4.AttrACL); out.SetACL {
		c.aces = nfs4.DecodeACL(&d, c.aces)
		out.ACL = c.aces
	}
	if out.SetMode = out.Mask.Has(nfs4.AttrMode); out.SetMode {
		if out.Mode = d.Uint32(); out.Mode > 0o7777 {
			fail(nfs4.ErrInval)
		}
	}
	var st nfs4.Status
	if out.SetUID = out.Mask.Has(nfs4.AttrOwner); out.SetUID {
		out.UID, st = c.ownerID(d.Opaque(nfs4.MaxOpaque), false)
		fail(st)
	}
	if out.SetGID = out.Mask.Has(nfs4.AttrOwnerGroup); out.SetGID {
		out.GID, st = c.ownerID(d.Opaque(nfs4.MaxOpaque), true)
		fail(st)
	}
	if out.SetAtime = out.Mask.Has(nfs4.AttrTimeAccessSet); out.SetAtime {
		out.Atime, st = setTime(&d)
		fail(st)
	}
	if out.SetMtime = out.Mask.Has(nfs4.AttrTimeModifySet); out.SetMtime {
		out.Mtime, st = setTime(&d)
		fail(st)
	}
	if out.SetUmask = out.Mask.Has(nfs4.AttrModeUmask); out.SetUmask {
		if out.SetMode {
			fail(nfs4.ErrInval)
		}
		out.SetMode, out.Mode, out.Umask = true, d.Uint32(), d.Uint32()
		if out.Mode > 0o7777 || out.Umask > 0o777 {
			fail(nfs4.ErrInval)
		}
	}
	if d.Err() != nil || d.Left() > 0 {
		return nfs4.ErrBadXDR
	}
	return status
}

// setTime decodes a settime4.
func setTime(d *xdr.Decoder) (t unix.Timespec, st nfs4.Status) {
	switch d.Uint32() {
	case 0: // SET_TO_SERVER_TIME4
		return unix.Timespec{Nsec: unix.UTIME_NOW}, nfs4.OK
	case 1: // SET_TO_CLIENT_TIME4
		var v nfs4.Time
		if v.Decode(d); v.Nsec > 999_999_999 {
			return t, nfs4.ErrInval
		}
		return unix.Timespec{Sec: v.Sec, Nsec: int64(v.Nsec)}, nfs4.OK
	}
	return t, nfs4.ErrBadXDR
}

// setAttr is SETATTR (RFC 8881 section 18.30).
func (c *compound) setAttr() nfs4.Status {
	if !c.mayWait {
		return wait
	}
	var a nfs4.SetAttrArgs
	var set setAttrs
	st := nfs4.ErrBadXDR
	if a.Decode(c.d); c.d.Err() == nil {
		st = c.settable(&a.Attrs, &set)
	}
	if st == nfs4.OK {
		st = c.apply(&a, &set)
	}
	var res nfs4.SetAttrRes
	if st == nfs4.OK {
		res.Set = set.Mask
	}
	res.Encode(c.e)
	return st
}

func (c *compound) apply(a *nfs4.SetAttrArgs, set *setAttrs) (st nfs4.Status) {
	if set.SetUmask { // for new objects alone
		return nfs4.ErrInval
	}
	if set.SetSize {
		switch c.cur.Kind() {
		case unix.S_IFDIR:
			return nfs4.ErrIsDir
		case unix.S_IFREG:
		default:
			return nfs4.ErrInval
		}
		if c.dead {
			set.Opened = true // as the record of the truncation says
		} else if set.Opened, st = c.ioState(&a.StateID, state.Write); st != nfs4.OK {
			return st
		}
	}
	use := state.UseChange
	if set.SetSize {
		use = state.UseWrite
	}
	if st := c.conflict(c.cur, use); st != nfs4.OK {
		return st
	}
	if set.SetSize || c.guarded {
		if err := c.cur.Stat(&c.stat); err != nil {
			return status4(err)
		}
		if st := c.intendNode(c.cur, &c.stat); st != nfs4.OK {
			return st
		}
	}
	if c.dead {
		if !c.changedBefore() {
			return nfs4.ErrDelay
		}
		set.SetSize = false // others may have written since
	}
	c.wcc = vfs.Wcc{}
	if err := c.s.fs.SetAttr(c.cur, &set.Attrs, &c.cred, nil, &c.wcc); err != nil {
		return status4(err)
	}
	if set.SetACL {
		return c.setACL(set.ACL)
	}
	return nfs4.OK
}

// initial completes the attributes of a new object in dir. umask: it inherits no ACL.
func (c *compound) initial(dir *vfs.Node, set *setAttrs) {
	if set.SetUmask && !dir.HasDefaultACL() {
		set.Mode &^= set.Umask
	}
}

// created returns those of the attributes of a new object that were set: callers other than root
// cannot give it an owner.
func (c *compound) created(mask nfs4.Bitmap) nfs4.Bitmap {
	if c.cred.UID != 0 || !c.s.info.Identities {
		mask = mask.Minus(ownerAttrs)
	}
	return mask
}

// changeInfo converts the change of a directory.
func changeInfo(w *vfs.Wcc) nfs4.ChangeInfo {
	return nfs4.ChangeInfo{Atomic: w.HasBefore && w.HasAfter, Before: w.ChangeBefore, After: w.ChangeAfter}
}

// Bits of ACCESS.
const (
	accessXattrs = nfs4.AccessXattrRead | nfs4.AccessXattrWrite | nfs4.AccessXattrList
	accessFile   = nfs4.AccessRead | nfs4.AccessModify | nfs4.AccessExtend | nfs4.AccessExecute
	accessDir    = nfs4.AccessRead | nfs4.AccessLookup | nfs4.AccessModify | nfs4.AccessExtend | nfs4.AccessDelete
)

// access is ACCESS (RFC 8881 section 18.1, RFC 8276 section 8.5).
func (c *compound) access() nfs4.Status {
	var a nfs4.AccessArgs
	if a.Decode(c.d); c.d.Err() != nil {
		return nfs4.ErrBadXDR
	}
	supported, all := uint32(accessFile), uint32(accessFile|accessDir)
	dir := c.cur.IsDir()
	if dir {
		supported = accessDir
	}
	if c.head.Minor >= 2 {
		all |= accessXattrs
		if c.s.fs.Capabilities().Xattrs {
			supported |= accessXattrs
		}
	}
	switch {
	case a.Access&^all != 0:
		return nfs4.ErrInval
	case !c.mayWait && !c.s.fs.Nonblocking():
		return wait
	}
	if err := c.cur.Stat(&c.stat); err != nil {
		return status4(err)
	}
	asked := a.Access & supported
	want := wanted(dir, asked)
	if asked&(nfs4.AccessXattrRead|nfs4.AccessXattrList) != 0 {
		want |= vfs.MayRead
	}
	if asked&nfs4.AccessXattrWrite != 0 {
		want |= vfs.MayWrite
	}
	may, known := c.s.fs.Permit(c.cur, &c.stat, &c.cred, want)
	if !known {
		if !c.mayWait {
			return wait
		}
		var err error
		if may, err = c.s.fs.PermitBlocking(c.cur, &c.stat, &c.cred, want); err != nil {
			return status4(err)
		}
	}
	readOnly := c.readOnly || c.s.fs.ReadOnly()
	out := granted(dir, asked, may, readOnly)
	if may&vfs.MayRead != 0 {
		out |= asked & (nfs4.AccessXattrRead | nfs4.AccessXattrList)
	}
	if may&vfs.MayWrite != 0 && !readOnly {
		out |= asked & nfs4.AccessXattrWrite
	}
	res := nfs4.AccessRes{Supported: asked, Access: out}
	res.Encode(c.e)
	return nfs4.OK
}
