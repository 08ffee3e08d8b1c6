package controllers

import (
	"context"
	"errors"
	"maps"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/operator/report"
)

// listed is a cache of NFSGateways and Services. It answers no other question.
type listed struct {
	client.Client
	gateways []v1alpha1.NFSGateway
	services []corev1.Service
	err      error // of Get
}

func (l listed) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if g, ok := list.(*v1alpha1.NFSGatewayList); ok {
		g.Items = l.gateways
	}
	if s, ok := list.(*corev1.ServiceList); ok {
		s.Items = l.services
	}
	return nil
}

func (l listed) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return l.err
}

func virtual(name string) v1alpha1.NFSGateway {
	return v1alpha1.NFSGateway{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name, UID: types.UID(name)}, Spec: v1alpha1.NFSGatewaySpec{
		Exposure: v1alpha1.Exposure{Type: v1alpha1.ExposureVirtualIP, VirtualIP: &v1alpha1.VirtualIP{Pool: []string{"192.0.2.10-192.0.2.20"}, Network: "rdma-net"}},
		RDMA:     &v1alpha1.RDMA{Networks: []v1alpha1.Network{{Name: "rdma-net"}}},
	}}
}

// Two gateways of one network that are planned one right after the other give out different addresses.
func TestElsewhere(t *testing.T) {
	gws := []v1alpha1.NFSGateway{virtual("one"), virtual("two"), virtual("apart")}
	gws[2].Spec.RDMA.Networks[0].Name, gws[2].Spec.Exposure.VirtualIP.Network = "fabric/rdma-net", "fabric/rdma-net"
	r := &gateways{applier: applier{Client: listed{gateways: gws}}, board: newBoard()}
	for i := range gws[1:] {
		gw := &gws[1+i]
		x := &v1alpha1.NFSExport{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "of-" + gw.Name}}
		r.board.set(client.ObjectKeyFromObject(gw), &found{plan: plan.Plan{Gateway: gw, Exports: []plan.Export{
			{Source: x, VIP: "192.0.2.1" + string(rune('0'+i))}, {Source: x},
		}}})
	}
	got, err := r.elsewhere(t.Context(), &gws[0])
	if want := map[string]string{"192.0.2.10": "storage/of-two"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

// An export keeps the address that it had by a gateway that is gone: it gets it back when that is made again.
func TestElsewhereOfDeletedGateways(t *testing.T) {
	service := func(gateway, export, address, network string) corev1.Service {
		annotations := map[string]string{plan.AnnotationAddress: address}
		if network != "" {
			annotations[plan.AnnotationNetwork] = network
		}
		return corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "sluice-" + export, Annotations: annotations, Labels: map[string]string{
			plan.LabelGateway: gateway, plan.LabelExportNamespace: "storage", plan.LabelExport: export}}}
	}
	apart := virtual("apart")
	apart.Spec.RDMA.Networks[0].Name, apart.Spec.Exposure.VirtualIP.Network = "fabric/rdma-net", "fabric/rdma-net"
	l := listed{gateways: []v1alpha1.NFSGateway{virtual("one"), virtual("two"), apart}, services: []corev1.Service{
		service("one", "own", "192.0.2.10", "storage/rdma-net"), service("two", "other", "192.0.2.11", "storage/rdma-net"),
		service("apart", "far", "192.0.2.12", "storage/rdma-net"), // which it was on before
		service("gone", "data", "192.0.2.13", "storage/rdma-net"), service("gone", "old", "192.0.2.14", ""), service("gone", "more", "192.0.2.15", "fabric/rdma-net"),
	}}
	r := &gateways{applier: applier{Client: l}, board: newBoard()}
	got, err := r.elsewhere(t.Context(), &l.gateways[0])
	if want := map[string]string{"192.0.2.11": "storage/other", "192.0.2.13": "storage/data", "192.0.2.14": "storage/old"}; err != nil || !maps.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}

// left is a cluster in which a gateway is gone, or about to be orphaned, and Deployments of it are not.
type left struct {
	client.Client
	gateway *v1alpha1.NFSGateway
	there   []appsv1.Deployment
	deleted []string
}

