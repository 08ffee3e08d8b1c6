package controllers

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	status "sluice.dev/sluice/api/status/v1alpha1"
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

// Anybody may give a pod our labels. It is asked only where there is a gateway that it may be of.
func TestStrangers(t *testing.T) {
	pod := podNamed("fast-0", "1")
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7"}
	api, b := &counter{pod: &pod, alone: true}, newBoard()
	p := newPolls(api, b)
	asked := 0
	p.http.Transport = trip(func(*http.Request) []byte { asked++; return []byte(`{}`) })
	look := func() ctrl.Result {
		t.Helper()
		r, err := p.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&pod)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if r := look(); asked != 0 || b.polled(&pod) != nil || r.RequeueAfter != pollSoon {
		t.Errorf("a pod of no gateway: asked %d times, %+v, looked at again after %v", asked, b.polled(&pod), r.RequeueAfter)
	}
	api.alone = false
	if look(); asked != 1 || b.polled(&pod) == nil {
		t.Errorf("when its gateway is there: asked %d times, %+v", asked, b.polled(&pod))
	}
	api.alone = true
	if look(); asked != 1 || b.polled(&pod) != nil {
		t.Errorf("when its gateway is gone: asked %d times, %+v", asked, b.polled(&pod))
	}
}

// An answer takes no more memory than its length lets one expect: three bytes can be an export.
func TestAnswersThatSwell(t *testing.T) {
	pod := podNamed("fast-0", "1")
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7"}
	var st status.Status
	for range 1000 {
		x := status.Export{Name: "a.b", State: status.Serving, Listeners: make([]status.Listener, 2), Credits: &status.Credits{}}
		x.Clients = []status.Client{{RDMA: &status.RDMA{}}}
		st.Exports = append(st.Exports, x)
	}
	dense, err := json.Marshal(st)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, answer, want string }{
		{"as gateways write", string(dense), ""},
		{"of empty objects", `{"exports":[` + strings.Repeat(`{},`, 100_000) + `{}]}`, "100002 objects in 300016 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBoard()
			p := newPolls(&counter{pod: &pod}, b)
			p.http.Transport = trip(func(*http.Request) []byte { return []byte(c.answer) })
			if _, err := p.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&pod)}); err != nil {
				t.Fatal(err)
			}
			if got := b.polled(&pod); (got.status != nil) != (c.want == "") || !strings.Contains(got.err, c.want) {
				t.Errorf("have %q, want %q", got.err, c.want)
			}
		})
	}
}
