package server

import (
	"fmt"
	"net/netip"
	"slices"
)

// Squash says which AUTH_SYS identities are mapped to the anonymous one. AUTH_NONE always is.
type Squash uint8

const (
	// SquashRoot maps uid 0 and gid 0.
	SquashRoot Squash = iota
	// SquashNone maps nothing.
	SquashNone
	// SquashAll maps everybody.
	SquashAll
)

// Rule says what clients of certain addresses may do.
type Rule struct {
	// Networks are the clients that the rule is about.
	Networks []netip.Prefix
	// ReadOnly answers what would change something with NFS3ERR_ROFS.
	ReadOnly bool
	Squash   Squash
}

// SetAccess replaces the rules, for all calls that come from now on. The first rule that names a client's address decides; a client
// that none names is refused: MOUNT with MNT3ERR_ACCES, NFS with AUTH_TOOWEAK.
func (s *Server) SetAccess(rules []Rule) error {
	kept := make([]Rule, len(rules))
	for i, r := range rules {
		if r.Squash > SquashAll {
			return fmt.Errorf("nfs server: access rule %d: Squash is %d, must be SquashRoot, SquashNone or SquashAll", i, r.Squash)
		}
		r.Networks = slices.Clone(r.Networks)
		for k, p := range r.Networks {
			if !p.IsValid() {
				return fmt.Errorf("nfs server: access rule %d: network %d is no address prefix", i, k)
			}
			r.Networks[k] = unmap(p).Masked()
		}
		kept[i] = r
	}
	s.access.Store(&kept)
	return nil
}

// unmap makes ::ffff:10.0.0.0/104 what it means, 10.0.0.0/8.
func unmap(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// rule returns the rule for a client, nil if it is refused.
func (s *Server) rule(client netip.Addr) *Rule {
	client = client.Unmap().WithZone("")
	rules := *s.access.Load()
	for i := range rules {
		for _, p := range rules[i].Networks {
			if p.Contains(client) {
				return &rules[i]
			}
		}
	}
	return nil
}
