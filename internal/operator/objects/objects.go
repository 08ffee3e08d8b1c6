// Package objects makes the Kubernetes objects of a plan, without I/O: the same plan gives the same objects, byte for byte. Each has its kind filled in, and
// only the fields that are ours, so that it can be applied on the server's side as it is.
//
// Objects of a gateway's pods are owned by the NFSGateway. A Service is owned by its NFSExport, if that lies in the same namespace, and never by the
// gateway: it is the record of the export's address and ports, which a gateway that is made again gives back. The Secret of handle keys has no owner: it
// outlives both.
package objects

import (
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// Defaults are what the operator was installed with.
type Defaults struct {
	// GatewayImage is for provider SoftwareIWARP, VerbsImage for Verbs, and SpeakerImage, which is the operator's, for exposure VirtualIP.
	GatewayImage, VerbsImage, SpeakerImage string
	// OperatorNamespace and OperatorLabels pick the operator's pods, which NetworkPolicies let reach the pods' /status.
	OperatorNamespace string
	OperatorLabels    map[string]string
	// CollectorLabels pick the pods, of any namespace, that NetworkPolicies let collect metrics: those with all labels of one of the entries. Empty:
	// app.kubernetes.io/name: prometheus.
	CollectorLabels []map[string]string
	// MonitoringLabels are added to ServiceMonitors and PrometheusRules.
	MonitoringLabels map[string]string
}

// Build returns all objects of a plan but the Secret of handle keys, in the order in which they are to be applied: what others refer to comes first.
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
