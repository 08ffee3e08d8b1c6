package sluicectl

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	status "sluice.dev/sluice/api/status/v1alpha1"
)

// TestClients lists clients, and ends one.
func TestClients(t *testing.T) {
	st := status.Status{Exports: []status.Export{
		{Name: "data", Backend: status.Backend{NFS4: &status.NFS4{ClientsOmitted: 7, Clients: []status.NFS4Client{
			{ID: "5f00000001", Owner: `"host\n"`, Remote: netip.MustParseAddrPort("[::ffff:192.0.2.7]:900"), Expired: true, Opens: 3, Locks: 2, Delegations: 1},
			{ID: "5f00000002", Owner: `"other"`, Remote: netip.MustParseAddrPort("192.0.2.8:900"), Reclaiming: true, LeaseExpires: time.Now().Add(time.Hour)},
		}}}},
		{Name: "filer"},
	}}
	page := http.NewServeMux()
	page.HandleFunc("GET /status", func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(st) })
	page.HandleFunc("DELETE /exports/{export}/clients/{client}", func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("export") != "data" || r.PathValue("client") != "5f00000001" {
			http.Error(w, "no such client", http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	server := httptest.NewServer(page)
	t.Cleanup(server.Close)
	for _, c := range []struct {
		args string
		code int
		want []string // words of each line
	}{
		{"clients", 0, []string{
			"EXPORT CLIENT ADDRESS LEASE OPENS LOCKS DELEGATIONS OWNER", `data 5f00000001 192.0.2.7 expired 3 2 1 "host\n"`,
			"data 5f00000002 192.0.2.8 1h0m0s, reclaiming 0 0 0 \"other\"", "data (7 more)",
		}},
		{"clients filer", 0, []string{"EXPORT CLIENT ADDRESS LEASE OPENS LOCKS DELEGATIONS OWNER"}},
		{"clients none", 1, []string{`sluicectl: the gateway has no export "none".`}},
		{"expel data 5f00000001", 0, []string{"client 5f00000001 of export data ended"}},
		{"expel data 1", 1, []string{"sluicectl: no such client."}},
	} {
		var out bytes.Buffer
		args := append(strings.Fields(c.args), "--admin", server.Listener.Addr().String())
		if code := Run(t.Context(), "test", args, Streams{Out: &out, Err: &out}); code != c.code {
			t.Errorf("%s: exit code %d, want %d", c.args, code, c.code)
		}
		var got []string
		for line := range strings.Lines(out.String()) {
			got = append(got, strings.Join(strings.Fields(line), " "))
		}
		if strings.Join(got, "\n") != strings.Join(c.want, "\n") {
			t.Errorf("%s: %q, want %q", c.args, got, c.want)
		}
	}
}
