package controllers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/operator/report"
)

// mutating is an API server with one Deployment, whose image a webhook replaces whenever it is
// written.
type mutating struct {
	client.Client
	there   *appsv1.Deployment
	image   string // by the webhook
	applied int
}

func (m *mutating) Scheme() *runtime.Scheme { return Scheme() }

func (m *mutating) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if m.there == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "deployments"}, key.Name)
	}
	switch o := o.(type) {
	case *appsv1.Deployment:
		m.there.DeepCopyInto(o)
	case *metav1.PartialObjectMetadata:
		m.there.ObjectMeta.DeepCopyInto(&o.ObjectMeta)
	}
	return nil
}

func (m *mutating) Apply(_ context.Context, o runtime.ApplyConfiguration, _ ...client.ApplyOption) error {
	m.applied++
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	d := &appsv1.Deployment{}
	if err := json.Unmarshal(b, d); err != nil {
		return err
	}
	d.ResourceVersion, d.UID = fmt.Sprint(m.applied), "1"
	d.Spec.Template.Spec.Containers[0].Image = m.image
	d.Spec.Template.Spec.DNSPolicy = corev1.DNSClusterFirst // as a default
	if m.there != nil && m.there.Spec.Template.Spec.Containers[0].Image == m.image {
		d.ResourceVersion = m.there.ResourceVersion
	}
	m.there = d
	if b, err = json.Marshal(d); err != nil {
		return err
	}
	return json.Unmarshal(b, o)
}

func deployment(image string) *appsv1.Deployment {
	labels := map[string]string{plan.LabelManaged: plan.ManagedBy, plan.LabelGateway: "fast"}
	return &appsv1.Deployment{TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "Deployment"}, ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "fast", Labels: labels},
		Spec: appsv1.DeploymentSpec{Replicas: new(int32(2)), Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "gateway", Image: image}}}}}}
}

// TestMutatingWebhook: an object that a webhook changes in each write is written once, and again
// when its content changes.
func TestMutatingWebhook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := &mutating{image: "mirror.example/gateway:1"}
		a := &applier{Client: api, APIReader: api}
		during := func(what string, image string, most int) {
			t.Helper()
			before := api.applied
			early := false
			for range 20 {
				var err error
				if early, err = a.apply(t.Context(), deployment(image)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(cacheDelay + time.Second)
			}
			if n := api.applied - before; n == 0 || n > most || early {
				t.Errorf("%s: written %d times, want once, or %d times; the cache is behind: %v", what, n, most, early)
			}
		}
		during("at first", "registry.example/gateway:1", 1)
		during("another image", "registry.example/gateway:2", 1)
		api.there.Status.ReadyReplicas, api.there.ResourceVersion = 2, "17"
		before := api.applied
		if _, err := a.apply(t.Context(), deployment("registry.example/gateway:2")); err != nil || api.applied != before {
			t.Errorf("written for a change of status: %v", err)
		}
		api.there.Spec.Replicas = new(int32(5)) // by hand
		during("somebody else's change", "registry.example/gateway:2", 1)
		if *api.there.Spec.Replicas != 2 {
			t.Errorf("%d replicas", *api.there.Spec.Replicas)
		}
		a = &applier{Client: api, APIReader: api}
		during("another leader", "registry.example/gateway:2", 1)
	})
}

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

// TestRefused: an error that may pass is retried soon; an error that a user must mend shows in a
// condition.
func TestRefused(t *testing.T) {
	services := schema.GroupResource{Resource: "services"}
	answer := func(code int32, reason metav1.StatusReason) error {
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: code, Reason: reason}}
	}
	for _, c := range []struct {
		err    error
		people bool
	}{
		{apierrors.NewForbidden(services, "data", errors.New("exceeded quota")), true},
		{apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, "data", nil), true},
		{apierrors.NewBadRequest("strict decoding error"), true},
		{apierrors.NewRequestEntityTooLargeError("3 MiB"), true},
		{apierrors.NewInternalError(errors.New(`failed calling webhook "a": connection refused`)), true},
		// etcdserver: request timed out
		{answer(http.StatusInternalServerError, metav1.StatusReasonUnknown), false},
		{apierrors.NewServerTimeout(services, "create", 2), false}, // etcd is away
		{apierrors.NewTimeoutError("too slow", 1), false},
		{apierrors.NewTooManyRequests("too many", 1), false},
		{apierrors.NewConflict(services, "data", errors.New("changed")), false},
		{context.DeadlineExceeded, false},
	} {
		err := refusalError(&corev1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service"}}, fmt.Errorf("wrapped: %w", c.err))
		var is *report.Refused
		if errors.As(err, &is) != c.people || !errors.Is(err, c.err) {
			t.Errorf("%v is for people to change: %v, want %v", c.err, is != nil, c.people)
		}
	}
	if err := refusalError(&corev1.Service{}, nil); err != nil {
		t.Errorf("nothing is %v", err)
	}
}
