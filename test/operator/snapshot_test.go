//go:build operator

package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// snapshot renders all objects and statuses that the operator made in a namespace, without the
// parts that differ from run to run.
func snapshot(t *testing.T, namespace string) string {
	t.Helper()
	ctx, here := context.Background(), client.InNamespace(namespace)
	replace := []string{namespace, "NAMESPACE", fmt.Sprint(backend.port), "BACKENDPORT"}
	var out []string
	for _, list := range []client.ObjectList{
		&v1alpha1.NFSGatewayList{}, &v1alpha1.NFSExportList{}, &appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &corev1.ConfigMapList{},
		&corev1.ServiceList{}, &corev1.SecretList{}, &policyv1.PodDisruptionBudgetList{}, &networkingv1.NetworkPolicyList{},
	} {
		must(t, kube.List(ctx, list, here))
		must(t, meta.EachListItem(list, func(item runtime.Object) error {
			o := item.(client.Object)
			if s, ok := o.(*corev1.Service); ok {
				for _, ip := range s.Spec.ClusterIPs {
					replace = append(replace, ip, "ADDRESS")
				}
			}
			replace = append(replace, string(o.GetUID()), "UID")
			gvk, err := kube.GroupVersionKindFor(o)
			must(t, err)
			if gvk.Group != v1alpha1.GroupVersion.Group && o.GetLabels()[plan.LabelManaged] != plan.ManagedBy {
				return nil
			}
			m, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
			must(t, err)
			u := &unstructured.Unstructured{Object: m}
			u.SetGroupVersionKind(gvk)
			u.SetManagedFields(nil)
			u.SetResourceVersion("")
			u.SetGeneration(0)
			unstructured.RemoveNestedField(m, "metadata", "creationTimestamp")
			unstructured.RemoveNestedField(m, "metadata", "annotations", "sluice.dev/applied")
			if len(u.GetAnnotations()) == 0 {
				u.SetAnnotations(nil)
			}
			switch o.(type) {
			case *corev1.Secret:
				u.Object["data"] = "kept out"
			case *v1alpha1.NFSExport, *v1alpha1.NFSGateway:
				unstructured.RemoveNestedField(m, "status", "configHash") // contains a UID
				unstructured.RemoveNestedField(m, "status", "observedGeneration")
				conditions, _, _ := unstructured.NestedSlice(m, "status", "conditions")
				for _, c := range conditions {
					for _, field := range []string{"lastTransitionTime", "message", "observedGeneration"} {
						delete(c.(map[string]any), field)
					}
				}
				if conditions != nil {
					must(t, unstructured.SetNestedSlice(m, conditions, "status", "conditions"))
				}
			default:
				unstructured.RemoveNestedField(m, "status")
			}
			text, err := yaml.Marshal(u.Object)
			must(t, err)
			out = append(out, string(text))
			return nil
		}))
	}
	slices.Sort(out)
	return strings.NewReplacer(replace...).Replace(strings.Join(out, "---\n"))
}
