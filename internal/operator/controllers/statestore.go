package controllers

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/source"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/objects"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/operator/report"
	"sluice.dev/sluice/internal/speaker/api"
)

// stateStore passes plans and pod statuses from the reconcilers that make them to those that use
// them. It lives in memory only.
type stateStore struct {
	mu       sync.Mutex
	gateways map[types.NamespacedName]*gatewayState
	pods     map[types.NamespacedName]*podStatus

	// Subscribers, called with the name of a gateway.
	onAny []func(gateway types.NamespacedName) // on any change
	// when its pods change their listeners or their file
	onListeners []func(gateway types.NamespacedName)
	onConfig    []func(gateway types.NamespacedName) // when its configuration files change
}

// gatewayState is the last plan of a gateway, and the objects around it.
type gatewayState struct {
	plan     plan.Plan
	observed report.Observed // without the statuses of pods
	files    map[string]string
	changed  time.Time        // time of the last change of files
	complete *report.Observed // observed, with the statuses of pods; nil: to be built
}

// podStatus is the last /status of a pod's gateway and speaker.
type podStatus struct {
	gateway   types.NamespacedName
	uid       types.UID
	status    *status.Status
	speaker   *api.Status
	pollError string
	// statusStale and speakerStale mark a status of the poll before: one poll may get lost.
	statusStale, speakerStale bool
	lastListeners             []plan.LiveListener // the last listeners, while status is nil
}

func newStateStore() *stateStore {
	return &stateStore{gateways: map[types.NamespacedName]*gatewayState{}, pods: map[types.NamespacedName]*podStatus{}}
}

// setGateway stores the state of a gateway; nil deletes it.
func (b *stateStore) setGateway(gateway types.NamespacedName, f *gatewayState) {
	b.mu.Lock()
	old := b.gateways[gateway]
	same := f != nil && old != nil && maps.Equal(old.files, f.files)
	switch {
	case f == nil:
		delete(b.gateways, gateway)
	case same:
		f.changed = old.changed
		fallthrough
	default:
		b.gateways[gateway] = f
	}
	b.mu.Unlock()
	b.notify(&b.onAny, gateway)
	if f != nil && !same {
		b.notify(&b.onConfig, gateway)
	}
}

// eachPlan calls f with the last plan of each gateway. The plan must not be kept.
func (b *stateStore) eachPlan(f func(*plan.Plan)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, g := range b.gateways {
		f(&g.plan)
	}
}

// setPod stores the status of a pod; nil deletes it.
func (b *stateStore) setPod(pod types.NamespacedName, p *podStatus) {
	b.mu.Lock()
	old := b.pods[pod]
	if p == nil && old == nil {
		b.mu.Unlock()
		return
	}
	var gateway types.NamespacedName
	if p == nil {
		gateway = old.gateway
		delete(b.pods, pod)
	} else {
		gateway = p.gateway
		b.pods[pod] = p
	}
	if f := b.gateways[gateway]; f != nil {
		f.complete = nil
	}
	b.mu.Unlock()
	b.notify(&b.onAny, gateway)
	if !slices.Equal(old.listeners(), p.listeners()) {
		b.notify(&b.onListeners, gateway)
	}
}

// subscribe adds f to a list of subscribers.
func (b *stateStore) subscribe(list *[]func(types.NamespacedName), f func(types.NamespacedName)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*list = append(*list, f)
}

func (b *stateStore) notify(list *[]func(types.NamespacedName), gateway types.NamespacedName) {
	b.mu.Lock()
	whom := *list
	b.mu.Unlock()
	for _, f := range whom {
		f(gateway)
	}
}

// podStatus returns the status of a pod; nil before the first poll.
func (b *stateStore) podStatus(pod *corev1.Pod) *podStatus {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]; p != nil && p.uid == pod.UID {
		return p
	}
	return nil
}

