//go:build operator

package operator

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/api/v1alpha1"
)

// refuse makes the API server refuse objects of a resource in a namespace, until undo is called.
func refuse(t *testing.T, ns, group, version, resource string) (undo func()) {
	t.Helper()
	var made []client.Object
	for doc := range strings.SplitSeq(fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    resourceRules:
    - {apiGroups: [%[2]q], apiVersions: [%[3]s], operations: [CREATE], resources: [%[4]s]}
  validations:
  - {expression: "false", message: none of these here}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec:
  policyName: %[1]s
  validationActions: [Deny]
  matchResources: {namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[1]s}}}
`, ns, group, version, resource), "---\n") {
		u := &unstructured.Unstructured{}
		must(t, yaml.Unmarshal([]byte(doc), &u.Object))
		must(t, kube.Create(t.Context(), u))
		made = append(made, u)
	}
	undo = func() {
		for _, o := range made {
			_ = kube.Delete(context.Background(), o)
		}
	}
	t.Cleanup(undo)
	return undo
}

// TestRefusedObjects checks that a refused object shows in a condition, with the API server's
// message, and is made when it is no longer refused.
func TestRefusedObjects(t *testing.T) {
	t.Parallel()
	claim := v1alpha1.Backend{PersistentVolumeClaim: &v1alpha1.Claim{ClaimName: "disk"}}
	meta := metav1.ObjectMeta{Name: "probe"}
	for _, c := range []struct {
		group, version, resource string
		probe                    client.Object // a valid one, refused once the policy acts
		claim                    bool          // the export has a claim
		export                   string        // the reason of its Ready
		words                    string
	}{
		{"apps", "v1", "statefulsets", object("apps/v1", "StatefulSet", "", "probe"), true, v1alpha1.ReasonObjectRefused, "the API server refuses StatefulSet NAMESPACE/fast-data-"},
		{"", "v1", "configmaps", &corev1.ConfigMap{ObjectMeta: meta}, false, v1alpha1.ReasonObjectRefused, "the API server refuses ConfigMap NAMESPACE/fast-"},
		{"", "v1", "secrets", &corev1.Secret{ObjectMeta: meta}, false, v1alpha1.ReasonPodsPending, "the API server refuses Secret NAMESPACE/fast-handle-keys: "},
		{"networking.k8s.io", "v1", "networkpolicies", object("networking.k8s.io/v1", "NetworkPolicy", "", "probe"), false, v1alpha1.ReasonReady, "the API server refuses NetworkPolicy NAMESPACE/fast: "},
	} {
		t.Run(c.resource, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			ctx := t.Context()
			c.probe.SetNamespace(ns)
			if u, ok := c.probe.(*unstructured.Unstructured); ok {
				u.Object["spec"] = map[string]any{"podSelector": map[string]any{}, "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}}, "template": map[string]any{
					"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "registry.example/other:1"}}},
				}}
			}
			undo := refuse(t, ns, c.group, c.version, c.resource)
			eventually(t, "the policy acts", func() error {
				if err := kube.Create(ctx, c.probe.DeepCopyObject().(client.Object), client.DryRunAll); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
					return errors.Join(err, errors.New("what it refuses can be made"))
				}
				return nil
			})
			startNodes(t, ns)
			start(t, ns, false, nil)
			gw, x := newGateway(ns, "fast"), newExport(ns, "data", "fast")
			if c.claim {
				x.Spec.Backend = claim
				must(t, kube.Create(ctx, newClaim(ns, "disk")))
			}
			must(t, kube.Create(ctx, gw))
			must(t, kube.Create(ctx, x))
			eventually(t, "the gateway says so", condition(gw, v1alpha1.ConditionProgrammed, no, v1alpha1.ReasonObjectRefused))
			m := find(gw, v1alpha1.ConditionProgrammed).Message
			for _, want := range []string{strings.ReplaceAll(c.words, "NAMESPACE", ns), "denied request: none of these here", "(sluicectl explain ObjectRefused)"} {
				if !strings.Contains(m, want) {
					t.Errorf("message %q, want %q in it", m, want)
				}
			}
			status := no
			if c.export == v1alpha1.ReasonReady {
				status = yes
			}
			eventually(t, "the export is "+c.export, condition(x, v1alpha1.ConditionReady, status, c.export))
			undo()
			eventually(t, "the export is ready", isReady(x))
			eventually(t, "the gateway is all there", condition(gw, v1alpha1.ConditionProgrammed, yes, v1alpha1.ReasonProgrammed))
		})
	}
}
