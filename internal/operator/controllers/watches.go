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

// batchDelay is how long a gateway waits for more to change, so that what changes together is written at once.
const batchDelay = 200 * time.Millisecond

type requestQueue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// afterDelay enqueues what an object is about after batchDelay.
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

// specChanged leaves out changes of status.
func specChanged() builder.Predicates { return builder.WithPredicates(specOrUID) }

// specOrUID also lets pass what was deleted and made anew while the watch was broken: that comes as an update, of the same generation.
var specOrUID = predicate.Or[client.Object](predicate.GenerationChangedPredicate{}, predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
	return e.ObjectOld.GetUID() != e.ObjectNew.GetUID()
}})

// managed leaves out what is not ours.
func managed() predicate.Predicate {
	return predicate.NewPredicateFuncs(func(o client.Object) bool { return o.GetLabels()[plan.LabelManaged] == plan.ManagedBy })
}

// nodeChanged leaves out the kubelet's heartbeats.
func nodeChanged() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld.(*corev1.Node), e.ObjectNew.(*corev1.Node)
		return !reflect.DeepEqual(a.Labels, b.Labels) || !reflect.DeepEqual(a.Spec, b.Spec) || !reflect.DeepEqual(a.Status, b.Status)
	}})
}

// notRenewed leaves out what speakers write into Leases, which they do all the time.
func notRenewed() predicate.Predicate {
	return predicate.Or(predicate.LabelChangedPredicate{}, predicate.AnnotationChangedPredicate{})
}

// podChanged leaves out changes of a pod that do not change what it answers.
func podChanged() builder.Predicates {
	return builder.WithPredicates(predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		a, b := e.ObjectOld.(*corev1.Pod), e.ObjectNew.(*corev1.Pod)
		return a.Status.Phase != b.Status.Phase || a.Status.PodIP != b.Status.PodIP || !reflect.DeepEqual(a.Status.Conditions, b.Status.Conditions)
	}})
}
