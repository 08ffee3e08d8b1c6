//go:build operator

package chart

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/operator/uninstall"
)

func export(namespace string) *v1alpha1.NFSExport {
	return &v1alpha1.NFSExport{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: namespace}, Spec: v1alpha1.NFSExportSpec{
		GatewayRef: v1alpha1.GatewayReference{Name: "gateway"},
		Backend:    v1alpha1.Backend{NFS: &v1alpha1.NFSServer{Server: "filer.example", Path: "/vol"}},
		Access:     []v1alpha1.AccessRule{{From: v1alpha1.AccessFrom{Networks: []string{"10.0.0.0/8"}}}},
	}}
}

func create(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := kube.Create(context.Background(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := client.IgnoreNotFound(kube.Delete(context.Background(), o)); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUninstallIsRefused(t *testing.T) {
	ctx := context.Background()
	o := uninstall.Options{Release: release, Poll: time.Millisecond}
	if err := uninstall.Run(ctx, kube, o, &bytes.Buffer{}); err != nil {
		t.Errorf("without exports: %v", err)
	}
	create(t, export("team-a"))
	o.Operator = client.ObjectKey{Namespace: "team-b", Name: "sluice-operator"}
	err := uninstall.Run(ctx, kube, o, &bytes.Buffer{})
	for _, want := range []string{"one NFSExport is served: team-a/data", "kubectl annotate deployment sluice-operator --namespace team-b sluice.dev/uninstall=force", "helm uninstall sluice --no-hooks"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with an export: have %v, want %q in it", err, want)
		}
	}
	o.Namespaces = []string{"team-b"}
	if err := uninstall.Run(ctx, kube, o, &bytes.Buffer{}); err != nil {
		t.Errorf("with an export in another namespace: %v", err)
	}
}

// TestUninstallIsForced plays the operator's part: exports go first, then the Service that it made,
// then the gateway.
func TestUninstallIsForced(t *testing.T) {
	ctx := context.Background()
	e, g := export("team-a"), &v1alpha1.NFSGateway{ObjectMeta: metav1.ObjectMeta{Name: "gateway", Namespace: "team-a"}}
	service := func(name string, labels map[string]string) *corev1.Service {
		labels[plan.LabelManaged] = plan.ManagedBy
		return &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "team-a", Labels: labels},
			Spec:       corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 2049}}},
		}
	}
	s := service("data", map[string]string{plan.LabelExport: "data"})
	// the latter goes with the gateway
	create(t, e, g, s, service("gateway-admin", map[string]string{plan.LabelGateway: "gateway"}))
	exists := func(o client.Object) bool {
		err := kube.Get(ctx, client.ObjectKeyFromObject(o), o)
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
		return err == nil
	}
	labels := map[string]string{"app": "operator"}
	operator := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "operator", Namespace: "team-a", Annotations: map[string]string{uninstall.AnnotationForce: "force"}},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Replicas: new(int32),
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "operator", Image: "operator"}}}},
		},
	}
	create(t, operator)
	o := uninstall.Options{Release: release, Poll: time.Millisecond, Operator: client.ObjectKeyFromObject(operator)}

	var out bytes.Buffer
	late, cancel := context.WithCancelCause(ctx)
	cancelled := &canceller{Client: kube, after: 3, cancel: func() { cancel(errors.New("waited long enough")) }}
	err := uninstall.Run(late, cancelled, o, &out)
	for _, want := range []string{"Services of exports", "team-a/data", "waited long enough"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("with a Service left: have %v, want %q in it", err, want)
		}
	}
	if exists(e) || !exists(g) {
		t.Errorf("want the export gone and the gateway left; export %t, gateway %t", exists(e), exists(g))
	}

	if err := kube.Delete(ctx, s); err != nil {
		t.Fatal(err)
	}
	if err := uninstall.Run(ctx, kube, o, &out); err != nil {
		t.Error(err)
	}
	if exists(g) {
		t.Error("the gateway is left")
	}
}

// canceller cancels after a number of lists of Services.
type canceller struct {
	client.Client
	after  int
	cancel func()
}

func (c *canceller) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	if _, ok := list.(*corev1.ServiceList); ok {
		if c.after--; c.after == 0 {
			defer c.cancel()
		}
	}
	return c.Client.List(ctx, list, opts...)
}
