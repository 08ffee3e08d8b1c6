package server

import (
	"net/netip"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4/state"
	"sluice.dev/sluice/pkg/oncrpc"
)

// NFS4Stats are the figures of the state of versions 4.1 and 4.2.
type NFS4Stats struct {
	state.Stats
	// Limits are those in force.
	Limits NFS4Config
}

// NFS4Stats returns the present figures.
func (s *Server) NFS4Stats() NFS4Stats {
	cfg := s.v4.state.Config()
	return NFS4Stats{Stats: s.v4.state.Stats(time.Now()), Limits: NFS4Config{
		Lease: cfg.Lease, Grace: cfg.Grace, Clients: cfg.MaxClients, Opens: cfg.MaxOpens, Locks: cfg.MaxLocks, Delegations: cfg.MaxDelegations,
	}}
}

// NFS4Client describes a client of versions 4.1 and 4.2.
type NFS4Client struct {
	state.ClientInfo
	// Remote is its address.
	Remote netip.AddrPort
}

// NFS4Clients returns the oldest confirmed clients, at most limit, and the number of the others.
func (s *Server) NFS4Clients(limit int) (clients []NFS4Client, omitted int) {
	infos, omitted := s.v4.state.Clients(limit)
	for _, i := range infos {
		clients = append(clients, NFS4Client{i, i.Conn.(*oncrpc.Conn).Remote})
	}
	return clients, omitted
}

// ExpelNFS4Client ends a client and all that it holds. It reports whether there is such a client.
// The client may come back, with none of its state.
func (s *Server) ExpelNFS4Client(id uint64) bool {
	found := s.v4.state.Expel(id)
	s.v4.settle()
	return found
}
