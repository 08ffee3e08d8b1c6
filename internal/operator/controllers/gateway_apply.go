package controllers

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/objects"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/operator/report"
)

// applyObjects applies the objects of a plan and returns their keys. For early, see apply.
func (r *GatewayReconciler) applyObjects(ctx context.Context, f *gatewayState, pods []corev1.Pod) (wanted map[objectKey]bool, early bool, err error) {
	wanted = map[objectKey]bool{}
	configs := map[string]*corev1.ConfigMap{}
	var services []*corev1.Service
	var errs []error
	put := func(o client.Object) {
		behind, err := r.apply(ctx, o)
		early = early || behind
		errs = append(errs, f.recordFailure(o, err))
	}
	for _, o := range objects.Build(&f.plan, &r.Defaults) {
		wanted[r.keyOf(o)] = true
		switch o := o.(type) {
		case *corev1.Service:
			services = append(services, o)
			continue
		case *corev1.ConfigMap:
			configs[o.Name] = o
			f.files[o.Labels[plan.LabelWorkload]] = fileHash(o.Data[objects.GatewayFile])
		}
		put(o)
	}
	// pods read their files while Services are made
	errs = append(errs, r.nudgeKubelet(ctx, pods, configs))
	for _, s := range services {
		if err := r.replaceService(ctx, f.observed.Services[s.Name], s); err != nil {
			errs = append(errs, f.recordFailure(s, err))
			continue
		}
		put(s)
	}
	return wanted, early, errors.Join(errs...)
}

// ensureKeys creates the Secret of handle keys, unless the gateway names one. It never updates it.
func (r *GatewayReconciler) ensureKeys(ctx context.Context, gw *v1alpha1.NFSGateway) error {
	if gw.Spec.HandleKeys.SecretName != "" {
		return nil
	}
	// The operator may read Secrets only by name. An existing Secret stays, whoever made it.
	if err := r.APIReader.Get(ctx, client.ObjectKey{Namespace: gw.Namespace, Name: plan.KeysName(gw)}, &corev1.Secret{}); !apierrors.IsNotFound(err) {
		return err
	}
	ring, err := objects.NewKeys(rand.Reader)
	if err != nil {
		return err
	}
	secret := objects.KeysSecret(gw, ring)
	if err := r.Create(ctx, secret, client.FieldOwner(fieldManager)); !apierrors.IsAlreadyExists(err) {
		return refusalError(secret, err)
	}
	return nil
}

// recordFailure records the error of an object for conditions. It returns errors that need a retry.
func (f *gatewayState) recordFailure(o client.Object, err error) error {
	if err == nil || meta.IsNoMatchError(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil // Optional CRDs are missing, or the namespace is being deleted.
	}
	var obstacle report.Blocker
	people := errors.As(err, &obstacle)
	_, service := o.(*corev1.Service)
	switch workload := o.GetLabels()[plan.LabelWorkload]; {
	case service && o.GetLabels()[plan.LabelExport] != "":
		// an existing one serves until it can change
		if people || f.observed.Services[o.GetName()] == nil {
			f.observed.Failed[o.GetName()] = err
		}
	case people && f.observed.Blocked[workload] == nil:
		f.observed.Blocked[workload] = obstacle
	}
	if people {
		return nil
	}
	return err
}

