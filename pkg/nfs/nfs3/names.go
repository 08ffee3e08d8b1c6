package nfs3

import "sluice.dev/sluice/pkg/xdr"

// DirOpArgs is a diropargs3: a name in a directory. The name may be longer than MaxName; see there.
type DirOpArgs struct {
	Dir  Handle
	Name []byte
}

// Encode writes a.
func (a *DirOpArgs) Encode(e *xdr.Encoder) {
	a.Dir.Encode(e)
	e.Opaque(a.Name)
}

// Decode reads a.
func (a *DirOpArgs) Decode(d *xdr.Decoder) {
	a.Dir.Decode(d)
	a.Name = d.Opaque(MaxPath)
}

// LookupArgs are the arguments of LOOKUP (RFC 1813 section 3.3.3).
type LookupArgs = DirOpArgs

// RemoveArgs are the arguments of REMOVE and RMDIR (RFC 1813 sections 3.3.12 and 3.3.13).
type RemoveArgs = DirOpArgs

// RemoveRes is the result of REMOVE and RMDIR. Wcc is the directory's.
type RemoveRes = WccRes

// LookupRes is the result of LOOKUP. DirAttr is present with every status.
type LookupRes struct {
	Status  Status
	Object  Handle
	Attr    PostOpAttr
	DirAttr PostOpAttr
}

// Encode writes r.
func (r *LookupRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	if r.Status == OK {
		r.Object.Encode(e)
		r.Attr.Encode(e)
	}
	r.DirAttr.Encode(e)
}

// Decode reads r.
func (r *LookupRes) Decode(d *xdr.Decoder) {
	*r = LookupRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Object.Decode(d)
		r.Attr.Decode(d)
	}
	r.DirAttr.Decode(d)
}

// Access bits of ACCESS (RFC 1813 section 3.3.4).
const (
	AccessRead    = 0x01
	AccessLookup  = 0x02
	AccessModify  = 0x04
	AccessExtend  = 0x08
	AccessDelete  = 0x10
	AccessExecute = 0x20
)

// AccessArgs are the arguments of ACCESS.
type AccessArgs struct {
	Object Handle
	Access uint32
}

// Encode writes a.
func (a *AccessArgs) Encode(e *xdr.Encoder) {
	a.Object.Encode(e)
	e.Uint32(a.Access)
}

// Decode reads a.
func (a *AccessArgs) Decode(d *xdr.Decoder) {
	a.Object.Decode(d)
	a.Access = d.Uint32()
}

// AccessRes is the result of ACCESS. Attr is present with every status.
type AccessRes struct {
	Status Status
	Attr   PostOpAttr
	Access uint32
}

// Encode writes r.
func (r *AccessRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.Attr.Encode(e)
	if r.Status == OK {
		e.Uint32(r.Access)
	}
}

// Decode reads r.
func (r *AccessRes) Decode(d *xdr.Decoder) {
	*r = AccessRes{Status: Status(d.Uint32())}
	r.Attr.Decode(d)
	if r.Status == OK {
		r.Access = d.Uint32()
	}
}

// ReadlinkArgs are the arguments of READLINK (RFC 1813 section 3.3.5).
type ReadlinkArgs = HandleArgs

// ReadlinkRes is the result of READLINK. Attr is present with every status. Path holds Length
// bytes, at most MaxPath.
type ReadlinkRes struct {
	Status Status
	Attr   PostOpAttr
	Path   [][]byte
	Length int
}

// Encode writes r. The path becomes an item; the message needs it while it is in use.
func (r *ReadlinkRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.Attr.Encode(e)
	if r.Status == OK {
		e.Bulk(r.Path, r.Length)
	}
}

// Decode reads r. Path is a view of the message's memory, in a reused slice.
func (r *ReadlinkRes) Decode(d *xdr.Decoder) {
	*r = ReadlinkRes{Status: Status(d.Uint32()), Path: r.Path[:0]}
	r.Attr.Decode(d)
	if r.Status == OK {
		r.Path, r.Length, _ = d.Bulk(MaxPath, r.Path)
	}
}

// CreateMode is a createmode3.
type CreateMode uint32

// Modes of CREATE.
const (
	Unchecked CreateMode = 0
	Guarded   CreateMode = 1
	Exclusive CreateMode = 2
)

// CreateArgs are the arguments of CREATE (RFC 1813 section 3.3.8). Verf is for Exclusive, Attrs for
// the other modes.
type CreateArgs struct {
	Where DirOpArgs
	Mode  CreateMode
	Attrs SetAttrs
	Verf  Verifier
}

// Encode writes a.
func (a *CreateArgs) Encode(e *xdr.Encoder) {
	a.Where.Encode(e)
	e.Uint32(uint32(a.Mode))
	if a.Mode == Exclusive {
		a.Verf.Encode(e)
	} else {
		a.Attrs.Encode(e)
	}
}

// Decode reads a.
func (a *CreateArgs) Decode(d *xdr.Decoder) {
	*a = CreateArgs{}
	a.Where.Decode(d)
	switch a.Mode = CreateMode(d.Uint32()); a.Mode {
	case Unchecked, Guarded:
		a.Attrs.Decode(d)
	case Exclusive:
		a.Verf.Decode(d)
	default:
		d.Fail("createmode3 is %d, must be 0 to 2", uint32(a.Mode))
	}
}

