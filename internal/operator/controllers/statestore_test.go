package controllers

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/operator/report"
)

func podNamed(name string, uid types.UID) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name, UID: uid, Labels: map[string]string{plan.LabelGateway: "fast", plan.LabelWorkload: "fast"}}}
}

func TestStateStore(t *testing.T) {
	b := newStateStore()
	var notified []string
	for name, list := range map[string]*[]func(types.NamespacedName){"heard": &b.onAny, "moved": &b.onListeners, "planned": &b.onConfig} {
		b.subscribe(list, func(g types.NamespacedName) { notified = append(notified, name+" "+g.String()) })
	}
	want := func(words ...string) {
		t.Helper()
		if got := strings.Join(notified, ", "); got != strings.Join(words, ", ") {
			t.Errorf("notified %s, want %s", got, strings.Join(words, ", "))
		}
		notified = nil
	}
	gw, key := types.NamespacedName{Namespace: "storage", Name: "fast"}, types.NamespacedName{Namespace: "storage", Name: "fast-0"}
	pod := podNamed("fast-0", "1")
	at := func(hash string, state status.ExportState) *podStatus {
		return &podStatus{gateway: gw, uid: "1", status: &status.Status{Config: status.Config{Hash: hash}, Exports: []status.Export{{Name: "x", State: state, Listeners: []status.Listener{{Configured: ":21000"}}}}}}
	}
	start := time.Unix(1000, 0)
	set := func(hash string, now time.Time) {
		b.setGateway(gw, &gatewayState{files: map[string]string{"fast": hash}, changed: now, observed: report.Observed{Pods: []report.Pod{{Pod: &pod}}}})
	}
	applying := func(now time.Time) bool { return b.applying(&pod, now, time.Minute) }

	if p, _ := b.observedGateway(gw); p != nil {
		t.Error("something is known of a gateway that nobody set")
	}
	set("A", start)
	want("heard storage/fast", "planned storage/fast")
	if !applying(start) {
		t.Error("a pod that was not asked lags behind")
	}
	set("A", start.Add(time.Hour))
	want("heard storage/fast")
	if applying(start.Add(2 * time.Minute)) {
		t.Error("patience is endless, since the plan that stayed the same counts as new")
	}
	b.setPod(key, at("A", status.Serving))
	want("heard storage/fast", "moved storage/fast")
	if applying(start) {
		t.Error("the pod has applied everything")
	}
	b.setPod(key, at("A", status.Applying))
	want("heard storage/fast")
	if !applying(start) {
		t.Error("an export is being applied")
	}
	if _, seen := b.observedGateway(gw); seen.Pods[0].Status == nil {
		t.Error("the pod's answer is not there")
	}
	set("B", start)
	want("heard storage/fast", "planned storage/fast")
	if !applying(start) {
		t.Error("the pod lags behind the new file")
	}
	pod.UID = "2"
	if b.podStatus(&pod) != nil {
		t.Error("another pod of the same name has not answered yet")
	}
	b.setPod(key, nil)
	want("heard storage/fast", "moved storage/fast")
	b.setPod(key, nil)
	want()
	b.setGateway(gw, nil)
	want("heard storage/fast")
}

// A gateway whose page does not name a feature gets no file with it. One that has not answered may
// be of any kind.
func TestLacks(t *testing.T) {
	for _, c := range []struct {
		name string
		poll *podStatus
		want bool
	}{
		{"not asked", nil, false},
		{"silent", &podStatus{pollError: "connection refused"}, false},
		{"a former gateway", &podStatus{status: &status.Status{}}, true},
		{"a gateway with the feature", &podStatus{status: &status.Status{Config: status.Config{Features: []string{"more", config.FeatureNetworkSets}}}}, false},
	} {
		if got := c.poll.lacksFeature(config.FeatureNetworkSets); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
