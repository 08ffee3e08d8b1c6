//go:build operator

package operator

import (
	"testing"

	"sluice.dev/sluice/api/v1alpha1"
)

// An export is made, and can be mounted.
func TestReady(t *testing.T) {
	ns := newNamespace(t)
	startNodes(t, ns)
	start(t, "", false, nil)
	gw, x := newGateway(ns, "fast"), newExport(ns, "data", "fast")
	must(t, kube.Create(t.Context(), gw))
	must(t, kube.Create(t.Context(), x))
	eventually(t, "the export is ready", isReady(x))
	eventually(t, "the gateway is ready", isReady(gw))
	t.Logf("%+v", x.Status)
	_ = v1alpha1.ReasonReady
}
