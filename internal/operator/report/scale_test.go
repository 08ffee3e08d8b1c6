package report

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// large is a gateway with many exports on many nodes, which all pods serve to a client each.
func large(exports, nodes int) *env {
	w := newEnv(false, nil)
	in := plan.Input{Gateway: w.gw, Namespaces: map[string]map[string]string{"storage": {}}}
	for i := range exports {
		x := w.x.DeepCopy()
		x.Name, x.UID = fmt.Sprintf("export-%04d", i), types.UID(fmt.Sprintf("00000000-%04d", i))
		x.Spec.Access = []v1alpha1.AccessRule{{From: v1alpha1.AccessFrom{Nodes: &metav1.LabelSelector{}}, Mode: "ReadWrite"}}
		in.Exports = append(in.Exports, *x)
	}
	for i := range nodes {
		in.Nodes = append(in.Nodes, corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", i)}, Status: corev1.NodeStatus{
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.%d.%d.%d", 10+i/10000, i/100%100, 2*(i%100))}},
		}})
	}
	w.plan = plan.Make(in)
	w.seen.Nodes = in.Nodes
	for i := range w.seen.Pods {
		st := w.seen.Pods[i].Status
		like := st.Exports[0]
		st.Exports = nil
		for j := range w.plan.Exports {
			x := &w.plan.Exports[j]
			if x.Config == nil {
				continue
			}
			e := like
			e.Name, e.Hash = x.Config.Name, x.Hash
			e.Clients = []status.Client{{Remote: netip.MustParseAddrPort("10.10.0.2:700")}}
			st.Exports = append(st.Exports, e)
		}
	}
	return w
}

// TestReportsDoNotGrowWithNodes: the cost for each export is the same on a thousand nodes as on
// ten.
func TestReportsDoNotGrowWithNodes(t *testing.T) {
	cost := func(exports, nodes int) float64 {
		w := large(exports, nodes)
		w.seen.Prepare(&w.plan)
		return testing.AllocsPerRun(10, func() { Export(&w.plan, &w.plan.Exports[0], &w.seen) })
	}
	few, many := cost(10, 10), cost(100, 1000)
	if many > 2*few { // the race detector has some made anew
		t.Errorf("%v allocations for an export on 1000 nodes, %v on 10", many, few)
	}
	t.Logf("%v allocations for each export", few)
}

// BenchmarkReport reports on all exports of a gateway after a poll.
func BenchmarkReport(b *testing.B) {
	for _, n := range []struct{ exports, nodes int }{{500, 10}, {500, 1000}, {500, 5000}, {5000, 1000}} {
		b.Run(fmt.Sprintf("exports=%d/nodes=%d", n.exports, n.nodes), func(b *testing.B) {
			w := large(n.exports, n.nodes)
			b.ReportAllocs()
			for b.Loop() {
				w.seen.Prepare(&w.plan)
				for i := range w.plan.Exports {
					Export(&w.plan, &w.plan.Exports[i], &w.seen)
				}
				Gateway(&w.plan, &w.seen)
			}
		})
	}
}
