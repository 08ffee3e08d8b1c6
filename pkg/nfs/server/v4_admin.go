package server

import (
	"net/netip"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
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

// operationCount counts the results of an operation.
type operationCount struct{ ok, failed atomic.Uint64 }

func (v *v4Server) count(op nfs4.Op, st nfs4.Status) {
	if op >= nfs4.Operations {
		op = 0
	}
	if o := &v.operations[op]; st == nfs4.OK {
		o.ok.Add(1)
	} else {
		o.failed.Add(1)
	}
}

// NFS4Operations calls f for each operation that was called: with the number of its results of
// status NFS4_OK, and of others.
func (s *Server) NFS4Operations(f func(op nfs4.Op, ok, failed uint64)) {
	for i := range s.v4.operations {
		o := &s.v4.operations[i]
		ok, failed := o.ok.Load(), o.failed.Load()
		if op := nfs4.Op(i); op == 0 && failed > 0 {
			f(nfs4.OpIllegal, ok, failed)
		} else if ok+failed > 0 {
			f(op, ok, failed)
		}
	}
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
