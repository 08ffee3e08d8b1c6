package nfs4

import "sluice.dev/sluice/pkg/xdr"

// Arguments with the name of an extended attribute alone. The name has no prefix: it is in the
// namespace "user." (RFC 8276 section 8.3).
type (
	// GetXattrArgs are the arguments of GETXATTR (RFC 8276 section 8.4.1).
	GetXattrArgs = NameArgs
	// RemoveXattrArgs are the arguments of REMOVEXATTR (RFC 8276 section 8.4.4).
	RemoveXattrArgs = NameArgs
)

// GetXattrRes is the result of GETXATTR.
type GetXattrRes struct{ Value []byte }

// Encode writes r.
func (r *GetXattrRes) Encode(e *xdr.Encoder) { e.Opaque(r.Value) }

// Decode reads r.
func (r *GetXattrRes) Decode(d *xdr.Decoder) { r.Value = d.Opaque(MaxXattr) }

// Options of SETXATTR: setxattr_option4.
const (
	XattrEither  = 0
	XattrCreate  = 1
	XattrReplace = 2
)

// SetXattrArgs are the arguments of SETXATTR (RFC 8276 section 8.4.2). Value may be longer than
// MaxXattr: a server answers NFS4ERR_XATTR2BIG.
type SetXattrArgs struct {
	Option uint32
	Name   []byte
	Value  []byte
}

// Encode writes a.
func (a *SetXattrArgs) Encode(e *xdr.Encoder) {
	e.Uint32(a.Option)
	e.Opaque(a.Name)
	e.Opaque(a.Value)
}

// Decode reads a.
func (a *SetXattrArgs) Decode(d *xdr.Decoder) {
	a.Option = enum(d, XattrReplace, "setxattr_option4")
	a.Name, a.Value = d.Opaque(MaxPath), d.Opaque(MaxData)
}

// Results with a change of an object alone.
type (
	// SetXattrRes is the result of SETXATTR.
	SetXattrRes = ChangeRes
	// RemoveXattrRes is the result of REMOVEXATTR.
	RemoveXattrRes = ChangeRes
)

// ListXattrsArgs are the arguments of LISTXATTRS (RFC 8276 section 8.4.3). MaxCount bounds the
// result's size in bytes.
type ListXattrsArgs struct {
	Cookie   uint64
	MaxCount uint32
}

// Encode writes a.
func (a *ListXattrsArgs) Encode(e *xdr.Encoder) {
	e.Uint64(a.Cookie)
	e.Uint32(a.MaxCount)
}

// Decode reads a.
func (a *ListXattrsArgs) Decode(d *xdr.Decoder) { a.Cookie, a.MaxCount = d.Uint64(), d.Uint32() }

// ListXattrsRes is the result of LISTXATTRS.
type ListXattrsRes struct {
	Cookie uint64
	Names  [][]byte
	EOF    bool
}

// Encode writes r.
func (r *ListXattrsRes) Encode(e *xdr.Encoder) {
	e.Uint64(r.Cookie)
	e.Uint32(uint32(len(r.Names)))
	for _, n := range r.Names {
		e.Opaque(n)
	}
	e.Bool(r.EOF)
}

// Decode reads r.
func (r *ListXattrsRes) Decode(d *xdr.Decoder) {
	r.Cookie, r.Names = d.Uint64(), r.Names[:0]
	for range count(d, MaxXattrNames, "names of extended attributes") {
		r.Names = append(r.Names, d.Opaque(MaxPath))
	}
	r.EOF = d.Bool()
}
