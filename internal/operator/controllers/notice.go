package controllers

import (
	"cmp"
	"context"
	"errors"
	"os"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"sluice.dev/sluice/api/v1alpha1"
)

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
