package controllers

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
)

// builtinKinds returns list types of the pruned kinds. Secrets are not pruned: without its key, a
// signed handle is lost.
func builtinKinds() []client.ObjectList {
	return []client.ObjectList{
		&appsv1.DeploymentList{}, &appsv1.StatefulSetList{}, &corev1.ConfigMapList{}, &corev1.ServiceList{}, &policyv1.PodDisruptionBudgetList{},
		&networkingv1.NetworkPolicyList{}, &corev1.ServiceAccountList{}, &rbacv1.RoleList{}, &rbacv1.RoleBindingList{}, &coordinationv1.LeaseList{},
	}
}

// optionalKinds are kinds of CRDs that may be missing. Each reconciliation that wants one looks for
// it.
var optionalKinds = []schema.GroupVersionKind{
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "ServiceMonitor"},
	{Group: "monitoring.coreos.com", Version: "v1", Kind: "PrometheusRule"},
}

// missesKind reports whether a gateway wants an optional kind that the cluster lacks.
func (r *GatewayReconciler) missesKind(gw *v1alpha1.NFSGateway) (bool, error) {
	want := map[string]bool{"ServiceMonitor": gw.Spec.Monitoring.ServiceMonitor, "PrometheusRule": gw.Spec.Monitoring.PrometheusRule}
	lacking := false
	for _, k := range optionalKinds {
		if !want[k.Kind] {
			continue
		}
		there, err := r.hasKind(k)
		if err != nil {
			return false, err
		}
		lacking = lacking || !there
	}
	return lacking, nil
}

// hasKind reports whether the cluster has an optional kind. On the first success it starts to watch
// and prune it.
func (r *GatewayReconciler) hasKind(k schema.GroupVersionKind) (bool, error) {
	list, item := &metav1.PartialObjectMetadataList{}, &metav1.PartialObjectMetadata{}
	list.SetGroupVersionKind(k.GroupVersion().WithKind(k.Kind + "List"))
	item.SetGroupVersionKind(k)
	r.kindsMu.Lock()
	defer r.kindsMu.Unlock()
	if slices.ContainsFunc(r.presentKinds, func(l client.ObjectList) bool { return l.GetObjectKind().GroupVersionKind() == list.GroupVersionKind() }) {
		return true, nil
	}
	if _, err := r.RESTMapper().RESTMapping(k.GroupKind(), k.Version); err != nil {
		if meta.IsNoMatchError(err) {
			return false, nil
		}
		return false, err
	}
	if err := r.watchKind(item); err != nil {
		return false, err
	}
	r.presentKinds = append(r.presentKinds, list)
	return true, nil
}

// managedKinds returns list types of all pruned kinds.
func (r *GatewayReconciler) managedKinds() []client.ObjectList {
	r.kindsMu.Lock()
	defer r.kindsMu.Unlock()
	return append(builtinKinds(), r.presentKinds...)
}
