package server

import (
	"fmt"
	"net/netip"

	"sluice.dev/sluice/pkg/nfs/access"
)

// Rule says what clients of certain addresses may do.
type Rule = access.Rule

// Squash says which identities are mapped.
type Squash = access.Squash

// The values of Squash.
const (
	SquashRoot = access.SquashRoot
	SquashNone = access.SquashNone
	SquashAll  = access.SquashAll
)

// SetAccess replaces the rules, for all calls that come from now on. The first rule that names a client's address decides; a client
// that none names is refused: MOUNT with MNT3ERR_ACCES, NFS with AUTH_TOOWEAK.
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
