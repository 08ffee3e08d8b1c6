package speaker

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"sluice.dev/sluice/internal/speaker/api"
)

// TestMetrics checks the metrics of a holder with a conflict, and of a follower.
func TestMetrics(t *testing.T) {
	at := netip.MustParseAddr
	st := api.Status{
		Interface: api.Interface{Name: "rdma0", Up: true},
		Problems:  []api.Problem{{Reason: api.AddressConflict}, {Reason: api.AddressConflict}, {Reason: api.LeaseUnreachable}},
		Groups: []api.GroupStatus{
			{Lease: "a", State: "Holding", Holding: true, Addresses: []api.AddressStatus{
				{Address: at("192.0.2.1"), State: "Carried"}, {Address: at("192.0.2.2"), State: "Carried", Foreign: "02:00:00:00:00:01"}, {Address: at("192.0.2.3"), State: "Asking"},
			}},
			{Lease: "b", State: "Following", Addresses: []api.AddressStatus{{Address: at("192.0.2.4"), State: "Idle"}}},
		},
	}
	want := `
sluice_speaker_addresses{lease="a",state="carried"} 2
sluice_speaker_addresses{lease="a",state="conflict"} 1
sluice_speaker_addresses{lease="a",state="total"} 3
sluice_speaker_addresses{lease="b",state="carried"} 0
sluice_speaker_addresses{lease="b",state="conflict"} 0
sluice_speaker_addresses{lease="b",state="total"} 1
sluice_speaker_interface_up 1
sluice_speaker_lease_held{lease="a"} 1
sluice_speaker_lease_held{lease="b"} 0
sluice_speaker_lease_valid{lease="a"} 0
sluice_speaker_lease_valid{lease="b"} 0
sluice_speaker_problems{reason="AddressConflict"} 2
sluice_speaker_problems{reason="ConfigInvalid"} 0
sluice_speaker_problems{reason="DeviceAddressLimit"} 0
sluice_speaker_problems{reason="GatewayNotReady"} 0
sluice_speaker_problems{reason="InterfaceMissing"} 0
sluice_speaker_problems{reason="LeaseUnreachable"} 1
sluice_speaker_problems{reason="NetworkNotLayer2"} 0
sluice_speaker_problems{reason="NotPermitted"} 0
`
	r := prometheus.NewRegistry()
	r.MustRegister(statusCollector{func() api.Status { return st }})
	w := httptest.NewRecorder()
	promhttp.HandlerFor(r, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	var lines strings.Builder
	for line := range strings.Lines(w.Body.String()) {
		if !strings.HasPrefix(line, "#") {
			lines.WriteString(line)
		}
	}
	if lines.String() != want[1:] {
		t.Errorf("got\n%s\nwant%s", lines.String(), want)
	}
}
