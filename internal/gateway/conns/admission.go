package conns

import (
	"errors"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// Refusal is the reason to refuse a connection.
type Refusal uint8

// The reasons to refuse a connection.
const (
	ByAccess        Refusal = iota // no access rule has the client
	ByConnections                  // limits.connections of the export
	ByClient                       // limits.connectionsPerClient
	ByTotal                        // limits.connections of the file
	ByReceiveMemory                // limits.receiveMemory
	ByHandshake                    // the TCP connection brought no MPA request in time
	BySetup                        // the setup failed
	refusals
)

// String returns the label of the reason in metrics and logs.
func (r Refusal) String() string {
	return [refusals]string{"access", "connections", "connections_per_client", "total_connections", "receive_memory", "handshake", "setup"}[r]
}

// hint explains the reason in a log line.
func (r Refusal) hint() string {
	return [refusals]string{
		"no access rule has the client",
		"limits.connections of the export is reached",
		"limits.connectionsPerClient is reached",
		"limits.connections of the file is reached",
		"limits.receiveMemory of the file is reached",
		"no connection request in time",
		"",
	}[r]
}

// Ending is the reason for the end of a connection.
type Ending uint8

// The reasons for the end of a connection.
const (
	ByPeer          Ending = iota // the client closed it
	ByShutdown                    // a drain, or a change of the export
	BeforeFirstCall               // limits.idleTimeout.beforeFirstCall
	AfterCall                     // limits.idleTimeout.afterCall
	// NoProgress: below limits.minProgress, while other calls waited for its memory
	NoProgress
	NoReads    // the client did not answer RDMA Reads
	ByProtocol // the client broke the protocol
	ByNetwork  // everything else
	endings
)

// String returns the label of the reason in metrics.
func (e Ending) String() string {
	return [endings]string{"client", "shutdown", "idle_before_first_call", "idle_after_call", "no_progress", "reads_unanswered", "protocol", "network"}[e]
}

// Causes of the ends that Sweep makes.
var (
	errNoFirstCall = errors.New("no call came within limits.idleTimeout.beforeFirstCall")
	errNoCall      = errors.New("no call came within limits.idleTimeout.afterCall")
)

// EndingOf classifies the cause of a connection's end.
func EndingOf(cause error) Ending {
	switch {
	case errors.Is(cause, errNoFirstCall):
		return BeforeFirstCall
	case errors.Is(cause, errNoCall):
		return AfterCall
	case errors.Is(cause, bufpool.ErrNoProgress):
		return NoProgress
	case errors.Is(cause, rpcrdma.ErrReadTimeout):
		return NoReads
	case errors.Is(cause, io.EOF), errors.Is(cause, syscall.ECONNRESET), errors.Is(cause, syscall.EPIPE):
		return ByPeer
	case errors.Is(cause, oncrpc.ErrShutdown), errors.Is(cause, net.ErrClosed):
		return ByShutdown
	case errors.Is(cause, oncrpc.ErrRecord):
		return ByProtocol
	}
	return ByNetwork
}

// admission checks access rules, counts refusals and ends, and logs each kind of refusal at most
// once a second.
type admission struct {
	log     *slog.Logger
	rules   atomic.Pointer[access.Rules]
	refused [networks][refusals]atomic.Uint64
	ended   [networks][endings]atomic.Uint64

	mu       sync.Mutex
	last     [refusals]time.Time
	unlogged [refusals]int
}

// SetRules changes the access rules.
func (a *admission) SetRules(rs *access.Rules) { a.rules.Store(rs) }

// Allows reports whether an access rule has a client.
func (a *admission) Allows(client netip.Addr) bool {
	rs := a.rules.Load()
	return rs != nil && rs.Find(client) != nil
}

// Refuse counts and logs a refused connection. An empty reason stands for the hint of why.
func (a *admission) Refuse(network Network, client netip.Addr, why Refusal, reason string) {
	a.refused[network][why].Add(1)
	a.mu.Lock()
	now := time.Now()
	if now.Sub(a.last[why]) < time.Second {
		a.unlogged[why]++
		a.mu.Unlock()
		return
	}
	skipped := a.unlogged[why]
	a.last[why], a.unlogged[why] = now, 0
	a.mu.Unlock()
	if reason == "" {
		reason = why.hint()
	}
	a.log.Warn("connection refused", "network", network.String(), "peer", client.String(), "kind", why.String(), "reason", reason, "suppressed", skipped)
}

// Refused returns the number of refused connections.
func (a *admission) Refused(network Network, why Refusal) uint64 {
	return a.refused[network][why].Load()
}

// Ended returns the number of connections that ended.
func (a *admission) Ended(network Network, why Ending) uint64 { return a.ended[network][why].Load() }

// ClientOf returns the address that identifies a client: IPv4 as such, and without a zone.
func ClientOf(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// RemoteOf returns the client of a connection, or of a connection request; the zero value without
// an IP address.
func RemoteOf[T interface{ RemoteAddr() net.Addr }](c T) netip.Addr {
	return ClientOf(AddrPort(c.RemoteAddr()).Addr())
}

// AddrPort converts an address of package net; the zero value without an IP address.
func AddrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		return t.AddrPort()
	}
	if a == nil {
		return netip.AddrPort{}
	}
	p, _ := netip.ParseAddrPort(a.String())
	return p
}
