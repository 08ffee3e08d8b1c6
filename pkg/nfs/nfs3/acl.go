package nfs3

import "sluice.dev/sluice/pkg/xdr"

// Program NFSACL, a side protocol of NFS version 3 for POSIX access control lists, on the same
// connection. It has no RFC; this is the common part of Solaris and Linux.
const (
	ACLProgram = 100227
	ACLVersion = 3

	ACLProcNull   = 0
	ACLProcGetACL = 1
	ACLProcSetACL = 2

	// ACLProcedures is their number.
	ACLProcedures = 3
)

// Bits of ACL.Mask.
const (
	ACLAccess       = 0x1 // Access is present
	ACLAccessCount  = 0x2 // AccessCount is
	ACLDefault      = 0x4 // Default is present
	ACLDefaultCount = 0x8 // DefaultCount is
	ACLMask         = 0xf
)

// MaxACL bounds each list of an ACL (NFS_ACL_MAX_ENTRIES).
const MaxACL = 1024

// Types of entries. Those of a default list also have ACLTypeDefault.
const (
	ACLUserObj     = 0x0001
	ACLUser        = 0x0002
	ACLGroupObj    = 0x0004
	ACLGroup       = 0x0008
	ACLClass       = 0x0010 // the mask
	ACLOther       = 0x0020
	ACLTypeDefault = 0x1000
)

// ACLEntry is an aclent. ID is that of a user or group.
type ACLEntry struct{ Type, ID, Perm uint32 }

const aclEntryLen = 12

// ACL is a secattr: the list of an object, and the default list of a directory, with their lengths.
type ACL struct {
	Mask         uint32
	AccessCount  uint32
	Access       []ACLEntry
	DefaultCount uint32
	Default      []ACLEntry
}

// Len returns the encoded length in bytes.
func (a *ACL) Len() int { return 5*4 + aclEntryLen*(len(a.Access)+len(a.Default)) }

// Encode writes a.
func (a *ACL) Encode(e *xdr.Encoder) {
	e.Uint32(a.Mask)
	e.Uint32(a.AccessCount)
	encodeACLEntries(e, a.Access)
	e.Uint32(a.DefaultCount)
	encodeACLEntries(e, a.Default)
}

func encodeACLEntries(e *xdr.Encoder, list []ACLEntry) {
	e.Uint32(uint32(len(list)))
	for _, n := range list {
		e.Uint32(n.Type)
		e.Uint32(n.ID)
		e.Uint32(n.Perm)
	}
}

// Decode reads a, and reuses its lists. The counts beside the lists may differ from their lengths.
func (a *ACL) Decode(d *xdr.Decoder) {
	a.Mask = d.Uint32()
	a.AccessCount = d.Uint32()
	a.Access = decodeACLEntries(d, a.Access[:0])
	a.DefaultCount = d.Uint32()
	a.Default = decodeACLEntries(d, a.Default[:0])
}

func decodeACLEntries(d *xdr.Decoder, list []ACLEntry) []ACLEntry {
	n := d.Uint32()
	if d.Err() == nil && (n > MaxACL || int(n) > d.Left()/aclEntryLen) {
		d.Fail("an access control list has %d entries in %d bytes, at most %d are allowed", n, d.Left(), MaxACL)
		return list
	}
	for range n {
		if d.Err() != nil {
			break
		}
		list = append(list, ACLEntry{d.Uint32(), d.Uint32(), d.Uint32()})
	}
	return list
}

// GetACLArgs are the arguments of GETACL. Mask selects parts of an ACL.
type GetACLArgs struct {
	Object Handle
	Mask   uint32
}

// Encode writes a.
func (a *GetACLArgs) Encode(e *xdr.Encoder) {
	a.Object.Encode(e)
	e.Uint32(a.Mask)
}

// Decode reads a.
func (a *GetACLArgs) Decode(d *xdr.Decoder) {
	a.Object.Decode(d)
	a.Mask = d.Uint32()
}

// GetACLRes is the result of GETACL. Attr is present with every status.
type GetACLRes struct {
	Status Status
	Attr   PostOpAttr
	ACL    ACL
}

// Encode writes r.
func (r *GetACLRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.Attr.Encode(e)
	if r.Status == OK {
		r.ACL.Encode(e)
	}
}

// Decode reads r.
func (r *GetACLRes) Decode(d *xdr.Decoder) {
	r.Status = Status(d.Uint32())
	r.Attr.Decode(d)
	if r.Status == OK {
		r.ACL.Decode(d)
	} else {
		r.ACL = ACL{}
	}
}

// SetACLArgs are the arguments of SETACL. Only the lists in its Mask are set.
type SetACLArgs struct {
	Object Handle
	ACL    ACL
}

// Encode writes a.
func (a *SetACLArgs) Encode(e *xdr.Encoder) {
	a.Object.Encode(e)
	a.ACL.Encode(e)
}

// Decode reads a.
func (a *SetACLArgs) Decode(d *xdr.Decoder) {
	a.Object.Decode(d)
	a.ACL.Decode(d)
}

// SetACLRes is the result of SETACL. Attr is present with every status.
type SetACLRes struct {
	Status Status
	Attr   PostOpAttr
}

// Encode writes r.
func (r *SetACLRes) Encode(e *xdr.Encoder) {
	e.Uint32(uint32(r.Status))
	r.Attr.Encode(e)
}

// Decode reads r.
func (r *SetACLRes) Decode(d *xdr.Decoder) {
	r.Status = Status(d.Uint32())
	r.Attr.Decode(d)
}

var aclProcedureNames = [ACLProcedures]string{"NULL", "GETACL", "SETACL"}

// ACLProcedureName returns the name of a procedure of NFSACL, "" for an unknown one.
func ACLProcedureName(procedure uint32) string {
	if procedure >= ACLProcedures {
		return ""
	}
	return aclProcedureNames[procedure]
}
