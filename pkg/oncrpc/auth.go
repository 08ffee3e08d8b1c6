package oncrpc

import (
	"fmt"

	"sluice.dev/sluice/pkg/xdr"
)

// Limits of an AUTH_SYS credential (RFC 5531 appendix A).
const (
	MaxMachineName = 255
	MaxGIDs        = 16
)

// AuthSysParms is the body of an AUTH_SYS credential (RFC 5531 appendix A). It may be decoded into
// repeatedly: the array of GIDs is reused.
type AuthSysParms struct {
	Stamp    uint32
	Machine  []byte // at most 255 bytes; decoded, it is a view of the credential
	UID, GID uint32
	GIDs     []uint32 // at most 16
}

// Decode reads the credential's body. It returns an error for anything but a well-formed AUTH_SYS
// credential; a server answers AUTH_BADCRED.
func (a *AuthSysParms) Decode(cred Auth) error {
	if cred.Flavor != AuthSys {
		return fmt.Errorf("oncrpc: credential has flavor %d, AUTH_SYS is %d", cred.Flavor, AuthSys)
	}
	var d xdr.Decoder
	d.ResetBytes(cred.Body)
	a.Stamp = d.Uint32()
	a.Machine = d.Opaque(MaxMachineName)
	a.UID, a.GID = d.Uint32(), d.Uint32()
	n := d.Uint32()
	if n > MaxGIDs {
		d.Fail("%d gids, at most %d are allowed", n, MaxGIDs)
		n = 0
	}
	a.GIDs = a.GIDs[:0]
	for range n {
		a.GIDs = append(a.GIDs, d.Uint32())
	}
	if d.Left() > 0 {
		d.Fail("%d bytes follow the gids", d.Left())
	}
	if err := d.Err(); err != nil {
		a.GIDs = a.GIDs[:0]
		return fmt.Errorf("oncrpc: AUTH_SYS credential: %w", err)
	}
	return nil
}

// Auth returns the credential, or an error if it exceeds the limits. It allocates: make it once for
// the calls of a user.
func (a *AuthSysParms) Auth() (Auth, error) {
	if len(a.Machine) > MaxMachineName {
		return Auth{}, fmt.Errorf("oncrpc: machine name has %d bytes, at most %d are allowed", len(a.Machine), MaxMachineName)
	}
	if len(a.GIDs) > MaxGIDs {
		return Auth{}, fmt.Errorf("oncrpc: %d gids, at most %d are allowed", len(a.GIDs), MaxGIDs)
	}
	var e xdr.Encoder
	e.Reset(make([]byte, 0, 20+xdr.Round(len(a.Machine))+4*len(a.GIDs)), nil)
	e.Uint32(a.Stamp)
	e.Opaque(a.Machine)
	e.Uint32(a.UID)
	e.Uint32(a.GID)
	e.Uint32(uint32(len(a.GIDs)))
	for _, g := range a.GIDs {
		e.Uint32(g)
	}
	return Auth{Flavor: AuthSys, Body: e.Bytes()}, nil
}
