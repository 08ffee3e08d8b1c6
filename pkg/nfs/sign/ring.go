package sign

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"hash"
	"sync"
)

// Ring makes and checks tags under a set of keys that never changes: the first key makes tags, all
// check them. Its methods may be called concurrently, and do not allocate in the steady state.
type Ring struct {
	keys   [][]byte
	tagLen int
	macs   sync.Pool // of *macs
}

// macs are hash states for one user at a time, one for each key of a Ring.
type macs struct {
	by  []hash.Hash
	in  []byte // a copy keeps the callers' handles off the heap
	sum [sha256.Size]byte
}

// NewRing returns a Ring of one key or more, for tags of up to 32 bytes. It keeps keys.
func NewRing(keys [][]byte, tagLen int) *Ring {
	r := &Ring{keys: keys, tagLen: tagLen}
	r.macs.New = func() any {
		m := &macs{}
		for _, key := range r.keys {
			m.by = append(m.by, hmac.New(sha256.New, key))
		}
		return m
	}
	return r
}

// AppendTag appends the tag of a handle to dst: the first bytes of its HMAC-SHA-256.
func (r *Ring) AppendTag(dst, handle []byte) []byte {
	m := r.macs.Get().(*macs)
	defer r.macs.Put(m)
	return append(dst, m.sign(0, handle)[:r.tagLen]...)
}

// Verify reports whether one of the keys makes this tag for the handle.
func (r *Ring) Verify(handle, tag []byte) bool {
	m := r.macs.Get().(*macs)
	defer r.macs.Put(m)
	for i := range m.by {
		if subtle.ConstantTimeCompare(m.sign(i, handle)[:r.tagLen], tag) == 1 {
			return true
		}
	}
	return false
}

// sign returns the MAC under key i, valid until the next call.
func (m *macs) sign(i int, handle []byte) []byte {
	m.in = append(m.in[:0], handle...)
	h := m.by[i]
	h.Reset()
	h.Write(m.in)
	return h.Sum(m.sum[:0])
}
