package uninstall

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
)

// draining is a cluster with an NFSGateway whose pods take a time to drain, after its exports have
// gone.
type draining struct {
	client.Client
	takes time.Duration

	began     time.Time // when the exports were deleted
	deleted   time.Time // when the gateway was
	refusals  int
	protected time.Duration // for how long the gateway is still said to serve
}

func (d *draining) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	there := metav1.ObjectMeta{Namespace: "storage", Name: "fast"}
	switch l := list.(type) {
	case *v1alpha1.NFSExportList:
		if d.began.IsZero() {
			l.Items = []v1alpha1.NFSExport{{ObjectMeta: there}}
		}
	case *v1alpha1.NFSGatewayList:
		l.Items = nil
		if d.deleted.IsZero() {
			l.Items = []v1alpha1.NFSGateway{{ObjectMeta: there, Spec: v1alpha1.NFSGatewaySpec{DrainTimeout: "1h"}}}
		}
	case *corev1.ServiceList:
		l.Items = nil
		if time.Since(d.began) < d.takes {
			l.Items = []corev1.Service{{ObjectMeta: there}}
		}
	case *corev1.PodList:
		l.Items = nil
		if time.Since(d.deleted) < d.takes {
			l.Items = []corev1.Pod{{ObjectMeta: there}}
		}
	}
	return nil
}

func (d *draining) Delete(_ context.Context, o client.Object, _ ...client.DeleteOption) error {
	if _, ok := o.(*v1alpha1.NFSExport); ok {
		d.began = time.Now()
		return nil
	}
	if time.Since(d.began) < d.takes+d.protected {
		d.refusals++
		return apierrors.NewForbidden(schema.GroupResource{Resource: "nfsgateways"}, o.GetName(), errors.New("it serves 1 NFSExports"))
	}
	d.deleted = time.Now()
	return nil
}

// Draining gateways are waited for, whatever the timeout; a temporarily protected gateway is
// deleted afterwards.
func TestDrain(t *testing.T) {
	for _, c := range []struct {
		takes time.Duration
		want  string
	}{
		{59 * time.Minute, ""},
		{65 * time.Minute, "Services of exports, which the operator removes if it runs are still there: storage/fast: waited 1h4m0s"},
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &draining{takes: c.takes, protected: 10 * time.Second}
			var out bytes.Buffer
			err := Run(t.Context(), d, Options{Force: true, Poll: time.Second, Timeout: 4 * time.Minute, Release: "sluice"}, &out)
			if c.want == "" && (err != nil || d.deleted.IsZero() || d.refusals == 0) || c.want != "" && (err == nil || err.Error() != c.want) {
				t.Errorf("drains for %v: %v, deleted at %v, refused %d times; want %q", c.takes, err, d.deleted, d.refusals, c.want)
			}
			if want := "NFSGateway storage/fast may drain for 1h0m0s: if helm gives up before, helm uninstall sluice --timeout 2h10m0s"; !strings.Contains(out.String(), want) {
				t.Errorf("said %q, want %q in it", &out, want)
			}
		})
	}
}
