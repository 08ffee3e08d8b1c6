package controllers

import (
	"context"
	"encoding/json"
	"fmt"
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

	"sluice.dev/sluice/internal/operator/plan"
)

// mutating is an API server with one Deployment, whose image a webhook replaces whenever it is written.
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

// What a webhook changes in each write is written once, and again when there is something new to say.
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
				time.Sleep(settle + time.Second)
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
