//go:build verbs

package verbs

import (
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
)

// TestPath compares the queue pairs that both ends of a connection report.
func TestPath(t *testing.T) {
	if *address == "" {
		t.Skip("no -address: the test runs in the guest, by make test-verbs")
	}
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := connectPair(t, p, p, bufpool.New(0), few, false)
	defer c.end(t)
	a, b := c.ends[0].ep.Attributes().QueuePair, c.ends[1].ep.Attributes().QueuePair
	if a == nil || b == nil || a.QPN == 0 || b.QPN == 0 || a.QPN == b.QPN || a.Port != 1 || b.Port != 1 {
		t.Fatalf("the queue pairs are %+v and %+v", a, b)
	}
	if *kind == "siw" {
		if a.PathMTU != 0 || a.GID.IsValid() || a.RemoteQPN != 0 {
			t.Errorf("over iWARP: %+v", a)
		}
		return
	}
	if a.RemoteQPN != b.QPN || b.RemoteQPN != a.QPN || a.RemoteGID != b.GID || b.RemoteGID != a.GID || !a.GID.IsValid() {
		t.Errorf("the ends differ: %+v and %+v", a, b)
	}
	if a.PathMTU != b.PathMTU || a.PathMTU < 256 || a.GIDType != "RoCE v2" {
		t.Errorf("path MTU and GID type: %+v and %+v", a, b)
	}
}
