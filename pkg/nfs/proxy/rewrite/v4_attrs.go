package rewrite

import (
	"encoding/binary"
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// maxIO is what maxread and maxwrite say at most: as much as anybody asks for over RDMA.
const maxIO = 1 << 20

var (
	// visibleAttrs are the attributes that clients may see: those that can be read, but for the ones that say where else the data are.
	visibleAttrs = exclude(schema.Known, schema.AttrFSLocations, schema.AttrFSLocationsInfo, schema.AttrFSStatus)
	// notifyAttrs are those that may be part of what CB_NOTIFY tells, where no handle could be signed.
	notifyAttrs = exclude(visibleAttrs, schema.AttrFileHandle)
	// nonFileIDAttrs are all but the fileid.
	nonFileIDAttrs = exclude(visibleAttrs, schema.AttrFileID)
	// comparableAttrs are those that VERIFY and NVERIFY may compare: those that look the same from both
	// sides, but for handles, which can be untagged, and sets of attributes, to which what is
	// hidden from clients can be added.
	comparableAttrs = exclude(visibleAttrs, schema.AttrMountedOnFileID, schema.AttrFSLayoutTypes)
)

func exclude(b schema.Bitmap, attrs ...uint32) schema.Bitmap {
	for _, n := range attrs {
		b[n/32] &^= 1 << (n % 32)
	}
	return b
}

// hasAttr tells whether attribute n is among the words of a bitmap.
func hasAttr(words []byte, n uint32) bool {
	at := int(n / 32 * 4)
	return at < len(words) && binary.BigEndian.Uint32(words[at:])>>(n%32)&1 != 0
}

// wordOf returns the words of b at byte at of a bitmap.
func wordOf(b *schema.Bitmap, at int) uint32 {
	if at/4 < len(b) {
		return b[at/4]
	}
	return 0
}

// isSubset tells whether all attributes of a bitmap are in b.
func isSubset(words []byte, b *schema.Bitmap) bool {
	for at := 0; at < len(words); at += 4 {
		if binary.BigEndian.Uint32(words[at:])&^wordOf(b, at) != 0 {
			return false
		}
	}
	return true
}

// maskBitmap replaces the words of a bitmap, which begins at pos, by those of its attributes that are in b. It stays as long as it was.
func maskBitmap(e *Edits, pos int, words []byte, b *schema.Bitmap) {
	if isSubset(words, b) {
		return
	}
	with := e.Replace(pos+4, len(words), len(words))
	for at := 0; at < len(words); at += 4 {
		binary.BigEndian.PutUint32(with[at:], binary.BigEndian.Uint32(words[at:])&wordOf(b, at))
	}
}

// maskRequest replaces the bitmap4 s of an operation's arguments by those of its attributes that are in b.
// Words beyond b are left out: what has such a number is known to nobody.
func maskRequest(e *Edits, s *schema.Span, b *schema.Bitmap) {
	if len(s.B) <= 4*len(b) {
		maskBitmap(e, s.Pos, s.B, b)
		return
	}
	putMask(e, s, b)
}

// putMask replaces the bitmap4 s by those of its attributes that are in b, and by more.
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

// checkAttrs says what is wrong with the attributes in an operation's arguments.
func checkAttrs(code uint32, words []byte) uint32 {
	switch {
	case code == schema.OpVerify || code == schema.OpNVerify:
		if !isSubset(words, &comparableAttrs) {
			return errAttrNotSupp
		}
	case !isSubset(words, &visibleAttrs):
		return errAttrNotSupp
	case hasAttr(words, schema.AttrFileHandle):
		return errInval // it cannot be set
	}
	return ok4
}

// visible returns the attributes that an operation may ask for by a mask.
func (o *operation) visible() *schema.Bitmap {
	if o.code == schema.OpGetDirDelegation {
		return &notifyAttrs
	}
	return &visibleAttrs
}

// putSupported writes into an operation that compares what the backend has for the value v of
// supported_attrs or suppattr_exclcreat: the same attributes, and those of the root that are hidden
// from clients. A set with one that GETATTR never has here differs from the backend's afterwards,
// whatever that is.
func putSupported(e *Edits, v *schema.Span, minor uint32, backend []uint32) {
	words := v.B[4:]
	if len(words) == 0 {
		return
	}
	with := e.Replace(v.Pos+4, len(words), len(words))
	copy(with, words)
	if !isSubset(words, &visibleAttrs) {
		if with[3] |= 1; v.Value == schema.AttrSupported { // supported_attrs itself is always supported, and never set
			with[3] &^= 1
		}
		return
	}
	for i, w := range backend {
		hidden := w &^ wordOf(&visibleAttrs, 4*i)
		if minor == 0 { // which ends with mounted_on_fileid
			hidden &= uint32(1<<max(0, min(32, schema.AttrMountedOnFileID+1-32*i)) - 1)
		}
		if 4*i < len(words) {
			binary.BigEndian.PutUint32(with[4*i:], binary.BigEndian.Uint32(with[4*i:])|hidden)
		}
	}
}

// needsFileID reports whether a GETATTR asks for mounted_on_fileid of what may be the root, and not
// for the fileid: from that alone it could not be told whether it is the root, and so not either
// that what it is mounted on lies above.
func (o *operation) needsFileID(words []byte) bool {
	return o.code == schema.OpGetAttr && o.place == anywhere && hasAttr(words, schema.AttrMountedOnFileID) && !hasAttr(words, schema.AttrFileID)
}

// signedLen returns how long a handle of the backend's is when it is signed.
func signedLen(x *Export, handle []byte) (int, error) {
	n, ok := x.Signer.Len(len(handle), sign.Max4)
	if !ok {
		return 0, fmt.Errorf("the backend's handle of %d bytes has no room for a tag, %d are allowed with it", len(handle), sign.Max4)
	}
	return n, nil
}

// putSigned replaces the handle in the n bytes at pos by the signed one.
func putSigned(e *Edits, x *Export, pos, n int, handle []byte) error {
	size, err := signedLen(x, handle)
	if err == nil && size != len(handle) {
		x.Signer.Append(putOpaque(e, pos, n, size)[:0], handle, sign.Max4)
	}
	return err
}

// errNoFileID: the backend has no fileid for a file, though its root has one.
var errNoFileID = errors.New("the backend's reply has mounted_on_fileid without the fileid, which was asked for")

// errUnrequestedAttrs is what a backend says of attributes that nobody asked it for.
var errUnrequestedAttrs = errors.New("the backend's reply has fs_locations or fs_locations_info, which were not asked for")

// editAttrs edits one fattr4 in results: spans begins with its Attrs. at is where its object is; hideFileID
// takes out the fileid, which the client has not asked for.
func (a *resultContext) editAttrs(e *Edits, spans []schema.Span, at place, hideID bool) error {
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
			if fileID, known = binary.BigEndian.Uint64(v.B), true; hideID {
				longer -= v.Len
			}
		case schema.AttrFileHandle:
			handle := opaqueBytes(v.B)
			n, err := signedLen(a.x, handle)
			if err != nil {
				return err
			}
			longer += n - len(handle) // a tag is as long as its round-up
		case schema.AttrFSLayoutTypes:
			longer += 4 - v.Len
		}
	}
	if hideID && known {
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
			if hideID {
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
