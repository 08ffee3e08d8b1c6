package server

import (
	"fmt"
	"net/netip"

	"sluice.dev/sluice/pkg/nfs/access"
)

// Rule grants access to clients of certain addresses.
type Rule = access.Rule

// Squash selects the identities that are mapped.
type Squash = access.Squash

// The values of Squash.
const (
	SquashRoot = access.SquashRoot
	SquashNone = access.SquashNone
	SquashAll  = access.SquashAll
)

// SetAccess replaces the rules for later calls. The first rule with the client's address decides. A
// client without one is refused: MOUNT with MNT3ERR_ACCES, NFS with AUTH_TOOWEAK.
func (s *Server) SetAccess(rules []Rule) error {
	rs, err := access.NewRules(rules)
	if err != nil {
		return fmt.Errorf("nfs server: %w", err)
	}
	s.access.Store(rs)
	return nil
}

// rule returns the rule for a client, nil if it is refused.
func (s *Server) rule(client netip.Addr) *Rule { return s.access.Load().Find(client) }
