// Package schema describes every message of NFS: versions 3, 4.0, 4.1 and 4.2 (RFC 1813, 7530,
// 8881, 7862, 8276), MOUNT version 3, NFSACL version 3, and the callbacks of version 4. One table
// lists the fields of each procedure's and operation's arguments and results; a [Walker] goes
// through a message by it and notes the fields of interest.
//
// Nothing is decoded into structs and nothing is copied: the upper-layer binding gets the places of
// bulk data, and the proxy the bytes to change. The table, and the message's length, bound all
// lengths and counts.
package schema

import "sluice.dev/sluice/pkg/xdr"

// Proc names a procedure.
type Proc struct {
	Program, Version, Procedure uint32
	// Callback: a CB_COMPOUND, whose program number is the client's choice. Program and Version are
	// ignored then.
	Callback bool
}

// Mark is the meaning of a field.
type Mark uint8

// The fields that a Walker notes. For a counted opaque or string, Value is its length in bytes, and
// B its bytes; for a number, Value is the number.
const (
	_ Mark = iota

	// Status is the status of a result: nfsstat3, mountstat3 or nfsstat4. A COMPOUND's own has Op
	// -1.
	Status
	// Count is a number in arguments that bounds the result: count of READ, READ_PLUS and READDIR;
	// maxcount of READDIRPLUS, version 4's READDIR, GETDEVICEINFO, LAYOUTGET and LISTXATTRS;
	// maxdevices of GETDEVICELIST.
	Count
	// DirCount is dircount of READDIRPLUS and of READDIR in version 4.
	DirCount
	// Data is an eligible argument or result (RFC 8267): the data of READ and WRITE, the target of
	// a symbolic link. Out: it was taken out of the stream. B is nil.
	Data
	// Handle is a file handle in arguments, results or callbacks. A handle in an attribute is an
	// Attr.
	Handle
	// Name is a name in a directory in arguments, version 4's open claims included.
	Name
	// Path is dirpath of MOUNT.
	Path

	// Entry is one entry of a READDIR or READDIRPLUS result of version 3, from its "value follows"
	// word to the next one. Value is its fileid.
	Entry
	// EntryName is the name in an Entry, or in an entry of version 4's READDIR.
	EntryName
	// PostOpAttr and PostOpHandle are those structures of version 3, from their "follows" word on.
	// Value is that word. A handle that follows is noted as a Handle too, directly after.
	PostOpAttr
	PostOpHandle
	// FileID is the fileid in version 3's attributes of the object itself: of GETATTR, LOOKUP's
	// object, and the directory of READDIR and READDIRPLUS.
	FileID
	// Sizes are the seven words from rtmax to dtpref of FSINFO. B is their bytes.
	Sizes
	// Access is the mask in the result of ACCESS; in version 4 the second word, "access".
	Access
	// Listed is an entry of an export list or a mount list in a result of MOUNT, whole.
	Listed

	// Minor is the minor version of a COMPOUND or CB_COMPOUND.
	Minor
	// Operations is the count word of the operations or results of a COMPOUND.
	Operations
	// AttrMask is a bitmap4 in arguments that requests attributes, from its count word on. B is its
	// words, Value their length in bytes.
	AttrMask
	// Attrs is a fattr4: bitmap and values. B is the words of the bitmap, Value their length in
	// bytes.
	Attrs
	// Attr is a value of the latest Attrs that is in [Watched]. Value is the attribute's number, B
	// the value's bytes.
	Attr
	// AttrsLen is the count word of the values of the latest Attrs, noted before the first Attr.
	// Value is the length of the values in bytes.
	AttrsLen
	// ClientOwner is co_ownerid of EXCHANGE_ID, and id of nfs_client_id4 in SETCLIENTID.
	ClientOwner
	// CallbackAddress is cb_location of SETCLIENTID: r_netid and r_addr.
	CallbackAddress
	// ServerOwner is so_major_id, ServerScope eir_server_scope.
	ServerOwner
	ServerScope
	// ExchangeFlags is eia_flags or eir_flags.
	ExchangeFlags
	// The fields of channel_attrs4, those of the fore channel first, then those of the back
	// channel.
	MaxRequestSize
	MaxResponseSize
	MaxResponseSizeCached
	MaxOperations
	// ShareAccess, OpenType and Claim are fields of OPEN: share_access, opentype4 and
	// open_claim_type4. OPEN_DOWNGRADE has a ShareAccess too.
	ShareAccess
	OpenType
	Claim
	// Style is secinfo_style4 of SECINFO_NO_NAME.
	Style
	// Flavors is the count word of the list of SECINFO and SECINFO_NO_NAME, Flavor an element: 4
	// bytes long, unless it is RPCSEC_GSS.
	Flavors
	Flavor
	// Sources is the count word of ca_source_server of COPY.
	Sources
)

// Span is a field in a message.
type Span struct {
	Mark Mark
	// Out: the bytes of a Data are not in the stream.
	Out bool
	// Op is the index of the operation in its COMPOUND, -1 outside of one.
	Op int
	// Pos is the position of the field's first byte in the unreduced stream, Len its length there:
	// a counted opaque begins with its count word and ends with its round-up.
	Pos, Len int
	Value    uint64
	// B are bytes of the message itself, valid as long as that is; a copy if they cross two slices
	// of the stream.
	B []byte
}

// Op is one operation of a COMPOUND or CB_COMPOUND.
type Op struct {
	// Code is the operation's number.
	Code uint32
	// Status is a result's status; 0 in arguments.
	Status uint32
	// Pos and End are its range [Pos, End) in the unreduced stream, the word with its number
	// included.
	Pos, End int
	// First and Last are its range [First, Last) in Walker.Spans.
	First, Last int
}

// Walker goes through messages. It is reusable, without allocation for messages of up to 16,384
// fields; it does not keep the Spans of longer ones.
type Walker struct {
	// Spans are the fields of the last message, in order of their first bytes. After an error they
	// are the fields before the operations, and those of Ops.
	Spans []Span
	// Ops are the operations of a COMPOUND. After an error they are the complete ones.
	Ops []Op
	// Minor is the minor version of the latest arguments of a COMPOUND. Results are read with the
	// operations of all minor versions.
	Minor uint32

	walkerState
}

// Error is the error of a message that could not be read to its end.
type Error struct {
	// Op is the index of the faulty operation, or -1.
	Op int
	// Code is that operation's number.
	Code uint32
	// Unknown: the table has no such operation. The operations before it are in Walker.Ops; the
	// rest cannot be read.
	Unknown bool
	// TooMany: there are more than MaxOps operations, none of which is in Walker.Ops.
	TooMany bool
	// Attr: a fattr4 of the operation has an unknown attribute.
	Attr bool
	// Err is the cause; an [*xdr.Error] for bad bytes.
	Err error
}

// Args walks the arguments of a call; d stands at their first byte. Items that are no eligible
// argument stop it, or are not counted by d.Used. The error is an [*Error].
func (w *Walker) Args(p Proc, d *xdr.Decoder) error { return w.walk(p, d, arguments) }

// Results walks the results of an accepted and successful reply; d stands at their first byte. The
// error is an [*Error].
func (w *Walker) Results(p Proc, d *xdr.Decoder) error { return w.walk(p, d, results) }
