//go:build operator

package operator

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// TestOthers checks that a foreign object under a name that the operator would use stays as it is,
// even with one of our labels. Work continues when it is gone.
func TestOthers(t *testing.T) {
	t.Parallel()
	labels := map[string]string{"app": "other"}
	service := func(labels map[string]string) client.Object {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "sluice-data", Labels: labels},
			Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "other"}, Ports: []corev1.ServicePort{{Name: "web", Port: 80}}}}
	}
	template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/other:1"}}}}
	for _, c := range []struct {
		name   string
		other  client.Object
		kind   string // of the export's condition
		status metav1.ConditionStatus
		reason string
		words  string
	}{
		{"a Service", service(nil), v1alpha1.ConditionAccepted, no, v1alpha1.ReasonAddressTaken, "Service NAMESPACE/sluice-data exists"},
		{"a Service with one of our labels", service(map[string]string{plan.LabelManaged: plan.ManagedBy}), v1alpha1.ConditionAccepted, no, v1alpha1.ReasonAddressTaken, "Service NAMESPACE/sluice-data exists"},
		{"a Deployment", &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "fast"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(0)), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: template}},
			v1alpha1.ConditionReady, no, v1alpha1.ReasonNameTaken, "Deployment NAMESPACE/fast exists"},
		{"a NetworkPolicy", &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "fast", Labels: map[string]string{plan.LabelGateway: "fast"}}}, v1alpha1.ConditionReady, yes, v1alpha1.ReasonReady, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			ctx := t.Context()
			c.other.SetNamespace(ns)
			must(t, kube.Create(ctx, c.other))
			before := c.other.GetResourceVersion()
			startNodes(t, ns)
			start(t, ns, false, nil)
			gw, x := newGateway(ns, "fast"), newExport(ns, "data", "fast")
			must(t, kube.Create(ctx, gw))
			must(t, kube.Create(ctx, x))
			eventually(t, c.reason, condition(x, c.kind, c.status, c.reason))
			if m, want := find(x, c.kind).Message, strings.ReplaceAll(c.words, "NAMESPACE", ns); !strings.Contains(m, want) {
				t.Errorf("message %q, want %q in it", m, want)
			}
			if c.other.GetName() == gw.Name {
				eventually(t, "the gateway says so too", condition(gw, v1alpha1.ConditionProgrammed, no, v1alpha1.ReasonNameTaken))
			}
			must(t, kube.Get(ctx, client.ObjectKeyFromObject(c.other), c.other))
			if after := c.other.GetResourceVersion(); after != before {
				t.Errorf("the object was changed: %+v", c.other)
			}
			must(t, kube.Delete(ctx, c.other))
			eventually(t, "the export is ready", isReady(x))
			eventually(t, "the gateway is all there", condition(gw, v1alpha1.ConditionProgrammed, yes, v1alpha1.ReasonProgrammed))
		})
	}
}

// TestRefusedAddresses checks the conditions for an address that the API server refuses, or has
// given to another Service.
func TestRefusedAddresses(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	start(t, ns, false, nil)
	ctx := t.Context()
	must(t, kube.Create(ctx, newGateway(ns, "fast")))
	other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	must(t, kube.Create(ctx, other))
	for i, c := range []struct{ ip, reason string }{
		{other.Spec.ClusterIP, v1alpha1.ReasonAddressTaken},
		{"192.0.2.9", v1alpha1.ReasonAddressOutsidePool},
		{"10.0.0.0", v1alpha1.ReasonAddressOutsidePool},
		{"fd00::9", v1alpha1.ReasonAddressOutsidePool},
	} {
		x := newExport(ns, fmt.Sprintf("data-%d", i), "fast")
		x.Spec.Address.IP = c.ip
		must(t, kube.Create(ctx, x))
		eventually(t, c.ip, condition(x, v1alpha1.ConditionAccepted, no, c.reason))
		eventually(t, c.ip, condition(x, v1alpha1.ConditionReady, no, c.reason))
		t.Log(find(x, v1alpha1.ConditionReady).Message)
		if i > 0 {
			continue
		}
		must(t, kube.Delete(context.Background(), other))
		eventually(t, "the address is free", condition(x, v1alpha1.ConditionAccepted, yes, v1alpha1.ReasonAccepted))
	}
}

