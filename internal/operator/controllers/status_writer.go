package controllers

import (
	"cmp"
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
)

// Intervals between writes of a status that changes only in counts, or in messages.
const (
	countsEvery = 30 * time.Second
	wordsEvery  = 2 * time.Minute
)

// statusWriter writes the status of one kind.
type statusWriter struct {
	client.Client
	recorder events.EventRecorder

	mu   sync.Mutex
	last map[types.UID]lastStatus
}

// lastStatus is a written status that the cache may not show yet.
type lastStatus struct {
	status map[string]any
	at     time.Time
}

// merge returns the conditions to write for o, with transition times of its old ones. have is the
// cached list, which may be older than the last write.
func (w *statusWriter) merge(o client.Object, have, want []metav1.Condition) []metav1.Condition {
	w.mu.Lock()
	last := w.last[o.GetUID()]
	w.mu.Unlock()
	var s struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	if time.Since(last.at) < cacheDelay && runtime.DefaultUnstructuredConverter.FromUnstructured(last.status, &s) == nil {
		have = s.Conditions
	}
	return condition.Merge(have, want, o.GetGeneration(), metav1.Now())
}

// write sets the status of o to want. have is the cached one. Both are structs. It writes only
// changes.
func (w *statusWriter) write(ctx context.Context, o client.Object, have, want any) (ctrl.Result, error) {
	old, err := runtime.DefaultUnstructuredConverter.ToUnstructured(have)
	if err != nil {
		return ctrl.Result{}, err
	}
	status, err := runtime.DefaultUnstructuredConverter.ToUnstructured(want)
	if err != nil {
		return ctrl.Result{}, err
	}
	w.mu.Lock()
	last := w.last[o.GetUID()]
	w.mu.Unlock()
	age := time.Since(last.at)
	if age < cacheDelay {
		old = last.status
	}
	var every time.Duration
	switch {
	case reflect.DeepEqual(comparable(old, exceptCounts), comparable(status, exceptCounts)):
		if reflect.DeepEqual(comparable(old, everything), comparable(status, everything)) {
			return ctrl.Result{}, nil
		}
		every = countsEvery
	case reflect.DeepEqual(comparable(old, exceptMessages), comparable(status, exceptMessages)):
		every = wordsEvery
	}
	if age < every {
		return ctrl.Result{RequeueAfter: every - age}, nil
	}
	gvk, err := apiutil.GVKForObject(o, w.Scheme())
	if err != nil {
		return ctrl.Result{}, err
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(o.GetNamespace())
	u.SetName(o.GetName())
	u.SetUID(o.GetUID())
	if err := w.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), client.FieldOwner(fieldManager), client.ForceOwnership); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	w.recordEvents(o, old, status)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last = map[types.UID]lastStatus{}
	}
	maps.DeleteFunc(w.last, func(_ types.UID, l lastStatus) bool { return time.Since(l.at) > wordsEvery })
	w.last[o.GetUID()] = lastStatus{status, time.Now()}
	return ctrl.Result{}, nil
}

// comparison selects the parts of a status to compare.
type comparison int

const (
	everything     comparison = iota
	exceptCounts              // without clients and ConditionClientAddressesVisible
	exceptMessages            // nor messages
)

// comparable returns the parts of a status to compare, without transition times.
func comparable(status map[string]any, p comparison) map[string]any {
	status = runtime.DeepCopyJSON(status)
	list, _ := status["conditions"].([]any)
	if p != everything {
		delete(status, "clients")
		list = slices.DeleteFunc(list, func(c any) bool { return c.(map[string]any)["type"] == v1alpha1.ConditionClientAddressesVisible })
		status["conditions"] = list
	}
	for _, c := range list {
		c := c.(map[string]any)
		delete(c, "lastTransitionTime")
		if p == exceptMessages {
			delete(c, "message")
		}
	}
	return status
}

// maxNote is the API server's limit on the note of an Event, in bytes.
const maxNote = 1024

// eventConditions are the conditions whose changes make Events. The value is the reason of a
// condition that the object has not had yet.
var eventConditions = map[string]string{v1alpha1.ConditionReady: "", v1alpha1.ConditionConfigCapacity: v1alpha1.ReasonCapacitySufficient}

// recordEvents makes an Event for each condition of eventConditions with a new reason, so that
// kubectl describe shows its history.
func (w *statusWriter) recordEvents(o client.Object, before, after map[string]any) {
	for kind, initial := range eventConditions {
		c := conditionOf(after, kind)
		reason, _ := c["reason"].(string)
		old, _ := conditionOf(before, kind)["reason"].(string)
		if reason == "" || reason == cmp.Or(old, initial) {
			continue
		}
		level := corev1.EventTypeWarning
		if c["status"] == string(metav1.ConditionTrue) {
			level = corev1.EventTypeNormal
		}
		note, _ := c["message"].(string)
		if len(note) > maxNote {
			note = strings.ToValidUTF8(note[:maxNote], "")
		}
		w.recorder.Eventf(o, nil, level, reason, "Report", "%s", note)
	}
}

// conditionOf returns a condition of a status; nil if there is none.
func conditionOf(status map[string]any, kind string) map[string]any {
	list, _ := status["conditions"].([]any)
	for _, c := range list {
		if c, _ := c.(map[string]any); c["type"] == kind {
			return c
		}
	}
	return nil
}
