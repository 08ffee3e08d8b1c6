package gateway

import (
	"runtime/metrics"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/doctor"
	"sluice.dev/sluice/pkg/rdma/verbs"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// newRegistry has the metrics of g and of the process.
func newRegistry(g *Gateway) *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		runtimeCounter("sluice_runtime_allocations_total", "Objects allocated on the Go heap.", "/gc/heap/allocs:objects"),
		runtimeCounter("sluice_runtime_allocated_bytes_total", "Bytes allocated on the Go heap.", "/gc/heap/allocs:bytes"),
		collector{g},
	)
	return r
}

func runtimeCounter(name, help, metric string) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{Name: name, Help: help}, func() float64 {
		s := []metrics.Sample{{Name: metric}}
		metrics.Read(s)
		return float64(s[0].Value.Uint64())
	})
}

var (
	bytesDesc = desc("bytes_total",
		"Bytes of RPC messages by network, direction (in: from clients) and path: inline, read_chunk, long_call, write_chunk, reply_chunk, placed (in Sends); stream on TCP.",
		"network", "direction", "path")
	faultsDesc = desc("protocol_errors_total",
		"Messages or connections that broke the protocol, by network and kind.", "network", "kind")
	connectionsDesc = desc("connections", "Connections that there are, by network.", "network")
	versionsDesc    = desc("rdma_connections", "RPC-over-RDMA connections that there are, by version: 1, 2, or unsettled before the first message where there is a choice.", "version")
	openedDesc      = desc("connections_opened_total", "Connections that were served, by network.", "network")
	refusedDesc     = desc("connections_refused_total", "Connections that were not served, by network and reason.", "network", "reason")
	endedDesc       = desc("connections_ended_total", "Connections that were served and ended, by network and reason.", "network", "reason")
	grantedDesc     = desc("credits_granted", "RPC-over-RDMA credits that clients have.")
	inUseDesc       = desc("credits_in_use", "RPC-over-RDMA credits that stand for calls in flight.")
	receivesDesc    = desc("credit_memory_bytes", "Memory that stands for credits, or still is posted for those granted before; and with policy Adaptive the limit of it.", "state")
	sharedDesc      = desc("shared_receives", "Receives that are posted in queues which RDMA connections share.")
	ceilingDesc     = desc("credit_ceiling", "The most credits that a connection may have as the backend's latency is.")
	regrantsDesc    = desc("credit_changes_total", "Changes of connections' grants, by reason (use, latency, memory, config) and direction (raised, lowered).", "reason", "direction")
	poolDesc        = desc("memory_bytes",
		"Memory of the export outside the Go heap: mapped, in_use by messages and receives, reserved for bulk data of calls in flight, limit of the latter; retained for replies that may be wanted again; and huge_pages, of what is mapped.", "state")
	refusalsDesc = desc("memory_huge_page_refusals_total", "Times that there were no huge pages for the export's memory, and ordinary memory took their place.")
	waitingDesc  = desc("memory_waiting_calls", "Calls that wait for bulk memory.")
	syscallsDesc = desc("transport_syscalls_total", "System calls of the transport, by network and kind: read or write.", "network", "call")
	messagesDesc = desc("transport_messages_total", "Messages of the transport, by network and direction.", "network", "direction")
	wireDesc     = desc("transport_bytes_total", "Payload bytes of the transport, by network and direction.", "network", "direction")
	opsDesc      = desc("rdma_operations_total", "RDMA operations that were executed, by kind: send, write, read.", "operation")
	copiedDesc   = desc("rdma_copied_bytes_total", "Payload bytes that were copied on their way in.")
	cacheDesc    = desc("reply_cache_replays_total", "Retransmitted calls that were answered from the duplicate request cache.")
	queuedDesc   = desc("backend_queued_calls", "Calls that wait for a worker.")
	healthyDesc  = desc("backend_healthy", "1 if the backend answered when it was last asked.")
	linksDesc    = desc("backend_connections", "Connections to a backend that is a server.")
	detachedDesc = desc("backend_detached_connections", "Connections to the backend that are kept for clients that disconnected and may return.")
	stateDesc    = desc("export_state", "1 for the state that the export is in: Serving, Refused, Outdated, Applying or Removing.", "state")
	listenDesc   = desc("listener_up", "1 if the address is listened on, by all listeners that are configured for it.", "network", "address")

	unansweredDesc    = desc("backend_calls", "Calls that the backend has not answered yet.")
	waitBytesDesc     = desc("backend_waiting_bytes", "Bytes of calls that wait for a connection to the backend.")
	orphanedBytesDesc = desc("backend_orphaned_bytes", "Bytes of unanswered calls whose client has disconnected.")
	portsDesc         = desc("backend_source_ports", "Source ports below 1024 that connections to the backend have.")
	dialsDesc         = desc("backend_dials_total", "Attempts to connect to the backend, by result: ok or error.", "result")
	resendsDesc       = desc("backend_resends_total", "Calls sent to the backend again, since the connection was lost before an answer.")
	overloadsDesc     = desc("backend_overloads_total", "Calls whose client's connection was closed, since too much waited for the backend.")
	delayedDesc       = desc("backend_delayed_calls_total", "Calls that were answered with the advice to come again, since the backend took longer than softTimeout.")
	callbacksDesc     = desc("backend_callbacks_total", "Calls of the backend that were passed on to clients.")
	unreadableDesc    = desc("backend_unreadable_messages_total", "Messages of the backend, or for it, that could not be read.")

	loadedDesc      = prometheus.NewDesc(namespace+"config_loaded_timestamp_seconds", "When the configuration that is in use was read.", nil, nil)
	totalMemoryDesc = prometheus.NewDesc(namespace+"total_memory_bytes",
		"Memory for bulk data of calls in flight of all exports together: reserved, and the limit of it if there is one.", []string{"state"}, nil)
	deviceEventsDesc = prometheus.NewDesc(namespace+"rdma_device_events_total", "Asynchronous events of RDMA devices.", []string{"device", "event"}, nil)
	portCounterDesc  = prometheus.NewDesc(namespace+"rdma_port_counter", "Hardware counters of ports of RDMA devices, as the driver names them.",
		[]string{"device", "port", "counter"}, nil)
	totalConnectionsDesc = prometheus.NewDesc(namespace+"total_connections",
		"Connections of all exports together: open, and the limit of them if there is one.", []string{"state"}, nil)
	totalReceivesDesc = prometheus.NewDesc(namespace+"total_receive_memory_bytes",
		"Memory for the receives of RDMA connections of all exports together: promised for credits, and the limit of it.", []string{"state"}, nil)
	errorDesc = prometheus.NewDesc(namespace+"config_error", "1 if the configuration file as it is now cannot be used.", nil, nil)
)

