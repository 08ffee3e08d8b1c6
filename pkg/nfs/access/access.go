// Package access implements the access rules of an export: which clients may use it, and how.
package access

import (
	"fmt"
	"net/netip"
	"slices"
)

// Squash selects the AUTH_SYS identities that are mapped to the anonymous one. AUTH_NONE always is.
type Squash uint8

const (
	// SquashRoot maps uid 0 and gid 0.
	SquashRoot Squash = iota
	// SquashNone maps nothing.
	SquashNone
	// SquashAll maps everybody.
	SquashAll
)

// Anonymous is the default anonymous uid and gid: nobody.
const Anonymous = 65534

// Rule grants access to clients by address.
type Rule struct {
	// Networks are the clients' networks.
	Networks []netip.Prefix
	// ReadOnly refuses modifications.
	ReadOnly bool
	Squash   Squash
}

// Rules are the rules of an export, in order. They are immutable.
type Rules struct{ list []Rule }

// NewRules checks and copies rules.
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

// unmap turns ::ffff:10.0.0.0/104 into 10.0.0.0/8.
func unmap(p netip.Prefix) netip.Prefix {
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96)
	}
	return p
}

// All returns the rules, which belong to rs.
func (rs *Rules) All() []Rule { return rs.list }

// Find returns the first rule for a client's address. nil refuses the client.
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