// observedGateway returns a gateway's plan and observations; nil if there are none. Callers must
// not change them.
func (b *stateStore) observedGateway(gateway types.NamespacedName) (*plan.Plan, *report.Observed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.gateways[gateway]
	if f == nil {
		return nil, nil
	}
	if f.complete == nil {
		w := f.observed
		w.Pods = slices.Clone(w.Pods)
		for i := range w.Pods {
			pod := &w.Pods[i]
			if p := b.pods[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]; p != nil && p.uid == pod.UID {
				pod.Status, pod.Error, pod.Speaker = p.status, p.pollError, p.speaker
			}
		}
		slices.SortFunc(w.Pods, func(a, b report.Pod) int { return cmp.Compare(a.Name, b.Name) })
		w.Prepare(&f.plan)
		f.complete = &w
	}
	return &f.plan, f.complete
}

// applying reports whether a pod has yet to apply a plan that is younger than patience.
func (b *stateStore) applying(pod *corev1.Pod, now time.Time, patience time.Duration) bool {
	p := b.podStatus(pod)
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.gateways[gatewayOf(pod)]
	if f == nil || now.Sub(f.changed) > patience {
		return false
	}
	return p == nil || p.status == nil || p.status.Config.Hash != f.files[pod.Labels[plan.LabelWorkload]] ||
		slices.ContainsFunc(p.status.Exports, func(e status.Export) bool { return e.State != status.Serving })
}

// gatewaySource enqueues the gateways that a list of subscribers hears of.
func (b *stateStore) gatewaySource(list *[]func(types.NamespacedName)) source.Source {
	return source.Func(func(_ context.Context, q requestQueue) error {
		b.subscribe(list, func(gateway types.NamespacedName) { q.AddAfter(ctrl.Request{NamespacedName: gateway}, batchDelay) })
		return nil
	})
}

// exportSource enqueues the exports of each changed gateway.
func (b *stateStore) exportSource(c client.Reader) source.Source {
	return source.Func(func(ctx context.Context, q requestQueue) error {
		b.subscribe(&b.onAny, func(gateway types.NamespacedName) {
			var list v1alpha1.NFSExportList
			if err := c.List(ctx, &list, client.MatchingFields{byGateway: gateway.String()}, client.UnsafeDisableDeepCopy); err != nil {
				log.FromContext(ctx).Error(err, "NFSExports cannot be listed")
			}
			for i := range list.Items {
				q.AddAfter(ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&list.Items[i])}, batchDelay)
			}
		})
		return nil
	})
}

// podSource enqueues the pods of each gateway with new configuration files.
func (b *stateStore) podSource(c client.Reader) source.Source {
	return source.Func(func(ctx context.Context, q requestQueue) error {
		b.subscribe(&b.onConfig, func(gateway types.NamespacedName) {
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

// listeners returns a pod's listeners and their exports, and one entry with the hash of its file.
func (p *podStatus) listeners() (out []plan.LiveListener) {
	switch {
	case p == nil:
		return nil
	case p.status == nil:
		return p.lastListeners
	}
	out = append(out, plan.LiveListener{Address: p.status.Config.Hash})
	for i := range p.status.Exports {
		e := &p.status.Exports[i]
		for j := range e.Listeners {
			out = append(out, plan.LiveListener{Export: e.Name, Address: e.Listeners[j].Configured})
		}
	}
	return out
}

// lacksFeature reports whether a pod is known to lack a feature of the configuration file.
func (p *podStatus) lacksFeature(feature string) bool {
	return p != nil && p.status != nil && !slices.Contains(p.status.Config.Features, feature)
}

// hasConfig reports whether a pod has read the current content of its ConfigMap.
func (p *podStatus) hasConfig(c *corev1.ConfigMap) bool {
	speaker := sha256.Sum256([]byte(c.Data[objects.SpeakerFile]))
	return p.status.Config.Hash == fileHash(c.Data[objects.GatewayFile]) && (p.speaker == nil || p.speaker.ConfigHash == hex.EncodeToString(speaker[:]))
}
