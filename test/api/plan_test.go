//go:build operator

package api

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// TestWhatIsAcceptedIsServed checks that the gateway's configuration accepts all that the schema
// accepts: no export of testdata/objects, and no accepting case of testdata/rules.yaml, is Invalid,
// for any gateway there.
func TestWhatIsAcceptedIsServed(t *testing.T) {
	served := 0
	try := func(name string, u *unstructured.Unstructured) {
		t.Run(name, func(t *testing.T) {
			u = u.DeepCopy()
			if err := kube.Create(context.Background(), u, client.DryRunAll); err != nil {
				t.Fatal(err)
			}
			// The server's reply has its defaults.
			in := plan.Input{Gateway: &v1alpha1.NFSGateway{ObjectMeta: metav1.ObjectMeta{Name: "fast", Namespace: u.GetNamespace()}}}
			switch u.GetKind() {
			case "NFSExport":
				var e v1alpha1.NFSExport
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &e); err != nil {
					t.Fatal(err)
				}
				in.Exports = []v1alpha1.NFSExport{e}
				if c := e.Spec.Backend.PersistentVolumeClaim; c != nil {
					in.Claims = map[string]*corev1.PersistentVolumeClaim{c.ClaimName: {ObjectMeta: metav1.ObjectMeta{Name: c.ClaimName, Namespace: u.GetNamespace()}}}
				}
			case "NFSGateway":
				in.Gateway = &v1alpha1.NFSGateway{}
				if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, in.Gateway); err != nil {
					t.Fatal(err)
				}
			}
			p := plan.Make(in)
			conditions := p.Conditions
			if len(p.Exports) > 0 {
				conditions = p.Exports[0].Conditions
			}
			for _, c := range conditions {
				if c.Reason == v1alpha1.ReasonInvalid || c.Reason == v1alpha1.ReasonPoolInvalid {
					t.Errorf("%s: %s", c.Reason, c.Message)
				}
			}
			if len(conditions) == 0 {
				t.Error("no conditions")
			}
			if len(p.Exports) > 0 && p.Exports[0].Config != nil {
				served++
			}
		})
	}
	for _, name := range objects(t) {
		try(name, object(t, name))
	}
	for _, r := range rules(t) {
		u := merged(t, object(t, r.Object), r.From)
		for _, patch := range r.Accept {
			try(r.At, merged(t, u, patch))
		}
	}
	if served < 20 {
		t.Errorf("only %d exports were served", served)
	}
}