// collector turns the figures of a gateway into metrics when they are asked for.
type collector struct{ g *Gateway }

// Describe implements prometheus.Collector: what there is depends on the configuration.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	c.g.mu.Lock()
	conf, limits := c.g.conf, c.g.config.Limits
	c.g.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(loadedDesc, prometheus.GaugeValue, float64(conf.Loaded.UnixNano())/1e9)
	ch <- prometheus.MustNewConstMetric(errorDesc, prometheus.GaugeValue, oneIf(conf.Error != ""))
	total := func(d *prometheus.Desc, v int64, state string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), state)
	}
	total(totalMemoryDesc, c.g.total.memory.Used(), "reserved")
	total(totalReceivesDesc, c.g.total.receives.Used(), "promised")
	total(totalReceivesDesc, int64(limits.ReceiveMemory), "limit")
	total(totalConnectionsDesc, c.g.total.taken.Load(), "open")
	if limits.Memory != 0 {
		total(totalMemoryDesc, int64(limits.Memory), "limit")
	}
	if limits.Connections != 0 {
		total(totalConnectionsDesc, int64(limits.Connections), "limit")
	}
	if c.g.adapters.used() {
		devices{verbs.Events(), doctor.ReadCounters()}.Collect(ch)
	}
	for _, e := range c.g.list() {
		e.collect(ch)
	}
}

// devices are the figures of RDMA devices.
type devices struct {
	events   []verbs.DeviceEvents
	counters []doctor.PortCounter
}

// Describe implements prometheus.Collector: the metrics depend on the devices.
func (devices) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (d devices) Collect(ch chan<- prometheus.Metric) {
	for _, e := range d.events {
		ch <- prometheus.MustNewConstMetric(deviceEventsDesc, prometheus.CounterValue, float64(e.Count), e.Device, e.Event)
	}
	for _, c := range d.counters {
		ch <- prometheus.MustNewConstMetric(portCounterDesc, prometheus.UntypedValue, float64(c.Value), c.Device, c.Port, c.Name)
	}
}

// counterFunc and gaugeFunc take a figure of one export. The labels are those behind the export's name.
type (
	counterFunc = func(d *prometheus.Desc, v uint64, labels ...string)
	gaugeFunc   = func(d *prometheus.Desc, v float64, labels ...string)
)

