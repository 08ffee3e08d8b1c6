//go:build operator

package operator

import (
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
)

// TestEvents checks that each change of Ready's reason is an Event, and nothing else is.
func TestEvents(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	start(t, ns, false, nil)
	ctx := t.Context()
	gw, x := newGateway(ns, "fast"), newExport(ns, "data", "fast")
	must(t, kube.Create(ctx, x))
	eventually(t, "there is no gateway", condition(x, v1alpha1.ConditionReady, no, v1alpha1.ReasonGatewayNotFound))
	must(t, kube.Create(ctx, gw))
	eventually(t, "there are no pods", condition(x, v1alpha1.ConditionReady, no, v1alpha1.ReasonPodsPending))
	startNodes(t, ns)
	eventually(t, "the export is ready", isReady(x))
	eventually(t, "the gateway is ready", isReady(gw))
	for _, o := range []client.Object{gw, x} {
		eventually(t, o.GetName(), func() error {
			var all eventsv1.EventList
			must(t, kube.List(ctx, &all, client.InNamespace(ns)))
			slices.SortFunc(all.Items, func(a, b eventsv1.Event) int { return a.EventTime.Compare(b.EventTime.Time) })
			var reasons []string
			for _, e := range all.Items {
				if e.Regarding.UID != o.GetUID() {
					continue
				}
				if n := len(reasons); n > 0 && reasons[n-1] == e.Reason {
					t.Errorf("two events in a row of %s", e.Reason)
				}
				if (e.Type == corev1.EventTypeNormal) != (e.Reason == v1alpha1.ReasonReady) || e.Note == "" {
					t.Errorf("%s %s: %q", e.Type, e.Reason, e.Note)
				}
				reasons = append(reasons, e.Reason)
			}
			if o == client.Object(x) && (len(reasons) < 3 || reasons[0] != v1alpha1.ReasonGatewayNotFound || reasons[1] != v1alpha1.ReasonPodsPending) ||
				len(reasons) < 2 || reasons[len(reasons)-1] != v1alpha1.ReasonReady {
				return fmt.Errorf("events %v", reasons)
			}
			return nil
		})
	}
}
