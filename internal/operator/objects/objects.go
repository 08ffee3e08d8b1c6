// Package objects makes the Kubernetes objects of a plan, without I/O. Equal plans give equal
// objects, byte for byte. Each object has its kind and only the operator's fields, ready for
// server-side apply.
//
// The NFSGateway owns the objects of its pods. An NFSExport owns its Service if it is in the same
// namespace. The gateway never owns a Service: it records the export's address and ports for a
// re-created gateway. The Secret of handle keys has no owner, so that it outlives both.
package objects

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// Defaults are options of the operator.
type Defaults struct {
	// GatewayImage is for provider SoftwareIWARP, VerbsImage for Verbs. SpeakerImage, the
	// operator's own, is for exposure VirtualIP.
	GatewayImage, VerbsImage, SpeakerImage string
	// PullSecrets are names of Secrets, in each gateway's namespace, to pull images with.
	PullSecrets []string
	// OperatorNamespace and OperatorLabels select the operator's pods, which NetworkPolicies admit
	// to /status.
	OperatorNamespace string
	OperatorLabels    map[string]string
	// CollectorLabels select pods, of all namespaces, that NetworkPolicies admit to metrics. A pod
	// needs all labels of one entry. Default app.kubernetes.io/name: prometheus.
	CollectorLabels []map[string]string
	// LogFormat of the pods, text or json.
	LogFormat string
	// MonitoringLabels of ServiceMonitors and PrometheusRules.
	MonitoringLabels map[string]string
}

// Build returns the objects of a plan, without the Secret of handle keys, in the order to apply
// them.
func Build(p *plan.Plan, d *Defaults) []client.Object {
	var out []client.Object
	if virtual(p.Gateway) {
		out = append(out, ServiceAccount(p.Gateway), Role(p), RoleBinding(p.Gateway))
		for _, l := range Leases(p) {
			out = append(out, l)
		}
	}
	if p.Gateway.Spec.NetworkPolicy != v1alpha1.NetworkPolicyNone {
		out = append(out, NetworkPolicy(p.Gateway, d))
	}
	for i := range p.Workloads {
		w := &p.Workloads[i]
		config, workload := Workload(p, w, d)
		out = append(out, config, workload)
		if b := DisruptionBudget(p.Gateway, w); b != nil {
			out = append(out, b)
		}
	}
	for i := range p.Exports {
		if x := &p.Exports[i]; x.Config != nil {
			out = append(out, Service(p.Gateway, x))
		}
	}
	if m := p.Gateway.Spec.Monitoring; m.ServiceMonitor {
		out = append(out, AdminService(p.Gateway), ServiceMonitor(p.Gateway, d))
	}
	if p.Gateway.Spec.Monitoring.PrometheusRule {
		out = append(out, PrometheusRule(p.Gateway, d))
	}
	return out
}
