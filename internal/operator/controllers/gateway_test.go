package controllers

import (
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/operator/report"
)

// TestLookAgain: objects without a watch are read again from time to time.
func TestLookAgain(t *testing.T) {
	refused := func(reason string) func(*gatewayState) {
		return func(f *gatewayState) {
			f.plan.Exports = []plan.Export{{Conditions: []metav1.Condition{condition.False(v1alpha1.ConditionAccepted, reason, "no")}}}
		}
	}
	for _, c := range []struct {
		name string
		edit func(*gatewayState)
		want time.Duration
	}{
		{"nothing is amiss", func(*gatewayState) {}, resyncInterval},
		{"keys of somebody's", func(f *gatewayState) { f.plan.Gateway.Spec.HandleKeys.SecretName = "keys" }, resyncInterval},
		{"a network", func(f *gatewayState) {
			f.plan.Gateway.Spec.RDMA = &v1alpha1.RDMA{Networks: []v1alpha1.Network{{Name: "rdma-net"}}}
		}, resyncInterval},
		{"a reference that leads nowhere", func(f *gatewayState) {
			f.plan.Gateway.Spec.HandleKeys.SecretName = "keys"
			f.plan.Conditions = []metav1.Condition{condition.False(v1alpha1.ConditionResolvedRefs, v1alpha1.ReasonSecretNotFound, "no")}
		}, retryInterval},
		{"a Service that was not made", func(f *gatewayState) { f.observed.Failed["sluice-data"] = errors.New("no") }, retryInterval},
		{"an object that was not made", func(f *gatewayState) { f.observed.Blocked["fast"] = &report.Refused{} }, retryInterval},
		{"an address of another gateway's", refused(v1alpha1.ReasonAddressTaken), retryInterval},
		{"no address is left", refused(v1alpha1.ReasonNoFreeAddress), retryInterval},
		{"no consent", refused(v1alpha1.ReasonBackendNotAllowed), resyncInterval},
	} {
		f := &gatewayState{plan: plan.Plan{Gateway: &v1alpha1.NFSGateway{}}, observed: report.Observed{Failed: map[string]error{}, Blocked: map[string]report.Blocker{}}}
		c.edit(f)
		if got := f.requeueAfter(false); got != c.want {
			t.Errorf("%s: after %v, want %v", c.name, got, c.want)
		}
	}
}

// TestScope: the cache refuses to read namespaces that are not watched. Their objects count as
// absent.
func TestScope(t *testing.T) {
	refuses := listed{err: errors.New("unable to get: unknown namespace for the cache")}
	watched := namespaces{"storage"}
	x := &v1alpha1.NFSExport{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "data", Generation: 1}, Spec: v1alpha1.NFSExportSpec{GatewayRef: v1alpha1.GatewayReference{Name: "fast", Namespace: "elsewhere"}}}
	e := &ExportStatusReconciler{statusWriter: &statusWriter{Client: refuses}, namespaces: watched, states: newStateStore()}
	s, ok, err := e.report(t.Context(), x)
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); err != nil || !ok || c == nil || c.Reason != v1alpha1.ReasonGatewayNotFound {
		t.Errorf("the export's status is %+v, %v, %v", s, ok, err)
	}
	r := &GatewayReconciler{applier: applier{Client: refuses}, namespaces: watched, states: newStateStore()}
	if again, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "elsewhere", Name: "fast"}}); err != nil || again != (ctrl.Result{}) {
		t.Errorf("the gateway is looked at again: %+v, %v", again, err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Labels: map[string]string{plan.LabelExportNamespace: "elsewhere", plan.LabelExport: "data"}}}
	if keep, err := r.keepService(t.Context(), service, nil, true); keep || err != nil {
		t.Errorf("the Service is kept: %v, %v", keep, err)
	}
}
