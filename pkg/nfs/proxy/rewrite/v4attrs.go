package rewrite

import (
	"encoding/binary"
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/layout"
	"sluice.dev/sluice/pkg/nfs/seal"
)

// maxIO is what maxread and maxwrite say at most: as much as anybody asks for over RDMA.
const maxIO = 1 << 20

var (
	// offered are the attributes that clients may see: those that can be read, but for the ones that say where else the data are.
	offered = without(layout.Known, layout.AttrFSLocations, layout.AttrFSLocationsInfo, layout.AttrFSStatus)
	// unmounted are those that may be asked of what may be the root, when its fileid is not asked for: whether it is the root
	// could not be told from the answer, and so not either that what it is mounted on lies above.
	unmounted = without(offered, layout.AttrMountedOnFileID)
	// handleless are those that may be part of what CB_NOTIFY tells, where no handle could be sealed.
	handleless = without(offered, layout.AttrFileHandle)
	// comparables are those that VERIFY and NVERIFY may compare: those that look the same from both sides, but for handles, which can be unsealed.
	comparables = without(unmounted, layout.AttrSupported, layout.AttrFSLayoutTypes, layout.AttrSuppAttrExclCreat)
)

func without(b layout.Bitmap, attrs ...uint32) layout.Bitmap {
	for _, n := range attrs {
		b[n/32] &^= 1 << (n % 32)
	}
	return b
}

// has tells whether attribute n is among the words of a bitmap.
func has(words []byte, n uint32) bool {
	at := int(n / 32 * 4)
	return at < len(words) && binary.BigEndian.Uint32(words[at:])>>(n%32)&1 != 0
}

// word returns the words of b at byte at of a bitmap.
func word(b *layout.Bitmap, at int) uint32 {
	if at/4 < len(b) {
		return b[at/4]
	}
	return 0
}

// inside tells whether all attributes of a bitmap are in b.
func inside(words []byte, b *layout.Bitmap) bool {
	for at := 0; at < len(words); at += 4 {
		if binary.BigEndian.Uint32(words[at:])&^word(b, at) != 0 {
			return false
		}
	}
	return true
}

// mask replaces the words of a bitmap, which begins at pos, by those of its attributes that are in b. It stays as long as it was.
func mask(e *Edits, pos int, words []byte, b *layout.Bitmap) {
	if inside(words, b) {
		return
	}
	with := e.Replace(pos+4, len(words), len(words))
	for at := 0; at < len(words); at += 4 {
		binary.BigEndian.PutUint32(with[at:], binary.BigEndian.Uint32(words[at:])&word(b, at))
	}
}

// ask replaces a bitmap4 of an operation's arguments, of length bytes at pos, by those of its attributes that are in b. Words beyond b are left out: what has
// such a number is known to nobody.
func ask(e *Edits, pos, length int, words []byte, b *layout.Bitmap) {
	if len(words) <= 4*len(b) {
		mask(e, pos, words, b)
		return
	}
	with := e.Replace(pos, length, 4+4*len(b))
	binary.BigEndian.PutUint32(with, uint32(len(b)))
	for i, w := range b {
		binary.BigEndian.PutUint32(with[4+4*i:], binary.BigEndian.Uint32(words[4*i:])&w)
	}
}

// badAttrs says what is wrong with the attributes in an operation's arguments.
func badAttrs(code uint32, words []byte) uint32 {
	switch {
	case code == layout.OpVerify || code == layout.OpNVerify:
		if !inside(words, &comparables) {
			return errAttrNotSupp
		}
	case !inside(words, &offered):
		return errAttrNotSupp
	case has(words, layout.AttrFileHandle):
		return errInval // it cannot be set
	}
	return ok4
}

// asked returns the attributes that an operation may ask for by a mask.
func (o *operation) asked(words []byte) *layout.Bitmap {
	switch {
	case o.code == layout.OpGetAttr && o.at.mayBeRoot() && !has(words, layout.AttrFileID):
		return &unmounted
	case o.code == layout.OpGetDirDelegation:
		return &handleless
	default:
		return &offered
	}
}

// sealedLen returns how long a handle of the backend's is when it is sealed.
func sealedLen(x *Export, handle []byte) (int, error) {
	n, ok := x.Seal.Len(len(handle), seal.Max4)
	if !ok {
		return 0, fmt.Errorf("the backend's handle of %d bytes has no room for a seal, %d are allowed with it", len(handle), seal.Max4)
	}
	return n, nil
}

// putSealed replaces the handle in the n bytes at pos by the sealed one.
func putSealed(e *Edits, x *Export, pos, n int, handle []byte) error {
	size, err := sealedLen(x, handle)
	if err == nil && size != len(handle) {
		x.Seal.Append(putOpaque(e, pos, n, size)[:0], handle, seal.Max4)
	}
	return err
}

// errElsewhere is what a backend says of attributes that nobody asked it for.
var errElsewhere = errors.New("the backend's reply has fs_locations or fs_locations_info, which were not asked for")

// attrs edits one fattr4 in results: spans begins with its Attrs. at is where its object is.
func (a *answer) attrs(e *Edits, spans []layout.Span, at place) error {
	if !inside(spans[0].B, &offered) {
		return errElsewhere
	}
	values := spans[2:]
	for i := range values {
		if values[i].Mark != layout.Attr {
			values = values[:i]
			break
		}
	}
	longer := 0
	for i := range values {
		v := &values[i]
		switch v.Value {
		case layout.AttrFileHandle:
			handle := opaqueIn(v.B)
			n, err := sealedLen(a.x, handle)
			if err != nil {
				return err
			}
			longer += n - len(handle) // a seal is as long as its round-up
		case layout.AttrFSLayoutTypes:
			longer += 4 - v.Len
		}
	}
	if longer != 0 {
		putUint32(e, spans[1].Pos, uint32(int(spans[1].Value)+longer))
	}
	fileID, known := uint64(0), false
	for i := range values {
		v := &values[i]
		switch v.Value {
		case layout.AttrSupported, layout.AttrSuppAttrExclCreat:
			mask(e, v.Pos, v.B[4:], &offered)
		case layout.AttrFileHandle:
			if err := putSealed(e, a.x, v.Pos, v.Len, opaqueIn(v.B)); err != nil {
				return err
			}
		case layout.AttrFileID:
			fileID, known = binary.BigEndian.Uint64(v.B), true
		case layout.AttrMaxRead, layout.AttrMaxWrite:
			if binary.BigEndian.Uint64(v.B) > maxIO {
				binary.BigEndian.PutUint64(e.Replace(v.Pos, 8, 8), maxIO)
			}
		case layout.AttrMountedOnFileID:
			if at.isRoot() || at.mayBeRoot() && known && fileID == a.roots.FileID4 {
				if binary.BigEndian.Uint64(v.B) != a.roots.FileID4 {
					binary.BigEndian.PutUint64(e.Replace(v.Pos, 8, 8), a.roots.FileID4)
				}
			}
		case layout.AttrFSLayoutTypes:
			if v.Len > 4 {
				putUint32(e, v.Pos, 0)
				e.Replace(v.Pos+4, v.Len-4, 0)
			}
		}
	}
	return nil
}
