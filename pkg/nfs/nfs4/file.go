package nfs4

import "sluice.dev/sluice/pkg/xdr"

// HandleArgs are the arguments and results that are a file handle alone.
type HandleArgs struct{ Object Handle }

// Encode writes a.
func (a *HandleArgs) Encode(e *xdr.Encoder) { a.Object.Encode(e) }

// Decode reads a.
func (a *HandleArgs) Decode(d *xdr.Decoder) { a.Object.Decode(d) }

// PutFHArgs are the arguments of PUTFH (RFC 8881 section 18.19).
type PutFHArgs = HandleArgs

// GetFHRes is the result of GETFH (RFC 8881 section 18.8).
type GetFHRes = HandleArgs

// NameArgs are the arguments of operations with a name in the current directory alone. The name may
// be longer than MaxName; see there.
type NameArgs struct{ Name []byte }

// Encode writes a.
func (a *NameArgs) Encode(e *xdr.Encoder) { e.Opaque(a.Name) }

// Decode reads a.
func (a *NameArgs) Decode(d *xdr.Decoder) { a.Name = d.Opaque(MaxPath) }

// Arguments with a name alone.
type (
	// LookupArgs are the arguments of LOOKUP (RFC 8881 section 18.13).
	LookupArgs = NameArgs
	// RemoveArgs are the arguments of REMOVE (RFC 8881 section 18.25).
	RemoveArgs = NameArgs
	// LinkArgs are the arguments of LINK (RFC 8881 section 18.9).
	LinkArgs = NameArgs
	// SecInfoArgs are the arguments of SECINFO (RFC 8881 section 18.29).
	SecInfoArgs = NameArgs
)

// ChangeRes is the result of operations that change a directory.
type ChangeRes struct{ Change ChangeInfo }

// Encode writes r.
func (r *ChangeRes) Encode(e *xdr.Encoder) { r.Change.Encode(e) }

// Decode reads r.
func (r *ChangeRes) Decode(d *xdr.Decoder) { r.Change.Decode(d) }

// Results with a change of a directory alone.
type (
	// RemoveRes is the result of REMOVE.
	RemoveRes = ChangeRes
	// LinkRes is the result of LINK.
	LinkRes = ChangeRes
)

// RenameArgs are the arguments of RENAME (RFC 8881 section 18.26).
type RenameArgs struct{ OldName, NewName []byte }

// Encode writes a.
func (a *RenameArgs) Encode(e *xdr.Encoder) {
	e.Opaque(a.OldName)
	e.Opaque(a.NewName)
}

// Decode reads a.
func (a *RenameArgs) Decode(d *xdr.Decoder) {
	a.OldName, a.NewName = d.Opaque(MaxPath), d.Opaque(MaxPath)
}

// RenameRes is the result of RENAME.
type RenameRes struct{ Source, Target ChangeInfo }

// Encode writes r.
func (r *RenameRes) Encode(e *xdr.Encoder) {
	r.Source.Encode(e)
	r.Target.Encode(e)
}

// Decode reads r.
func (r *RenameRes) Decode(d *xdr.Decoder) {
	r.Source.Decode(d)
	r.Target.Decode(d)
}

// Bits of ACCESS (RFC 8881 section 18.1, RFC 8276 section 8.5).
const (
	AccessRead       = 0x001
	AccessLookup     = 0x002
	AccessModify     = 0x004
	AccessExtend     = 0x008
	AccessDelete     = 0x010
	AccessExecute    = 0x020
	AccessXattrRead  = 0x040
	AccessXattrWrite = 0x080
	AccessXattrList  = 0x100
)

// AccessArgs are the arguments of ACCESS.
type AccessArgs struct{ Access uint32 }

// Encode writes a.
func (a *AccessArgs) Encode(e *xdr.Encoder) { e.Uint32(a.Access) }

// Decode reads a.
func (a *AccessArgs) Decode(d *xdr.Decoder) { a.Access = d.Uint32() }

