package rewrite

import (
	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

// Positions of the credential's length and body in a call: after six words and the flavor.
const (
	credLenPos  = 7 * 4
	credBodyPos = credLenPos + 4
)

// Fields of an RPCSEC_GSS credential (RFC 2203 section 5.1).
const (
	gssVersion     = 1
	gssData        = 0
	gssDestroy     = 3
	gssServiceNone = 1
	gssPrivacy     = 3
)

// authenticate checks the credential against the rules and edits it.
func (c *Call) authenticate(x *Export, who *Caller, in *oncrpc.Call) oncrpc.AuthStat {
	switch in.Cred.Flavor {
	case oncrpc.AuthNone:
		return oncrpc.AuthOK
	case oncrpc.AuthSys:
		if c.auth.Decode(in.Cred) != nil {
			return oncrpc.AuthBadCred
		}
		if c.squash(who) {
			c.encodeCred(in)
		}
		c.auth.Machine = nil // refers to the call's memory
		return oncrpc.AuthOK
	case oncrpc.RPCSecGSS:
		if !x.GSS {
			return oncrpc.AuthTooWeak
		}
		c.gss = true
		return c.readGSS(in)
	default:
		return oncrpc.AuthRejectedCred
	}
}

// squash maps the caller's ids as the rule says, and reports whether they changed. Like other
// servers' root_squash, SquashRoot maps uid and gid 0 wherever they occur.
func (c *Call) squash(who *Caller) (changed bool) {
	a := &c.auth
	switch who.Squash {
	case access.SquashRoot:
		if a.UID == 0 {
			a.UID, changed = who.AnonUID, true
		}
		if a.GID == 0 {
			a.GID, changed = who.AnonGID, true
		}
		for i, g := range a.GIDs {
			if g == 0 {
				a.GIDs[i], changed = who.AnonGID, true
			}
		}
	case access.SquashAll:
		changed = a.UID != who.AnonUID || a.GID != who.AnonGID || len(a.GIDs) > 0
		a.UID, a.GID, a.GIDs = who.AnonUID, who.AnonGID, a.GIDs[:0]
	}
	return changed
}

// encodeCred replaces the credential's body by c.auth.
func (c *Call) encodeCred(in *oncrpc.Call) {
	a := &c.auth
	n := 4 + 4 + xdr.Round(len(a.Machine)) + 4 + 4 + 4 + 4*len(a.GIDs)
	was := xdr.Round(len(in.Cred.Body))
	c.enc.Reset(c.edits.Replace(credLenPos, 4+was, 4+n)[:0], nil)
	e := &c.enc
	e.Uint32(uint32(n))
	e.Uint32(a.Stamp)
	e.Opaque(a.Machine)
	e.Uint32(a.UID)
	e.Uint32(a.GID)
	e.Uint32(uint32(len(a.GIDs)))
	for _, g := range a.GIDs {
		e.Uint32(g)
	}
	c.headerGrowth = n - was
}

// readGSS decides whether the body of an RPCSEC_GSS call is readable: it is in a data call without
// integrity and privacy (RFC 2203 section 5.3.1).
func (c *Call) readGSS(in *oncrpc.Call) oncrpc.AuthStat {
	d := &c.dec
	d.ResetBytes(in.Cred.Body)
	version, procedure := d.Uint32(), d.Uint32()
	d.Uint32() // sequence number
	service := d.Uint32()
	d.Opaque(oncrpc.MaxAuthLen) // context handle
	if d.Err() != nil || version != gssVersion || procedure > gssDestroy || service < gssServiceNone || service > gssPrivacy {
		return oncrpc.AuthBadCred
	}
	// NULL carries control messages.
	c.protected = procedure != gssData || service != gssServiceNone || in.Procedure == 0
	return oncrpc.AuthOK
}
