package gateway

import (
	"io"
	"net/http"
	"strings"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/oncrpc"
)

// TestNFS4Clients checks the clients of version 4 in /status, their metrics, and their end by the
// admin page.
func TestNFS4Clients(t *testing.T) {
	r := newEnv(t)
	r.start(r.yaml(exportYAML{name: "data"}))
	pool := bufpool.New(0)
	conn, err := oncrpc.Dial(t.Context(), r.address("data", config.TCP), oncrpc.Config{Pool: pool, Bindings: binding.For})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(); conn.Wait() })
	caller := &nfs4test.Caller{Requester: conn, Pool: pool}
	if _, err := nfs4test.NewSession(t.Context(), caller, 2, "a \x00 client", 2, 0, 0); err != nil {
		t.Fatal(err)
	}
	n := r.export("data").Backend.NFS4
	if n == nil || len(n.Clients) != 1 {
		t.Fatalf("state %+v: want one client", n)
	}
	if c := n.Clients[0]; c.Owner != `"a \x00 client"` || c.Sessions != 1 || !c.Reclaiming || c.Expired || !c.Remote.Addr().IsLoopback() || n.Grace {
		t.Errorf("%+v", c)
	}
	if o := n.Operations; len(o) != 2 || o[1].Operation != "CREATE_SESSION" || o[1].Calls != 1 || o[1].Errors != 0 || o[1].Seconds <= 0 {
		t.Errorf("operations %+v", o)
	}
	_, body := r.get("/metrics")
	for _, line := range []string{
		`sluice_nfs4_clients{export="data",state="active"} 1`, `sluice_nfs4_clients{export="data",state="limit"} 1024`,
		`sluice_nfs4_sessions{export="data"} 1`, `sluice_nfs4_grace{export="data"} 0`, `sluice_nfs4_opens{export="data",state="held"} 0`,
		`sluice_nfs4_operations_total{export="data",operation="CREATE_SESSION",result="ok"} 1`,
		`sluice_nfs4_operation_duration_seconds_count{export="data",operation="CREATE_SESSION"} 1`,
		`sluice_nfs4_operation_duration_seconds_bucket{export="data",operation="CREATE_SESSION",le="+Inf"} 1`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("/metrics lacks %s", line)
		}
	}
	for _, c := range []struct {
		export, client string
		status         int
		answer         string
	}{
		{"other", n.Clients[0].ID, http.StatusNotFound, `there is no export "other"`},
		{"data", "12345", http.StatusNotFound, `export "data" has no NFSv4 client "12345": /status lists them`},
		{"data", "x", http.StatusNotFound, `export "data" has no NFSv4 client "x": /status lists them`},
		{"data", n.Clients[0].ID, http.StatusNoContent, ""},
		{"data", n.Clients[0].ID, http.StatusNotFound, "has no NFSv4 client"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodDelete, "http://"+r.g.Admin()+"/exports/"+c.export+"/clients/"+c.client, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != c.status || !strings.Contains(string(body), c.answer) {
			t.Errorf("%s %s: %s %s (%v), want %d %s", c.export, c.client, res.Status, body, err, c.status, c.answer)
		}
	}
	if n := r.export("data").Backend.NFS4; len(n.Clients) != 0 {
		t.Errorf("%+v after its end", n.Clients)
	}
}
