package controllers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"sluice.dev/sluice/api/v1alpha1"
)

// One that was deleted and made anew while the watch was broken comes as an update, and both have their first generation.
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
