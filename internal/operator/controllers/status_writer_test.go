package controllers

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
)

// counter is an API server that accepts everything, and counts writes.
type counter struct {
	client.Client
	pod     *corev1.Pod
	alone   bool // it has no gateway
	applied int
}

func (c *counter) Scheme() *runtime.Scheme { return Scheme() }

func (c *counter) Status() client.SubResourceWriter { return statusCounter{nil, c} }

// statusCounter counts writes of status.
type statusCounter struct {
	client.SubResourceWriter
	of *counter
}

func (c statusCounter) Apply(context.Context, runtime.ApplyConfiguration, ...client.SubResourceApplyOption) error {
	c.of.applied++
	return nil
}

func (c *counter) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *corev1.Pod:
		c.pod.DeepCopyInto(o)
	case *v1alpha1.NFSGateway:
		if c.alone || key != gatewayOf(c.pod) {
			return apierrors.NewNotFound(schema.GroupResource{Resource: "nfsgateways"}, key.Name)
		}
	}
	return nil
}

func TestOnly(t *testing.T) {
	s := func(clients int64, reason, message, at string) map[string]any {
		return map[string]any{"clients": clients, "address": "a", "conditions": []any{map[string]any{"type": "Ready", "reason": reason, "message": message, "lastTransitionTime": at}}}
	}
	have := s(1, "Ready", "m", "t")
	for _, c := range []struct {
		name                   string
		other                  map[string]any
		counts, words, essence bool // are the same
	}{
		{"times", s(1, "Ready", "m", "u"), true, true, true},
		{"clients", s(2, "Ready", "m", "t"), false, true, true},
		{"words", s(1, "Ready", "n", "t"), false, false, true},
		{"reasons", s(1, "Other", "m", "t"), false, false, false},
	} {
		for p, want := range map[comparison]bool{everything: c.counts, exceptCounts: c.words, exceptMessages: c.essence} {
			a, _ := json.Marshal(comparable(have, p))
			b, _ := json.Marshal(comparable(c.other, p))
			if got := string(a) == string(b); got != want {
				t.Errorf("%s, part %d: same is %v", c.name, p, got)
			}
		}
	}
	if have["clients"] != int64(1) {
		t.Error("the status itself was changed")
	}
}

// A status is written at once when a reason is another one, at most every 30 s when only clients
// come and go, and every two minutes when only words change.
func TestPaceOfStatus(t *testing.T) {
	const minutes = 20
	for _, c := range []struct {
		name   string
		change func(s *v1alpha1.NFSExportStatus, second int)
		writes int // beside the first
		events int
	}{
		{"nothing", func(*v1alpha1.NFSExportStatus, int) {}, 0, 1},
		{"clients", func(s *v1alpha1.NFSExportStatus, second int) { s.Clients = int32(second) }, minutes * 2, 1},
		{"a client that comes and goes", func(s *v1alpha1.NFSExportStatus, second int) {
			c := condition.Unknown(v1alpha1.ConditionClientAddressesVisible, v1alpha1.ReasonNoClients, "nobody")
			if s.Clients = int32(second % 2 * second); s.Clients > 0 {
				c = condition.True(v1alpha1.ConditionClientAddressesVisible, v1alpha1.ReasonVisible, "somebody")
			}
			s.Conditions = append(s.Conditions, c)
		}, minutes * 2, 1},
		{"words", func(s *v1alpha1.NFSExportStatus, second int) { s.Conditions[0].Message = fmt.Sprint(second) }, minutes / 2, 1},
		{"both", func(s *v1alpha1.NFSExportStatus, second int) {
			s.Clients, s.Conditions[0].Message = int32(second), fmt.Sprint(second)
		}, minutes / 2, 1},
		{"a reason, each minute", func(s *v1alpha1.NFSExportStatus, second int) { s.Conditions[0].Reason = fmt.Sprint("R", second/60) }, minutes - 1, minutes},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := &counter{}
				recorder := events.NewFakeRecorder(2 * minutes)
				w := &statusWriter{Client: api, recorder: recorder}
				x := &v1alpha1.NFSExport{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "data", UID: "1"}}
				for second := range minutes * 60 {
					want := v1alpha1.NFSExportStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: "R0"}}}
					c.change(&want, second)
					before := api.applied
					again, err := w.write(t.Context(), x, &x.Status, &want)
					if err != nil {
						t.Fatal(err)
					}
					if api.applied > before {
						x.Status = want // the cache has it at once
					} else if again.RequeueAfter > wordsEvery {
						t.Errorf("it is looked at again after %v", again.RequeueAfter)
					}
					time.Sleep(time.Second)
				}
				if api.applied < c.writes || api.applied > 1+c.writes || len(recorder.Events) != c.events {
					t.Errorf("%d writes and %d events, want %d or one more, and %d", api.applied, len(recorder.Events), c.writes, c.events)
				}
			})
		})
	}
}

