package controllers

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
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

func TestCovers(t *testing.T) {
	for _, c := range []struct {
		live, desired string
		want          bool
	}{
		{`{"a":1,"b":2}`, `{"a":1}`, true},
		{`{"a":1}`, `{"a":2}`, false},
		{`{"a":1}`, `{"a":1,"b":2}`, false},
		{`{"a":[{"x":1,"added":2}]}`, `{"a":[{"x":1}]}`, true},
		{`{"a":[{"x":1},{"x":2}]}`, `{"a":[{"x":1}]}`, false},
		{`{"a":[1]}`, `{"a":{}}`, false},
		{`{}`, `{"a":{}}`, true},
		{`{}`, `{"a":[]}`, true},
		{`{}`, `{"a":null}`, true},
		{`{}`, `{"kind":"K","apiVersion":"v1"}`, true},
		{`{"a":{"b":"x"}}`, `{"a":{"b":"y"}}`, false},
	} {
		var live, desired map[string]any
		for text, into := range map[string]*map[string]any{c.live: &live, c.desired: &desired} {
			if err := json.Unmarshal([]byte(text), into); err != nil {
				t.Fatal(err)
			}
		}
		if got := covers(live, desired); got != c.want {
			t.Errorf("%s covers %s: %v", c.live, c.desired, got)
		}
	}
}

// A gateway reports the hash that the operator expects of a file.
func TestFileHash(t *testing.T) {
	text := "apiVersion: " + config.APIVersion + "\nkind: " + config.Kind + "\nexports: []\n"
	f, err := config.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if got := fileHash(text); got != f.Hash {
		t.Errorf("%s, want %s", got, f.Hash)
	}
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
		for p, want := range map[part]bool{counts: c.counts, words: c.words, essence: c.essence} {
			a, _ := json.Marshal(only(have, p))
			b, _ := json.Marshal(only(c.other, p))
			if got := string(a) == string(b); got != want {
				t.Errorf("%s, part %d: same is %v", c.name, p, got)
			}
		}
	}
	if have["clients"] != int64(1) {
		t.Error("the status itself was changed")
	}
}

func podNamed(name string, uid types.UID) corev1.Pod {
	return corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name, UID: uid, Labels: map[string]string{plan.LabelGateway: "fast", plan.LabelWorkload: "fast"}}}
}

func TestBoard(t *testing.T) {
	b := newBoard()
	var told []string
	for name, list := range map[string]*[]func(types.NamespacedName){"heard": &b.heard, "moved": &b.moved, "planned": &b.planned} {
		b.listen(list, func(g types.NamespacedName) { told = append(told, name+" "+g.String()) })
	}
	want := func(words ...string) {
		t.Helper()
		if got := strings.Join(told, ", "); got != strings.Join(words, ", ") {
			t.Errorf("told %s, want %s", got, strings.Join(words, ", "))
		}
		told = nil
	}
	gw, key := types.NamespacedName{Namespace: "storage", Name: "fast"}, types.NamespacedName{Namespace: "storage", Name: "fast-0"}
	pod := podNamed("fast-0", "1")
	at := func(hash string, state status.ExportState) *poll {
		return &poll{gateway: gw, uid: "1", status: &status.Status{Config: status.Config{Hash: hash}, Exports: []status.Export{{Name: "x", State: state, Listeners: []status.Listener{{Configured: ":21000"}}}}}}
	}
	start := time.Unix(1000, 0)
	set := func(hash string, now time.Time) {
		b.set(gw, &found{files: map[string]string{"fast": hash}, changed: now, seen: report.Seen{Pods: []report.Pod{{Pod: &pod}}}})
	}
	applying := func(now time.Time) bool { return b.applying(&pod, now, time.Minute) }

	if p, _ := b.look(gw); p != nil {
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
	b.setPoll(key, at("A", status.Serving))
	want("heard storage/fast", "moved storage/fast")
	if applying(start) {
		t.Error("the pod has applied everything")
	}
	b.setPoll(key, at("A", status.Applying))
	want("heard storage/fast")
	if !applying(start) {
		t.Error("an export is being applied")
	}
	if _, seen := b.look(gw); seen.Pods[0].Status == nil {
		t.Error("the pod's answer is not there")
	}
	set("B", start)
	want("heard storage/fast", "planned storage/fast")
	if !applying(start) {
		t.Error("the pod lags behind the new file")
	}
	pod.UID = "2"
	if b.polled(&pod) != nil {
		t.Error("another pod of the same name has not answered yet")
	}
	b.setPoll(key, nil)
	want("heard storage/fast", "moved storage/fast")
	b.setPoll(key, nil)
	want()
	b.set(gw, nil)
	want("heard storage/fast")
}

// A service mesh puts ConfigMaps of its own into pods, before the others.
func TestMounted(t *testing.T) {
	volume := func(name, configMap string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}}}
	}
	pod := podNamed("fast-0", "1")
	if got := mounted(&pod); got != "" {
		t.Errorf("a pod without volumes reads %q", got)
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "token"}, volume("mesh-ca", "mesh-ca-root"), volume("config", "fast-0123456789")}
	if got := mounted(&pod); got != "fast-0123456789" {
		t.Errorf("the pod reads %q", got)
	}
}

// What a pod answers is bounded, and an answer of another kind is an error that says so.
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
	p := newPolls(nil, newBoard())
	p.limit = 1000
	var s status.Status
	if err := p.ask(context.Background(), host, port, &s); err != nil || !s.Ready {
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
		if err := p.ask(context.Background(), host, port, &s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q in it", c.name, err, c.want)
		}
	}
}

// A gateway whose page does not name a feature gets no file with it. One that has not answered may be of any kind.
func TestLacks(t *testing.T) {
	for _, c := range []struct {
		name string
		poll *poll
		want bool
	}{
		{"not asked", nil, false},
		{"silent", &poll{err: "connection refused"}, false},
		{"a former gateway", &poll{status: &status.Status{}}, true},
		{"a gateway with the feature", &poll{status: &status.Status{Config: status.Config{Features: []string{"more", config.FeatureNetworkSets}}}}, false},
	} {
		if got := c.poll.lacks(config.FeatureNetworkSets); got != c.want {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}
