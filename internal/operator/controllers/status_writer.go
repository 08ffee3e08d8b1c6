package controllers

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
)

// How often a status is written of which only numbers, or the words of messages, are others.
const (
	countsEvery = 30 * time.Second
	wordsEvery  = 2 * time.Minute
)

// statuses writes the status of one kind.
type statuses struct {
	client.Client

	mu   sync.Mutex
	last map[types.UID]writtenStatus
}

// writtenStatus is what was written last, which the cache may not have yet.
type writtenStatus struct {
	status map[string]any
	at     time.Time
}

// merge returns conditions as they are to be written for o, with the times of those that it has. have is what the cache says of them, which may be older than what was
// written last.
func (w *statuses) merge(o client.Object, have, want []metav1.Condition) []metav1.Condition {
	w.mu.Lock()
	last := w.last[o.GetUID()]
	w.mu.Unlock()
	var s struct {
		Conditions []metav1.Condition `json:"conditions"`
	}
	if time.Since(last.at) < settle && runtime.DefaultUnstructuredConverter.FromUnstructured(last.status, &s) == nil {
		have = s.Conditions
	}
	return condition.Merge(have, want, o.GetGeneration(), metav1.Now())
}

// write makes want the status of o, which is have as far as the cache knows. Both are structs. Nothing is written where nothing would change.
func (w *statuses) write(ctx context.Context, o client.Object, have, want any) (ctrl.Result, error) {
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
	if age < settle {
		old = last.status
	}
	var every time.Duration
	switch {
	case reflect.DeepEqual(only(old, words), only(status, words)):
		if reflect.DeepEqual(only(old, counts), only(status, counts)) {
			return ctrl.Result{}, nil
		}
		every = countsEvery
	case reflect.DeepEqual(only(old, essence), only(status, essence)):
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
	if err := w.notice(ctx, o, old, status); err != nil {
		log.FromContext(ctx).Error(err, "an event cannot be made")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.last == nil {
		w.last = map[types.UID]writtenStatus{}
	}
	maps.DeleteFunc(w.last, func(_ types.UID, l writtenStatus) bool { return time.Since(l.at) > wordsEvery })
	w.last[o.GetUID()] = writtenStatus{status, time.Now()}
	return ctrl.Result{}, nil
}

// What of a status is compared.
type part int

const (
	counts  part = iota // all of it
	words               // all but the number of clients, and the condition that comes and goes with them
	essence             // no messages either
)

// only returns a part of a status, without the times of conditions.
func only(status map[string]any, p part) map[string]any {
	status = runtime.DeepCopyJSON(status)
	list, _ := status["conditions"].([]any)
	if p != counts {
		delete(status, "clients")
		list = slices.DeleteFunc(list, func(c any) bool { return c.(map[string]any)["type"] == v1alpha1.ConditionClientAddressesVisible })
		status["conditions"] = list
	}
	for _, c := range list {
		c := c.(map[string]any)
		delete(c, "lastTransitionTime")
		if p == essence {
			delete(c, "message")
		}
	}
	return status
}

// mostNote is how many bytes the API server takes of an event's note.
const mostNote = 1024

// noticed are the conditions whose changes make Events, each with the reason for which a first one makes none.
var noticed = map[string]string{v1alpha1.ConditionReady: "", v1alpha1.ConditionConfigCapacity: v1alpha1.ReasonCapacitySufficient}

// notice makes an Event when the reason of a condition in noticed became another one, so that kubectl describe has its history.
func (w *statuses) notice(ctx context.Context, o client.Object, before, after map[string]any) error {
	var errs []error
	for kind, silent := range noticed {
		now, _ := conditionOf(after, kind)["reason"].(string)
		was, _ := conditionOf(before, kind)["reason"].(string)
		if now != cmp.Or(was, silent) && now != "" {
			errs = append(errs, w.event(ctx, o, conditionOf(after, kind)))
		}
	}
	return errors.Join(errs...)
}

// event makes an Event of a condition.
func (w *statuses) event(ctx context.Context, o client.Object, c map[string]any) error {
	gvk, err := apiutil.GVKForObject(o, w.Scheme())
	if err != nil {
		return err
	}
	kind := corev1.EventTypeWarning
	if c["status"] == string(metav1.ConditionTrue) {
		kind = corev1.EventTypeNormal
	}
	reason, _ := c["reason"].(string)
	note, _ := c["message"].(string)
	if len(note) > mostNote {
		note = strings.ToValidUTF8(note[:mostNote], "")
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	return w.Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: o.GetNamespace(), GenerateName: o.GetName() + "-"},
		EventTime:  metav1.NowMicro(), Type: kind, Reason: reason, Action: "Report", Note: note,
		ReportingController: fieldManager, ReportingInstance: host,
		Regarding: corev1.ObjectReference{APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion()},
	})
}

// conditionOf is one of a status's conditions; empty if it is not there.
func conditionOf(status map[string]any, kind string) map[string]any {
	list, _ := status["conditions"].([]any)
	for _, c := range list {
		if c, _ := c.(map[string]any); c["type"] == kind {
			return c
		}
	}
	return nil
}