func (e *export) collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), append([]string{e.name}, labels...)...)
	}
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, append([]string{e.name}, labels...)...)
	}
	e.stats.collect(ch, e.name)
	for p := range e.stats.moved {
		path, direction := pathLabels(rpcrdma.Path(p))
		counter(bytesDesc, e.stats.moved[p].Load(), "rdma", direction, path)
	}
	counter(bytesDesc, e.stats.tcpIn.Load(), "tcp", "in", "stream")
	counter(bytesDesc, e.stats.tcpOut.Load(), "tcp", "out", "stream")
	for f := range e.stats.faults {
		counter(faultsDesc, e.stats.faults[f].Load(), "rdma", rpcrdma.ErrorKind(f).String())
	}
	counter(faultsDesc, e.stats.badRecords.Load(), "tcp", "bad_message")

	count := e.clients.count()
	for i, n := range networks {
		gauge(connectionsDesc, float64(count[i]), string(n))
		counter(openedDesc, e.clients.opened[i].Load(), string(n))
		for why := range refusals {
			counter(refusedDesc, e.clients.refused[i][why].Load(), string(n), why.String())
		}
		for why := range endings {
			counter(endedDesc, e.clients.ended[i][why].Load(), string(n), why.String())
		}
	}
	for v, n := range e.clients.versions() {
		gauge(versionsDesc, float64(n), versionLabels[v])
	}
	r, granted, inUse := e.clients.rdmaTotals()
	gauge(grantedDesc, float64(granted))
	gauge(inUseDesc, float64(inUse))
	e.collectCredits(counter, gauge)
	counter(syscallsDesc, r.ReadCalls, "rdma", "read")
	counter(syscallsDesc, r.WriteCalls, "rdma", "write")
	counter(messagesDesc, r.Receives, "rdma", "in")
	counter(messagesDesc, r.Sends, "rdma", "out")
	counter(wireDesc, r.BytesIn, "rdma", "in")
	counter(wireDesc, r.BytesOut, "rdma", "out")
	counter(opsDesc, r.Sends, "send")
	counter(opsDesc, r.Writes, "write")
	counter(opsDesc, r.Reads, "read")
	counter(copiedDesc, r.CopiedIn)
	t := e.servers.totals()
	counter(syscallsDesc, t.ReadCalls, "tcp", "read")
	counter(syscallsDesc, t.WriteCalls, "tcp", "write")
	counter(messagesDesc, t.RecordsIn, "tcp", "in")
	counter(messagesDesc, t.RecordsOut, "tcp", "out")
	counter(wireDesc, t.BytesIn, "tcp", "in")
	counter(wireDesc, t.BytesOut, "tcp", "out")

	s := e.status()
	for _, st := range []status.ExportState{status.Serving, status.Refused, status.Outdated, status.Applying, status.Removing} {
		gauge(stateDesc, oneIf(s.State == st), string(st))
	}
	// Several listeners may be configured for any free port: a series must not appear twice.
	up := map[[2]string]bool{}
	for _, l := range s.Listeners {
		key := [2]string{string(l.Network), l.Configured}
		was, seen := up[key]
		up[key] = l.State == status.Listening && (was || !seen)
	}
	for key, all := range up {
		gauge(listenDesc, oneIf(all), key[0], key[1])
	}
	e.mu.Lock()
	open := e.open
	e.mu.Unlock()
	if open == nil {
		return
	}
	pool := open.pool.Stats()
	gauge(poolDesc, float64(pool.Mapped), "mapped")
	gauge(poolDesc, float64(pool.InUse), "in_use")
	gauge(poolDesc, float64(open.budget.Used()), "reserved")
	gauge(poolDesc, float64(open.served().Limits.Memory), "limit")
	gauge(poolDesc, float64(open.budget.Retained()), "retained")
	gauge(poolDesc, float64(pool.Huge), "huge_pages")
	counter(refusalsDesc, uint64(pool.Refusals))
	gauge(waitingDesc, float64(open.budget.Waiting()))
	gauge(healthyDesc, oneIf(s.Backend.Healthy))
	open.serves().collect(counter, gauge)
}

// pathLabels names a way of payload, and the direction that it goes.
func pathLabels(p rpcrdma.Path) (path, direction string) {
	direction = "out"
	if inbound(p) {
		direction = "in"
	}
	switch p {
	case rpcrdma.InlineCall, rpcrdma.InlineReply:
		return "inline", direction
	case rpcrdma.PlacedCall, rpcrdma.PlacedReply:
		return "placed", direction
	}
	return p.String(), direction
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
