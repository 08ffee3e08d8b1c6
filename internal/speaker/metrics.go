package speaker

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice.dev/sluice/internal/speaker/api"
	"sluice.dev/sluice/internal/telemetry"
)

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sluice_speaker_"+name, help, labels, nil)
}

var (
	heldDesc      = desc("lease_held", "1 if this pod holds the group of virtual IPs of the Lease, otherwise 0.", "lease")
	validDesc     = desc("lease_valid", "1 if this pod has the Lease, and it has not expired, otherwise 0.", "lease")
	addressesDesc = desc("addresses", "Virtual IPs by Lease and state: carried by this pod, claimed by another host (conflict), or all of the group (total).", "lease", "state")
	problemsDesc  = desc("problems", "Current problems of the speaker, by reason.", "reason")
	upDesc        = desc("interface_up", "1 if the interface for virtual IPs is up, otherwise 0.")
)

// reasons are those of problems. Each has a metric, so that alerts end when a problem does.
var reasons = []string{
	api.InterfaceMissing, api.NetworkNotLayer2, api.DeviceAddressLimit, api.NotPermitted, api.AddressConflict, api.LeaseUnreachable, api.ConfigInvalid,
	api.GatewayNotReady,
}

// metrics serves the metrics of the speaker and its process.
func (s *speaker) metrics() http.Handler {
	r := prometheus.NewRegistry()
	telemetry.RegisterBuildInfo(r, "speaker", s.o.version)
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), statusCollector{s.status})
	return promhttp.HandlerFor(r, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
}

// statusCollector turns the status into metrics.
type statusCollector struct{ status func() api.Status }

// Describe implements prometheus.Collector. It sends nothing: the metrics depend on the Leases.
func (statusCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c statusCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	st := c.status()
	gauge(upDesc, count(st.Interface.Up))
	problems := map[string]int{}
	for _, p := range st.Problems {
		problems[p.Reason]++
	}
	for _, r := range reasons {
		gauge(problemsDesc, problems[r], r)
	}
	for _, g := range st.Groups {
		gauge(heldDesc, count(g.Holding), g.Lease)
		gauge(validDesc, count(g.LeaseValid), g.Lease)
		carried, conflicts := 0, 0
		for _, a := range g.Addresses {
			carried += count(a.State == "Carried")
			conflicts += count(a.Foreign != "")
		}
		gauge(addressesDesc, carried, g.Lease, "carried")
		gauge(addressesDesc, conflicts, g.Lease, "conflict")
		gauge(addressesDesc, len(g.Addresses), g.Lease, "total")
	}
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}
