package controllers

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"sluice.dev/sluice/internal/operator/plan"
)

// The labels differ from namespace and pod, which a Prometheus sets to those of the operator.
var (
	poolDesc = prometheus.NewDesc("sluice_pool_addresses",
		"Virtual IPs of the pool of an NFSGateway: used by its exports, and all (total).", []string{"gateway_namespace", "gateway", "state"}, nil)
	exportsDesc = prometheus.NewDesc("sluice_gateway_exports",
		"NFSExports of an NFSGateway: served by its pods' configuration, and refused.", []string{"gateway_namespace", "gateway", "state"}, nil)
)

// planMetrics are metrics of the current plans. Only the leader has plans.
type planMetrics struct{ states *stateStore }

// Start implements manager.Runnable. Of several managers in one process, as tests have them, the
// first reports.
func (p planMetrics) Start(ctx context.Context) error {
	switch err := metrics.Registry.Register(p); {
	case err == nil:
		defer metrics.Registry.Unregister(p)
	case !errors.As(err, new(prometheus.AlreadyRegisteredError)):
		return err
	}
	<-ctx.Done()
	return nil
}

// Describe implements prometheus.Collector.
func (planMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- poolDesc
	ch <- exportsDesc
}

// Collect implements prometheus.Collector.
func (p planMetrics) Collect(ch chan<- prometheus.Metric) {
	p.states.eachPlan(func(x *plan.Plan) {
		gauge := func(d *prometheus.Desc, v float64, state string) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, x.Gateway.Namespace, x.Gateway.Name, state)
		}
		served := 0
		for i := range x.Exports {
			if x.Exports[i].Config != nil {
				served++
			}
		}
		gauge(exportsDesc, float64(served), "served")
		gauge(exportsDesc, float64(len(x.Exports)-served), "refused")
		if x.Pool.Size > 0 {
			gauge(poolDesc, float64(x.Pool.Used), "used")
			gauge(poolDesc, x.Pool.Size, "total")
		}
	})
}
