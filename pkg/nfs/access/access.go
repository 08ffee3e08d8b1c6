// Package access has the rules of an export: which clients may use it, and what for.
package access

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

// Anonymous is the uid and gid that identities are mapped to unless something else is configured: nobody.
const Anonymous = 65534

// Rule says what clients of certain addresses may do.
type Rule struct {
	// Networks are the clients that the rule is about.
	Networks []netip.Prefix
	// ReadOnly refuses what would change something.
	ReadOnly bool
	Squash   Squash
}

// Rules are the rules of an export, in order. They are not changed once made.
type Rules struct{ list []Rule }

// NewRules checks rules, and copies them.
func NewRules(rules []Rule) (*Rules, error) {
	kept := make([]Rule, len(rules))
	for i, r := range rules {
		if r.Squash > SquashAll {
			return nil, fmt.Errorf("access rule %d: Squash is %d, must be SquashRoot, SquashNone or SquashAll", i, r.Squash)
		}
		r.Networks = slices.Clone(r.Networks)
		for k, p := range r.Networks {
			if !p.IsValid() {
				return nil, fmt.Errorf("access rule %d: network %d is no address prefix", i, k)
			}
			r.Networks[k] = unmap(p).Masked()
		}
		kept[i] = r
	}
	return &Rules{kept}, nil
}

// unmap makes ::ffff:10.0.0.0/104 what it means, 10.0.0.0/8.
func unmap(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// All returns the rules, which belong to rs.
func (rs *Rules) All() []Rule { return rs.list }

// Find returns the first rule that names a client's address; nil: the client is refused.
func (rs *Rules) Find(client netip.Addr) *Rule {
	client = client.Unmap().WithZone("")
	for i := range rs.list {
		for _, p := range rs.list[i].Networks {
			if p.Contains(client) {
				return &rs.list[i]
			}
		}
	}
	return nil
}