// AccessRes is the result of ACCESS.
type AccessRes struct{ Supported, Access uint32 }

// Encode writes r.
func (r *AccessRes) Encode(e *xdr.Encoder) {
	e.Uint32(r.Supported)
	e.Uint32(r.Access)
}

// Decode reads r.
func (r *AccessRes) Decode(d *xdr.Decoder) { r.Supported, r.Access = d.Uint32(), d.Uint32() }

// GetAttrArgs are the arguments of GETATTR (RFC 8881 section 18.7). Requested attributes beyond
// those of a Bitmap are dropped, since no server has them.
type GetAttrArgs struct{ Request Bitmap }

// Encode writes a.
func (a *GetAttrArgs) Encode(e *xdr.Encoder) { a.Request.Encode(e) }

// Decode reads a.
func (a *GetAttrArgs) Decode(d *xdr.Decoder) { a.Request.Decode(d) }

// AttrsArgs are arguments and results that are attributes alone.
type AttrsArgs struct{ Attrs Attrs }

// Encode writes a.
func (a *AttrsArgs) Encode(e *xdr.Encoder) { a.Attrs.Encode(e) }

// Decode reads a.
func (a *AttrsArgs) Decode(d *xdr.Decoder) { a.Attrs.Decode(d) }

// Arguments and results with attributes alone.
type (
	// GetAttrRes is the result of GETATTR.
	GetAttrRes = AttrsArgs
	// VerifyArgs are the arguments of VERIFY (RFC 8881 section 18.31).
	VerifyArgs = AttrsArgs
	// NVerifyArgs are the arguments of NVERIFY (RFC 8881 section 18.15).
	NVerifyArgs = AttrsArgs
)

// SetAttrArgs are the arguments of SETATTR (RFC 8881 section 18.30).
type SetAttrArgs struct {
	StateID StateID
	Attrs   Attrs
}

// Encode writes a.
func (a *SetAttrArgs) Encode(e *xdr.Encoder) {
	a.StateID.Encode(e)
	a.Attrs.Encode(e)
}

// Decode reads a.
func (a *SetAttrArgs) Decode(d *xdr.Decoder) {
	a.StateID.Decode(d)
	a.Attrs.Decode(d)
}

// SetAttrRes is the result of SETATTR with every status: the attributes that were set.
type SetAttrRes struct{ Set Bitmap }

// Encode writes r.
func (r *SetAttrRes) Encode(e *xdr.Encoder) { r.Set.Encode(e) }

// Decode reads r.
func (r *SetAttrRes) Decode(d *xdr.Decoder) { r.Set.Decode(d) }

// CreateArgs are the arguments of CREATE (RFC 8881 section 18.4). Link is the target of a Lnk, of
// LinkLength bytes; Device is for a Blk or Chr.
type CreateArgs struct {
	Type       Type
	Link       [][]byte
	LinkLength int
	Device     SpecData
	Name       []byte
	Attrs      Attrs
}

// Encode writes a. The target becomes an item; the message needs it while it is in use.
func (a *CreateArgs) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(a.Type))
	switch a.Type {
	case Lnk:
		e.Bulk(a.Link, a.LinkLength)
	case Blk, Chr:
		e.Uint32(a.Device.Major)
		e.Uint32(a.Device.Minor)
	}
	e.Opaque(a.Name)
	a.Attrs.Encode(e)
}

// Decode reads a. Any type passes: a server answers NFS4ERR_BADTYPE.
func (a *CreateArgs) Decode(d *xdr.Decoder) {
	*a = CreateArgs{Type: Type(d.Uint32()), Link: a.Link[:0]}
	switch a.Type {
	case Lnk:
		a.Link, a.LinkLength, _ = d.Bulk(MaxPath, a.Link)
	case Blk, Chr:
		a.Device.Major, a.Device.Minor = d.Uint32(), d.Uint32()
	}
	a.Name = d.Opaque(MaxPath)
	a.Attrs.Decode(d)
}

