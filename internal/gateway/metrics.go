package gateway

import (
	"runtime/metrics"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/doctor"
	"sluice.dev/sluice/internal/gateway/metric"
	"sluice.dev/sluice/internal/telemetry"
	"sluice.dev/sluice/pkg/rdma/verbs"
)

var (
	loadedDesc       = desc("config_loaded_timestamp_seconds", "Unix time in seconds when the current configuration was loaded.")
	errorDesc        = desc("config_error", "1 if the configuration file in its present state is refused, otherwise 0.")
	memoryDesc       = desc("total_memory_bytes", "Bytes for bulk data of calls in flight of all exports: reserved, and limit if there is one.", "state")
	connectionsDesc  = desc("total_connections", "Current connections of all exports: open, and limit if there is one.", "state")
	receiveDesc      = desc("total_receive_memory_bytes", "Bytes of receives of RDMA connections of all exports: promised for credits, and limit.", "state")
	deviceEventsDesc = desc("rdma_device_events_total", "Asynchronous events of RDMA devices.", "device", "event")
	portCounterDesc  = desc("rdma_port_counter", "Hardware counters of ports of RDMA devices, named by the driver.", "device", "port", "counter")
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(metric.Namespace+name, help, labels, nil)
}

type collector struct {
	res     *resources
	config  func() (status.Config, config.TotalLimits)
	exports func() []*export
}

// newRegistry returns a registry with the metrics of c and of the process.
func newRegistry(c collector, version string) *prometheus.Registry {
	r := prometheus.NewRegistry()
	telemetry.RegisterBuildInfo(r, "gateway", version)
	r.MustRegister(
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		runtimeCounter("sluice_runtime_allocations_total", "Objects allocated on the Go heap.", "/gc/heap/allocs:objects"),
		runtimeCounter("sluice_runtime_allocated_bytes_total", "Bytes allocated on the Go heap.", "/gc/heap/allocs:bytes"),
		c,
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

// Describe implements prometheus.Collector. It sends nothing: the metrics depend on the
// configuration.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	conf, limits := c.config()
	gauge(loadedDesc, float64(conf.Loaded.UnixNano())/1e9)
	gauge(errorDesc, metric.Bool(conf.Error != ""))
	gauge(memoryDesc, float64(c.res.memory.Used()), "reserved")
	gauge(receiveDesc, float64(c.res.receiveMemory.Used()), "promised")
	gauge(receiveDesc, float64(limits.ReceiveMemory), "limit")
	gauge(connectionsDesc, float64(c.res.connections.Taken()), "open")
	if limits.Memory != 0 {
		gauge(memoryDesc, float64(limits.Memory), "limit")
	}
	if limits.Connections != 0 {
		gauge(connectionsDesc, float64(limits.Connections), "limit")
	}
	if c.res.adapters.used() {
		devices{verbs.Events(), doctor.ReadCounters()}.Collect(ch)
	}
	for _, e := range c.exports() {
		e.collect(ch)
	}
}

type devices struct {
	events   []verbs.DeviceEvents
	counters []doctor.PortCounter
}

// Describe implements prometheus.Collector. It sends nothing: the metrics depend on the devices.
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
