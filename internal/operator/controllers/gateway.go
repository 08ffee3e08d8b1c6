package controllers

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/objects"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/operator/report"
)

// Intervals of reconciliation without an event.
const (
	retryInterval  = 30 * time.Second // a reference is missing or a write is blocked
	resyncInterval = 5 * time.Minute  // for Secrets and networks, which are not watched
)

// GatewayReconciler applies the objects of an NFSGateway. It writes no status of Sluice's
// resources.
type GatewayReconciler struct {
	applier
	Options
	namespaces namespaces
	states     *stateStore
	watchKind  func(client.Object) error // starts a watch of a kind

	kindsMu      sync.Mutex
	presentKinds []client.ObjectList // of the optional kinds
}

// Reconcile plans a gateway, and applies the plan.
func (r *GatewayReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	if !r.namespaces.watched(req.Namespace) {
		return ctrl.Result{}, nil // an export may name any namespace
	}
	var gw v1alpha1.NFSGateway
	err := r.Get(ctx, req.NamespacedName, &gw)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	if err != nil || gw.DeletionTimestamp != nil {
		r.states.setGateway(req.NamespacedName, nil)
		if slices.Contains(gw.Finalizers, metav1.FinalizerOrphanDependents) {
			// The garbage collector is removing owner references, which orphaned needs.
			return ctrl.Result{}, nil
		}
		return ctrl.Result{}, r.pruneAll(ctx, req.NamespacedName)
	}
	services, pods, err := r.listOwned(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !r.allPolled(pods) {
		return ctrl.Result{RequeueAfter: batchDelay}, nil
	}
	in, err := r.readInput(ctx, &gw, pods, services)
	if err != nil {
		return ctrl.Result{}, err
	}
	f := &gatewayState{plan: plan.Make(in), files: map[string]string{}, changed: time.Now()}
	f.observed = report.Observed{
		Services: map[string]*corev1.Service{}, Failed: map[string]error{}, Blocked: map[string]report.Blocker{},
		Refused: map[string]string{}, Updated: map[string]int32{}, Nodes: in.Nodes,
	}
	for i := range pods {
		f.observed.Pods = append(f.observed.Pods, report.Pod{Pod: &pods[i]})
	}
	for i := range services {
		f.observed.Services[services[i].Name] = &services[i]
	}
	lacks, err := r.missesKind(&gw)
	err = errors.Join(err, f.recordFailure(objects.KeysSecret(&gw, nil), r.ensureKeys(ctx, &gw)))
	wanted, early, applied := r.applyObjects(ctx, f, pods)
	err = errors.Join(err, applied, r.observeWorkloads(ctx, &f.plan, &f.observed), r.writeIngress(ctx, &f.plan, f.observed.Services))
	r.states.setGateway(req.NamespacedName, f)
	err = errors.Join(err, r.prune(ctx, req.NamespacedName, wanted, pods, true))
	switch {
	case err != nil:
		return ctrl.Result{}, err // controller-runtime retries
	case early:
		return ctrl.Result{RequeueAfter: cacheDelay}, nil
	}
	return ctrl.Result{RequeueAfter: f.requeueAfter(lacks)}, nil
}

// requeueAfter returns the time until the next reconciliation without an event. lacks says that the
// cluster lacks a wanted kind.
func (f *gatewayState) requeueAfter(lacks bool) time.Duration {
	// Another gateway on the network may free an address.
	waits := slices.ContainsFunc(f.plan.Exports, func(x plan.Export) bool {
		c := meta.FindStatusCondition(x.Conditions, v1alpha1.ConditionAccepted)
		return c.Reason == v1alpha1.ReasonAddressTaken || c.Reason == v1alpha1.ReasonNoFreeAddress
	})
	switch {
	case lacks, waits, len(f.observed.Failed)+len(f.observed.Blocked) > 0, meta.IsStatusConditionFalse(f.plan.Conditions, v1alpha1.ConditionResolvedRefs):
		return retryInterval
	}
	return resyncInterval
}

// requestSameNamespaceAndSelf requests a gateway and its neighbours, which may claim the same
// volumes.
func (r *GatewayReconciler) requestSameNamespaceAndSelf(ctx context.Context, o client.Object) []ctrl.Request {
	return append(r.requestSameNamespace(ctx, o), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)})
}

// requestForExport requests the gateway of an export. For a claim it requests all gateways of the
// namespace, because several exports may use it.
func (r *GatewayReconciler) requestForExport(ctx context.Context, o client.Object) (out []ctrl.Request) {
	x := o.(*v1alpha1.NFSExport)
	if x.Spec.Backend.PersistentVolumeClaim != nil {
		out = r.requestSameNamespace(ctx, o)
	}
	return append(out, ctrl.Request{NamespacedName: gatewayRef(x)})
}

func (r *GatewayReconciler) requestAll(ctx context.Context, _ client.Object) []ctrl.Request {
	return r.requestsIn(ctx, "")
}

func (r *GatewayReconciler) requestSameNamespace(ctx context.Context, o client.Object) []ctrl.Request {
	return r.requestsIn(ctx, o.GetNamespace())
}

func (r *GatewayReconciler) requestsIn(ctx context.Context, namespace string) (out []ctrl.Request) {
	var list v1alpha1.NFSGatewayList
	if err := r.List(ctx, &list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "NFSGateways cannot be listed")
	}
	for i := range list.Items {
		out = append(out, ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])})
	}
	return out
}

// sweepSource enqueues every gateway that has objects.
func (r *GatewayReconciler) sweepSource() source.Source {
	return source.Func(func(ctx context.Context, q requestQueue) error {
		go r.sweep(ctx, func(gateway types.NamespacedName) { q.AddAfter(ctrl.Request{NamespacedName: gateway}, batchDelay) })
		return nil
	})
}

// sweepEvery is the interval of the search for objects of deleted gateways.
const sweepEvery = time.Hour

// sweep calls found with every gateway that has objects, at once and then every hour. The gateway
// may not exist any more.
func (r *GatewayReconciler) sweep(ctx context.Context, found func(types.NamespacedName)) {
	tick := time.NewTicker(sweepEvery)
	defer tick.Stop()
	for {
		for _, list := range r.managedKinds() {
			list := list.DeepCopyObject().(client.ObjectList)
			if err := r.List(ctx, list, client.HasLabels{plan.LabelGateway}, client.UnsafeDisableDeepCopy); err != nil {
				log.FromContext(ctx).Error(err, "list the objects of a gateway failed")
				continue
			}
			_ = meta.EachListItem(list, func(item runtime.Object) error {
				found(gatewayOf(item.(client.Object)))
				return nil
			})
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}
