package controllers

import (
	"context"
	"errors"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/operator/report"
)

// addressed is an API server with a Service or none, which records writes.
type addressed struct {
	client.Client
	uid    types.UID // of the Service that there is; "" if there is none
	writes []string
}

func (a *addressed) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	if a.uid == "" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "services"}, key.Name)
	}
	o.SetUID(a.uid)
	return nil
}

func (a *addressed) Create(_ context.Context, o client.Object, _ ...client.CreateOption) error {
	a.writes = append(a.writes, "create "+o.GetGenerateName())
	return nil
}

func (a *addressed) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	a.writes = append(a.writes, "delete "+o.GetGenerateName()+o.GetName())
	return nil
}

// A Service gives way to one with another address once, however long the cache has it.
func TestReaddressOnce(t *testing.T) {
	service := func(uid types.UID, ip string) *corev1.Service {
		return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "data", UID: uid}, Spec: corev1.ServiceSpec{ClusterIP: ip}}
	}
	for _, c := range []struct {
		name          string
		cached, there types.UID
		have, want    string // addresses
		writes        []string
	}{
		{"the address is another one", "1", "1", "10.0.0.1", "10.0.0.2", []string{"create sluice-address-", "delete sluice-address-", "delete data"}},
		{"the address is the same", "1", "1", "10.0.0.2", "10.0.0.2", nil},
		{"none is asked for", "1", "1", "10.0.0.1", "", nil},
		{"it was deleted", "1", "", "10.0.0.1", "10.0.0.2", nil},
		{"its successor is there", "1", "2", "10.0.0.1", "10.0.0.2", nil},
	} {
		api := &addressed{uid: c.there}
		r := &GatewayReconciler{applier: applier{Client: api, APIReader: api}}
		if err := r.replaceService(t.Context(), service(c.cached, c.have), service("", c.want)); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !slices.Equal(api.writes, c.writes) {
			t.Errorf("%s: wrote %q, want %q", c.name, api.writes, c.writes)
		}
	}
}

// TestNote: an existing Service serves, whatever passing error a change of it has. An error that a
// user must mend is reported.
func TestNote(t *testing.T) {
	passing := apierrors.NewTimeoutError("too slow", 1)
	people := &report.Refused{Kind: "Service", Err: errors.New("exceeded quota")}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "sluice-data", Labels: map[string]string{plan.LabelExport: "data"}}}
	for _, c := range []struct {
		name            string
		there           bool
		err             error
		failed, returns bool
	}{
		{"all is well", true, nil, false, false},
		{"passing, and there is none", false, passing, true, true},
		{"passing, and there is one", true, passing, false, true},
		{"refused, and there is none", false, people, true, false},
		{"refused, and there is one", true, people, true, false},
	} {
		f := &gatewayState{observed: report.Observed{Services: map[string]*corev1.Service{}, Failed: map[string]error{}, Blocked: map[string]report.Blocker{}}}
		if c.there {
			f.observed.Services[service.Name] = service
		}
		err := f.recordFailure(service, c.err)
		if (err != nil) != c.returns || (f.observed.Failed[service.Name] != nil) != c.failed || len(f.observed.Blocked) > 0 {
			t.Errorf("%s: returns %v, told %v", c.name, err, f.observed.Failed)
		}
	}
}
