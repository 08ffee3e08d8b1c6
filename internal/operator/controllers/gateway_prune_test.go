package controllers

import (
	"context"
	"errors"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// left is a cluster in which a gateway is gone, or about to be orphaned, and Deployments of it are
// not.
type left struct {
	client.Client
	gateway *v1alpha1.NFSGateway
	there   []appsv1.Deployment
	deleted []string
}

func (l *left) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	gw, ok := o.(*v1alpha1.NFSGateway)
	if !ok || l.gateway == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nfsgateways"}, key.Name)
	}
	l.gateway.DeepCopyInto(gw)
	return nil
}

func (l *left) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if d, ok := list.(*appsv1.DeploymentList); ok {
		d.Items = l.there
	}
	return nil
}

func (l *left) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	return appsv1.SchemeGroupVersion.WithKind("Deployment"), nil
}

func (l *left) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	if p := options.Preconditions; p == nil || p.UID == nil || p.ResourceVersion == nil || *p.ResourceVersion != o.GetResourceVersion() {
		return errors.New("deleted whatever it has become meanwhile")
	}
	l.deleted = append(l.deleted, o.GetName())
	return nil
}

// TestOrphaned: with --cascade=orphan a gateway's objects stay: while the garbage collector removes
// the owner references, after that, and for the next operator.
func TestOrphaned(t *testing.T) {
	now := metav1.Now()
	deployment := func(name string, owners ...metav1.OwnerReference) appsv1.Deployment {
		return appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name, UID: types.UID(name), ResourceVersion: "7", OwnerReferences: owners,
			Labels: map[string]string{plan.LabelManaged: plan.ManagedBy, plan.LabelGateway: "fast"}}}
	}
	owned := deployment("owned", metav1.OwnerReference{APIVersion: "sluice.dev/v1alpha1", Kind: "NFSGateway", Name: "fast", UID: "1"})
	orphan := deployment("orphan", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Keeper", Name: "keeper", UID: "2"})
	deleting := func(finalizers ...string) *v1alpha1.NFSGateway {
		return &v1alpha1.NFSGateway{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "fast", UID: "1", DeletionTimestamp: &now, Finalizers: finalizers}}
	}
	for _, c := range []struct {
		name    string
		gateway *v1alpha1.NFSGateway
		want    []string
	}{
		{"while it is orphaned", deleting(metav1.FinalizerOrphanDependents), nil},
		{"after that", nil, []string{"owned"}},
		{"in the foreground", deleting(metav1.FinalizerDeleteDependents), []string{"owned"}},
	} {
		l := &left{gateway: c.gateway, there: []appsv1.Deployment{owned, orphan}}
		r := &GatewayReconciler{applier: applier{Client: l}, states: newStateStore()}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "storage", Name: "fast"}}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !slices.Equal(l.deleted, c.want) {
			t.Errorf("%s: %q deleted, want %q", c.name, l.deleted, c.want)
		}
	}
}
