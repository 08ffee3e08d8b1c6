package server

import (
	"sluice.dev/sluice/pkg/nfs/vfs"
	"sluice.dev/sluice/pkg/oncrpc"
)

// caller is the identity of a call.
type caller struct {
	auth     oncrpc.AuthSysParms
	cred     vfs.Cred
	readOnly bool
}

// authenticate determines the caller under the rule.
func (u *caller) authenticate(s *Server, call *oncrpc.Call, rule *Rule) oncrpc.AuthStat {
	u.readOnly = rule.ReadOnly
	anon := vfs.Cred{UID: s.cfg.AnonUID, GID: s.cfg.AnonGID}
	switch call.Cred.Flavor {
	case oncrpc.AuthNone:
		u.cred = anon
		return oncrpc.AuthOK
	case oncrpc.AuthSys:
		if u.auth.Decode(call.Cred) != nil {
			return oncrpc.AuthBadCred
		}
		u.auth.Machine = nil // a view of the call's memory
	default:
		return oncrpc.AuthRejectedCred
	}
	u.cred = vfs.Cred{UID: u.auth.UID, GID: u.auth.GID, Groups: u.auth.GIDs}
	switch rule.Squash {
	case SquashAll:
		u.cred = anon
	case SquashRoot:
		if u.cred.UID == 0 {
			u.cred.UID = anon.UID
		}
		if u.cred.GID == 0 {
			u.cred.GID = anon.GID
		}
		for i, g := range u.cred.Groups {
			if g == 0 {
				u.cred.Groups[i] = anon.GID
			}
		}
	}
	return oncrpc.AuthOK
}
