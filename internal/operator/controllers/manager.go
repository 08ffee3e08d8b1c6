// Package controllers has the operator's reconcilers. Each has one task:
//
//	GatewayReconciler         NFSGateway and its NFSExports → plan → objects, applied
//	PodStatusReconciler       /status of a pod → state store
//	ExportIdentityReconciler  spec.handleIdentity of NFSExports, once
//	ExportStatusReconciler    state store → status of NFSExports
//	GatewayStatusReconciler   state store → status of NFSGateways
//
// The state store passes results between them. It holds nothing that cannot be observed again, so a
// crash leaves nothing to repair.
package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/objects"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/operator/provisioner"
)

// Options of the reconcilers.
type Options struct {
	// Defaults for the objects.
	Defaults objects.Defaults
	// ClusterScope permits reads of nodes, namespaces and claims of the whole cluster.
	ClusterScope bool
	// Provisioner has the addresses of this pod, from which it makes volumes for claims of
	// StorageClasses; none: it makes no volumes.
	Provisioner []netip.Addr
}

// Scheme returns a scheme with all kinds that the operator uses.
func Scheme() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		appsv1.AddToScheme, coordinationv1.AddToScheme, corev1.AddToScheme, eventsv1.AddToScheme, networkingv1.AddToScheme, policyv1.AddToScheme, rbacv1.AddToScheme, v1alpha1.AddToScheme,
	} {
		if err := add(s); err != nil {
			panic(err) // two types with one name
		}
	}
	return s
}

// New returns a manager with all reconcilers. It sets the scheme and the cache of mo, except the
// sync period. The manager watches the given namespaces, or all if there are none.
func New(cfg *rest.Config, mo manager.Options, o Options, namespaces []string) (manager.Manager, error) {
	mo.Scheme = Scheme()
	every := mo.Cache.SyncPeriod
	mo.Cache = cacheOptions(namespaces)
	mo.Cache.SyncPeriod = every
	m, err := ctrl.NewManager(cfg, mo)
	if err != nil {
		return nil, err
	}
	if err := m.GetFieldIndexer().IndexField(context.Background(), &v1alpha1.NFSExport{}, byGateway, func(x client.Object) []string {
		return []string{gatewayRef(x.(*v1alpha1.NFSExport)).String()}
	}); err != nil {
		return nil, err
	}
	if err := m.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	if err := m.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	if len(o.Provisioner) > 0 {
		if err := provisioner.Add(m); err != nil {
			return nil, fmt.Errorf("provisioner: %w", err)
		}
	}
	return m, addControllers(m, o, namespaces)
}

// namespaces are the watched namespaces; empty: all. The cache refuses reads of others.
type namespaces []string

func (s namespaces) watched(namespace string) bool {
	return len(s) == 0 || slices.Contains(s, namespace)
}

// cacheOptions limits the cache to the operator's own objects, and strips nodes.
func cacheOptions(namespaces []string) cache.Options {
	ours := cache.ByObject{Label: labels.SelectorFromSet(labels.Set{plan.LabelManaged: plan.ManagedBy})}
	o := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&appsv1.Deployment{}: ours, &appsv1.StatefulSet{}: ours, &corev1.ConfigMap{}: ours, &corev1.Service{}: ours, &corev1.Pod{}: ours,
			&corev1.ServiceAccount{}: ours, &policyv1.PodDisruptionBudget{}: ours, &networkingv1.NetworkPolicy{}: ours, &coordinationv1.Lease{}: ours,
			&rbacv1.Role{}: ours, &rbacv1.RoleBinding{}: ours,
			&corev1.Node{}: {Transform: trimNode},
		},
	}
	for _, n := range namespaces {
		if o.DefaultNamespaces == nil {
			o.DefaultNamespaces = map[string]cache.Config{}
		}
		o.DefaultNamespaces[n] = cache.Config{}
	}
	return o
}

// trimNode keeps only the fields of a node that plans and reports use.
func trimNode(o any) (any, error) {
	n, ok := o.(*corev1.Node)
	if !ok {
		return o, nil
	}
	t := &corev1.Node{TypeMeta: n.TypeMeta}
	t.Name, t.UID, t.ResourceVersion, t.Labels = n.Name, n.UID, n.ResourceVersion, n.Labels
	t.Spec.PodCIDRs = n.Spec.PodCIDRs
	for _, taint := range n.Spec.Taints {
		if taint.Key == corev1.TaintNodeUnreachable {
			t.Spec.Taints = append(t.Spec.Taints, corev1.Taint{Key: taint.Key, Effect: taint.Effect})
		}
	}
	t.Status.Addresses, t.Status.Allocatable = n.Status.Addresses, n.Status.Allocatable
	return t, nil
}

