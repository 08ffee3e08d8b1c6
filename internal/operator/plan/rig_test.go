package plan

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"sluice.dev/sluice/api/v1alpha1"
)

// gateway is one with exposure Service.
func gateway() *v1alpha1.NFSGateway {
	return &v1alpha1.NFSGateway{
		ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "fast", UID: "gateway-uid", Generation: 3},
		Spec: v1alpha1.NFSGatewaySpec{
			Provider: v1alpha1.SoftwareIWARP,
			Exposure: v1alpha1.Exposure{Type: v1alpha1.ExposureService},
			Limits:   v1alpha1.GatewayLimits{Exports: 200, Connections: 1000, Memory: "2Gi"},
		},
	}
}

// virtualGateway is one with exposure VirtualIP and eight addresses.
func virtualGateway() *v1alpha1.NFSGateway {
	g := gateway()
	g.Spec.Exposure = v1alpha1.Exposure{Type: v1alpha1.ExposureVirtualIP, VirtualIP: &v1alpha1.VirtualIP{Pool: []string{"192.0.2.10-192.0.2.17"}, Network: "rdma-net"}}
	g.Spec.RDMA = &v1alpha1.RDMA{Networks: []v1alpha1.Network{{Name: "rdma-net", Interface: "rdma0"}}}
	return g
}

// export is one of an NFS server; the higher its age, the older it is.
func export(namespace, name string, age int) v1alpha1.NFSExport {
	return v1alpha1.NFSExport{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: name, UID: types.UID(namespace + "-" + name + "-uid"), Generation: 7,
			CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000-int64(age), 0)),
		},
		Spec: v1alpha1.NFSExportSpec{
			GatewayRef: v1alpha1.GatewayReference{Name: "fast", Namespace: "storage"},
			Backend:    v1alpha1.Backend{NFS: &v1alpha1.NFSServer{Server: "filer.example", Port: 2049, Path: "/vol/" + name}},
			Access:     []v1alpha1.AccessRule{{From: v1alpha1.AccessFrom{Networks: []string{"10.0.0.0/8"}}, Mode: "ReadWrite"}},
			Address:    v1alpha1.Address{RDMAPort: 20049, TCPPort: 2049},
		},
	}
}

func claimExport(name, claim, subPath string, age int) v1alpha1.NFSExport {
	e := export("storage", name, age)
	e.Spec.Backend = v1alpha1.Backend{PersistentVolumeClaim: &v1alpha1.Claim{ClaimName: claim, SubPath: subPath}}
	return e
}

func claim(name string, phase corev1.PersistentVolumeClaimPhase) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name}, Status: corev1.PersistentVolumeClaimStatus{Phase: phase}}
}

// service is the record of an export: the first of its target ports, and its address with exposure
// VirtualIP.
func service(e *v1alpha1.NFSExport, first int32, vip string) corev1.Service {
	s := corev1.Service{ObjectMeta: metav1.ObjectMeta{
		Namespace: "storage", Name: ServiceName(gateway(), e),
		Labels: map[string]string{LabelExportNamespace: e.Namespace, LabelExport: e.Name},
	}}
	s.Spec.Ports = []corev1.ServicePort{{Name: PortTCP, TargetPort: intstr.FromInt32(first + 1)}}
	if vip == "" {
		s.Spec.ClusterIP = fmt.Sprintf("10.96.0.%d", first%200)
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: PortRDMA, TargetPort: intstr.FromInt32(first)})
	} else {
		s.Annotations = map[string]string{AnnotationAddress: vip}
	}
	return s
}

func node(name, role string, addresses ...corev1.NodeAddress) corev1.Node {
	return corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"role": role}}, Status: corev1.NodeStatus{Addresses: addresses}}
}
