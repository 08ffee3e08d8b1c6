package controllers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/operator/objects"
	"sluice.dev/sluice/internal/operator/plan"
)

// trip answers requests itself.
type trip func(*http.Request) []byte

func (f trip) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: r, Body: io.NopCloser(bytes.NewReader(f(r)))}, nil
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// TestAsk: a pod's reply is bounded, and a reply of another kind is an error.
func TestAsk(t *testing.T) {
	answer := func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"ready":true}`) }
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/status" {
			t.Errorf("asked for %s", r.URL.Path)
		}
		answer(w)
	}))
	defer srv.Close()
	host, text, err := net.SplitHostPort(srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	p := newPodStatusReconciler(nil, newStateStore())
	p.limit = 1000
	var s status.Status
	if err := p.fetchStatus(context.Background(), host, port, &s); err != nil || !s.Ready {
		t.Errorf("%+v, %v", s, err)
	}
	for _, c := range []struct {
		name   string
		answer func(http.ResponseWriter)
		want   string
	}{
		{"another status", func(w http.ResponseWriter) { w.WriteHeader(http.StatusServiceUnavailable) }, "503"},
		{"another kind", func(w http.ResponseWriter) { _, _ = io.WriteString(w, "<html>") }, "invalid character"},
		{"another place", func(w http.ResponseWriter) {
			w.Header().Set("Location", "http://192.0.2.1/")
			w.WriteHeader(http.StatusFound)
		}, "not a redirection"},
		{"too long", func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, strings.Repeat(" ", 2000))
		}, "longer than 1000 bytes"},
	} {
		answer = c.answer
		if err := p.fetchStatus(context.Background(), host, port, &s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", c.name, err, c.want)
		}
	}
}

// TestSilence: one request without a reply changes nothing, and is repeated soon. The listeners of
// a silent pod are never forgotten, as they may still exist.
func TestSilence(t *testing.T) {
	pod := podNamed("fast-0", "1")
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7"}
	pod.Spec.InitContainers = []corev1.Container{{Name: objects.SpeakerContainer}}
	b := newStateStore()
	p := newPodStatusReconciler(&counter{pod: &pod}, b)
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
	b.subscribe(&b.onListeners, func(client.ObjectKey) { moved++ })
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
		got := b.podStatus(&pod)
		if (got.status != nil) != c.known || (got.speaker != nil) != c.known || c.known == strings.Contains(got.pollError, "no route to host") || r.RequeueAfter < 2*time.Second != c.soon {
			t.Errorf("answer %d: %+v, asked again after %v; want %+v", i, got, r.RequeueAfter, c)
		}
		busy := false
		for _, l := range got.listeners() {
			busy = busy || l == plan.LiveListener{Export: "storage.data", Address: ":21000"}
		}
		if !busy || moved != c.moved {
			t.Errorf("answer %d: listeners %+v, which moved %d times", i, got.listeners(), moved)
		}
	}
	pod.UID = "2"
	if _, err := p.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&pod)}); err != nil {
		t.Fatal(err)
	}
	if got := b.podStatus(&pod); got.status != nil || len(got.listeners()) > 0 {
		t.Errorf("another pod of the name has what the one before it answered: %+v", got)
	}
}

// Anybody may give a pod our labels. It is asked only where there is a gateway that it may be of.
func TestStrangers(t *testing.T) {
	pod := podNamed("fast-0", "1")
	pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7"}
	api, b := &counter{pod: &pod, alone: true}, newStateStore()
	p := newPodStatusReconciler(api, b)
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
	if r := look(); asked != 0 || b.podStatus(&pod) != nil || r.RequeueAfter != pollSoon {
		t.Errorf("a pod of no gateway: asked %d times, %+v, looked at again after %v", asked, b.podStatus(&pod), r.RequeueAfter)
	}
	api.alone = false
	if look(); asked != 1 || b.podStatus(&pod) == nil {
		t.Errorf("when its gateway is there: asked %d times, %+v", asked, b.podStatus(&pod))
	}
	api.alone = true
	if look(); asked != 1 || b.podStatus(&pod) != nil {
		t.Errorf("when its gateway is gone: asked %d times, %+v", asked, b.podStatus(&pod))
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
			b := newStateStore()
			p := newPodStatusReconciler(&counter{pod: &pod}, b)
			p.http.Transport = trip(func(*http.Request) []byte { return []byte(c.answer) })
			if _, err := p.Reconcile(t.Context(), ctrl.Request{NamespacedName: client.ObjectKeyFromObject(&pod)}); err != nil {
				t.Fatal(err)
			}
			if got := b.podStatus(&pod); (got.status != nil) != (c.want == "") || !strings.Contains(got.pollError, c.want) {
				t.Errorf("have %q, want %q", got.pollError, c.want)
			}
		})
	}
}

// A pod is asked once in 10 s for all that it serves, and each second while it has something to
// apply: for two minutes at most.
func TestPaceOfPolls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := status.Status{Ready: true, Config: status.Config{Hash: "A"}}
		for i := range 200 {
			st.Exports = append(st.Exports, status.Export{Name: fmt.Sprintf("storage.export-%03d", i), State: status.Serving})
		}
		answer, err := json.Marshal(st)
		if err != nil {
			t.Fatal(err)
		}
		pod := podNamed("fast-0", "1")
		pod.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7"}
		gw, key := gatewayOf(&pod), client.ObjectKeyFromObject(&pod)
		b := newStateStore()
		asked := 0
		p := newPodStatusReconciler(&counter{pod: &pod}, b)
		p.http.Transport = trip(func(r *http.Request) []byte {
			if r.URL.String() != fmt.Sprintf("http://10.1.0.7:%d/status", plan.AdminPort) {
				t.Errorf("asked for %s", r.URL)
			}
			asked++
			return answer
		})
		// during counts how often the pod is asked in some time.
		during := func(d time.Duration) int {
			asked = 0
			for begun := time.Now(); time.Since(begun) < d; {
				r, err := p.Reconcile(t.Context(), ctrl.Request{NamespacedName: key})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(r.RequeueAfter)
			}
			return asked
		}
		planned := func(hash string) {
			b.setGateway(gw, &gatewayState{files: map[string]string{"fast": hash}, changed: time.Now()})
		}
		within := func(what string, n, least, most int) {
			if n < least || n > most {
				t.Errorf("%s: asked %d times, want %d to %d", what, n, least, most)
			}
		}
		planned("A")
		within("at rest", during(20*time.Minute), 20*60/11, 20*60/9+1)
		planned("B") // which this pod never reads
		within("while it applies", during(pollPatient), 109, 134)
		within("after that", during(20*time.Minute), 20*60/11, 20*60/9+2)
		if _, ok := b.pods[key]; !ok {
			t.Error("the answer is not on the board")
		}
	})
}
