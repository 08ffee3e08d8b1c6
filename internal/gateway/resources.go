package gateway

import (
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/internal/gateway/backend"
	"sluice.dev/sluice/internal/gateway/conns"
	"sluice.dev/sluice/internal/gateway/listen"
	"sluice.dev/sluice/internal/gateway/tracing"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/oncrpc/rpcbind"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// resources are the parts of a gateway that its exports share. They last as long as the process.
type resources struct {
	log *slog.Logger
	// stands for an empty host; the zero value: all addresses
	host     netip.Addr
	decorate func(oncrpc.Handler) oncrpc.Handler // for tests: around every backend
	services []rpcbind.Address                   // for tests: instead of rpcbind.Local

	adapters      adapters
	tcpSockets    *listen.SharedSockets[net.Conn] // software iWARP too
	verbsSockets  *listen.SharedSockets[rdma.ConnRequest]
	memory        *bufpool.Ceiling // bulk data of all exports
	receiveMemory credit.Memory
	connections   conns.Totals
	drainTimeout  atomic.Int64 // nanoseconds
	tracer        *tracing.Tracer

	// Set by begin.
	stateDir  string
	keys      *backend.Keys
	hugePages bool

	hugePagesOnce sync.Once // of noHugePages
}

func newResources(log *slog.Logger, version string) *resources {
	r := &resources{log: log, memory: bufpool.NewCeiling(0), tracer: tracing.New(log, version)}
	r.tcpSockets = listen.NewSharedSockets(r.log, false, listen.RefuseTCP)
	// On a socket of IPv6, siw refuses clients of IPv4.
	r.verbsSockets = listen.NewSharedSockets(r.log, true, refuseRDMA)
	return r
}

func refuseRDMA(in rdma.ConnRequest) { _ = in.Reject(nil) }

// begin sets the parameters that do not change while the process runs.
func (r *resources) begin(c *config.GatewayConfig) {
	r.stateDir, r.hugePages = c.StateDir, c.Memory.HugePages
	r.keys = backend.NewKeys(r.log, c.HandleKeys.File, c.StateDir)
}

// setLimits changes the limits of all exports together.
func (r *resources) setLimits(c *config.GatewayConfig) {
	r.connections.SetLimit(int64(c.Limits.Connections))
	r.memory.SetTotal(int64(c.Limits.Memory))
	r.receiveMemory.SetLimit(int64(c.Limits.ReceiveMemory))
	r.drainTimeout.Store(int64(c.DrainTimeout))
	if err := r.tracer.Configure(c.Tracing.Ratio, c.Tracing.Endpoint); err != nil {
		r.log.Error("calls are not traced", "error", err)
	}
}

func (r *resources) drainLimit() time.Duration { return time.Duration(r.drainTimeout.Load()) }

// resolve adds the gateway's host to an address of the configuration without one.
func (r *resources) resolve(address string) string {
	if host, port, err := net.SplitHostPort(address); err == nil && host == "" && r.host.IsValid() {
		return net.JoinHostPort(r.host.String(), port)
	}
	return address
}

func (r *resources) verbsProvider(device string, settings *config.VerbsOptions) (rdma.Provider, error) {
	return r.adapters.provider(r.log, device, settings)
}

func (r *resources) rpcbind() []rpcbind.Address {
	if r.services != nil {
		return r.services
	}
	return rpcbind.Local()
}

// noHugePages logs once that ordinary memory is used. A metric counts each time.
func (r *resources) noHugePages(why error) {
	r.hugePagesOnce.Do(func() {
		r.log.Warn("no huge pages; using ordinary memory. Raise hugepages-2Mi of the pod, or vm.nr_hugepages of the host", slog.Any("error", why))
	})
}
