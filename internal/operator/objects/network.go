package objects

import (
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// NetworkPolicy admits all to the ports of exports, which have access rules, and the operator and
// collectors to the admin ports. It does not depend on exports.
func NetworkPolicy(g *v1alpha1.NFSGateway, d *Defaults) *networkingv1.NetworkPolicy {
	tcp := new(corev1.ProtocolTCP)
	one := func(n int32) networkingv1.NetworkPolicyPort {
		return networkingv1.NetworkPolicyPort{Protocol: tcp, Port: new(intstr.FromInt32(n))}
	}
	exports := one(plan.FirstPort)
	exports.EndPort = new(int32(plan.LastPort))
	admin := []networkingv1.NetworkPolicyPort{one(plan.AdminPort)}
	if virtual(g) {
		admin = append(admin, one(plan.SpeakerPort))
	}
	from := []networkingv1.NetworkPolicyPeer{
		{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: d.OperatorNamespace}}, PodSelector: &metav1.LabelSelector{MatchLabels: d.OperatorLabels}},
	}
	collectors := d.CollectorLabels
	if len(collectors) == 0 {
		collectors = []map[string]string{{"app.kubernetes.io/name": "prometheus"}}
	}
	for _, l := range collectors {
		from = append(from, networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}, PodSelector: &metav1.LabelSelector{MatchLabels: l}})
	}
	return &networkingv1.NetworkPolicy{TypeMeta: typeMeta("networking.k8s.io/v1", "NetworkPolicy"), ObjectMeta: meta(g, g.Name, labels(g)), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{plan.LabelGateway: g.Name}},
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{
			{Ports: []networkingv1.NetworkPolicyPort{exports}},
			{Ports: admin, From: from},
		},
	}}
}
