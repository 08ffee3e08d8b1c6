//go:build operator

package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/controllers"
	"sluice.dev/sluice/internal/operator/objects"
)

// operator runs in the test's process.
type operator struct {
	cancel context.CancelFunc
	ended  chan struct{}
}

// start runs an operator for a namespace, or for all if that is empty, until the test ends or stop.
// With budget it dies after so many writes.
func start(t *testing.T, namespace string, elect bool, budget *atomic.Int32, change ...func(*controllers.Options)) *operator {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	cfg := rest.CopyConfig(admin)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: operatorUser}
	if budget != nil {
		cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return limited{next, budget, cancel} })
	}
	wait, every := time.Second, resync
	mo := manager.Options{
		Cache:   cache.Options{SyncPeriod: &every},
		Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0", GracefulShutdownTimeout: &wait,
		LeaderElection: elect, LeaderElectionID: "sluice-operator", LeaderElectionNamespace: systemNamespace, LeaderElectionReleaseOnCancel: true,
	}
	o := controllers.Options{
		Defaults: objects.Defaults{GatewayImage: "registry.example/gateway:1", VerbsImage: "registry.example/gateway-verbs:1", SpeakerImage: "registry.example/operator:1",
			OperatorNamespace: systemNamespace, OperatorLabels: map[string]string{"app.kubernetes.io/component": "operator"}},
		ClusterScope: namespace == "",
	}
	for _, f := range change {
		f(&o)
	}
	var namespaces []string
	if namespace != "" {
		namespaces = []string{namespace}
	}
	m, err := controllers.New(cfg, mo, o, namespaces)
	if err != nil {
		t.Fatal(err)
	}
	op := &operator{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(op.ended)
		_ = m.Start(ctx) // a lost election, a timeout and death end it too
	}()
	t.Cleanup(op.stop)
	return op
}

// stop ends the operator and waits for its end.
func (o *operator) stop() {
	o.cancel()
	<-o.ended
}

// resync is the operator's resync period, shorter than outside of tests.
const resync = 5 * time.Second

// limited lets a number of writes pass, and nothing after them.
type limited struct {
	next http.RoundTripper
	left *atomic.Int32
	dead context.CancelFunc
}

var errDead = errors.New("the operator is dead")

func (l limited) RoundTrip(r *http.Request) (*http.Response, error) {
	if l.left.Load() <= 0 {
		return nil, errDead
	}
	if r.Method == http.MethodGet {
		return l.next.RoundTrip(r)
	}
	if l.left.Add(-1) < 0 {
		return nil, errDead
	}
	res, err := l.next.RoundTrip(r)
	if l.left.Load() <= 0 {
		l.dead()
	}
	return res, err
}

// newNamespace makes a namespace that lasts as long as the test.
func newNamespace(t *testing.T) string {
	t.Helper()
	return makeNamespace(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "t-"}})
}

func makeNamespace(t *testing.T, ns *corev1.Namespace) string {
	t.Helper()
	must(t, kube.Create(t.Context(), ns))
	return ns.Name
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// eventually polls until f returns nil.
func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	end := time.Now().Add(5 * time.Minute)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// newGateway returns a minimal NFSGateway.
func newGateway(namespace, name string) *v1alpha1.NFSGateway {
	return &v1alpha1.NFSGateway{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// newExport returns an NFSExport of the test's backend.
func newExport(namespace, name, gateway string) *v1alpha1.NFSExport {
	return &v1alpha1.NFSExport{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: v1alpha1.NFSExportSpec{
			GatewayRef: v1alpha1.GatewayReference{Name: gateway},
			Backend:    v1alpha1.Backend{NFS: &v1alpha1.NFSServer{Server: "127.0.0.1", Port: int32(backend.port), MountPort: int32(backend.port), Path: "/"}},
			Access:     []v1alpha1.AccessRule{{From: v1alpha1.AccessFrom{Networks: []string{"127.0.0.0/8"}}, Mode: "ReadWrite"}},
		},
	}
}

func newClaim(namespace, name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.PersistentVolumeClaimSpec{
		AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
		Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
	}}
}

// change edits an object, retrying when the operator wrote its status meanwhile.
func change[T client.Object](t *testing.T, o T, edit func(T)) {
	t.Helper()
	eventually(t, o.GetName()+" is changed", func() error {
		if err := kube.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		edit(o)
		return kube.Update(t.Context(), o)
	})
}

// condition expects a condition of an export's or gateway's present generation, with a status and
// reason.
func condition(o client.Object, kind string, status metav1.ConditionStatus, reason string) func() error {
	return func() error {
		if err := kube.Get(context.Background(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		c := find(o, kind)
		if c == nil || c.Status != status || c.Reason != reason || c.ObservedGeneration != o.GetGeneration() {
			return fmt.Errorf("%s %s has %+v, want %s %s; all: %+v", o.GetObjectKind().GroupVersionKind().Kind, o.GetName(), c, status, reason, conditionsOf(o))
		}
		return nil
	}
}

func find(o client.Object, kind string) *metav1.Condition {
	return meta.FindStatusCondition(conditionsOf(o), kind)
}

func conditionsOf(o client.Object) []metav1.Condition {
	switch o := o.(type) {
	case *v1alpha1.NFSExport:
		return o.Status.Conditions
	case *v1alpha1.NFSGateway:
		return o.Status.Conditions
	}
	return nil
}

func isReady(o client.Object) func() error {
	return condition(o, v1alpha1.ConditionReady, metav1.ConditionTrue, v1alpha1.ReasonReady)
}
