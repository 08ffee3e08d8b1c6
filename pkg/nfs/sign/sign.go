// Package sign appends a keyed tag to the file handles of an export, so that it accepts only
// handles that it has issued.
//
// The tag is the first [TagLen] bytes of HMAC-SHA-256 over the handle, under a key derived for each
// export from a secret and the export's UID (HKDF, RFC 5869). Eight bytes balance room (a handle of
// NFS version 3 has 64 bytes, and 56 suffice for the usual servers) and strength: each guess takes
// a call, and one in 2^64 is right. A handle has the same tag at every replica and after every
// restart, since clients compare handles byte by byte.
package sign

import (
	"crypto/hkdf"
	"crypto/sha256"
	"fmt"
	"sync/atomic"
)

// TagLen is the length of a tag, in bytes.
const TagLen = 8

// Limits of handles on the wire, in bytes (NFS3_FHSIZE of RFC 1813, NFS4_FHSIZE of RFC 8881).
const (
	Max3 = 64
	Max4 = 128
)

// MinUID is the shortest UID of an export, in bytes.
const MinUID = 8

// Mode selects the handles to sign.
type Mode uint8

const (
	// Required signs every handle. A handle without room for the tag cannot be issued.
	Required Mode = iota
	// Auto signs handles with room for a tag. Longer ones pass unsigned; shorter ones are accepted
	// only with a tag.
	Auto
	// Off signs none.
	Off
)

// String returns the mode's name in the configuration.
func (m Mode) String() string {
	switch m {
	case Required:
		return "Required"
	case Auto:
		return "Auto"
	case Off:
		return "Off"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

// Signer signs the handles of one export. Its methods may be called concurrently, and do not
// allocate in the steady state.
type Signer struct {
	mode Mode
	uid  string
	ring atomic.Pointer[Ring]
}

// New makes the Signer of an export. uid has at least MinUID bytes. The first secret signs and all
// verify, so secrets can be replaced one by one. Mode Off needs none. New keeps none of its
// arguments.
func New(secrets [][]byte, uid []byte, mode Mode) (*Signer, error) {
	s := &Signer{mode: mode, uid: string(uid)}
	switch {
	case mode > Off:
		return nil, fmt.Errorf("sign: mode is %d, must be Required, Auto or Off", mode)
	case mode != Off && len(uid) < MinUID:
		return nil, fmt.Errorf("sign: the export's UID has %d bytes, at least %d are needed", len(uid), MinUID)
	}
	if err := s.SetKeys(secrets); err != nil {
		return nil, err
	}
	return s, nil
}

// SetKeys replaces the secrets from the next handle on. After an error nothing has changed.
func (s *Signer) SetKeys(secrets [][]byte) error {
	if s.mode == Off {
		return nil
	}
	if len(secrets) == 0 || len(secrets) > MaxKeys {
		return fmt.Errorf("sign: %d keys, mode %v needs 1 to %d", len(secrets), s.mode, MaxKeys)
	}
	keys := make([][]byte, len(secrets))
	for i, secret := range secrets {
		if len(secret) < MinKey {
			return fmt.Errorf("sign: key %d has %d bytes, at least %d are needed", i, len(secret), MinKey)
		}
		var err error
		if keys[i], err = hkdf.Key(sha256.New, secret, nil, "sluice file handles\x00"+s.uid, sha256.Size); err != nil {
			return fmt.Errorf("sign: key %d: %w", i, err)
		}
	}
	s.ring.Store(NewRing(keys, TagLen))
	return nil
}

// Mode returns the mode.
func (s *Signer) Mode() Mode { return s.mode }

// Overhead returns the largest growth of a handle, in bytes.
func (s *Signer) Overhead() int {
	if s.mode == Off {
		return 0
	}
	return TagLen
}

// Len returns the signed length of a handle of n bytes, with limit bytes allowed (Max3 or Max4). It
// returns false for a handle that cannot be issued: longer than limit, or in mode Required without
// room for the tag.
func (s *Signer) Len(n, limit int) (int, bool) {
	switch {
	case n > limit:
		return 0, false
	case s.mode == Off:
		return n, true
	case n+TagLen <= limit:
		return n + TagLen, true
	default:
		return n, s.mode == Auto
	}
}

// Append appends the signed handle to dst, or nothing if Len returns false.
func (s *Signer) Append(dst, handle []byte, limit int) []byte {
	n, ok := s.Len(len(handle), limit)
	if !ok {
		return dst
	}
	dst = append(dst, handle...)
	if n == len(handle) {
		return dst
	}
	return s.ring.Load().AppendTag(dst, handle)
}

// Verify returns the handle in a signed one, as a view. It returns false if this export has not
// issued it.
func (s *Signer) Verify(signed []byte, limit int) (handle []byte, ok bool) {
	switch {
	case len(signed) > limit:
		return nil, false
	case s.mode == Off:
		return signed, true
	}
	if n := len(signed) - TagLen; n >= 0 && s.ring.Load().Verify(signed[:n], signed[n:]) {
		return signed[:n:n], true
	}
	if s.mode == Auto && len(signed)+TagLen > limit {
		return signed, true
	}
	return nil, false
}
