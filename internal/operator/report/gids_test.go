package report

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/speaker/api"
)

// A gateway that may accept more exports than the smallest table of GIDs has room for says so,
// before a failover shows it.
func TestCrowded(t *testing.T) {
	own := []string{"fe80::1", "fe80::1", "192.0.2.100", "192.0.2.100"} // of RoCE v1 and v2
	carrying := append(slices.Clone(own), vip, vip)
	for _, c := range []struct {
		name   string
		limit  int32
		tables [2]int // of the pods' devices
		want   string
	}{
		{"large tables", 100, [2]int{256, 256}, "1 export served"},
		{"just as many", 126, [2]int{256, 256}, "1 export served"},
		{"one more", 127, [2]int{256, 256}, "1 export served; spec.limits.exports is 127, but the GID table of mlx5_4 in pod fast-0 has room for 126 virtual IPs, and "},
		{"the smallest counts", 200, [2]int{256, 16}, "1 export served; spec.limits.exports is 200, but the GID table of mlx5_4 in pod fast-1 has room for 6 virtual IPs, and "},
		{"an older gateway", 200, [2]int{0, 0}, "1 export served"},
	} {
		w := newEnv(true, func(g *v1alpha1.NFSGateway, _ *v1alpha1.NFSExport) { g.Spec.Limits.Exports = c.limit })
		for i, table := range c.tables {
			gids := own
			if i == 0 {
				gids = carrying
			}
			w.at(i).Listeners[0].Device = &status.Device{Name: "mlx5_4", Transport: "RoCE", Ports: []status.Port{{Number: 1, State: "ACTIVE", GIDs: gids, GIDTable: table}}}
		}
		w.seen.Pods[0].Speaker = &api.Status{Groups: []api.GroupStatus{{Holding: true, Addresses: []api.AddressStatus{{Address: netip.MustParseAddr(vip), State: "Carried"}}}}}
		w.seen.Pods[1].Speaker = &api.Status{}
		s := Gateway(&w.plan, &w.seen)
		got := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionRDMAReady)
		if got == nil || got.Status != "True" || !strings.HasPrefix(got.Message, c.want) || !strings.Contains(c.want, ";") && got.Message != c.want {
			t.Errorf("%s: %+v, want %q", c.name, got, c.want)
		}
	}
}
