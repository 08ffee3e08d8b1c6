package nfs4

import "sluice.dev/sluice/pkg/xdr"

// CompoundArgs is the head of the arguments of COMPOUND (RFC 8881 section 16.2). Count operations
// follow, each an Op and its arguments.
type CompoundArgs struct {
	Tag   []byte
	Minor uint32
	Count uint32
}

// Encode writes a.
func (a *CompoundArgs) Encode(e *xdr.Encoder) {
	e.Opaque(a.Tag)
	e.Uint32(a.Minor)
	e.Uint32(a.Count)
}

// Decode reads a. It does not bound Count: the limit is a session's.
func (a *CompoundArgs) Decode(d *xdr.Decoder) {
	a.Tag = d.Opaque(MaxTag)
	a.Minor, a.Count = d.Uint32(), d.Uint32()
}

// CompoundRes is the head of the results of COMPOUND and CB_COMPOUND. Count results follow, each an
// Op, a Status, and the rest.
type CompoundRes struct {
	Status Status
	Tag    []byte
	Count  uint32
}

// Encode writes r.
func (r *CompoundRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	e.Opaque(r.Tag)
	e.Uint32(r.Count)
}

// Decode reads r.
func (r *CompoundRes) Decode(d *xdr.Decoder) {
	r.Status = Status(d.Uint32())
	r.Tag = d.Opaque(MaxTag)
	r.Count = d.Uint32()
}

// CBCompoundArgs is the head of the arguments of CB_COMPOUND (RFC 8881 section 20.2). Count
// operations follow, each a CBOp and its arguments.
type CBCompoundArgs struct {
	Tag   []byte
	Minor uint32
	Count uint32
}

// Encode writes a. The callback_ident of version 4.0 is zero.
func (a *CBCompoundArgs) Encode(e *xdr.Encoder) {
	e.Opaque(a.Tag)
	e.Uint32(a.Minor)
	e.Uint32(0)
	e.Uint32(a.Count)
}

// Decode reads a.
func (a *CBCompoundArgs) Decode(d *xdr.Decoder) {
	a.Tag = d.Opaque(MaxTag)
	a.Minor = d.Uint32()
	d.Uint32()
	a.Count = d.Uint32()
}
