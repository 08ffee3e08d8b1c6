package gateway

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

// refusal is why a connection was not served.
type refusal uint8

const (
	byAccess        refusal = iota // no access rule names the client
	byConnections                  // limits.connections of the export
	byClient                       // limits.connectionsPerClient
	byTotal                        // limits.connections of the file
	byReceiveMemory                // limits.receiveMemory
	byHandshake                    // no request for a connection came by the TCP connection, or not in time
	bySetup                        // it failed while it was set up
	refusals                       // their number
)

func (r refusal) String() string {
	return [refusals]string{"access", "connections", "connections_per_client", "total_connections", "receive_memory", "handshake", "setup"}[r]
}

// hint is the advice for a refusal.
func (r refusal) hint() string {
	return [refusals]string{
		"no rule of access names the client",
		"the export has as many as its limits.connections",
		"the client has as many as limits.connectionsPerClient",
		"the gateway has as many as limits.connections of the file",
		"limits.receiveMemory of the file is used up",
		"no request for a connection, or not in time",
		"",
	}[r]
}

// ending is why a connection that was served ended.
type ending uint8

const (
	byPeer          ending = iota // the client closed it
	byShutdown                    // a drain, or a change of the export
	beforeFirstCall               // limits.idleTimeout.beforeFirstCall
	afterCall                     // limits.idleTimeout.afterCall
	noProgress                    // it held memory that others waited for, below limits.minProgress
	noReads                       // the client did not answer RDMA Reads
	byProtocol                    // the client broke the protocol
	byNetwork                     // everything else
	endings                       // their number
)

func (e ending) String() string {
	return [endings]string{"client", "shutdown", "idle_before_first_call", "idle_after_call", "no_progress", "reads_unanswered", "protocol", "network"}[e]
}

// Causes of the end of a connection that the gateway gives itself.
var (
	errNoFirstCall = errors.New("no call came within limits.idleTimeout.beforeFirstCall")
	errNoCall      = errors.New("no call came within limits.idleTimeout.afterCall")
)

// endingOf classifies a connection's end by its cause.
func endingOf(cause error) ending {
	switch {
	case errors.Is(cause, errNoFirstCall):
		return beforeFirstCall
	case errors.Is(cause, errNoCall):
		return afterCall
	case errors.Is(cause, bufpool.ErrNoProgress):
		return noProgress
	case errors.Is(cause, rpcrdma.ErrReadTimeout):
		return noReads
	case errors.Is(cause, io.EOF), errors.Is(cause, syscall.ECONNRESET), errors.Is(cause, syscall.EPIPE):
		return byPeer
	case errors.Is(cause, oncrpc.ErrShutdown), errors.Is(cause, net.ErrClosed):
		return byShutdown
	case errors.Is(cause, oncrpc.ErrRecord):
		return byProtocol
	}
	return byNetwork
}

// admission decides which connections are served. It counts, and logs each reason once a second at most.
type admission struct {
	rules   atomic.Pointer[access.Rules]
	refused [len(networks)][refusals]atomic.Uint64
	ended   [len(networks)][endings]atomic.Uint64

	mu       sync.Mutex
	last     [refusals]time.Time
	unlogged [refusals]int
}

// allows reports whether an access rule names a client.
func (a *admission) allows(client netip.Addr) bool {
	rs := a.rules.Load()
	return rs != nil && rs.Find(client) != nil
}

// refuse notes a connection that is not served. reason is empty where the kind says it all.
func (a *admission) refuse(log *slog.Logger, network int, client netip.Addr, why refusal, reason string) {
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
	log.Warn("connection refused", "network", networks[network], "peer", client.String(), "kind", why.String(), "reason", reason, "not logged before", skipped)
}

// refusedOf is how many connections of a network were not served.
func (a *admission) refusedOf(network int) (n uint64) {
	for i := range a.refused[network] {
		n += a.refused[network][i].Load()
	}
	return n
}

// clientOf returns the address that a client is known by: IPv4 as such, and without a zone.
func clientOf(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// remoteOf returns the client of a connection, or of a request for one; the zero value if it has no IP address.
func remoteOf[T interface{ RemoteAddr() net.Addr }](c T) netip.Addr {
	return clientOf(addrPort(c.RemoteAddr()).Addr())
}

func addrPort(a net.Addr) netip.AddrPort {
	if t, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		return t.AddrPort()
	}
	if a == nil {
		return netip.AddrPort{}
	}
	p, _ := netip.ParseAddrPort(a.String())
	return p
}

// screened is a source of TCP connections without those of clients that no access rule names: they are closed before a byte is read.
type screened struct {
	source[net.Conn]
	e       *export
	network int
}

// Accept implements [source].
func (s screened) Accept() (net.Conn, error) {
	for {
		c, err := s.source.Accept()
		if err != nil {
			return nil, err
		}
		client := remoteOf(c)
		if s.e.clients.allows(client) {
			return c, nil
		}
		s.e.clients.refuse(s.e.log, s.network, client, byAccess, "")
		refuseTCP(c)
	}
}
