package controllers

import (
	"context"
	"errors"
	"maps"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// listed is a cache of NFSGateways and Services. It answers no other question.
type listed struct {
	client.Client
	gateways []v1alpha1.NFSGateway
	services []corev1.Service
	err      error // of Get
}

func (l listed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if g, ok := list.(*v1alpha1.NFSGatewayList); ok {
		g.Items = l.gateways
	}
	if s, ok := list.(*corev1.ServiceList); ok {
		s.Items = l.services
	}
	return nil
}

func (l listed) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return l.err
}

func virtual(name string) v1alpha1.NFSGateway {
	return v1alpha1.NFSGateway{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name, UID: types.UID(name)}, Spec: v1alpha1.NFSGatewaySpec{
		Exposure: v1alpha1.Exposure{Type: v1alpha1.ExposureVirtualIP, VirtualIP: &v1alpha1.VirtualIP{Pool: []string{"192.0.2.10-192.0.2.20"}, Network: "rdma-net"}},
		RDMA:     &v1alpha1.RDMA{Networks: []v1alpha1.Network{{Name: "rdma-net"}}},
	}}
}

// Two gateways of one network that are planned one right after the other give out different
// addresses.
func TestElsewhere(t *testing.T) {
	gws := []v1alpha1.NFSGateway{virtual("one"), virtual("two"), virtual("apart")}
	gws[2].Spec.RDMA.Networks[0].Name, gws[2].Spec.Exposure.VirtualIP.Network = "fabric/rdma-net", "fabric/rdma-net"
	r := &GatewayReconciler{applier: applier{Client: listed{gateways: gws}}, states: newStateStore()}
	for i := range gws[1:] {
		gw := &gws[1+i]
		x := &v1alpha1.NFSExport{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "of-" + gw.Name}}
		r.states.setGateway(client.ObjectKeyFromObject(gw), &gatewayState{plan: plan.Plan{Gateway: gw, Exports: []plan.Export{
			{Source: x, VIP: "192.0.2.1" + string(rune('0'+i))}, {Source: x},
		}}})
	}
	got, err := r.otherGatewaysAddresses(t.Context(), &gws[0])
	if want := map[string]string{"192.0.2.10": "storage/of-two"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

// An export keeps the address that it had by a gateway that is gone: it gets it back when that is
// made again.
func TestElsewhereOfDeletedGateways(t *testing.T) {
	service := func(gateway, export, address, network string) corev1.Service {
		annotations := map[string]string{plan.AnnotationAddress: address}
		if network != "" {
			annotations[plan.AnnotationNetwork] = network
		}
		return corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "sluice-" + export, Annotations: annotations, Labels: map[string]string{
			plan.LabelGateway: gateway, plan.LabelExportNamespace: "storage", plan.LabelExport: export}}}
	}
	apart := virtual("apart")
	apart.Spec.RDMA.Networks[0].Name, apart.Spec.Exposure.VirtualIP.Network = "fabric/rdma-net", "fabric/rdma-net"
	l := listed{gateways: []v1alpha1.NFSGateway{virtual("one"), virtual("two"), apart}, services: []corev1.Service{
		service("one", "own", "192.0.2.10", "storage/rdma-net"), service("two", "other", "192.0.2.11", "storage/rdma-net"),
		service("apart", "far", "192.0.2.12", "storage/rdma-net"), // which it was on before
		service("gone", "data", "192.0.2.13", "storage/rdma-net"), service("gone", "old", "192.0.2.14", ""), service("gone", "more", "192.0.2.15", "fabric/rdma-net"),
	}}
	r := &GatewayReconciler{applier: applier{Client: l}, states: newStateStore()}
	got, err := r.otherGatewaysAddresses(t.Context(), &l.gateways[0])
	if want := map[string]string{"192.0.2.11": "storage/other", "192.0.2.13": "storage/data", "192.0.2.14": "storage/old"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

func TestNetworkExists(t *testing.T) {
	kind := schema.GroupResource{Group: networkKind.Group, Resource: "network-attachment-definitions"}
	broken := errors.New("connection refused")
	for _, c := range []struct {
		err   error
		there bool
		want  error
	}{
		{nil, true, nil},
		{apierrors.NewNotFound(kind, "rdma-net"), false, nil},
		{&meta.NoKindMatchError{GroupKind: networkKind.GroupKind()}, false, nil},
		{apierrors.NewForbidden(kind, "rdma-net", errors.New("another namespace")), true, nil},
		{broken, false, broken},
	} {
		r := &GatewayReconciler{applier: applier{APIReader: listed{err: c.err}}}
		if there, err := r.networkExists(t.Context(), "fabric/rdma-net"); there != c.there || !errors.Is(err, c.want) {
			t.Errorf("%v: there is one: %v, %v", c.err, there, err)
		}
	}
}

// TestAsked: ports and addresses are reused only once the pods' listeners are known. A freshly
// started operator does not know them.
func TestAsked(t *testing.T) {
	r := &GatewayReconciler{states: newStateStore()}
	pod := podNamed("fast-0", "1")
	for _, c := range []struct {
		status corev1.PodStatus
		want   bool
	}{
		{corev1.PodStatus{Phase: corev1.PodPending}, true},
		{corev1.PodStatus{Phase: corev1.PodRunning}, true},
		{corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7"}, false},
		{corev1.PodStatus{Phase: corev1.PodFailed, PodIP: "10.1.0.7"}, true},
	} {
		pod.Status = c.status
		if got := r.allPolled([]corev1.Pod{pod}); got != c.want {
			t.Errorf("%+v: %v", c.status, got)
		}
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7"}
	r.states.setPod(client.ObjectKeyFromObject(&pod), &podStatus{gateway: gatewayOf(&pod), uid: "1", pollError: "connection refused"})
	if !r.allPolled([]corev1.Pod{pod}) {
		t.Error("a pod that does not answer was not asked")
	}
}
