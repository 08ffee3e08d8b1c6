package server

import (
	"errors"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/xdr"
)

// timeOf converts a time. Times outside 1970 to 2106 (RFC 1813) become the first or last moment.
func timeOf(t unix.Timespec) nfs3.Time {
	switch sec := t.Sec; {
	case sec < 0:
		return nfs3.Time{}
	case sec > 1<<32-1:
		return nfs3.Time{Sec: 1<<32 - 1, Nsec: 999_999_999}
	default:
		return nfs3.Time{Sec: uint32(sec), Nsec: uint32(t.Nsec)}
	}
}

var types = [16]nfs3.Type{
	unix.S_IFREG >> 12: nfs3.Reg, unix.S_IFDIR >> 12: nfs3.Dir, unix.S_IFLNK >> 12: nfs3.Lnk, unix.S_IFBLK >> 12: nfs3.Blk,
	unix.S_IFCHR >> 12: nfs3.Chr, unix.S_IFSOCK >> 12: nfs3.Sock, unix.S_IFIFO >> 12: nfs3.FIFO,
}

// attrOf converts attributes.
func (s *Server) attrOf(st *vfs.Stat, a *nfs3.Attr) {
	*a = nfs3.Attr{
		Type: types[st.Mode>>12&15], Mode: st.Mode & 0o7777, Nlink: uint32(st.Nlink), UID: st.Uid, GID: st.Gid,
		Size: uint64(st.Size), Used: uint64(st.Blocks) * 512, FSID: s.fs.FSID(st), FileID: st.Ino,
		Atime: timeOf(st.Atim), Mtime: timeOf(st.Mtim), Ctime: timeOf(st.Ctim),
	}
	if a.Type == nfs3.Blk || a.Type == nfs3.Chr {
		a.Rdev = nfs3.SpecData{Major: unix.Major(st.Rdev), Minor: unix.Minor(st.Rdev)}
	}
}

// post makes post-operation attributes.
func (s *Server) post(st *vfs.Stat, p *nfs3.PostOpAttr) {
	p.Present = true
	s.attrOf(st, &p.Attr)
}

// postOf makes post-operation attributes of a node as it is now; none after an error.
func (s *Server) postOf(n *vfs.Node, p *nfs3.PostOpAttr) {
	var st vfs.Stat
	if n != nil && n.Stat(&st) == nil && !s.private(n.Key()) {
		s.post(&st, p)
	}
}

// wccOf converts weak cache consistency data.
func (s *Server) wccOf(w *vfs.Wcc, out *nfs3.WccData) {
	if out.HasBefore = w.HasBefore; w.HasBefore {
		out.Before = nfs3.WccAttr{Size: uint64(w.Before.Size), Mtime: timeOf(w.Before.Mtim), Ctime: timeOf(w.Before.Ctim)}
	}
	if w.HasAfter {
		s.post(&w.After, &out.After)
	}
}

// unchanged makes weak cache consistency data of an unmodified object.
func (s *Server) unchanged(n *vfs.Node, out *nfs3.WccData) {
	var w vfs.Wcc
	if n != nil && n.Stat(&w.Before) == nil {
		w.After, w.HasBefore, w.HasAfter = w.Before, true, true
		s.wccOf(&w, out)
	}
}

const getattrLen = 4 + nfs3.AttrLen

func getattrNonblocking(o *op) bool {
	var a nfs3.GetAttrArgs
	d := o.call.Args()
	if a.Decode(d); d.Err() != nil {
		return false
	}
	n := o.node(a.Object)
	if n == nil {
		return false
	}
	n.Release()
	if e := o.begin(getattrLen); e != nil {
		r := nfs3.GetAttrRes{}
		o.s.attrOf(&o.stat, &r.Attr)
		r.Encode(e)
		o.respond()
	}
	return true
}

func getattr(o *op) {
	e := o.begin(getattrLen)
	if e == nil {
		return
	}
	var a nfs3.GetAttrArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.GetAttrRes
	n, st := o.resolve(a.Object)
	if r.Status = st; st == nfs3.OK {
		o.s.attrOf(&o.stat, &r.Attr)
		n.Release()
	}
	r.Encode(e)
	o.respond()
}

// attrsOf converts attributes to set.
func attrsOf(in *nfs3.SetAttrs, out *vfs.Attrs) nfs3.Status {
	*out = vfs.Attrs{
		SetMode: in.SetMode, SetUID: in.SetUID, SetGID: in.SetGID, SetSize: in.SetSize,
		Mode: in.Mode, UID: in.UID, GID: in.GID, Size: in.Size,
	}
	return max(
		timeTo(in.AtimeHow, in.Atime, &out.SetAtime, &out.Atime),
		timeTo(in.MtimeHow, in.Mtime, &out.SetMtime, &out.Mtime))
}

