package controllers

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// ExportIdentityReconciler sets spec.handleIdentity of each NFSExport that has none, once, to its UID. A backup
// then carries it, so that an export that is restored under another UID takes the handles that its
// clients hold.
type ExportIdentityReconciler struct{ client.Client }

// Reconcile sets the identity of one export.
func (r *ExportIdentityReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var x v1alpha1.NFSExport
	if err := r.Get(ctx, req.NamespacedName, &x); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if x.DeletionTimestamp != nil || x.Spec.HandleIdentity != "" || !plan.HasHandles(&x) {
		return ctrl.Result{}, nil
	}
	to := x.DeepCopy()
	to.Spec.HandleIdentity = plan.HandleIdentity(&x)
	// An author may have set it meanwhile: then the event of that brings it back here.
	err := r.Patch(ctx, to, client.MergeFromWithOptions(&x, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}