// CreateRes is the result of CREATE.
type CreateRes struct {
	Change ChangeInfo
	Set    Bitmap
}

// Encode writes r.
func (r *CreateRes) Encode(e *xdr.Encoder) {
	r.Change.Encode(e)
	r.Set.Encode(e)
}

// Decode reads r.
func (r *CreateRes) Decode(d *xdr.Decoder) {
	r.Change.Decode(d)
	r.Set.Decode(d)
}

// ReadlinkRes is the result of READLINK (RFC 8881 section 18.24). Link holds Length bytes, at most
// MaxPath.
type ReadlinkRes struct {
	Link   [][]byte
	Length int
}

// Encode writes r. The target becomes an item; the message needs it while it is in use.
func (r *ReadlinkRes) Encode(e *xdr.Encoder) { e.Bulk(r.Link, r.Length) }

// Decode reads r. Link is a view of the message's memory, in a reused slice.
func (r *ReadlinkRes) Decode(d *xdr.Decoder) { r.Link, r.Length, _ = d.Bulk(MaxPath, r.Link[:0]) }

// ReaddirArgs are the arguments of READDIR (RFC 8881 section 18.23). MaxCount bounds the result's
// size in bytes, DirCount that of its names and cookies alone.
type ReaddirArgs struct {
	Cookie             uint64
	Verf               Verifier
	DirCount, MaxCount uint32
	Request            Bitmap
}

// Encode writes a.
func (a *ReaddirArgs) Encode(e *xdr.Encoder) {
	e.Uint64(a.Cookie)
	a.Verf.Encode(e)
	e.Uint32(a.DirCount)
	e.Uint32(a.MaxCount)
	a.Request.Encode(e)
}

// Decode reads a.
func (a *ReaddirArgs) Decode(d *xdr.Decoder) {
	a.Cookie = d.Uint64()
	a.Verf.Decode(d)
	a.DirCount, a.MaxCount = d.Uint32(), d.Uint32()
	a.Request.Decode(d)
}

// Entry is an entry4 of READDIR's result, which is a Verifier, then for each entry true and the
// Entry, then false and the boolean eof.
type Entry struct {
	Cookie uint64
	Name   []byte
	Attrs  Attrs
}

// Decode reads the next entry. It returns false after the last, or if d failed.
func (n *Entry) Decode(d *xdr.Decoder) bool {
	if !d.Bool() {
		return false
	}
	n.Cookie = d.Uint64()
	n.Name = d.Opaque(MaxPath)
	n.Attrs.Decode(d)
	return d.Err() == nil
}

// Styles of SECINFO_NO_NAME.
const (
	StyleCurrentFH = 0
	StyleParent    = 1
)

// SecInfoNoNameArgs are the arguments of SECINFO_NO_NAME (RFC 8881 section 18.45).
type SecInfoNoNameArgs struct{ Style uint32 }

// Encode writes a.
func (a *SecInfoNoNameArgs) Encode(e *xdr.Encoder) { e.Uint32(a.Style) }

// Decode reads a.
func (a *SecInfoNoNameArgs) Decode(d *xdr.Decoder) { a.Style = enum(d, StyleParent, "secinfo_style4") }

// SecInfoRes is the result of SECINFO and SECINFO_NO_NAME: flavors of authentication.
type SecInfoRes struct{ Flavors []uint32 }

// Encode writes r. Flavors must not have AuthGSS.
func (r *SecInfoRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(len(r.Flavors)))
	for _, f := range r.Flavors {
		e.Uint32(f)
	}
}

// Decode reads r. It drops the mechanism of AuthGSS.
func (r *SecInfoRes) Decode(d *xdr.Decoder) {
	r.Flavors = r.Flavors[:0]
	for range count(d, MaxSecParms, "flavors") {
		f := d.Uint32()
		if f == AuthGSS {
			d.Opaque(MaxOpaque)
			d.Uint64()
		}
		r.Flavors = append(r.Flavors, f)
	}
}
