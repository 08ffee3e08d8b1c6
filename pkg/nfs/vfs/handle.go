package vfs

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/nfs/sign"
)

// A handle:
//
//	 0       1       2       3       4               4+n           20+n
//	+-------+-------+-------+-------+---------------+-------------+
//	| 1     | kind  | type  | n     | n bytes       | tag         |
//	+-------+-------+-------+-------+---------------+-------------+
//
// With kind "kernel", type and the n bytes are the kernel's handle; with "index" the n bytes are
// inode number and time of birth. The tag is HMAC-SHA256, cut to 16 bytes, over all before it.

// MaxHandle is the longest handle in bytes, that of NFS version 3 (RFC 1813 section 2.4).
const MaxHandle = 64

const (
	handleVersion = 1
	headLen       = 4
	tagLen        = 16
	maxID         = MaxHandle - headLen - tagLen

	kindKernel = 1
	kindIndex  = 2

	// MinKey is the shortest key of handles, in bytes.
	MinKey = 16
)

// ErrBadHandle is the error for a handle that this file system did not issue.
var ErrBadHandle = errors.New("vfs: not a handle of this file system")

// Handle names an object; see the package's documentation. The zero value names none.
type Handle struct {
	n uint8
	b [MaxHandle]byte
}

// Bytes returns a view of the handle.
func (h *Handle) Bytes() []byte { return h.b[:h.n] }

// objectID is a handle without its tag, padded with zeros. It is the key of objects in memory.
type objectID [headLen + maxID]byte

func (i *objectID) kind() byte   { return i[1] }
func (i *objectID) data() []byte { return i[headLen : headLen+int(i[3])] }

// indexID returns the id of an object by inode number.
func indexID(ino, birth uint64) (i objectID) {
	i[0], i[1], i[3] = handleVersion, kindIndex, 16
	binary.BigEndian.PutUint64(i[headLen:], ino)
	binary.BigEndian.PutUint64(i[headLen+8:], birth)
	return i
}

func (i *objectID) ino() uint64 { return binary.BigEndian.Uint64(i[headLen:]) }

// kernelID returns the id of a kernel's handle, false if that is too long.
func kernelID(h *rawHandle) (i objectID, ok bool) {
	if h.bytes > maxID || h.typ < 0 || h.typ > 255 {
		return i, false
	}
	i[0], i[1], i[2], i[3] = handleVersion, kindKernel, byte(h.typ), byte(h.bytes)
	copy(i[headLen:], h.data[:h.bytes])
	return i, true
}

func (i *objectID) raw(h *rawHandle) {
	h.bytes, h.typ = uint32(i[3]), int32(i[2])
	copy(h.data[:], i.data())
}

// parse splits a handle. It checks the shape, not the tag.
func parse(b []byte) (i objectID, tag []byte, ok bool) {
	if len(b) < headLen+tagLen || len(b) > MaxHandle || b[0] != handleVersion {
		return i, nil, false
	}
	n := int(b[3])
	if len(b) != headLen+n+tagLen {
		return i, nil, false
	}
	switch b[1] {
	case kindKernel:
	case kindIndex:
		if b[2] != 0 || n != 16 {
			return i, nil, false
		}
	default:
		return i, nil, false
	}
	copy(i[:], b[:headLen+n])
	return i, b[headLen+n:], true
}

// Key returns the Node.Key of the handle's object.
func (h *Handle) Key() (key [len(objectID{})]byte) {
	i, _, _ := parse(h.Bytes())
	return i
}

// SameObject reports whether two handles name the same object. It ignores the tags, which depend on
// the key.
func SameObject(a, b []byte) bool {
	return len(a) > tagLen && len(a) == len(b) && bytes.Equal(a[:len(a)-tagLen], b[:len(b)-tagLen])
}

// signer makes and checks tags, with a set of keys that never changes.
type signer struct{ ring *sign.Ring }

// newSigner derives the keys of one file system, so that one key may serve several.
func newSigner(keys [][]byte, scope string) (*signer, error) {
	if len(keys) == 0 {
		return nil, errors.New("vfs: no key of file handles")
	}
	derived := make([][]byte, len(keys))
	for i, secret := range keys {
		if len(secret) < MinKey {
			return nil, fmt.Errorf("vfs: the key of file handles has %d bytes, at least %d are needed", len(secret), MinKey)
		}
		m := hmac.New(sha256.New, secret)
		m.Write([]byte("sluice file handles, version 1\x00" + scope))
		derived[i] = m.Sum(nil)
	}
	return &signer{sign.NewRing(derived, tagLen)}, nil
}

func (s *signer) sign(i *objectID, h *Handle) {
	n := copy(h.b[:], i[:headLen+int(i[3])])
	h.n = uint8(len(s.ring.AppendTag(h.b[:n], h.b[:n])))
}

func (s *signer) valid(i *objectID, tag []byte) bool {
	return s.ring.Verify(i[:headLen+int(i[3])], tag)
}
