package schema

// Bitmap is a set of attributes: bit n%32 of word n/32 is attribute n.
type Bitmap [3]uint32

// Has reports whether attribute n is in b.
func (b *Bitmap) Has(n uint32) bool { return n/32 < uint32(len(b)) && b[n/32]>>(n%32)&1 != 0 }

func (b *Bitmap) add(n int) { b[n/32] |= 1 << (n % 32) }

// Attributes with a use outside this package.
const (
	AttrSupported         = 0
	AttrACL               = 12
	AttrFileHandle        = 19
	AttrFileID            = 20
	AttrFSLocations       = 24
	AttrMaxRead           = 30
	AttrMaxWrite          = 31
	AttrMIMEType          = 32
	AttrOwner             = 36
	AttrOwnerGroup        = 37
	AttrMountedOnFileID   = 55
	AttrDACL              = 58
	AttrSACL              = 59
	AttrFSStatus          = 61
	AttrFSLayoutTypes     = 62
	AttrFSLocationsInfo   = 67
	AttrSuppAttrExclCreat = 75

	// maxAttr is the last known attribute.
	maxAttr = 86
)

// Limits of RFC 7531, in bytes: NFS4_FHSIZE and NFS4_OPAQUE_LIMIT.
const (
	handleV4    = 128
	opaqueLimit = 1024
)

// sizedWords is the number of words of a bitmap in the bounds of replies: more than the attributes
// need. Longer bitmaps are accepted.
const sizedWords = 8

// Limits that the protocol leaves open, in bytes and elements.
const (
	maxString         = 4096
	maxACEs           = 8192
	maxLocations      = 1024
	maxServers        = 256
	maxPathComponents = 1024
	maxLayoutTypes    = 256
	maxThresholds     = 256
	maxAttrOpaque     = 65536
)

var (
	time4     = fixed(12)
	setTime4  = union(0, void, on(1, time4))
	ace4      = structure(fixed(12), text(0, maxString))
	pathname4 = list(maxPathComponents, text(0, maxName))
	layouts4  = list(maxLayoutTypes, u32)
)