// nudgeKubelet sets an annotation on pods with an outdated file, so that the kubelet refreshes the
// ConfigMap at once.
func (r *GatewayReconciler) nudgeKubelet(ctx context.Context, pods []corev1.Pod, configs map[string]*corev1.ConfigMap) error {
	var errs []error
	for i := range pods {
		pod := &pods[i]
		c := configs[configMapOf(pod)]
		p := r.states.podStatus(pod)
		if c == nil || p == nil || p.status == nil || pod.DeletionTimestamp != nil {
			continue
		}
		hash := objects.ConfigHash(c)
		if pod.Annotations[plan.AnnotationConfig] == hash || p.hasConfig(c) {
			continue
		}
		to := pod.DeepCopy()
		if to.Annotations == nil {
			to.Annotations = map[string]string{}
		}
		to.Annotations[plan.AnnotationConfig] = hash
		key := objectKey{ObjectKey: client.ObjectKeyFromObject(pod)}
		if r.cacheStale(key, hash) {
			continue
		}
		if err := client.IgnoreNotFound(r.Patch(ctx, to, client.MergeFrom(pod), client.FieldOwner(fieldManager))); err != nil {
			r.forgetWrite(key)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// replaceService deletes a Service whose cluster IP must change, because it is immutable. First it
// reserves the new address with a placeholder Service: a dry run finds addresses out of range, but
// not those in use.
func (r *GatewayReconciler) replaceService(ctx context.Context, live, desired *corev1.Service) error {
	if live == nil || desired.Spec.ClusterIP == "" || live.Spec.ClusterIP == desired.Spec.ClusterIP {
		return nil
	}
	// The cache may still show the deleted Service. Then its successor has the address.
	var now corev1.Service
	if err := r.APIReader.Get(ctx, client.ObjectKeyFromObject(live), &now); err != nil || now.UID != live.UID {
		return client.IgnoreNotFound(err)
	}
	placeholder := objects.Placeholder(desired)
	if err := r.Create(ctx, placeholder, client.FieldOwner(fieldManager)); err != nil {
		return refusalError(desired, err)
	}
	r.forgetWrite(r.keyOf(desired))
	return errors.Join(r.Delete(ctx, placeholder), client.IgnoreNotFound(r.Delete(ctx, live, client.Preconditions{UID: &live.UID})))
}

// observeWorkloads records errors of pod creation, and the progress of a rollout.
func (r *GatewayReconciler) observeWorkloads(ctx context.Context, p *plan.Plan, seen *report.Observed) error {
	updated := func(w *plan.Workload, observed, generation int64, n int32) {
		if observed > 0 && (observed < generation || n < w.Replicas) {
			seen.Updated[w.Name] = n
		}
	}
	for i := range p.Workloads {
		w := &p.Workloads[i]
		key := client.ObjectKey{Namespace: p.Gateway.Namespace, Name: w.Name}
		if w.Claim == nil {
			var d appsv1.Deployment
			if err := r.Get(ctx, key, &d); client.IgnoreNotFound(err) != nil {
				return err
			}
			updated(w, d.Status.ObservedGeneration, d.Generation, d.Status.UpdatedReplicas)
			for _, c := range d.Status.Conditions {
				if c.Type == appsv1.DeploymentReplicaFailure && c.Status == corev1.ConditionTrue {
					seen.Refused[w.Name] = c.Message
				}
			}
			continue
		}
		var s appsv1.StatefulSet
		if err := r.Get(ctx, key, &s); client.IgnoreNotFound(err) != nil {
			return err
		}
		updated(w, s.Status.ObservedGeneration, s.Generation, s.Status.UpdatedReplicas)
		if s.Name == "" || s.Status.ObservedGeneration == 0 || s.Status.Replicas >= w.Replicas {
			continue
		}
		// The StatefulSet controller reports errors only as Events.
		var events corev1.EventList
		err := r.APIReader.List(ctx, &events, client.InNamespace(key.Namespace), client.Limit(100),
			client.MatchingFields{"involvedObject.kind": "StatefulSet", "involvedObject.name": w.Name, "reason": "FailedCreate"})
		if err != nil {
			return fmt.Errorf("events of StatefulSet %s: %w", key, err)
		}
		var newest time.Time
		for _, e := range events.Items {
			if e.InvolvedObject.UID == s.UID && !e.LastTimestamp.Time.Before(newest) {
				newest, seen.Refused[w.Name] = e.LastTimestamp.Time, e.Message
			}
		}
	}
	return nil
}

// writeIngress sets the load balancer status of Services with virtual addresses.
func (r *GatewayReconciler) writeIngress(ctx context.Context, p *plan.Plan, services map[string]*corev1.Service) error {
	var errs []error
	for i := range p.Exports {
		x := &p.Exports[i]
		s := services[x.Service]
		if x.Config == nil || x.VIP == "" || s == nil {
			continue
		}
		if have := s.Status.LoadBalancer.Ingress; len(have) == 1 && have[0].IP == x.VIP && have[0].IPMode != nil {
			continue
		}
		to := s.DeepCopy()
		to.Status.LoadBalancer.Ingress = objects.Ingress(x.VIP)
		errs = append(errs, client.IgnoreNotFound(r.Status().Patch(ctx, to, client.MergeFrom(s), client.FieldOwner(fieldManager))))
	}
	return errors.Join(errs...)
}
