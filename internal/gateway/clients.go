package gateway

import (
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/names"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// networks are those that connections are counted by.
var networks = [...]config.Network{config.RDMA, config.TCP}

const (
	onRDMA = iota
	onTCP
)

// clients are an export's connections, on all of its addresses.
type clients struct {
	total *totals
	limit atomic.Int64
	taken atomic.Int64 // connections that were let in, from before a server has them until it has them no more

	perClient atomic.Int64 // the limit of one client's
	idle      atomic.Pointer[config.IdleTimeout]

	admission
	opened [len(networks)]atomic.Uint64

	mu       sync.Mutex
	byConn   map[*oncrpc.Conn]*peer
	byClient map[netip.Addr]int // taken, of each client that has any
	gone     rdma.Stats         // of closed connections
}

// peer is a connection.
type peer struct {
	info  *oncrpc.Conn
	rdma  *rpcrdma.Conn // nil on TCP
	since time.Time

	// Those of sweep.
	active time.Time // when it was last seen in use
	calls  uint64    // how many there were then
}

// admit lets a connection of a client in, unless a rule or a limit is against it. A connection that was let in is given back by leave.
// room reports whether there is memory for its receives.
func (c *clients) admit(client netip.Addr, room func() bool) (why refusal, ok bool) {
	if !c.allows(client) {
		return byAccess, false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch n := c.byClient[client]; {
	case c.taken.Load() >= c.limit.Load():
		return byConnections, false
	case int64(n) >= c.perClient.Load():
		return byClient, false
	case room != nil && !room():
		return byReceiveMemory, false
	case !c.total.admit():
		return byTotal, false
	default:
		c.byClient[client] = n + 1
	}
	c.taken.Add(1)
	return 0, true
}

func (c *clients) leave(client netip.Addr) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken.Add(-1)
	c.total.leave()
	if n := c.byClient[client]; n > 1 {
		c.byClient[client] = n - 1
	} else {
		delete(c.byClient, client)
	}
}

// open notes a connection that is served.
func (c *clients) open(network int, info *oncrpc.Conn, r *rpcrdma.Conn) {
	c.opened[network].Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.byConn[info] = &peer{info: info, rdma: r, since: now, active: now}
}

// close notes that it is gone, and why.
func (c *clients) close(network int, info *oncrpc.Conn, cause error) {
	c.ended[network][endingOf(cause)].Add(1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if cl := c.byConn[info]; cl != nil && cl.rdma != nil {
		addStats(&c.gone, cl.rdma.Stats())
	}
	delete(c.byConn, info)
}

// rdmaTotals returns what all connections did, also those that are gone, and the credits of those that are there.
func (c *clients) rdmaTotals() (s rdma.Stats, granted, inUse int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s = c.gone
	for _, cl := range c.byConn {
		if cl.rdma != nil {
			addStats(&s, cl.rdma.Stats())
			granted += cl.rdma.Negotiated().Granted
			inUse += cl.rdma.InUse()
		}
	}
	return s, granted, inUse
}

// count returns how many connections there are on each network.
func (c *clients) count() (n [len(networks)]int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cl := range c.byConn {
		if cl.rdma != nil {
			n[onRDMA]++
		} else {
			n[onTCP]++
		}
	}
	return n
}

// clientsListed is how many connections of each export /status lists when there are so many exports: 4096 in all, about 5 MB.
func clientsListed(exports int) int { return max(1, 4096/max(1, exports)) }

// list returns the connections, the oldest first, but for those beyond the number of most, which it counts.
func (c *clients) list(most int) (list []status.Client, omitted int) {
	c.mu.Lock()
	all := make([]*peer, 0, len(c.byConn))
	for _, cl := range c.byConn {
		all = append(all, cl)
	}
	c.mu.Unlock()
	slices.SortFunc(all, func(a, b *peer) int {
		if d := a.since.Compare(b.since); d != 0 {
			return d
		}
		return a.info.Remote.Compare(b.info.Remote)
	})
	omitted = max(0, len(all)-most)
	list = make([]status.Client, len(all)-omitted)
	for i := range list {
		list[i] = all[i].status()
	}
	return list, omitted
}

func (cl *peer) status() status.Client {
	s := status.Client{Network: config.TCP, Remote: plain(cl.info.Remote), Local: plain(cl.info.Local), Since: cl.since}
	if cl.rdma == nil {
		return s
	}
	n := cl.rdma.Negotiated()
	s.Network = config.RDMA
	s.RDMA = &status.RDMA{
		Provider: n.Attributes.Provider, Version: n.Version,
		Credits: n.Granted, InUse: cl.rdma.InUse(), ReadsOut: n.Attributes.ORD,
		RemoteInvalidation: n.RemoteInvalidation, CRC: n.Attributes.CRC,
	}
	if q := n.Attributes.QueuePair; q != nil {
		s.RDMA.QueuePair = &status.QueuePair{
			Device: n.Attributes.Device, Port: q.Port, QPN: q.QPN, RemoteQPN: q.RemoteQPN,
			GID: q.GID, RemoteGID: q.RemoteGID, GIDType: q.GIDType, PathMTU: q.PathMTU,
		}
	}
	s.RDMA.InlineThreshold.Call, s.RDMA.InlineThreshold.Reply = n.InlineCall, n.InlineReply
	if n.Version == wire.Version2 {
		s.RDMA.Extensions = names.OfExtensions(n.Extensions)
		s.RDMA.Transmissions = &status.Transmissions{Call: n.MaxCallTransmissions, Reply: n.MaxReplyTransmissions}
		s.RDMA.Properties = &status.PropertiesPair{Gateway: properties(&n.Own), Client: properties(&n.Remote)}
	}
	return s
}

// plain writes an IPv4 address as such, also where the listener was for both families.
func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

func addStats(a *rdma.Stats, b rdma.Stats) {
	a.ReadCalls += b.ReadCalls
	a.WriteCalls += b.WriteCalls
	a.BytesIn += b.BytesIn
	a.BytesOut += b.BytesOut
	a.Sends += b.Sends
	a.Writes += b.Writes
	a.Reads += b.Reads
	a.Receives += b.Receives
	a.RemoteWrites += b.RemoteWrites
	a.RemoteReads += b.RemoteReads
	a.CopiedIn += b.CopiedIn
}
