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

// board is where controllers leave what they found out for each other: the gateway controller its plans, the poll controller what pods answered. Nothing of
// it outlives the process.
type board struct {
	mu       sync.Mutex
	gateways map[types.NamespacedName]*found
	polls    map[types.NamespacedName]*poll

	// Who is told of a gateway when
	heard   []func(gateway types.NamespacedName) // anything about it is new,
	moved   []func(gateway types.NamespacedName) // its pods serve other exports than before, or elsewhere,
	planned []func(gateway types.NamespacedName) // its pods shall serve something else.
}

// found is a gateway as it was seen last.
type found struct {
	plan    plan.Plan
	seen    report.Seen // its pods lack what they answered
	files   map[string]string
	changed time.Time    // when the plan was another one last
	whole   *report.Seen // with what they answered; nil if it has to be put together anew
}

// poll is what a pod answered.
type poll struct {
	gateway types.NamespacedName
	uid     types.UID
	status  *status.Status
	speaker *api.Status
	err     string
	// silent, speakerSilent: it did not answer this time, and status, or speaker, is what it said before. That is done once: a question may get lost.
	silent, speakerSilent bool
	served                []plan.Busy // its listeners when it answered last, where status is nil
}

func newBoard() *board {
	return &board{gateways: map[types.NamespacedName]*found{}, polls: map[types.NamespacedName]*poll{}}
}

// set takes what became of a gateway; nil if it is gone.
func (b *board) set(gateway types.NamespacedName, f *found) {
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
	b.tell(&b.heard, gateway)
	if f != nil && !same {
		b.tell(&b.planned, gateway)
	}
}

// setPoll takes what a pod answered; nil if there is no such pod.
func (b *board) setPoll(pod types.NamespacedName, p *poll) {
	b.mu.Lock()
	old := b.polls[pod]
	if p == nil && old == nil {
		b.mu.Unlock()
		return
	}
	var gateway types.NamespacedName
	if p == nil {
		gateway = old.gateway
		delete(b.polls, pod)
	} else {
		gateway = p.gateway
		b.polls[pod] = p
	}
	if f := b.gateways[gateway]; f != nil {
		f.whole = nil
	}
	b.mu.Unlock()
	b.tell(&b.heard, gateway)
	if !slices.Equal(old.listeners(), p.listeners()) {
		b.tell(&b.moved, gateway)
	}
}

// listen adds a listener to one of the lists.
func (b *board) listen(list *[]func(types.NamespacedName), f func(types.NamespacedName)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	*list = append(*list, f)
}

func (b *board) tell(list *[]func(types.NamespacedName), gateway types.NamespacedName) {
	b.mu.Lock()
	whom := *list
	b.mu.Unlock()
	for _, f := range whom {
		f(gateway)
	}
}

// polled returns what a pod answered last; nil if it was not asked.
func (b *board) polled(pod *corev1.Pod) *poll {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p := b.polls[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]; p != nil && p.uid == pod.UID {
		return p
	}
	return nil
}

// look returns a gateway's plan and all that is known of its pods; nil if nothing is known of the gateway. Both are not to be changed.
func (b *board) look(gateway types.NamespacedName) (*plan.Plan, *report.Seen) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.gateways[gateway]
	if f == nil {
		return nil, nil
	}
	if f.whole == nil {
		w := f.seen
		w.Pods = slices.Clone(w.Pods)
		for i := range w.Pods {
			pod := &w.Pods[i]
			if p := b.polls[types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}]; p != nil && p.uid == pod.UID {
				pod.Status, pod.Error, pod.Speaker = p.status, p.err, p.speaker
			}
		}
		slices.SortFunc(w.Pods, func(a, b report.Pod) int { return cmp.Compare(a.Name, b.Name) })
		w.Prepare(&f.plan)
		f.whole = &w
	}
	return &f.plan, f.whole
}

// applying tells whether a pod lags behind its gateway's plan, which changed less than patience ago.
func (b *board) applying(pod *corev1.Pod, now time.Time, patience time.Duration) bool {
	p := b.polled(pod)
	b.mu.Lock()
	defer b.mu.Unlock()
	f := b.gateways[gatewayOf(pod)]
	if f == nil || now.Sub(f.changed) > patience {
		return false
	}
	return p == nil || p.status == nil || p.status.Config.Hash != f.files[pod.Labels[plan.LabelWorkload]] ||
		slices.ContainsFunc(p.status.Exports, func(e status.Export) bool { return e.State != status.Serving })
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

// listeners are those that a pod has, as far as it said so, of which exports, and which file it read.
func (p *poll) listeners() (out []plan.Busy) {
	switch {
	case p == nil:
		return nil
	case p.status == nil:
		return p.served
	}
	out = append(out, plan.Busy{Address: p.status.Config.Hash})
	for i := range p.status.Exports {
		e := &p.status.Exports[i]
		for j := range e.Listeners {
			out = append(out, plan.Busy{Export: e.Name, Address: e.Listeners[j].Configured})
		}
	}
	return out
}

// lacks reports whether a pod said what its gateway reads of a configuration file, and a feature is not among that.
func (p *poll) lacks(feature string) bool {
	return p != nil && p.status != nil && !slices.Contains(p.status.Config.Features, feature)
}

// hasRead tells whether a pod has read its ConfigMap as it is.
func (p *poll) hasRead(c *corev1.ConfigMap) bool {
	speaker := sha256.Sum256([]byte(c.Data[objects.SpeakerFile]))
	return p.status.Config.Hash == fileHash(c.Data[objects.GatewayFile]) && (p.speaker == nil || p.speaker.ConfigHash == hex.EncodeToString(speaker[:]))
}
