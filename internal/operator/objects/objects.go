// Package objects makes the Kubernetes objects of a plan, without I/O: the same plan gives the same objects, byte for byte. Each has its kind filled in, and
// only the fields that are ours, so that it can be applied on the server's side as it is.
//
// Objects of a gateway's pods are owned by the NFSGateway. A Service is owned by its NFSExport, if that lies in the same namespace, and never by the
// gateway: it is the record of the export's address and ports, which a gateway that is made again gives back. The Secret of handle keys has no owner: it
// outlives both.
package objects

import (
	"cmp"
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
		out = append(out, ConfigMap(p, w, d), Workload(p, w, d))
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

func virtual(g *v1alpha1.NFSGateway) bool {
	return g.Spec.Exposure.Type == v1alpha1.ExposureVirtualIP
}

// labels are those of everything that is made for a gateway.
func labels(g *v1alpha1.NFSGateway) map[string]string {
	return map[string]string{plan.LabelManaged: plan.ManagedBy, "app.kubernetes.io/name": "sluice", "app.kubernetes.io/component": "gateway", plan.LabelGateway: g.Name}
}

// workloadLabels are those of what is made for one workload.
func workloadLabels(g *v1alpha1.NFSGateway, w *plan.Workload) map[string]string {
	l := labels(g)
	l[plan.LabelWorkload] = w.Name
	if w.Export != nil {
		maps.Copy(l, exportLabels(w.Export))
	}
	return l
}

func exportLabels(e *v1alpha1.NFSExport) map[string]string {
	return map[string]string{plan.LabelExportNamespace: e.Namespace, plan.LabelExport: e.Name}
}

// podsOf selects a workload's pods.
func podsOf(g *v1alpha1.NFSGateway, workload string) map[string]string {
	return map[string]string{plan.LabelGateway: g.Name, plan.LabelWorkload: workload}
}

// meta is that of an object of the gateway.
func meta(g *v1alpha1.NFSGateway, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: g.Namespace, Labels: labels, OwnerReferences: []metav1.OwnerReference{owner(g, "NFSGateway")}}
}

// owner refers to an object of ours. Its deletion does not wait for what it owns, which needs no right to its finalizers either.
func owner(o metav1.Object, kind string) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes}
}

func typeMeta(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

// images are the gateway's and the speaker's.
func images(g *v1alpha1.NFSGateway, d *Defaults) (gateway, speaker string) {
	gateway = d.GatewayImage
	if g.Spec.Provider == v1alpha1.Verbs {
		gateway = d.VerbsImage
	}
	if t := g.Spec.PodTemplate; t != nil {
		gateway = cmp.Or(t.Image, gateway)
	}
	return gateway, d.SpeakerImage
}
