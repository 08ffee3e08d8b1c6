// Package metric sends the figures of one export to Prometheus. Each part of the gateway describes
// its own metrics with it.
package metric

import "github.com/prometheus/client_golang/prometheus"

// Namespace begins the names of all metrics.
const Namespace = "sluice_"

// Desc describes a metric of an export. The label export comes before labels.
func Desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc(Namespace+name, help, append([]string{"export"}, labels...), nil)
}

// Sink sends the metrics of one export. Labels are the values after the name of the export.
type Sink struct {
	export string
	ch     chan<- prometheus.Metric
}

// NewSink returns a sink for the metrics of an export.
func NewSink(export string, ch chan<- prometheus.Metric) Sink { return Sink{export, ch} }

// Counter sends the value of a counter.
func (s Sink) Counter(d *prometheus.Desc, v uint64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), s.with(labels)...)
}

// Gauge sends the value of a gauge.
func (s Sink) Gauge(d *prometheus.Desc, v float64, labels ...string) {
	s.ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, s.with(labels)...)
}

// Histogram sends a histogram. buckets has the cumulative count of each upper bound. OpenMetrics
// shows the exemplars.
func (s Sink) Histogram(d *prometheus.Desc, count uint64, sum float64, buckets map[float64]uint64, exemplars []prometheus.Exemplar, labels ...string) {
	m := prometheus.MustNewConstHistogram(d, count, sum, buckets, s.with(labels)...)
	if len(exemplars) > 0 {
		m = prometheus.MustNewMetricWithExemplars(m, exemplars...)
	}
	s.ch <- m
}

func (s Sink) with(labels []string) []string { return append([]string{s.export}, labels...) }

// Bool returns 1 for true, otherwise 0.
func Bool(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// Transport has the figures of a transport.
type Transport struct {
	ReadCalls, WriteCalls   uint64
	MessagesIn, MessagesOut uint64
	BytesIn, BytesOut       uint64
}

var (
	syscallsDesc = Desc("transport_syscalls_total", "System calls of the transport, by network and kind: read or write.", "network", "call")
	messagesDesc = Desc("transport_messages_total", "Messages of the transport, by network and direction.", "network", "direction")
	bytesDesc    = Desc("transport_bytes_total", "Payload bytes of the transport, by network and direction.", "network", "direction")
)

// Transport sends the metrics of the transport of a network.
func (s Sink) Transport(network string, t Transport) {
	s.Counter(syscallsDesc, t.ReadCalls, network, "read")
	s.Counter(syscallsDesc, t.WriteCalls, network, "write")
	s.Counter(messagesDesc, t.MessagesIn, network, "in")
	s.Counter(messagesDesc, t.MessagesOut, network, "out")
	s.Counter(bytesDesc, t.BytesIn, network, "in")
	s.Counter(bytesDesc, t.BytesOut, network, "out")
}
