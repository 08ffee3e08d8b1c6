package controllers

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/operator/report"
)

// applyGrace is the time for pods to apply a new generation before its status is written, which
// saves a write.
const applyGrace = 3 * time.Second

// ExportStatusReconciler writes the status of NFSExports.
type ExportStatusReconciler struct {
	*statusWriter
	namespaces namespaces
	states     *stateStore

	mu      sync.Mutex
	pending map[types.UID]pendingGeneration
}

// pendingGeneration is a generation that pods have yet to apply.
type pendingGeneration struct {
	number int64
	since  time.Time
}

// Reconcile writes the status of one export.
func (r *ExportStatusReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var x v1alpha1.NFSExport
	if err := r.Get(ctx, req.NamespacedName, &x); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if x.DeletionTimestamp != nil {
		return ctrl.Result{}, nil
	}
	want, ok, err := r.report(ctx, &x)
	if err != nil || !ok {
		return ctrl.Result{}, err
	}
	if wait := r.deferral(&x, &want); wait > 0 {
		return ctrl.Result{RequeueAfter: wait}, nil
	}
	want.ObservedGeneration = x.Generation
	want.Conditions = r.merge(&x, x.Status.Conditions, want.Conditions)
	return r.write(ctx, &x, &x.Status, &want)
}

// report returns the status of an export; ok is false before its plan exists.
func (r *ExportStatusReconciler) report(ctx context.Context, x *v1alpha1.NFSExport) (s v1alpha1.NFSExportStatus, ok bool, err error) {
	p, seen := r.states.observedGateway(gatewayRef(x))
	if p == nil && !r.namespaces.watched(plan.GatewayNamespace(x)) {
		return report.NoGateway(x, false), true, nil
	}
	if p == nil {
		var gw v1alpha1.NFSGateway
		err := r.Get(ctx, gatewayRef(x), &gw)
		if client.IgnoreNotFound(err) != nil || err == nil && gw.DeletionTimestamp == nil {
			return s, false, err
		}
		return report.NoGateway(x, true), true, nil
	}
	if e := p.Export(x); e != nil && e.Source.UID == x.UID && e.Source.Generation == x.Generation {
		return report.Export(p, e, seen), true, nil
	}
	return s, false, nil
}

// deferral returns the rest of applyGrace for the status of a new generation.
func (r *ExportStatusReconciler) deferral(x *v1alpha1.NFSExport, s *v1alpha1.NFSExportStatus) time.Duration {
	is := func(kind, reason string) bool {
		c := meta.FindStatusCondition(s.Conditions, kind)
		return c != nil && c.Reason == reason
	}
	passing := is(v1alpha1.ConditionProgrammed, v1alpha1.ReasonApplying) || is(v1alpha1.ConditionProgrammed, v1alpha1.ReasonProgrammed) &&
		(is(v1alpha1.ConditionBackendReachable, v1alpha1.ReasonUnknown) || is(v1alpha1.ConditionReady, v1alpha1.ReasonAddressPending))
	r.mu.Lock()
	defer r.mu.Unlock()
	if x.Status.ObservedGeneration == x.Generation || !passing {
		delete(r.pending, x.UID)
		return 0
	}
	if r.pending == nil {
		r.pending = map[types.UID]pendingGeneration{}
	}
	g, known := r.pending[x.UID]
	if !known || g.number != x.Generation {
		// of deleted exports
		maps.DeleteFunc(r.pending, func(_ types.UID, g pendingGeneration) bool { return time.Since(g.since) > time.Minute })
		g = pendingGeneration{x.Generation, time.Now()}
		r.pending[x.UID] = g
	}
	return applyGrace - time.Since(g.since)
}