// TestTimesOfConditions: the time of a condition is that of its last change of status, even where
// the cache lacks the latest write.
func TestTimesOfConditions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &statusWriter{Client: &counter{}, recorder: &events.FakeRecorder{}}
		began := metav1.Now()
		x := &v1alpha1.NFSExport{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "data", UID: "1", Generation: 1}}
		x.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Ready", LastTransitionTime: began, ObservedGeneration: 1}}
		for i, c := range []struct {
			after  time.Duration
			status metav1.ConditionStatus
			cached bool // the cache has the write
			at     time.Duration
		}{
			{time.Minute, metav1.ConditionTrue, false, 0},
			{0, metav1.ConditionFalse, false, time.Minute},
			{time.Second, metav1.ConditionTrue, false, time.Minute + time.Second},
			{time.Second, metav1.ConditionTrue, true, time.Minute + time.Second},
			{time.Minute, metav1.ConditionTrue, false, time.Minute + time.Second},
		} {
			time.Sleep(c.after)
			want := v1alpha1.NFSExportStatus{Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: c.status, Reason: "R" + string(c.status)}}}
			want.Conditions = w.merge(x, x.Status.Conditions, want.Conditions)
			if got := want.Conditions[0].LastTransitionTime.Sub(began.Time).Round(time.Second); got != c.at {
				t.Errorf("step %d: since %v, want %v", i, got, c.at)
			}
			if _, err := w.write(t.Context(), x, &x.Status, &want); err != nil {
				t.Fatal(err)
			}
			if c.cached {
				x.Status = want
			}
		}
	})
}

// TestEventsOfCapacity: an event marks the moment when a gateway's configuration exceeds four
// fifths of its limit, and when it falls below; no event before.
func TestEventsOfCapacity(t *testing.T) {
	status := func(capacity string) map[string]any {
		list := []any{map[string]any{"type": v1alpha1.ConditionReady, "status": "True", "reason": "Ready"}}
		if capacity != "" {
			list = append(list, map[string]any{"type": v1alpha1.ConditionConfigCapacity, "status": "False", "reason": capacity})
		}
		return map[string]any{"conditions": list}
	}
	gw := &v1alpha1.NFSGateway{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "fast"}}
	for _, c := range []struct {
		before, after string
		events        int
	}{
		{"", v1alpha1.ReasonCapacitySufficient, 0},
		{"", v1alpha1.ReasonCapacityLow, 1},
		{v1alpha1.ReasonCapacitySufficient, v1alpha1.ReasonCapacityLow, 1},
		{v1alpha1.ReasonCapacityLow, v1alpha1.ReasonCapacityLow, 0},
		{v1alpha1.ReasonCapacityLow, v1alpha1.ReasonCapacityExhausted, 1},
		{v1alpha1.ReasonCapacityLow, v1alpha1.ReasonCapacitySufficient, 1},
	} {
		recorder := events.NewFakeRecorder(2)
		(&statusWriter{recorder: recorder}).recordEvents(gw, status(c.before), status(c.after))
		if n := len(recorder.Events); n != c.events {
			t.Errorf("%q, then %q: %d events, want %d", c.before, c.after, n, c.events)
		}
	}
}
