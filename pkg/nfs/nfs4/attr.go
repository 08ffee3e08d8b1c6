package nfs4

import "sluice.dev/sluice/pkg/xdr"

// Numbers of attributes (RFC 8881 section 5, RFC 7862 section 12.2, RFC 8275, RFC 8276).
const (
	AttrSupported       = 0
	AttrType            = 1
	AttrFHExpireType    = 2
	AttrChange          = 3
	AttrSize            = 4
	AttrLinkSupport     = 5
	AttrSymlinkSupport  = 6
	AttrNamedAttr       = 7
	AttrFSID            = 8
	AttrUniqueHandles   = 9
	AttrLeaseTime       = 10
	AttrRdattrError     = 11
	AttrACL             = 12
	AttrACLSupport      = 13
	AttrArchive         = 14
	AttrCanSetTime      = 15
	AttrCaseInsensitive = 16
	AttrCasePreserving  = 17
	AttrChownRestricted = 18
	AttrFileHandle      = 19
	AttrFileID          = 20
	AttrFilesAvail      = 21
	AttrFilesFree       = 22
	AttrFilesTotal      = 23
	AttrFSLocations     = 24
	AttrHidden          = 25
	AttrHomogeneous     = 26
	AttrMaxFileSize     = 27
	AttrMaxLink         = 28
	AttrMaxName         = 29
	AttrMaxRead         = 30
	AttrMaxWrite        = 31
	AttrMIMEType        = 32
	AttrMode            = 33
	AttrNoTrunc         = 34
	AttrNumLinks        = 35
	AttrOwner           = 36
	AttrOwnerGroup      = 37
	AttrQuotaAvailHard  = 38
	AttrQuotaAvailSoft  = 39
	AttrQuotaUsed       = 40
	AttrRawDev          = 41
	AttrSpaceAvail      = 42
	AttrSpaceFree       = 43
	AttrSpaceTotal      = 44
	AttrSpaceUsed       = 45
	AttrSystem          = 46
	AttrTimeAccess      = 47
	AttrTimeAccessSet   = 48
	AttrTimeBackup      = 49
	AttrTimeCreate      = 50
	AttrTimeDelta       = 51
	AttrTimeMetadata    = 52
	AttrTimeModify      = 53
	AttrTimeModifySet   = 54
	AttrMountedOnFileID = 55

	AttrDACL              = 58
	AttrSACL              = 59
	AttrFSLayoutTypes     = 62
	AttrLayoutBlkSize     = 65
	AttrSuppAttrExclCreat = 75
	AttrFSCharsetCap      = 76
	AttrCloneBlkSize      = 77
	AttrSpaceFreed        = 78
	AttrChangeAttrType    = 79
	AttrSecLabel          = 80
	AttrModeUmask         = 81
	AttrXattrSupport      = 82
)

// Values of change_attr_type (RFC 7862 section 12.2.3).
const (
	ChangeMonotonicIncr        = 0
	ChangeVersionCounter       = 1
	ChangeVersionCounterNoPNFS = 2
	ChangeTimeMetadata         = 3
	ChangeUndefined            = 4
	FSCharsetContainsNonUTF8   = 1
	FSCharsetAllowsOnlyUTF8    = 2
	FHPersistent               = 0
	ACLSupportAllow            = 1
	ACLSupportDeny             = 2
)

// Attrs is a fattr4: a set of attributes, and their values in the order of their numbers.
type Attrs struct {
	Mask   Bitmap
	Values []byte
	// More: Mask lacks attributes with numbers beyond those of a Bitmap.
	More bool
}

// Encode writes a.
func (a *Attrs) Encode(e *xdr.Encoder) {
	a.Mask.Encode(e)
	e.Opaque(a.Values)
}

// Decode reads a. Values is a view of the message's memory.
func (a *Attrs) Decode(d *xdr.Decoder) {
	a.More = a.Mask.Decode(d)
	a.Values = d.Opaque(MaxAttrs)
}