// attrs has the values of attributes by number (RFC 7531, 5662, 7863, 8275, 8276, 9754).
var attrs = [maxAttr + 1]shape{
	AttrSupported:  bits(0),
	1:              u32,       // type
	2:              u32,       // fh_expire_type
	3:              u64,       // change
	4:              u64,       // size
	5:              u32,       // link_support
	6:              u32,       // symlink_support
	7:              u32,       // named_attr
	8:              fixed(16), // fsid
	9:              u32,       // unique_handles
	10:             u32,       // lease_time
	11:             u32,       // rdattr_error
	AttrACL:        list(maxACEs, ace4),
	13:             u32, // aclsupport
	14:             u32, // archive
	15:             u32, // cansettime
	16:             u32, // case_insensitive
	17:             u32, // case_preserving
	18:             u32, // chown_restricted
	AttrFileHandle: opaque(0, handleV4),
	AttrFileID:     u64,
	21:             u64, // files_avail
	22:             u64, // files_free
	23:             u64, // files_total
	AttrFSLocations: structure(
		pathname4, // fs_root
		list(maxLocations, structure(list(maxServers, text(0, maxString)), pathname4)),
	),
	25:                  u32, // hidden
	26:                  u32, // homogeneous
	27:                  u64, // maxfilesize
	28:                  u32, // maxlink
	29:                  u32, // maxname
	AttrMaxRead:         u64,
	AttrMaxWrite:        u64,
	AttrMIMEType:        text(0, maxString),
	33:                  u32, // mode
	34:                  u32, // no_trunc
	35:                  u32, // numlinks
	AttrOwner:           text(0, maxString),
	AttrOwnerGroup:      text(0, maxString),
	38:                  u64,      // quota_avail_hard
	39:                  u64,      // quota_avail_soft
	40:                  u64,      // quota_used
	41:                  fixed(8), // rawdev
	42:                  u64,      // space_avail
	43:                  u64,      // space_free
	44:                  u64,      // space_total
	45:                  u64,      // space_used
	46:                  u32,      // system
	47:                  time4,    // time_access
	48:                  setTime4, // time_access_set
	49:                  time4,    // time_backup
	50:                  time4,    // time_create
	51:                  time4,    // time_delta
	52:                  time4,    // time_metadata
	53:                  time4,    // time_modify
	54:                  setTime4, // time_modify_set
	AttrMountedOnFileID: u64,

	56:                time4, // dir_notif_delay
	57:                time4, // dirent_notif_delay
	AttrDACL:          structure(u32, list(maxACEs, ace4)),
	AttrSACL:          structure(u32, list(maxACEs, ace4)),
	60:                fixed(16),                                 // change_policy
	AttrFSStatus:      structure(fixed(8), source4, fixed(4+12)), // fs_status
	AttrFSLayoutTypes: layouts4,
	63:                structure(u32, text(0, maxAttrOpaque)), // layout_hint
	64:                layouts4,                               // layout_types
	65:                u32,                                    // layout_blksize
	66:                u32,                                    // layout_alignment
	AttrFSLocationsInfo: structure(
		u32, u32, // fli_flags, fli_valid_for
		pathname4,
		list(maxLocations, structure(
			list(maxServers, structure(u32, text(0, maxAttrOpaque), text(0, maxString))),
			pathname4,
		)),
	),
	// mdsthreshold
	68: list(maxThresholds, structure(u32, bits(0), text(0, maxAttrOpaque))),
	// retention_get
	69: structure(u64, upTo(1, time4)),
	// retention_set
	70: structure(u32, upTo(1, u64)),
	// retentevt_get
	71: structure(u64, upTo(1, time4)),
	// retentevt_set
	72: structure(u32, upTo(1, u64)),
	// retention_hold
	73: u64,
	// mode_set_masked
	74:                    fixed(8),
	AttrSuppAttrExclCreat: bits(0),
	76:                    u32, // fs_charset_cap

	77: u32,                                         // clone_blksize
	78: u64,                                         // space_freed
	79: u32,                                         // change_attr_type
	80: structure(fixed(8), text(0, maxAttrOpaque)), // sec_label

	81: fixed(8),                                               // mode_umask
	82: u32,                                                    // xattr_support
	83: u32,                                                    // offline
	84: time4,                                                  // time_deleg_access
	85: time4,                                                  // time_deleg_modify
	86: structure(bits(0), bits(0), bits(0), bits(0), bits(0)), // open_arguments
}

// source4 is fss_source and fss_current of fs_status.
var source4 = structure(text(0, maxString), text(0, maxString))

// Known are all attributes that a Walker can read.
var Known = func() (b Bitmap) {
	for n, s := range attrs {
		if s != nil {
			b.add(n)
		}
	}
	return b
}()

// Watched are the attributes that a Walker notes: those that name a file, a place or a limit.
var Watched = func() (b Bitmap) {
	for _, n := range []int{
		AttrSupported, AttrFileHandle, AttrFileID, AttrFSLocations, AttrMaxRead, AttrMaxWrite, AttrMountedOnFileID,
		AttrFSLayoutTypes, AttrFSLocationsInfo, AttrSuppAttrExclCreat,
	} {
		b.add(n)
	}
	return b
}()

// attrLen has the lengths of unwatched attributes of a fixed length; 0 for the others.
var attrLen = func() (lengths [maxAttr + 1]int) {
	for n, s := range attrs {
		if len(s) == 1 && s[0].do == pass && !Watched.Has(uint32(n)) {
			lengths[n] = s[0].n
		}
	}
	return lengths
}()

// AttrSize returns the largest size of an attribute's value in bytes, 0 for an unknown one. open:
// parts without a limit count as their count words alone.
func AttrSize(n uint32) (size int, open bool) {
	if n > maxAttr {
		return 0, false
	}
	return attrSizes[n].size, attrSizes[n].open
}

// extent is the result of shape.size.
type extent struct {
	size int
	open bool
}

var attrSizes = func() (sizes [maxAttr + 1]extent) {
	for n, s := range attrs {
		sizes[n].size, sizes[n].open = s.size()
	}
	return sizes
}()
