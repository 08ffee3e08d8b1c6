package controllers

import (
	"context"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/report"
)

// GatewayStatusReconciler writes the status of NFSGateways.
type GatewayStatusReconciler struct {
	*statusWriter
	states *stateStore
}

// Reconcile writes the status of one gateway.
func (r *GatewayStatusReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var gw v1alpha1.NFSGateway
	if err := r.Get(ctx, req.NamespacedName, &gw); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	p, seen := r.states.observedGateway(req.NamespacedName)
	if gw.DeletionTimestamp != nil || p == nil || p.Gateway.UID != gw.UID || p.Gateway.Generation != gw.Generation {
		return ctrl.Result{}, nil // its plan follows
	}
	want := report.Gateway(p, seen)
	want.ObservedGeneration = gw.Generation
	want.Conditions = r.merge(&gw, gw.Status.Conditions, want.Conditions)
	return r.write(ctx, &gw, &gw.Status, &want)
}