// timeTo converts a time to set. The kernel's special nanoseconds are out of clients' reach.
func timeTo(how nfs3.TimeHow, t nfs3.Time, set *bool, out *unix.Timespec) nfs3.Status {
	switch how {
	case nfs3.SetToServerTime:
		*set, out.Nsec = true, unix.UTIME_NOW
	case nfs3.SetToClientTime:
		if t.Nsec > 999_999_999 {
			return nfs3.ErrInval
		}
		*set = true
		*out = unix.NsecToTimespec(int64(t.Sec)*1e9 + int64(t.Nsec))
	}
	return nfs3.OK
}

func setattr(o *op) {
	e := o.begin(4 + nfs3.WccDataLen)
	if e == nil {
		return
	}
	var a nfs3.SetAttrArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.SetAttrRes
	n, st := o.writable(a.Object)
	if r.Status = st; st == nfs3.OK {
		o.setattr(n, &a, &r)
		n.Release()
	}
	r.Encode(e)
	o.respond()
}

func (o *op) setattr(n *vfs.Node, a *nfs3.SetAttrArgs, r *nfs3.SetAttrRes) {
	var attrs vfs.Attrs
	if r.Status = attrsOf(&a.New, &attrs); r.Status != nfs3.OK {
		o.s.unchanged(n, &r.Wcc)
		return
	}
	var guard func(*vfs.Stat) bool
	if a.Guard {
		guard = func(st *vfs.Stat) bool { return timeOf(st.Ctim) == a.GuardCtime }
	}
	o.intendObject(n)
	if attrs.SetSize && o.changedSince() && o.now.size != int64(attrs.Size) {
		attrs.SetSize = false
	}
	o.wcc = vfs.Wcc{}
	err := o.s.fs.SetAttr(n, &attrs, &o.cred, guard, &o.wcc)
	if r.Status = status(err); a.Guard && errors.Is(err, unix.EBUSY) {
		r.Status = nfs3.ErrNotSync
	}
	o.s.wccOf(&o.wcc, &r.Wcc)
}

// The permissions behind the bits of ACCESS. Directories are searched and not executed; deleting a
// file takes its directory.
func wanted(dir bool, bits uint32) (want uint32) {
	for bits &= 0x3f; bits != 0; bits &= bits - 1 {
		want |= needs(dir, bits&-bits)
	}
	return want
}

// needs returns the permissions behind a bit of ACCESS, 0 if it does not apply to the object.
func needs(dir bool, bit uint32) uint32 {
	switch {
	case bit == nfs3.AccessRead:
		return vfs.MayRead
	case dir && bit == nfs3.AccessLookup, !dir && bit == nfs3.AccessExecute:
		return vfs.MayExec
	case dir && (bit == nfs3.AccessModify || bit == nfs3.AccessExtend || bit == nfs3.AccessDelete):
		return vfs.MayWrite | vfs.MayExec
	case !dir && (bit == nfs3.AccessModify || bit == nfs3.AccessExtend):
		return vfs.MayWrite
	}
	return 0
}

// granted returns the bits of ACCESS that permissions cover.
func granted(dir bool, bits, may uint32, readOnly bool) (out uint32) {
	if readOnly {
		bits &^= nfs3.AccessModify | nfs3.AccessExtend | nfs3.AccessDelete
	}
	for bits &= 0x3f; bits != 0; bits &= bits - 1 {
		bit := bits & -bits
		if need := needs(dir, bit); need != 0 && need&may == need {
			out |= bit
		}
	}
	return out
}

const accessLen = 4 + nfs3.PostOpAttrLen + 4

func accessNonblocking(o *op) bool {
	var a nfs3.AccessArgs
	d := o.call.Args()
	if a.Decode(d); d.Err() != nil {
		return false
	}
	n := o.node(a.Object)
	if n == nil {
		return false
	}
	may, known := o.s.fs.Permit(n, &o.stat, &o.cred, wanted(n.IsDir(), a.Access))
	dir, private := n.IsDir(), o.s.private(n.Key())
	n.Release()
	if !known {
		return false
	}
	if e := o.begin(accessLen); e != nil {
		o.answerAccess(e, private, granted(dir, a.Access, may, o.readOnly || o.s.fs.ReadOnly()))
	}
	return true
}

func (o *op) answerAccess(e *xdr.Encoder, private bool, bits uint32) {
	r := nfs3.AccessRes{Access: bits}
	if !private {
		o.s.post(&o.stat, &r.Attr)
	}
	r.Encode(e)
	o.respond()
}

func accessCheck(o *op) {
	e := o.begin(accessLen)
	if e == nil {
		return
	}
	var a nfs3.AccessArgs
	d := o.call.Args()
	if a.Decode(d); !o.decoded(d) {
		return
	}
	var r nfs3.AccessRes
	n, st := o.resolve(a.Object)
	if r.Status = st; st == nfs3.OK {
		may, err := o.s.fs.PermitBlocking(n, &o.stat, &o.cred, wanted(n.IsDir(), a.Access))
		dir, private := n.IsDir(), o.s.private(n.Key())
		n.Release()
		if err == nil {
			o.answerAccess(e, private, granted(dir, a.Access, may, o.readOnly || o.s.fs.ReadOnly()))
			return
		}
		r.Status = status(err)
		o.s.post(&o.stat, &r.Attr)
	}
	r.Encode(e)
	o.respond()
}
