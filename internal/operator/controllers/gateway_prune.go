package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/objects"
	"sluice.dev/sluice/internal/operator/plan"
)

// pruneAll deletes the objects of a deleted gateway, except orphaned ones. Services of exports have
// no owner reference to the gateway, so the garbage collector leaves them.
func (r *GatewayReconciler) pruneAll(ctx context.Context, gw types.NamespacedName) error {
	return r.prune(ctx, gw, nil, nil, false)
}

// prune deletes the objects of a gateway that are not wanted. It keeps a ConfigMap that a pod
// reads, and a Service whose export a pod serves. exists is false for a deleted gateway: then it
// keeps Services of existing exports.
func (r *GatewayReconciler) prune(ctx context.Context, gw types.NamespacedName, wanted map[objectKey]bool, pods []corev1.Pod, exists bool) error {
	read := map[string]bool{}
	for i := range pods {
		if p := pods[i].Status.Phase; p != corev1.PodFailed && p != corev1.PodSucceeded {
			read[configMapOf(&pods[i])] = true
		}
	}
	var errs []error
	for _, list := range r.managedKinds() {
		list := list.DeepCopyObject().(client.ObjectList)
		if err := r.List(ctx, list, client.InNamespace(gw.Namespace), client.MatchingLabels{plan.LabelManaged: plan.ManagedBy, plan.LabelGateway: gw.Name}); err != nil {
			errs = append(errs, err)
			continue
		}
		err := meta.EachListItem(list, func(item runtime.Object) error {
			o := item.(client.Object)
			gvk, err := r.GroupVersionKindFor(o)
			if err != nil {
				return err
			}
			if wanted[objectKey{gvk.GroupKind(), client.ObjectKeyFromObject(o)}] || o.GetDeletionTimestamp() != nil || !exists && orphaned(o) {
				return nil
			}
			switch o := o.(type) {
			case *corev1.ConfigMap:
				if read[o.Name] && exists {
					return nil
				}
			case *corev1.Service:
				keep, err := r.keepService(ctx, o, pods, exists)
				if keep || err != nil {
					return err
				}
			}
			uid, version := o.GetUID(), o.GetResourceVersion()
			as := client.Preconditions{UID: &uid}
			if !exists {
				as.ResourceVersion = &version // it may have been orphaned since
			}
			return client.IgnoreNotFound(r.Delete(ctx, o, as, client.PropagationPolicy("Background")))
		})
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// keepService reports whether to keep a Service without a plan: its export exists and gets the
// address back, or a pod serves it.
func (r *GatewayReconciler) keepService(ctx context.Context, s *corev1.Service, pods []corev1.Pod, exists bool) (bool, error) {
	key := client.ObjectKey{Namespace: s.Labels[plan.LabelExportNamespace], Name: s.Labels[plan.LabelExport]}
	if key.Name == "" {
		return false, nil
	}
	var x v1alpha1.NFSExport
	if r.namespaces.watched(key.Namespace) { // otherwise no pod serves it
		err := r.Get(ctx, key, &x)
		if client.IgnoreNotFound(err) != nil {
			return true, err
		}
		if err == nil && x.DeletionTimestamp == nil && gatewayRef(&x) == gatewayOf(s) {
			return true, nil
		}
	}
	if !exists {
		return false, nil
	}
	x.Namespace, x.Name = key.Namespace, key.Name
	return r.mayServe(plan.ConfigName(&x), pods), nil
}

// mayServe reports whether a pod serves an export, or may do so.
func (r *GatewayReconciler) mayServe(export string, pods []corev1.Pod) bool {
	for i := range pods {
		if pods[i].Status.Phase != corev1.PodRunning {
			continue
		}
		p := r.states.podStatus(&pods[i])
		if p == nil || p.status == nil {
			return true
		}
		for j := range p.status.Exports {
			if p.status.Exports[j].Name == export {
				return true
			}
		}
	}
	return false
}

// orphaned reports whether an object outlives its gateway, which was deleted with --cascade=orphan:
// it has lost its owner reference. Services of exports and placeholders never had one.
func orphaned(o client.Object) bool {
	if s, ok := o.(*corev1.Service); ok && (s.Labels[plan.LabelExport] != "" || strings.HasPrefix(s.Name, objects.PlaceholderPrefix)) {
		return false
	}
	return !slices.ContainsFunc(o.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.Kind == "NFSGateway" })
}
