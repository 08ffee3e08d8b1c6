package objects

import (
	"cmp"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// LoadBalancerClass of Services with exposure VirtualIP. The operator writes their ingress, so no
// load balancer must.
const LoadBalancerClass = "sluice.dev/virtual-ip"

// Service returns the Service of a served export.
func Service(g *v1alpha1.NFSGateway, x *plan.Export) *corev1.Service {
	l := labels(g)
	maps.Copy(l, exportLabels(x.Source))
	s := &corev1.Service{TypeMeta: typeMeta("v1", "Service"), ObjectMeta: metav1.ObjectMeta{Name: x.Service, Namespace: g.Namespace, Labels: l}}
	if x.Source.Namespace == g.Namespace {
		s.OwnerReferences = []metav1.OwnerReference{owner(x.Source, "NFSExport")}
	}
	s.Spec.Selector = podsOf(g, x.Workload)
	address := &x.Source.Spec.Address
	tcp := port(plan.PortTCP, cmp.Or(address.TCPPort, 2049), x.TCPTarget)
	if virtual(g) {
		// RDMA bypasses the Service. Its ports are for TCP by the ClusterIP.
		s.Annotations = map[string]string{plan.AnnotationAddress: x.VIP, plan.AnnotationNetwork: plan.VirtualNetwork(g)}
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.LoadBalancerClass = new(LoadBalancerClass)
		s.Spec.AllocateLoadBalancerNodePorts = new(false)
		s.Spec.Ports = []corev1.ServicePort{tcp}
		return s
	}
	t := &g.Spec.Exposure.Service
	s.Annotations = maps.Clone(t.Annotations)
	s.Spec.Type = cmp.Or(t.Type, corev1.ServiceTypeClusterIP)
	s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = t.IPFamilyPolicy, t.IPFamilies
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		s.Spec.LoadBalancerClass, s.Spec.LoadBalancerIP = t.LoadBalancerClass, address.IP
		s.Spec.ExternalTrafficPolicy = cmp.Or(deref(t.ExternalTrafficPolicy), corev1.ServiceExternalTrafficPolicyCluster)
	} else {
		s.Spec.ClusterIP = address.IP
	}
	s.Spec.Ports = []corev1.ServicePort{port(plan.PortRDMA, cmp.Or(address.RDMAPort, 20049), x.RDMATarget), tcp}
	return s
}

// PlaceholderPrefix begins the names of placeholders.
const PlaceholderPrefix = "sluice-address-"

// Placeholder returns a Service that reserves the address of s while its predecessor still exists.
// It has no label of an export, so a leftover is pruned.
func Placeholder(s *corev1.Service) *corev1.Service {
	l := maps.Clone(s.Labels)
	delete(l, plan.LabelExportNamespace)
	delete(l, plan.LabelExport)
	return &corev1.Service{
		TypeMeta:   s.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{GenerateName: PlaceholderPrefix, Namespace: s.Namespace, Labels: l, OwnerReferences: s.OwnerReferences},
		Spec:       corev1.ServiceSpec{ClusterIP: s.Spec.ClusterIP, IPFamilyPolicy: s.Spec.IPFamilyPolicy, IPFamilies: s.Spec.IPFamilies, Ports: s.Spec.Ports},
	}
}

func port(name string, port, target int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Port: port, TargetPort: intstr.FromInt32(target), Protocol: corev1.ProtocolTCP}
}

func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Ingress returns the load balancer status of a Service with exposure VirtualIP. A pod carries the
// address, so kube-proxy and network plugins must not capture it.
func Ingress(vip string) []corev1.LoadBalancerIngress {
	return []corev1.LoadBalancerIngress{{IP: vip, IPMode: new(corev1.LoadBalancerIPModeProxy)}}
}
