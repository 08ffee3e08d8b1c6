// Package conns keeps the connections of an export: it admits them within limits, lists and counts
// them, and ends idle ones.
package conns

import (
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/gateway/rpcstats"
	"sluice.dev/sluice/internal/names"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Network is the network of a connection, an index of counters.
type Network int

// The networks.
const (
	RDMA Network = iota
	TCP
	networks
)

// String returns the name of the network in configuration, metrics and logs.
func (n Network) String() string {
	return [networks]string{string(config.RDMA), string(config.TCP)}[n]
}

// Table has the connections to all addresses of an export.
type Table struct {
	admission
	totals *Totals
	limit  atomic.Int64
	taken  atomic.Int64 // admitted connections, until Release

	perClient atomic.Int64 // limit of one client
	idle      atomic.Pointer[config.IdleTimeout]

	opened [networks]atomic.Uint64

	mu       sync.Mutex
	byConn   map[*oncrpc.Conn]*conn
	byClient map[netip.Addr]int // admitted connections of each client
	closed   rdma.Stats         // sum of closed connections
}

// conn is a connection that is served.
type conn struct {
	info  *oncrpc.Conn
	rdma  *rpcrdma.Conn // nil on TCP
	since time.Time
	calls *rpcstats.Calls

	// State of Sweep.
	lastActive time.Time
	lastCalls  uint64 // at lastActive
}

// New returns a table that admits nobody before SetLimits and SetRules.
func New(log *slog.Logger, totals *Totals) *Table {
	t := &Table{totals: totals, byConn: map[*oncrpc.Conn]*conn{}, byClient: map[netip.Addr]int{}}
	t.log = log
	t.idle.Store(new(config.IdleTimeout))
	return t
}

// SetLimits changes the limits. Connections above a lower limit stay.
func (t *Table) SetLimits(l *config.Limits) {
	t.limit.Store(int64(l.Connections))
	t.perClient.Store(int64(l.ConnectionsPerClient))
	t.idle.Store(&l.IdleTimeout)
}

// Admit admits a connection of a client, unless a rule or a limit forbids it. Release gives it
// back. room reports whether there is memory for its receives; nil if it needs none.
func (t *Table) Admit(client netip.Addr, room func() bool) (why Refusal, ok bool) {
	if !t.Allows(client) {
		return ByAccess, false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n := t.byClient[client]; {
	case t.taken.Load() >= t.limit.Load():
		return ByConnections, false
	case int64(n) >= t.perClient.Load():
		return ByClient, false
	case room != nil && !room():
		return ByReceiveMemory, false
	case !t.totals.admit():
		return ByTotal, false
	default:
		t.byClient[client] = n + 1
	}
	t.taken.Add(1)
	return 0, true
}

// Release gives an admitted connection back.
func (t *Table) Release(client netip.Addr) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.taken.Add(-1)
	t.totals.release()
	if n := t.byClient[client]; n > 1 {
		t.byClient[client] = n - 1
	} else {
		delete(t.byClient, client)
	}
}

// Open adds a connection that is served. r is nil on TCP.
func (t *Table) Open(network Network, info *oncrpc.Conn, r *rpcrdma.Conn) {
	t.opened[network].Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	t.byConn[info] = &conn{info: info, rdma: r, since: now, lastActive: now, calls: new(rpcstats.Calls)}
}

// Calls returns the counters of a connection that is served.
func (t *Table) Calls(info *oncrpc.Conn) *rpcstats.Calls {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byConn[info].calls
}

// Close removes a connection, and counts the cause of its end.
func (t *Table) Close(network Network, info *oncrpc.Conn, cause error) {
	t.ended[network][EndingOf(cause)].Add(1)
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.byConn[info]; c != nil && c.rdma != nil {
		t.closed.Add(c.rdma.Stats())
	}
	delete(t.byConn, info)
}

// Opened returns the number of connections that have ever been served.
func (t *Table) Opened() uint64 { return t.opened[RDMA].Load() + t.opened[TCP].Load() }

// ListLimit returns the limit of List for each export: 4096 connections in all, about 5 MB of JSON.
func ListLimit(exports int) int { return max(1, 4096/max(1, exports)) }

// List returns up to limit connections, the oldest first, and the number of the others.
func (t *Table) List(limit int) (list []status.Client, omitted int) {
	t.mu.Lock()
	all := make([]*conn, 0, len(t.byConn))
	for _, c := range t.byConn {
		all = append(all, c)
	}
	t.mu.Unlock()
	slices.SortFunc(all, func(a, b *conn) int {
		if d := a.since.Compare(b.since); d != 0 {
			return d
		}
		return a.info.Remote.Compare(b.info.Remote)
	})
	omitted = max(0, len(all)-limit)
	list = make([]status.Client, len(all)-omitted)
	for i := range list {
		list[i] = all[i].status()
	}
	return list, omitted
}

func (c *conn) status() status.Client {
	s := status.Client{Network: config.TCP, Remote: unmap(c.info.Remote), Local: unmap(c.info.Local), Since: c.since, Counters: c.calls.Status()}
	if c.rdma == nil {
		return s
	}
	n := c.rdma.Negotiated()
	s.Network, s.RDMA = config.RDMA, RDMAStatus(&n)
	s.RDMA.InUse = c.rdma.InUse()
	if n.Version == wire.Version2 {
		s.RDMA.Properties = &status.PropertiesPair{Gateway: properties(&n.Own), Client: properties(&n.Remote)}
	}
	return s
}

// RDMAStatus describes the negotiated settings of a connection, without properties.
func RDMAStatus(n *rpcrdma.Negotiated) *status.RDMA {
	s := &status.RDMA{
		Provider: n.Attributes.Provider, Version: n.Version, Credits: n.Granted, ORD: n.Attributes.ORD,
		RemoteInvalidation: n.RemoteInvalidation, CRC: n.Attributes.CRC,
	}
	if q := n.Attributes.QueuePair; q != nil {
		s.QueuePair = &status.QueuePair{
			Device: n.Attributes.Device, Port: q.Port, QPN: q.QPN, RemoteQPN: q.RemoteQPN,
			GID: q.GID, RemoteGID: q.RemoteGID, GIDType: q.GIDType, PathMTU: q.PathMTU,
		}
	}
	s.InlineThreshold.Call, s.InlineThreshold.Reply = n.InlineCall, n.InlineReply
	switch forms := (status.RFC5666{Padding: n.Padding, ReadRead: n.ReadRead, Configured: n.Configured}); {
	case n.Version == wire.Version2:
		s.Dialect, s.Extensions = names.Dialect(n.Dialect), names.OfExtensions(n.Extensions)
		s.Transmissions = &status.Transmissions{Call: n.MaxCallTransmissions, Reply: n.MaxReplyTransmissions}
	case forms != status.RFC5666{}:
		s.RFC5666 = &forms
	}
	return s
}

func properties(p *rpcrdma.Properties) status.Properties {
	return status.Properties{
		ReceiveSize: p.ReceiveSize, Backward: names.Backward(p.Backward), Placement: p.Targets,
		CallTransmissions: p.RequestLimit, ReplyTransmissions: p.ResponseLimit,
	}
}

// unmap returns an IPv4 address as such, also from a socket of both families.
func unmap(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }
