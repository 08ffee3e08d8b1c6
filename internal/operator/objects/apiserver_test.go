//go:build operator

package objects

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/test/apiserver"
)

// TestAnAPIServerTakesThem applies the objects of each scenario to a real kube-apiserver, which
// validates them; applying them again changes nothing. PodSecurity "restricted" admits pods of the
// shared workload on software iWARP, and refuses those of a claim.
func TestAnAPIServerTakesThem(t *testing.T) {
	cfg, stop, err := apiserver.Start("service-cluster-ip-range=10.96.0.0/16,fd00:10:96::/112")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = stop() })
	c, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, in := range scenarios(t) {
		name := strings.TrimSuffix(strings.TrimPrefix(in, "testdata/"), ".in.yaml")
		ns := "objects-" + name
		if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}); err != nil {
			t.Fatal(err)
		}
		p := read(t, in)
		for i := range p.Exports {
			if x := p.Exports[i].Source; x.Namespace == p.Gateway.Namespace {
				x.Namespace = ns
			}
		}
		p.Gateway.Namespace = ns
		for _, again := range []bool{false, true} {
			for _, o := range Build(p, &defaults) {
				content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
				if err != nil {
					t.Fatal(err)
				}
				delete(content, "status")
				u := &unstructured.Unstructured{Object: content}
				var before unstructured.Unstructured
				before.SetGroupVersionKind(u.GroupVersionKind())
				err = c.Get(t.Context(), client.ObjectKeyFromObject(u), &before)
				if apimeta.IsNoMatchError(err) && strings.HasPrefix(u.GetAPIVersion(), "monitoring.coreos.com/") {
					continue // kinds of the Prometheus operator, which is not there
				}
				if apierrors.IsNotFound(err) == again {
					t.Fatalf("%s: %s %s: applied %v, but %v", name, u.GetKind(), u.GetName(), again, err)
				}
				if err := c.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("test"), client.ForceOwnership); err != nil {
					t.Errorf("%s: %s %s: %v", name, u.GetKind(), u.GetName(), err)
				} else if again && u.GetResourceVersion() != before.GetResourceVersion() {
					t.Errorf("%s: %s %s changes when it is applied again", name, u.GetKind(), u.GetName())
				}
			}
		}
		if name != "service" && name != "claim" {
			continue
		}
		for i := range p.Workloads {
			w := &p.Workloads[i]
			template := template(t, workloadOf(p, w, &defaults))
			err := c.Create(t.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: w.Name, Labels: template.Labels}, Spec: template.Spec})
			if w.Claim == nil && err != nil || w.Claim != nil && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), `violates PodSecurity "restricted:latest"`)) {
				t.Errorf("%s: a pod of %s: %v", name, w.Name, err)
			}
		}
	}
}
