package controllers

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/internal/operator/objects"
	"sluice.dev/sluice/internal/operator/plan"
)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// One question without an answer changes nothing, and is asked again soon. What a pod listened on is not forgotten however long it is silent, as it may do so still.
func TestSilence(t *testing.T) {
	pod := podNamed("fast-0", "1")
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7"}
	pod.Spec.InitContainers = []corev1.Container{{Name: objects.SpeakerContainer}}
	b := newBoard()
	p := newPolls(&counter{pod: &pod}, b)
	silent := false
	p.http.Transport = roundTrip(func(r *http.Request) (*http.Response, error) {
		if silent {
			return nil, errors.New("no route to host")
		}
		return trip(func(*http.Request) []byte {
			return []byte(`{"config":{"hash":"A"},"exports":[{"name":"storage.data","state":"Serving","listeners":[{"configured":":21000"}]}]}`)
		}).RoundTrip(r)
	})
	moved := 0
	b.listen(&b.moved, func(client.ObjectKey) { moved++ })
	for i, c := range []struct {
		silent, known, soon bool
		moved               int
	}{
		{false, true, false, 1},
		{true, true, true, 1},
		{true, false, false, 1},
		{true, false, false, 1},
		{false, true, false, 1},
		{true, true, true, 1},
		{false, true, false, 1},
		{true, true, true, 1},
	} {
		silent = c.silent
		r, err := p.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&pod)})
		if err != nil {
			t.Fatal(err)
		}
		got := b.polled(&pod)
		if (got.status != nil) != c.known || (got.speaker != nil) != c.known || c.known == strings.Contains(got.err, "no route to host") || r.RequeueAfter < 2*time.Second != c.soon {
			t.Errorf("answer %d: %+v, asked again after %v; want %+v", i, got, r.RequeueAfter, c)
		}
		busy := false
		for _, l := range got.listeners() {
			busy = busy || l == plan.Busy{Export: "storage.data", Address: ":21000"}
		}
		if !busy || moved != c.moved {
			t.Errorf("answer %d: listeners %+v, which moved %d times", i, got.listeners(), moved)
		}
	}
	pod.UID = "2"
	if _, err := p.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&pod)}); err != nil {
		t.Fatal(err)
	}
	if got := b.polled(&pod); got.status != nil || len(got.listeners()) > 0 {
		t.Errorf("another pod of the name has what the one before it answered: %+v", got)
	}
}

// Ports and addresses are given away when it is known what pods listen on, and not before: an operator that was started just now does not know.
func TestAsked(t *testing.T) {
	r := &gateways{board: newBoard()}
	pod := podNamed("fast-0", "1")
	for _, c := range []struct {
		status corev1.PodStatus
		want   bool
	}{
		{corev1.PodStatus{Phase: corev1.PodPending}, true},
		{corev1.PodStatus{Phase: corev1.PodRunning}, true},
		{corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7"}, false},
		{corev1.PodStatus{Phase: corev1.PodFailed, PodIP: "10.1.0.7"}, true},
	} {
		pod.Status = c.status
		if got := r.asked([]corev1.Pod{pod}); got != c.want {
			t.Errorf("%+v: %v", c.status, got)
		}
	}
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7"}
	r.board.setPoll(client.ObjectKeyFromObject(&pod), &poll{gateway: gatewayOf(&pod), uid: "1", err: "connection refused"})
	if !r.asked([]corev1.Pod{pod}) {
		t.Error("a pod that does not answer was not asked")
	}
}
