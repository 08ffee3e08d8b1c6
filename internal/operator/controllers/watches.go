package controllers

import (
	"context"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"sluice.dev/sluice/internal/operator/plan"
)

// batchDelay is the time between an event and its reconciliation, so that changes made together are
// applied together.
const batchDelay = 200 * time.Millisecond

type requestQueue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// afterDelay enqueues the requests for an object after batchDelay.
func afterDelay(about func(context.Context, client.Object) []ctrl.Request) handler.EventHandler {
	enqueue := func(ctx context.Context, o client.Object, q requestQueue) {
		for _, r := range about(ctx, o) {
			if r.Name != "" {
				q.AddAfter(r, batchDelay)
			}
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q requestQueue) { enqueue(ctx, e.Object, q) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q requestQueue) { enqueue(ctx, e.ObjectNew, q) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q requestQueue) { enqueue(ctx, e.Object, q) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q requestQueue) { enqueue(ctx, e.Object, q) },
	}
}

func requestGateway(_ context.Context, o client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: gatewayOf(o)}}
}

// specChanged drops updates of the status.
func specChanged() builder.Predicates { return builder.WithPredicates(specOrUID) }

// specOrUID also passes an object that was deleted and re-created while the watch was broken. It
// arrives as an update with the same generation.
var specOrUID = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
}})

// managed drops objects of others.
func managed() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[plan.LabelManaged] == plan.ManagedBy })
}

// nodeChanged drops heartbeats of the kubelet.
func nodeChanged() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return !reflect.DeepEqual(a.Labels, b.Labels) || !reflect.DeepEqual(a.Spec, b.Spec) || !reflect.DeepEqual(a.Status, b.Status)
	}})
}

// notRenewed drops renewals of Leases.
func notRenewed() predicate.Predicate {
	return predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// podChanged drops updates that do not affect /status.
func podChanged() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		return a.Status.Phase != b.Status.Phase || a.Status.PodIP != b.Status.PodIP || !reflect.DeepEqual(a.Status.Conditions, b.Status.Conditions)
	}})
}
