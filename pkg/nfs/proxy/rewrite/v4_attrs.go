package rewrite

import (
	"encoding/binary"
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// maxIO bounds maxread and maxwrite: no client asks for more over RDMA.
const maxIO = 1 << 20

var (
	// visibleAttrs are the attributes for clients: all readable ones except other locations of the
	// data.
	visibleAttrs = exclude(schema.Known, schema.AttrFSLocations, schema.AttrFSLocationsInfo, schema.AttrFSStatus)
	// notifyAttrs are the attributes for CB_NOTIFY, where handles cannot be signed.
	notifyAttrs = exclude(visibleAttrs, schema.AttrFileHandle)
	// nonFileIDAttrs are all but the fileid.
	nonFileIDAttrs = exclude(visibleAttrs, schema.AttrFileID)
	// comparableAttrs are the attributes for VERIFY and NVERIFY: those with equal values on both
	// sides, handles, whose tag is removed, and sets of attributes, to which hidden ones are added.
	comparableAttrs = exclude(visibleAttrs, schema.AttrMountedOnFileID, schema.AttrFSLayoutTypes)
)

func exclude(b schema.Bitmap, attrs ...uint32) schema.Bitmap {
	for _, n := range attrs {
		b[n/32] &^= 1 << (n % 32)
	}
	return b
}

// hasAttr reports whether a bitmap has attribute n.
func hasAttr(words []byte, n uint32) bool {
	at := int(n / 32 * 4)
	return at < len(words) && binary.BigEndian.Uint32(words[at:])>>(n%32)&1 != 0
}

// wordOf returns the word of b at byte at of a bitmap.
func wordOf(b *schema.Bitmap, at int) uint32 {
	if at/4 < len(b) {
		return b[at/4]
	}
	return 0
}

// isSubset reports whether all attributes of a bitmap are in b.
func isSubset(words []byte, b *schema.Bitmap) bool {
	for at := 0; at < len(words); at += 4 {
		if binary.BigEndian.Uint32(words[at:])&^wordOf(b, at) != 0 {
			return false
		}
	}
	return true
}

// maskBitmap removes the attributes that are not in b from the bitmap at pos. Its length stays.
func maskBitmap(e *Edits, pos int, words []byte, b *schema.Bitmap) {
	if isSubset(words, b) {
		return
	}
	with := e.Replace(pos+4, len(words), len(words))
	for at := 0; at < len(words); at += 4 {
		binary.BigEndian.PutUint32(with[at:], binary.BigEndian.Uint32(words[at:])&wordOf(b, at))
	}
}

// maskRequest removes the attributes that are not in b from a bitmap4 in arguments. It cuts off
// words beyond b.
func maskRequest(e *Edits, s *schema.Span, b *schema.Bitmap) {
	if len(s.B) <= 4*len(b) {
		maskBitmap(e, s.Pos, s.B, b)
		return
	}
	putMask(e, s, b)
}

// putMask removes the attributes that are not in b from a bitmap4, and adds more.
func putMask(e *Edits, s *schema.Span, b *schema.Bitmap, more ...uint32) {
	n := min(len(s.B), 4*len(b))
	with := e.Replace(s.Pos, s.Len, 4+n)
	binary.BigEndian.PutUint32(with, uint32(n/4))
	for at := 0; at < n; at += 4 {
		binary.BigEndian.PutUint32(with[4+at:], binary.BigEndian.Uint32(s.B[at:])&wordOf(b, at))
	}
	for _, a := range more {
		with[4+a/32*4+3-a%32/8] |= 1 << (a % 8)
	}
}

// checkAttrs returns the status that refuses attributes in arguments, or ok4.
func checkAttrs(code uint32, words []byte) uint32 {
	switch {
	case code == schema.OpVerify || code == schema.OpNVerify:
		if !isSubset(words, &comparableAttrs) {
			return errAttrNotSupp
		}
	case !isSubset(words, &visibleAttrs):
		return errAttrNotSupp
	case hasAttr(words, schema.AttrFileHandle):
		return errInval // read-only
	}
	return ok4
}

// visible returns the attributes that an operation may request.
func (o *operation) visible() *schema.Bitmap {
	if o.code == schema.OpGetDirDelegation {
		return &notifyAttrs
	}
	return &visibleAttrs
}

// putSupported rewrites the compared value v of supported_attrs or suppattr_exclcreat for the
// backend: it adds the root's hidden attributes. A set with an attribute that GETATTR never returns
// here is made to differ from the backend's.
func putSupported(e *Edits, v *schema.Span, minor uint32, backend []uint32) {
	words := v.B[4:]
	if len(words) == 0 {
		return
	}
	with := e.Replace(v.Pos+4, len(words), len(words))
	copy(with, words)
	if !isSubset(words, &visibleAttrs) {
		// supported_attrs is always supported, and never set
		if with[3] |= 1; v.Value == schema.AttrSupported {
			with[3] &^= 1
		}
		return
	}
	for i, w := range backend {
		hidden := w &^ wordOf(&visibleAttrs, 4*i)
		if minor == 0 { // its last attribute is mounted_on_fileid
			hidden &= uint32(1<<max(0, min(32, schema.AttrMountedOnFileID+1-32*i)) - 1)
		}
		if 4*i < len(words) {
			binary.BigEndian.PutUint32(with[4*i:], binary.BigEndian.Uint32(with[4*i:])|hidden)
		}
	}
}

// needsFileID reports whether a GETATTR asks for mounted_on_fileid, but not for the fileid, of an
// object that may be the root. Only the fileid shows whether it is the root, whose
// mounted_on_fileid belongs to a directory above.
func (o *operation) needsFileID(words []byte) bool {
	return o.code == schema.OpGetAttr && o.place == anywhere && hasAttr(words, schema.AttrMountedOnFileID) && !hasAttr(words, schema.AttrFileID)
}

// signedLen returns the length of a backend's handle with its tag.
func signedLen(x *Export, handle []byte) (int, error) {
	n, ok := x.Signer.Len(len(handle), sign.Max4)
	if !ok {
		return 0, fmt.Errorf("backend handle of %d bytes leaves no room for a tag: want at most %d with it", len(handle), sign.Max4)
	}
	return n, nil
}

// putSigned signs the handle in the n bytes at pos.
func putSigned(e *Edits, x *Export, pos, n int, handle []byte) error {
	size, err := signedLen(x, handle)
	if err == nil && size != len(handle) {
		x.Signer.Append(putOpaque(e, pos, n, size)[:0], handle, sign.Max4)
	}
	return err
}

// errNoFileID: the backend has a fileid for the root, but not for a file.
var errNoFileID = errors.New("backend reply lacks the requested fileid beside mounted_on_fileid")

// errUnrequestedAttrs: the backend returned attributes that were not requested.
var errUnrequestedAttrs = errors.New("backend reply has unrequested fs_locations or fs_locations_info")

// editAttrs edits one fattr4 in results. spans begins with its Attrs, and at is its object's place.
// hideFileID removes the fileid.
func (a *resultContext) editAttrs(e *Edits, spans []schema.Span, at place, hideFileID bool) error {
	if !isSubset(spans[0].B, &visibleAttrs) {
		return errUnrequestedAttrs
	}
	values := spans[2:]
	for i := range values {
		if values[i].Mark != schema.Attr {
			values = values[:i]
			break
		}
	}
	longer := 0
	fileID, known := uint64(0), false
	for i := range values {
		v := &values[i]
		switch v.Value {
		case schema.AttrFileID:
			if fileID, known = binary.BigEndian.Uint64(v.B), true; hideFileID {
				longer -= v.Len
			}
		case schema.AttrFileHandle:
			handle := opaqueBytes(v.B)
			n, err := signedLen(a.x, handle)
			if err != nil {
				return err
			}
			longer += n - len(handle) // tag and padded tag have equal lengths
		case schema.AttrFSLayoutTypes:
			longer += 4 - v.Len
		}
	}
	if hideFileID && known {
		maskBitmap(e, spans[0].Pos, spans[0].B, &nonFileIDAttrs)
	}
	if longer != 0 {
		putUint32(e, spans[1].Pos, uint32(int(spans[1].Value)+longer))
	}
	for i := range values {
		v := &values[i]
		switch v.Value {
		case schema.AttrSupported, schema.AttrSuppAttrExclCreat:
			maskBitmap(e, v.Pos, v.B[4:], &visibleAttrs)
		case schema.AttrFileHandle:
			if err := putSigned(e, a.x, v.Pos, v.Len, opaqueBytes(v.B)); err != nil {
				return err
			}
		case schema.AttrFileID:
			if hideFileID {
				e.Replace(v.Pos, v.Len, 0)
			}
		case schema.AttrMaxRead, schema.AttrMaxWrite:
			if binary.BigEndian.Uint64(v.B) > maxIO {
				binary.BigEndian.PutUint64(e.Replace(v.Pos, 8, 8), maxIO)
			}
		case schema.AttrMountedOnFileID:
			if at.mayBeRoot() && !at.isRoot() && !known {
				return errNoFileID
			}
			if at.isRoot() || at.mayBeRoot() && fileID == a.roots.FileID4 {
				if binary.BigEndian.Uint64(v.B) != a.roots.FileID4 {
					binary.BigEndian.PutUint64(e.Replace(v.Pos, 8, 8), a.roots.FileID4)
				}
			}
		case schema.AttrFSLayoutTypes:
			if v.Len > 4 {
				putUint32(e, v.Pos, 0)
				e.Replace(v.Pos+4, v.Len-4, 0)
			}
		}
	}
	return nil
}