// TestReaddress checks that an export keeps its Service as long as it cannot have the address that
// it requests, wherever the operator dies meanwhile.
func TestReaddress(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	ctx := t.Context()
	svc := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sluice-data"}}
	t.Cleanup(func() { _ = kube.Delete(context.Background(), svc) }) // others may have its address
	op := start(t, ns, false, nil)
	must(t, kube.Create(ctx, newGateway(ns, "fast")))
	x := newExport(ns, "data", "fast")
	must(t, kube.Create(ctx, x))
	eventually(t, "the Service is there", func() error { return kube.Get(ctx, client.ObjectKeyFromObject(svc), svc) })
	other := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "other"}, Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}}
	must(t, kube.Create(ctx, other))

	ask := func(ip string) {
		eventually(t, "the export is changed", func() error {
			must(t, kube.Get(ctx, client.ObjectKeyFromObject(x), x))
			x.Spec.Address.IP = ip
			return kube.Update(ctx, x)
		})
	}
	for _, c := range []struct{ ip, reason string }{
		{other.Spec.ClusterIP, v1alpha1.ReasonAddressTaken},
		{"192.0.2.9", v1alpha1.ReasonAddressOutsidePool},
	} {
		ask(c.ip)
		eventually(t, c.ip, condition(x, v1alpha1.ConditionAccepted, no, c.reason))
		var now corev1.Service
		must(t, kube.Get(ctx, client.ObjectKeyFromObject(svc), &now))
		if now.UID != svc.UID || x.Status.Address != svc.Spec.ClusterIP {
			t.Errorf("%s is refused: the Service %s became %s, and status.address %q", c.ip, svc.UID, now.UID, x.Status.Address)
		}
	}
	op.stop()

	for k := range int32(6) {
		ip := fmt.Sprintf("10.0.0.%d", 210+k)
		ask(ip)
		var budget atomic.Int32
		budget.Store(k + 1)
		dying := start(t, ns, false, &budget)
		eventually(t, "the operator dies, or has no more to do", func() error {
			select {
			case <-dying.ended:
				return nil
			default:
				return condition(x, v1alpha1.ConditionAccepted, yes, v1alpha1.ReasonAccepted)()
			}
		})
		dying.stop()
		last := start(t, ns, false, nil)
		eventually(t, "the export has the address", func() error {
			if err := condition(x, v1alpha1.ConditionAccepted, yes, v1alpha1.ReasonAccepted)(); err != nil {
				return err
			}
			var all corev1.ServiceList
			must(t, kube.List(ctx, &all, client.InNamespace(ns), client.MatchingLabels{plan.LabelGateway: "fast"}))
			if len(all.Items) != 1 || all.Items[0].Spec.ClusterIP != ip || x.Status.Address != ip {
				return fmt.Errorf("%d Services, status.address %s, want %s", len(all.Items), x.Status.Address, ip)
			}
			return nil
		})
		last.stop()
	}
}

// TestClaimOfTwoGateways: a directory of a claim has one server even where two gateways could serve
// it. The younger export gets it as soon as the older one is gone.
func TestClaimOfTwoGateways(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	ctx := t.Context()
	start(t, ns, false, nil)
	must(t, kube.Create(ctx, newClaim(ns, "disk")))
	serve := func(name, gateway string) *v1alpha1.NFSExport {
		x := newExport(ns, name, gateway)
		x.Spec.Backend = v1alpha1.Backend{PersistentVolumeClaim: &v1alpha1.Claim{ClaimName: "disk"}}
		must(t, kube.Create(ctx, newGateway(ns, gateway)))
		must(t, kube.Create(ctx, x))
		return x
	}
	older := serve("a", "fast")
	eventually(t, "the first", condition(older, v1alpha1.ConditionAccepted, yes, v1alpha1.ReasonAccepted))
	younger := serve("b", "slow")
	eventually(t, "another gateway", condition(younger, v1alpha1.ConditionAccepted, no, v1alpha1.ReasonClaimInUse))
	must(t, kube.Delete(ctx, older))
	eventually(t, "when the first is gone", condition(younger, v1alpha1.ConditionAccepted, yes, v1alpha1.ReasonAccepted))
}
