package controllers

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// One that was deleted and made anew while the watch was broken comes as an update, and both have
// their first generation.
func TestSpecChanged(t *testing.T) {
	export := func(uid types.UID, generation int64, clients int32) *v1alpha1.NFSExport {
		return &v1alpha1.NFSExport{ObjectMeta: metav1.ObjectMeta{UID: uid, Generation: generation}, Status: v1alpha1.NFSExportStatus{Clients: clients}}
	}
	for _, c := range []struct {
		name   string
		before *v1alpha1.NFSExport
		after  *v1alpha1.NFSExport
		want   bool
	}{
		{"status", export("1", 1, 0), export("1", 1, 7), false},
		{"spec", export("1", 1, 0), export("1", 2, 0), true},
		{"made anew", export("1", 1, 0), export("2", 1, 0), true},
	} {
		if got := specOrUID.Update(event.UpdateEvent{ObjectOld: c.before, ObjectNew: c.after}); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestNotRenewed: deleted Leases are made again; the speakers' writes to them cause no reconcile.
func TestNotRenewed(t *testing.T) {
	lease := func(holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "fast-vip-0", Labels: map[string]string{plan.LabelGateway: "fast"}}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	}
	other := lease("a")
	other.Labels[plan.LabelGateway] = "slow"
	p := notRenewed()
	if p.Update(event.UpdateEvent{ObjectOld: lease("a"), ObjectNew: lease("b")}) {
		t.Error("a renewal is looked at")
	}
	if !p.Update(event.UpdateEvent{ObjectOld: lease("a"), ObjectNew: other}) || !p.Delete(event.DeleteEvent{Object: lease("a")}) {
		t.Error("a change, or a deletion, is not looked at")
	}
}
