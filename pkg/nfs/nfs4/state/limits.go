package state

// SetLimits replaces MaxClients, MaxOpens, MaxLocks and MaxDelegations; zero values mean the
// defaults. State beyond a lower limit stays.
func (s *State) SetLimits(clients, opens, locks, delegations int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cfg.MaxClients, s.cfg.MaxOpens, s.cfg.MaxLocks = clients, opens, locks
	s.cfg.MaxDelegations = delegations
	s.cfg.defaults()
}