func (l *left) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	gw, ok := o.(*v1alpha1.NFSGateway)
	if !ok || l.gateway == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "nfsgateways"}, key.Name)
	}
	l.gateway.DeepCopyInto(gw)
	return nil
}

func (l *left) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if d, ok := list.(*appsv1.DeploymentList); ok {
		d.Items = l.there
	}
	return nil
}

func (l *left) GroupVersionKindFor(runtime.Object) (schema.GroupVersionKind, error) {
	return appsv1.SchemeGroupVersion.WithKind("Deployment"), nil
}

func (l *left) Delete(_ context.Context, o client.Object, opts ...client.DeleteOption) error {
	options := (&client.DeleteOptions{}).ApplyOptions(opts)
	if p := options.Preconditions; p == nil || p.UID == nil || p.ResourceVersion == nil || *p.ResourceVersion != o.GetResourceVersion() {
		return errors.New("deleted whatever it has become meanwhile")
	}
	l.deleted = append(l.deleted, o.GetName())
	return nil
}

// With --cascade=orphan what was made for a gateway stays: while the garbage collector takes the owner references away, after that, and for the next operator.
func TestOrphaned(t *testing.T) {
	now := metav1.Now()
	deployment := func(name string, owners ...metav1.OwnerReference) appsv1.Deployment {
		return appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: name, UID: types.UID(name), ResourceVersion: "7", OwnerReferences: owners,
			Labels: map[string]string{plan.LabelManaged: plan.ManagedBy, plan.LabelGateway: "fast"}}}
	}
	owned := deployment("owned", metav1.OwnerReference{APIVersion: "sluice.dev/v1alpha1", Kind: "NFSGateway", Name: "fast", UID: "1"})
	orphan := deployment("orphan", metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Keeper", Name: "keeper", UID: "2"})
	deleting := func(finalizers ...string) *v1alpha1.NFSGateway {
		return &v1alpha1.NFSGateway{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "fast", UID: "1", DeletionTimestamp: &now, Finalizers: finalizers}}
	}
	for _, c := range []struct {
		name    string
		gateway *v1alpha1.NFSGateway
		want    []string
	}{
		{"while it is orphaned", deleting(metav1.FinalizerOrphanDependents), nil},
		{"after that", nil, []string{"owned"}},
		{"in the foreground", deleting(metav1.FinalizerDeleteDependents), []string{"owned"}},
	} {
		l := &left{gateway: c.gateway, there: []appsv1.Deployment{owned, orphan}}
		r := &gateways{applier: applier{Client: l}, board: newBoard()}
		if _, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "storage", Name: "fast"}}); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if !slices.Equal(l.deleted, c.want) {
			t.Errorf("%s: %q deleted, want %q", c.name, l.deleted, c.want)
		}
	}
}

func TestNetworkExists(t *testing.T) {
	kind := schema.GroupResource{Group: networkKind.Group, Resource: "network-attachment-definitions"}
	broken := errors.New("connection refused")
	for _, c := range []struct {
		err   error
		there bool
		want  error
	}{
		{nil, true, nil},
		{apierrors.NewNotFound(kind, "rdma-net"), false, nil},
		{&meta.NoKindMatchError{GroupKind: networkKind.GroupKind()}, false, nil},
		{apierrors.NewForbidden(kind, "rdma-net", errors.New("another namespace")), true, nil},
		{broken, false, broken},
	} {
		r := &gateways{applier: applier{APIReader: listed{err: c.err}}}
		if there, err := r.networkExists(t.Context(), "fabric/rdma-net"); there != c.there || !errors.Is(err, c.want) {
			t.Errorf("%v: there is one: %v, %v", c.err, there, err)
		}
	}
}

