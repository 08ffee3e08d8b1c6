package plan

import (
	"fmt"
	"testing"
)

// TestPlansGrowWithExportsPlusNodes: twice as many exports and twice as many nodes cost twice as
// much, not four times.
func TestPlansGrowWithExportsPlusNodes(t *testing.T) {
	cost := func(exports, nodes int) float64 {
		in := Input{Gateway: gateway(), Exports: manyExports(exports), Nodes: manyNodes(nodes)}
		return testing.AllocsPerRun(1, func() { Make(in) })
	}
	one, two := cost(100, 1000), cost(200, 2000)
	if two > 2.5*one {
		t.Errorf("%v allocations for 100 exports and 1000 nodes, %v for twice as many of both", one, two)
	}
	t.Logf("%v and %v allocations", one, two)
}

// BenchmarkPlan plans a gateway whose exports are for all nodes.
func BenchmarkPlan(b *testing.B) {
	for _, n := range []struct{ exports, nodes int }{{200, 10}, {200, 1000}, {200, 5000}, {5000, 1000}} {
		b.Run(fmt.Sprintf("exports=%d/nodes=%d", n.exports, n.nodes), func(b *testing.B) {
			in := Input{Gateway: gateway(), Exports: manyExports(n.exports), Nodes: manyNodes(n.nodes)}
			in.Gateway.Spec.Limits.Exports = 5000
			b.ReportAllocs()
			for b.Loop() {
				Make(in)
			}
		})
	}
}
