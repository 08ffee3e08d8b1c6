package proxy

import (
	"net"
	"strconv"

	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/proxy/upstream"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// maxRecord bounds the backend's records: 1 MiB of data, and the rest of a COMPOUND.
const maxRecord = 2 << 20

// address returns the backend's "host:port".
func (s *Server) address() string { return net.JoinHostPort(s.cfg.Server, strconv.Itoa(s.cfg.Port)) }

// newUpstream returns the backend; it has no connections yet.
func (s *Server) newUpstream() (*upstream.Backend, error) {
	cfg := upstream.Config{
		Dialer: s.tcpDialer(s.address()), Pool: s.cfg.Pool, WaitLimit: s.cfg.WaitLimit, SoftTimeout: s.cfg.SoftTimeout,
		OnHealthChange: s.roots.onHealthChange, Logger: s.log,
	}
	cfg.Probe.Program, cfg.Probe.Version = nfs3.Program, nfs3.Version
	if !s.cfg.V3 {
		cfg.Probe.Version = version4
	}
	if s.cfg.Network == "rdma" {
		cfg.Dialer = &upstream.RDMA{Provider: s.cfg.Provider, Address: s.address(), Config: rpcrdma.Config{
			Pool: s.cfg.Pool, Bindings: binding.For, RemoteInvalidation: true, Logger: s.log,
			Versions: []int{wire.Version1, wire.Version2}, Extensions: s.cfg.Extensions, Dialect: s.cfg.Dialect, RFC5666: s.cfg.RFC5666,
		}}
	}
	return upstream.New(cfg)
}

// tcpDialer returns a dialer for a TCP service. It has no bindings: rewriting cuts out the items of
// a reply.
func (s *Server) tcpDialer(address string) *upstream.TCP {
	return &upstream.TCP{Address: address, Config: oncrpc.Config{Pool: s.cfg.Pool, MaxRecord: maxRecord}}
}
