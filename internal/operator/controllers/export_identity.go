package controllers

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// ExportIdentityReconciler sets an empty spec.handleIdentity to the UID of its NFSExport, once. A
// backup carries it, so that a restored export accepts the handles of its clients.
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
	// On a conflict, the event of the other write requests this export again.
	err := r.Patch(ctx, to, client.MergeFromWithOptions(&x, client.MergeFromWithOptimisticLock{}), client.FieldOwner(fieldManager))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return ctrl.Result{}, nil
	}
	return ctrl.Result{}, err
}
