package objects

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

func adminName(g *v1alpha1.NFSGateway) string { return g.Name + "-admin" }

// AdminService returns a Service with the admin ports of a gateway's pods, for the ServiceMonitor.
func AdminService(g *v1alpha1.NFSGateway) *corev1.Service {
	s := &corev1.Service{TypeMeta: typeMeta("v1", "Service"), ObjectMeta: meta(g, adminName(g), labels(g))}
	s.Spec = corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, ClusterIP: corev1.ClusterIPNone, PublishNotReadyAddresses: true,
		Selector: map[string]string{plan.LabelGateway: g.Name},
		Ports:    []corev1.ServicePort{{Name: plan.PortAdmin, Port: plan.AdminPort, TargetPort: intstr.FromString(plan.PortAdmin), Protocol: corev1.ProtocolTCP}},
	}
	if virtual(g) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: SpeakerContainer, Port: plan.SpeakerPort, TargetPort: intstr.FromString(SpeakerContainer), Protocol: corev1.ProtocolTCP})
	}
	return s
}

// ServiceMonitor returns a ServiceMonitor of the metrics of the pods' gateways and speakers.
func ServiceMonitor(g *v1alpha1.NFSGateway, d *Defaults) *unstructured.Unstructured {
	endpoints := []any{map[string]any{"port": plan.PortAdmin, "path": "/metrics", "interval": "30s"}}
	if virtual(g) {
		endpoints = append(endpoints, map[string]any{"port": SpeakerContainer, "path": "/metrics", "interval": "30s"})
	}
	return monitoring(g, d, "ServiceMonitor", map[string]any{
		"selector":  map[string]any{"matchLabels": map[string]any{plan.LabelGateway: g.Name}},
		"endpoints": endpoints,
	})
}

// PrometheusRule returns the alerts of a gateway.
func PrometheusRule(g *v1alpha1.NFSGateway, d *Defaults) *unstructured.Unstructured {
	of := fmt.Sprintf(`{namespace=%q,service=%q}`, g.Namespace, adminName(g))
	alert := func(name, expr, wait, severity, summary string) any {
		return map[string]any{
			"alert": name, "expr": expr, "for": wait,
			"labels":      map[string]any{"severity": severity},
			"annotations": map[string]any{"summary": summary},
		}
	}
	rules := []any{
		alert("SluiceExportNotServed", fmt.Sprintf(`sluice_export_state{namespace=%q,service=%q,state=~"Refused|Outdated"} == 1`, g.Namespace, adminName(g)), "5m", "warning",
			"Pod {{ $labels.pod }} does not serve export {{ $labels.export }} as configured ({{ $labels.state }})."),
		alert("SluiceBackendUnreachable", "sluice_backend_healthy"+of+" == 0", "5m", "critical",
			"The backend of export {{ $labels.export }} does not answer pod {{ $labels.pod }}."),
		alert("SluiceListenerDown", "sluice_listener_up"+of+" == 0", "5m", "warning",
			"Pod {{ $labels.pod }} cannot listen on {{ $labels.network }} {{ $labels.address }} for export {{ $labels.export }}."),
		alert("SluicePodConfigRefused", "sluice_config_error"+of+" == 1", "5m", "warning",
			"Pod {{ $labels.pod }} cannot use its configuration file and keeps the previous configuration."),
		alert("SluicePodDown", "up"+of+" == 0", "5m", "warning", "Prometheus cannot scrape pod {{ $labels.pod }}, endpoint {{ $labels.endpoint }}."),
	}
	if virtual(g) {
		rules = append(rules,
			alert("SluiceVirtualIPsNotCarried", fmt.Sprintf(`max by (lease) (sluice_speaker_lease_held%[1]s) == 0 and on (lease) max by (lease) (sluice_speaker_addresses{namespace=%[2]q,service=%[3]q,state="total"}) > 0`,
				of, g.Namespace, adminName(g)), "1m", "critical",
				"No pod carries the virtual IPs of Lease {{ $labels.lease }}: clients of these addresses wait."),
			alert("SluiceLeaseExpired", "sluice_speaker_lease_held"+of+" == 1 and sluice_speaker_lease_valid"+of+" == 0", "1m", "warning",
				"Pod {{ $labels.pod }} carries the virtual IPs of Lease {{ $labels.lease }}, but cannot renew the Lease."),
			alert("SluiceVirtualIPConflict", fmt.Sprintf(`sluice_speaker_problems{namespace=%q,service=%q,reason="AddressConflict"} > 0`, g.Namespace, adminName(g)), "1m", "critical",
				"Another host answers for a virtual IP of pod {{ $labels.pod }}."),
			alert("SluiceSpeakerProblem", fmt.Sprintf(`sluice_speaker_problems{namespace=%q,service=%q,reason!~"AddressConflict|GatewayNotReady"} > 0`, g.Namespace, adminName(g)), "5m", "warning",
				"The speaker of pod {{ $labels.pod }} has a problem: {{ $labels.reason }}. Its /status has details."),
			alert("SluicePoolAlmostUsed", poolUse(g)+" > 0.9", "5m", "warning",
				"More than 90 % of the virtual IPs of NFSGateway "+g.Name+" are in use."),
		)
	}
	return monitoring(g, d, "PrometheusRule", map[string]any{"groups": []any{map[string]any{"name": "sluice-" + g.Namespace + "-" + g.Name, "rules": rules}}})
}

// poolUse returns the used part of a gateway's pool, by the operator's metrics.
func poolUse(g *v1alpha1.NFSGateway) string {
	of := func(state string) string {
		return fmt.Sprintf(`max by (gateway_namespace, gateway) (sluice_pool_addresses{gateway_namespace=%q,gateway=%q,state=%q})`, g.Namespace, g.Name, state)
	}
	return of("used") + " / " + of("total")
}

// monitoring returns an object of the Prometheus operator, with the labels that a Prometheus
// selects.
func monitoring(g *v1alpha1.NFSGateway, d *Defaults, kind string, spec map[string]any) *unstructured.Unstructured {
	all := map[string]string{}
	maps.Copy(all, d.MonitoringLabels)
	maps.Copy(all, g.Spec.Monitoring.Labels)
	maps.Copy(all, labels(g))
	u := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "monitoring.coreos.com/v1", "kind": kind, "spec": spec}}
	u.SetName(g.Name)
	u.SetNamespace(g.Namespace)
	u.SetLabels(all)
	u.SetOwnerReferences(meta(g, g.Name, nil).OwnerReferences)
	return u
}
