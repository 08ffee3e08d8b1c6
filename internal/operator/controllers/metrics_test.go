package controllers

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// TestPlanMetrics checks the metrics of a gateway with a pool, of one without, and after their end.
func TestPlanMetrics(t *testing.T) {
	b := newStateStore()
	gateway := func(name string) (*v1alpha1.NFSGateway, types.NamespacedName) {
		return &v1alpha1.NFSGateway{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name}}, types.NamespacedName{Namespace: "storage", Name: name}
	}
	fast, fastKey := gateway("fast")
	slow, slowKey := gateway("slow")
	served := plan.Export{Config: new(config.Export)}
	b.setGateway(fastKey, &gatewayState{plan: plan.Plan{Gateway: fast, Exports: []plan.Export{served, {}, served}, Pool: plan.PoolUse{Size: 40, Used: 2}}})
	b.setGateway(slowKey, &gatewayState{plan: plan.Plan{Gateway: slow, Exports: []plan.Export{served}}})
	r := prometheus.NewRegistry()
	r.MustRegister(planMetrics{b})
	gather := func() (lines []string) {
		families, err := r.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			for _, m := range f.GetMetric() {
				lines = append(lines, f.GetName()+" "+m.String())
			}
		}
		return lines
	}
	lines := gather()
	for _, want := range []struct {
		name, gateway, state, value string
	}{
		{"sluice_gateway_exports", "fast", "served", "2"}, {"sluice_gateway_exports", "fast", "refused", "1"},
		{"sluice_gateway_exports", "slow", "served", "1"}, {"sluice_gateway_exports", "slow", "refused", "0"},
		{"sluice_pool_addresses", "fast", "used", "2"}, {"sluice_pool_addresses", "fast", "total", "40"},
	} {
		if !slices.ContainsFunc(lines, func(l string) bool {
			return strings.HasPrefix(l, want.name+" ") && strings.Contains(l, `"`+want.gateway+`"`) && strings.Contains(l, `"`+want.state+`"`) && strings.Contains(l, "value:"+want.value+"}")
		}) {
			t.Errorf("no %+v in\n%s", want, strings.Join(lines, "\n"))
		}
	}
	if len(lines) != 6 {
		t.Errorf("%d metrics, want 6: a gateway without virtual IPs has no pool", len(lines))
	}
	b.setGateway(fastKey, nil)
	b.setGateway(slowKey, nil)
	if lines := gather(); len(lines) != 0 {
		t.Errorf("after the gateways: %q", lines)
	}
}