// CreateRes is the result of CREATE, MKDIR, SYMLINK and MKNOD. Wcc is the directory's, and present
// with every status.
type CreateRes struct {
	Status Status
	Object PostOpFH
	Attr   PostOpAttr
	Wcc    WccData
}

// Encode writes r.
func (r *CreateRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	if r.Status == OK {
		r.Object.Encode(e)
		r.Attr.Encode(e)
	}
	r.Wcc.Encode(e)
}

// Decode reads r.
func (r *CreateRes) Decode(d *xdr.Decoder) {
	*r = CreateRes{Status: Status(d.Uint32())}
	if r.Status == OK {
		r.Object.Decode(d)
		r.Attr.Decode(d)
	}
	r.Wcc.Decode(d)
}

// MkdirRes is the result of MKDIR.
type MkdirRes = CreateRes

// SymlinkRes is the result of SYMLINK.
type SymlinkRes = CreateRes

// MknodRes is the result of MKNOD.
type MknodRes = CreateRes

// MkdirArgs are the arguments of MKDIR (RFC 1813 section 3.3.9).
type MkdirArgs struct {
	Where DirOpArgs
	Attrs SetAttrs
}

// Encode writes a.
func (a *MkdirArgs) Encode(e *xdr.Encoder) {
	a.Where.Encode(e)
	a.Attrs.Encode(e)
}

// Decode reads a.
func (a *MkdirArgs) Decode(d *xdr.Decoder) {
	a.Where.Decode(d)
	a.Attrs.Decode(d)
}

// SymlinkArgs are the arguments of SYMLINK (RFC 1813 section 3.3.10). Path holds Length bytes, at
// most MaxPath.
type SymlinkArgs struct {
	Where  DirOpArgs
	Attrs  SetAttrs
	Path   [][]byte
	Length int
}

// Encode writes a. The path becomes an item; the message needs it while it is in use.
func (a *SymlinkArgs) Encode(e *xdr.Encoder) {
	a.Where.Encode(e)
	a.Attrs.Encode(e)
	e.Bulk(a.Path, a.Length)
}

// Decode reads a. Path is a view of the message's memory, in a reused slice.
func (a *SymlinkArgs) Decode(d *xdr.Decoder) {
	a.Where.Decode(d)
	a.Attrs.Decode(d)
	a.Path, a.Length, _ = d.Bulk(MaxPath, a.Path[:0])
}

// MknodArgs are the arguments of MKNOD (RFC 1813 section 3.3.11). Attrs are for devices, sockets
// and FIFOs, Spec for devices; a server answers other types with NFS3ERR_BADTYPE.
type MknodArgs struct {
	Where DirOpArgs
	Type  Type
	Attrs SetAttrs
	Spec  SpecData
}

// Encode writes a.
func (a *MknodArgs) Encode(e *xdr.Encoder) {
	a.Where.Encode(e)
	e.Uint32(uint32(a.Type))
	switch a.Type {
	case Chr, Blk:
		a.Attrs.Encode(e)
		a.Spec.Encode(e)
	case Sock, FIFO:
		a.Attrs.Encode(e)
	}
}

// Decode reads a.
func (a *MknodArgs) Decode(d *xdr.Decoder) {
	*a = MknodArgs{}
	a.Where.Decode(d)
	a.Type.decode(d)
	switch a.Type {
	case Chr, Blk:
		a.Attrs.Decode(d)
		a.Spec.Decode(d)
	case Sock, FIFO:
		a.Attrs.Decode(d)
	}
}

// RenameArgs are the arguments of RENAME (RFC 1813 section 3.3.14).
type RenameArgs struct{ From, To DirOpArgs }

// Encode writes a.
func (a *RenameArgs) Encode(e *xdr.Encoder) {
	a.From.Encode(e)
	a.To.Encode(e)
}

// Decode reads a.
func (a *RenameArgs) Decode(d *xdr.Decoder) {
	a.From.Decode(d)
	a.To.Decode(d)
}

// RenameRes is the result of RENAME. Both Wccs are present with every status.
type RenameRes struct {
	Status         Status
	FromWcc, ToWcc WccData
}

// Encode writes r.
func (r *RenameRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.FromWcc.Encode(e)
	r.ToWcc.Encode(e)
}

// Decode reads r.
func (r *RenameRes) Decode(d *xdr.Decoder) {
	r.Status = Status(d.Uint32())
	r.FromWcc.Decode(d)
	r.ToWcc.Decode(d)
}

// LinkArgs are the arguments of LINK (RFC 1813 section 3.3.15): File gets the further name Link.
type LinkArgs struct {
	File Handle
	Link DirOpArgs
}

// Encode writes a.
func (a *LinkArgs) Encode(e *xdr.Encoder) {
	a.File.Encode(e)
	a.Link.Encode(e)
}

// Decode reads a.
func (a *LinkArgs) Decode(d *xdr.Decoder) {
	a.File.Decode(d)
	a.Link.Decode(d)
}

// LinkRes is the result of LINK. Attr (the file's) and Wcc (the directory's) are present with every
// status.
type LinkRes struct {
	Status Status
	Attr   PostOpAttr
	Wcc    WccData
}

// Encode writes r.
func (r *LinkRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.Attr.Encode(e)
	r.Wcc.Encode(e)
}

// Decode reads r.
func (r *LinkRes) Decode(d *xdr.Decoder) {
	r.Status = Status(d.Uint32())
	r.Attr.Decode(d)
	r.Wcc.Decode(d)
}
