package conns

import (
	"sluice.dev/sluice/internal/gateway/metric"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

var (
	connectionsDesc = metric.Desc("connections", "Current connections, by network.", "network")
	versionsDesc    = metric.Desc("rdma_connections",
		"Current RPC-over-RDMA connections, by version: 1, 2, or unsettled before the first message where there is a choice.", "version")
	openedDesc  = metric.Desc("connections_opened_total", "Connections served, by network.", "network")
	refusedDesc = metric.Desc("connections_refused_total", "Connections refused, by network and reason.", "network", "reason")
	endedDesc   = metric.Desc("connections_ended_total", "Served connections that ended, by network and reason.", "network", "reason")
	grantedDesc = metric.Desc("credits_granted", "RPC-over-RDMA credits granted to current connections.")
	inUseDesc   = metric.Desc("credits_in_use", "RPC-over-RDMA credits used by calls in flight.")
	opsDesc     = metric.Desc("rdma_operations_total", "RDMA operations executed, by kind: send, write, read.", "operation")
	copiedDesc  = metric.Desc("rdma_copied_bytes_total", "Payload bytes copied on receipt.")
)

// versionLabels name the versions of connections, by number; 0 before the first message.
var versionLabels = [...]string{"unsettled", "1", "2"}

// Collect sends the metrics of the connections.
func (t *Table) Collect(s metric.Sink) {
	count := t.count()
	for n := range networks {
		s.Gauge(connectionsDesc, float64(count[n]), n.String())
		s.Counter(openedDesc, t.opened[n].Load(), n.String())
		for why := range refusals {
			s.Counter(refusedDesc, t.Refused(n, why), n.String(), why.String())
		}
		for why := range endings {
			s.Counter(endedDesc, t.Ended(n, why), n.String(), why.String())
		}
	}
	for v, n := range t.versions() {
		s.Gauge(versionsDesc, float64(n), versionLabels[v])
	}
	r, granted, inUse := t.rdmaTotals()
	s.Gauge(grantedDesc, float64(granted))
	s.Gauge(inUseDesc, float64(inUse))
	s.Transport(RDMA.String(), metric.Transport{
		ReadCalls: r.ReadCalls, WriteCalls: r.WriteCalls, MessagesIn: r.Receives, MessagesOut: r.Sends, BytesIn: r.BytesIn, BytesOut: r.BytesOut,
	})
	s.Counter(opsDesc, r.Sends, "send")
	s.Counter(opsDesc, r.Writes, "write")
	s.Counter(opsDesc, r.Reads, "read")
	s.Counter(copiedDesc, r.CopiedIn)
}

// count returns the number of connections on each network.
func (t *Table) count() (n [networks]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.byConn {
		if c.rdma != nil {
			n[RDMA]++
		} else {
			n[TCP]++
		}
	}
	return n
}

// versions returns the number of RPC-over-RDMA connections by version.
func (t *Table) versions() (n [wire.Version2 + 1]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.byConn {
		if c.rdma != nil {
			n[c.rdma.Negotiated().Version]++
		}
	}
	return n
}

// rdmaTotals returns the sum of all RDMA connections, closed ones included, and the credits of
// current ones.
func (t *Table) rdmaTotals() (s rdma.Stats, granted, inUse int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s = t.closed
	for _, c := range t.byConn {
		if c.rdma != nil {
			s.Add(c.rdma.Stats())
			granted += c.rdma.Negotiated().Granted
			inUse += c.rdma.InUse()
		}
	}
	return s, granted, inUse
}