func addControllers(m manager.Manager, o Options, namespaces namespaces) error {
	b := newStateStore()
	if err := m.Add(planMetrics{b}); err != nil {
		return err
	}
	g := &GatewayReconciler{applier: applier{Client: m.GetClient(), APIReader: m.GetAPIReader()}, Options: o, namespaces: namespaces, states: b}
	// Tests run several managers in one process.
	once := controller.Options{SkipNameValidation: new(true)}
	parallel := once
	parallel.MaxConcurrentReconciles = 32

	c := ctrl.NewControllerManagedBy(m).Named("gateway").WithOptions(once).
		Watches(&v1alpha1.NFSGateway{}, afterDelay(g.requestSameNamespaceAndSelf), specChanged()).
		Watches(&v1alpha1.NFSExport{}, afterDelay(g.requestForExport), specChanged()).
		Watches(&coordinationv1.Lease{}, afterDelay(requestGateway), builder.WithPredicates(notRenewed())).
		WatchesMetadata(&corev1.PersistentVolumeClaim{}, afterDelay(g.requestSameNamespace)).
		WatchesRawSource(b.gatewaySource(&b.onListeners)).
		WatchesRawSource(g.sweepSource())
	for _, kind := range []client.Object{
		&corev1.Pod{}, &appsv1.Deployment{}, &appsv1.StatefulSet{}, &corev1.ConfigMap{}, &corev1.Service{}, &policyv1.PodDisruptionBudget{},
		&networkingv1.NetworkPolicy{}, &corev1.ServiceAccount{}, &rbacv1.Role{}, &rbacv1.RoleBinding{},
	} {
		c = c.Watches(kind, afterDelay(requestGateway))
	}
	if o.ClusterScope {
		c = c.Watches(&corev1.Node{}, afterDelay(g.requestAll), nodeChanged()).
			WatchesMetadata(&corev1.Namespace{}, afterDelay(g.requestAll), builder.WithPredicates(predicate.LabelChangedPredicate{}))
	}
	complete := func(name string, err error) error {
		if err != nil {
			return fmt.Errorf("controller %s: %w", name, err)
		}
		return nil
	}
	built, err := c.Build(g)
	if err != nil {
		return complete("gateway", err)
	}
	g.watchKind = func(item client.Object) error {
		return built.Watch(source.Kind(m.GetCache(), item, afterDelay(requestGateway), managed()))
	}
	for _, k := range optionalKinds {
		if _, err := g.hasKind(k); err != nil {
			return complete("gateway", err)
		}
	}
	status := &statusWriter{Client: m.GetClient(), recorder: m.GetEventRecorder(fieldManager)}
	return errors.Join(
		complete("poll", ctrl.NewControllerManagedBy(m).Named("poll").WithOptions(parallel).
			Watches(&corev1.Pod{}, &handler.EnqueueRequestForObject{}, podChanged()).
			WatchesRawSource(b.podSource(m.GetClient())).
			Complete(newPodStatusReconciler(m.GetClient(), b))),
		complete("export-identity", ctrl.NewControllerManagedBy(m).Named("export-identity").WithOptions(parallel).
			Watches(&v1alpha1.NFSExport{}, &handler.EnqueueRequestForObject{}, specChanged()).
			Complete(&ExportIdentityReconciler{m.GetClient()})),
		complete("export-status", ctrl.NewControllerManagedBy(m).Named("export-status").WithOptions(parallel).
			Watches(&v1alpha1.NFSExport{}, &handler.EnqueueRequestForObject{}).
			WatchesRawSource(b.exportSource(m.GetClient())).
			Complete(&ExportStatusReconciler{statusWriter: status, namespaces: namespaces, states: b})),
		complete("gateway-status", ctrl.NewControllerManagedBy(m).Named("gateway-status").WithOptions(once).
			Watches(&v1alpha1.NFSGateway{}, &handler.EnqueueRequestForObject{}).
			WatchesRawSource(b.gatewaySource(&b.onAny)).
			Complete(&GatewayStatusReconciler{statusWriter: status, states: b})),
	)
}
