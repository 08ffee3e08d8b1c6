package controllers

import (
	"context"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// gatherFor is how long a gateway waits for more to change, so that what changes together is written at once.
const gatherFor = 200 * time.Millisecond

type queue = workqueue.TypedRateLimitingInterface[ctrl.Request]

// later enqueues what an object is about after gatherFor.
func later(about func(context.Context, client.Object) []ctrl.Request) handler.EventHandler {
	enqueue := func(ctx context.Context, o client.Object, q queue) {
		for _, r := range about(ctx, o) {
			if r.Name != "" {
				q.AddAfter(r, gatherFor)
			}
		}
	}
	return handler.Funcs{
		CreateFunc:  func(ctx context.Context, e event.CreateEvent, q queue) { enqueue(ctx, e.Object, q) },
		UpdateFunc:  func(ctx context.Context, e event.UpdateEvent, q queue) { enqueue(ctx, e.ObjectNew, q) },
		DeleteFunc:  func(ctx context.Context, e event.DeleteEvent, q queue) { enqueue(ctx, e.Object, q) },
		GenericFunc: func(ctx context.Context, e event.GenericEvent, q queue) { enqueue(ctx, e.Object, q) },
	}
}

func itsGateway(_ context.Context, o client.Object) []ctrl.Request {
	return []ctrl.Request{{NamespacedName: gatewayOf(o)}}
}

// itselfAndBeside names a gateway and the others of its namespace, which may serve claims that it is to serve.
func (r *gateways) itselfAndBeside(ctx context.Context, o client.Object) []ctrl.Request {
	return append(r.beside(ctx, o), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
}

// concerned names the gateway that an export refers to and, since a claim may have exports of several, all of its namespace.
func (r *gateways) concerned(ctx context.Context, o client.Object) (out []ctrl.Request) {
	x := o.(*v1alpha1.NFSExport)
	if x.Spec.Backend.PersistentVolumeClaim != nil {
		out = r.beside(ctx, o)
	}
	return append(out, ctrl.Request{NamespacedName: referred(x)})
}

// all names all gateways.
func (r *gateways) all(ctx context.Context, _ client.Object) []ctrl.Request { return r.in(ctx, "") }

// beside names the gateways in an object's namespace.
func (r *gateways) beside(ctx context.Context, o client.Object) []ctrl.Request {
	return r.in(ctx, o.GetNamespace())
}

func (r *gateways) in(ctx context.Context, namespace string) (out []ctrl.Request) {
	var list v1alpha1.NFSGatewayList
	if err := r.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "NFSGateways cannot be listed")
	}
	for i := range list.Items {
		out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
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

// source enqueues gateways that a list of listeners is told of.
func (b *board) source(list *[]func(types.NamespacedName)) source.Source {
	return source.Func(func(_ context.Context, q queue) error {
		b.listen(list, func(gateway types.NamespacedName) { q.AddAfter(ctrl.Request{NamespacedName: gateway}, gatherFor) })
		return nil
	})
}

// exportsOf enqueues the exports of gateways of which something new is known.
func (b *board) exportsOf(c client.Reader) source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		b.listen(&b.heard, func(gateway types.NamespacedName) {
			var list v1alpha1.NFSExportList
			if err := c.List(ctx, &list, client.MatchingFields{byGateway: gateway.String()}, client.UnsafeDisableDeepCopy); err != nil {
				log.FromContext(ctx).Error(err, "NFSExports cannot be listed")
			}
			for i := range list.Items {
				q.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}, gatherFor)
			}
		})
		return nil
	})
}

// podsOf enqueues the pods of gateways that have another plan.
func (b *board) podsOf(c client.Reader) source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		b.listen(&b.planned, func(gateway types.NamespacedName) {
			var list corev1.PodList
			if err := c.List(ctx, &list, client.InNamespace(gateway.Namespace), client.MatchingLabels{plan.LabelGateway: gateway.Name}, client.UnsafeDisableDeepCopy); err != nil {
				log.FromContext(ctx).Error(err, "pods cannot be listed")
			}
			for i := range list.Items {
				q.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}, pollSoon)
			}
		})
		return nil
	})
}

// swept enqueues each gateway for which anything was ever made, whether it exists or not.
func (r *gateways) swept() source.Source {
	return source.Func(func(ctx context.Context, q queue) error {
		go r.sweep(ctx, func(gateway types.NamespacedName) { q.AddAfter(ctrl.Request{NamespacedName: gateway}, gatherFor) })
		return nil
	})
}
