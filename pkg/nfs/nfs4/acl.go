package nfs4

import "sluice.dev/sluice/pkg/xdr"

// Types of access control entries (RFC 8881 section 6.2.1.1).
const (
	ACEAllow = 0
	ACEDeny  = 1
	ACEAudit = 2
	ACEAlarm = 3
)

// Flags of access control entries (RFC 8881 section 6.2.1.4).
const (
	ACEFileInherit      = 0x01
	ACEDirectoryInherit = 0x02
	ACENoPropagate      = 0x04
	ACEInheritOnly      = 0x08
	ACESuccessfulAccess = 0x10
	ACEFailedAccess     = 0x20
	ACEIdentifierGroup  = 0x40
	ACEInherited        = 0x80
)

// Mask bits of access control entries (RFC 8881 section 6.2.1.3). A pair of names has one value.
const (
	ACEReadData        = 0x00000001
	ACEListDirectory   = 0x00000001
	ACEWriteData       = 0x00000002
	ACEAddFile         = 0x00000002
	ACEAppendData      = 0x00000004
	ACEAddSubdirectory = 0x00000004
	ACEReadNamedAttrs  = 0x00000008
	ACEWriteNamedAttrs = 0x00000010
	ACEExecute         = 0x00000020
	ACEDeleteChild     = 0x00000040
	ACEReadAttributes  = 0x00000080
	ACEWriteAttributes = 0x00000100
	ACEWriteRetention  = 0x00000200
	ACEWriteRetentHold = 0x00000400
	ACEDelete          = 0x00010000
	ACEReadACL         = 0x00020000
	ACEWriteACL        = 0x00040000
	ACEWriteOwner      = 0x00080000
	ACESynchronize     = 0x00100000
)

// ACE is an nfsace4.
type ACE struct {
	Type, Flags, Mask uint32
	Who               []byte
}

// Encode writes a.
func (a *ACE) Encode(e *xdr.Encoder) {
	e.Uint32(a.Type)
	e.Uint32(a.Flags)
	e.Uint32(a.Mask)
	e.Opaque(a.Who)
}

// Decode reads a.
func (a *ACE) Decode(d *xdr.Decoder) {
	a.Type, a.Flags, a.Mask = d.Uint32(), d.Uint32(), d.Uint32()
	a.Who = d.Opaque(MaxOpaque)
}

// DecodeACL reads the value of the attribute acl into list, reusing its memory.
func DecodeACL(d *xdr.Decoder, list []ACE) []ACE {
	list = list[:0]
	for range count(d, MaxACEs, "access control entries") {
		list = append(list, ACE{})
		list[len(list)-1].Decode(d)
	}
	return list
}

// EncodeACL writes the value of the attribute acl.
func EncodeACL(e *xdr.Encoder, list []ACE) {
	e.Uint32(uint32(len(list)))
	for i := range list {
		list[i].Encode(e)
	}
}