// What is not watched is looked at now and then.
func TestLookAgain(t *testing.T) {
	refused := func(reason string) func(*found) {
		return func(f *found) {
			f.plan.Exports = []plan.Export{{Conditions: []metav1.Condition{condition.False(v1alpha1.ConditionAccepted, reason, "no")}}}
		}
	}
	for _, c := range []struct {
		name string
		edit func(*found)
		want time.Duration
	}{
		{"nothing is amiss", func(*found) {}, lookSeldom},
		{"keys of somebody's", func(f *found) { f.plan.Gateway.Spec.HandleKeys.SecretName = "keys" }, lookSeldom},
		{"a network", func(f *found) {
			f.plan.Gateway.Spec.RDMA = &v1alpha1.RDMA{Networks: []v1alpha1.Network{{Name: "rdma-net"}}}
		}, lookSeldom},
		{"a reference that leads nowhere", func(f *found) {
			f.plan.Gateway.Spec.HandleKeys.SecretName = "keys"
			f.plan.Conditions = []metav1.Condition{condition.False(v1alpha1.ConditionResolvedRefs, v1alpha1.ReasonSecretNotFound, "no")}
		}, lookAgain},
		{"a Service that was not made", func(f *found) { f.seen.Failed["sluice-data"] = errors.New("no") }, lookAgain},
		{"an object that was not made", func(f *found) { f.seen.Blocked["fast"] = &report.Refused{} }, lookAgain},
		{"an address of another gateway's", refused(v1alpha1.ReasonAddressTaken), lookAgain},
		{"no address is left", refused(v1alpha1.ReasonNoFreeAddress), lookAgain},
		{"no consent", refused(v1alpha1.ReasonBackendNotAllowed), lookSeldom},
	} {
		f := &found{plan: plan.Plan{Gateway: &v1alpha1.NFSGateway{}}, seen: report.Seen{Failed: map[string]error{}, Blocked: map[string]report.Obstacle{}}}
		c.edit(f)
		if got := f.again(false); got != c.want {
			t.Errorf("%s: after %v, want %v", c.name, got, c.want)
		}
	}
}

// The cache refuses to look at namespaces that are not watched. What lies there is not there.
func TestScope(t *testing.T) {
	refuses := listed{err: errors.New("unable to get: unknown namespace for the cache")}
	watched := scope{"storage"}
	x := &v1alpha1.NFSExport{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "data", Generation: 1}, Spec: v1alpha1.NFSExportSpec{GatewayRef: v1alpha1.GatewayReference{Name: "fast", Namespace: "elsewhere"}}}
	e := &exports{statuses: &statuses{Client: refuses}, scope: watched, board: newBoard()}
	s, ok, err := e.report(t.Context(), x)
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionReady); err != nil || !ok || c == nil || c.Reason != v1alpha1.ReasonGatewayNotFound {
		t.Errorf("the export's status is %+v, %v, %v", s, ok, err)
	}
	r := &gateways{applier: applier{Client: refuses}, scope: watched, board: newBoard()}
	if again, err := r.Reconcile(t.Context(), ctrl.Request{NamespacedName: types.NamespacedName{Namespace: "elsewhere", Name: "fast"}}); err != nil || again != (ctrl.Result{}) {
		t.Errorf("the gateway is looked at again: %+v, %v", again, err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Labels: map[string]string{plan.LabelExportNamespace: "elsewhere", plan.LabelExport: "data"}}}
	if keep, err := r.keepService(t.Context(), service, nil, true); keep || err != nil {
		t.Errorf("the Service is kept: %v, %v", keep, err)
	}
}

// Leases are made again when somebody deletes them; what speakers write into them is none of the operator's business.
func TestNotRenewed(t *testing.T) {
	lease := func(holder string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "fast-vip-0", Labels: map[string]string{plan.LabelGateway: "fast"}}, Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
	}
	other := lease("a")
	other.Labels[plan.LabelGateway] = "slow"
	p := notRenewed()
	if p.Update(event.UpdateEvent{ObjectOld: lease("a"), ObjectNew: lease("b")}) {
		t.Error("a renewal is looked at")
	}
	if !p.Update(event.UpdateEvent{ObjectOld: lease("a"), ObjectNew: other}) || !p.Delete(event.DeleteEvent{Object: lease("a")}) {
		t.Error("a change, or a deletion, is not looked at")
	}
}
