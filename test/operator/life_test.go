//go:build operator

package operator

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/objects"
	"sluice.dev/sluice/internal/operator/plan"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares the namespace's objects with testdata/NAME.golden.
func golden(t *testing.T, name, namespace string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		must(t, os.WriteFile(file, []byte(snapshot(t, namespace)), 0o644))
	}
	want, err := os.ReadFile(file)
	must(t, err)
	eventually(t, file, func() error {
		if diff := cmp.Diff(string(want), snapshot(t, namespace)); diff != "" {
			return fmt.Errorf("- want, + got:\n%s", diff)
		}
		return nil
	})
}

func gone(o client.Object) func() error {
	return func() error {
		err := kube.Get(context.Background(), client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(fmt.Errorf("%s is still there", o.GetName()), err)
	}
}

// TestLife makes, changes, deletes and remakes both kinds. An export keeps its address, and the
// gateway its keys.
func TestLife(t *testing.T) {
	t.Parallel()
	// objects' names are made of it
	ns := makeNamespace(t, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "life"}})
	startNodes(t, ns)
	start(t, ns, false, nil)
	ctx := t.Context()
	gw, x, claimed := newGateway(ns, "fast"), newExport(ns, "data", "fast"), newExport(ns, "claimed", "fast")
	claimed.Spec.Backend = v1alpha1.Backend{PersistentVolumeClaim: &v1alpha1.Claim{ClaimName: "disk"}}
	must(t, kube.Create(ctx, newClaim(ns, "disk")))
	must(t, kube.Create(ctx, gw))
	must(t, kube.Create(ctx, x))
	must(t, kube.Create(ctx, claimed))
	eventually(t, "the export is ready", isReady(x))
	eventually(t, "the claim's is ready", isReady(claimed))
	eventually(t, "the gateway is ready", isReady(gw))
	golden(t, "made", ns)

	var keys corev1.Secret
	must(t, kube.Get(ctx, client.ObjectKey{Namespace: ns, Name: gw.Status.HandleKeysSecret}, &keys))
	address, ring := x.Status.Address, string(keys.Data["keys"])

	change(t, x, func(x *v1alpha1.NFSExport) {
		x.Spec.Transport.Credits.Max = 64
		x.Spec.Transport.InlineThreshold.Call = "16Ki"
	})
	change(t, gw, func(gw *v1alpha1.NFSGateway) { gw.Spec.Replicas = new(int32(1)) })
	eventually(t, "the change is applied", condition(x, v1alpha1.ConditionProgrammed, metav1.ConditionTrue, v1alpha1.ReasonProgrammed))
	eventually(t, "the gateway's too", condition(gw, v1alpha1.ConditionProgrammed, metav1.ConditionTrue, v1alpha1.ReasonProgrammed))
	golden(t, "changed", ns)

	must(t, kube.Delete(ctx, gw))
	eventually(t, "the export has no gateway", condition(x, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonGatewayNotFound))
	eventually(t, "the claim's has none", condition(claimed, v1alpha1.ConditionReady, metav1.ConditionFalse, v1alpha1.ReasonGatewayNotFound))
	golden(t, "orphaned", ns)

	again := newGateway(ns, "fast")
	again.Spec.Replicas = new(int32(1))
	must(t, kube.Create(ctx, again))
	eventually(t, "the export is ready again", isReady(x))
	eventually(t, "the claim's is ready again", isReady(claimed))
	must(t, kube.Get(ctx, client.ObjectKeyFromObject(&keys), &keys))
	if x.Status.Address != address || string(keys.Data["keys"]) != ring {
		t.Errorf("address %s became %s; keys are the same: %v", address, x.Status.Address, string(keys.Data["keys"]) == ring)
	}
	golden(t, "changed", ns)

	change(t, x, func(x *v1alpha1.NFSExport) { x.Spec.Address.IP = "10.0.0.200" })
	eventually(t, "the export has another address", func() error {
		if err := isReady(x)(); err != nil {
			return err
		}
		if x.Status.Address != "10.0.0.200" {
			return fmt.Errorf("address %s", x.Status.Address)
		}
		return nil
	})

	// An export made from a backup carries its former identity into its pods, so that they accept
	// its old handles.
	backup, uid := newExport(ns, "data", "fast"), x.UID
	x.Spec.DeepCopyInto(&backup.Spec)
	if backup.Spec.HandleIdentity != string(uid) {
		t.Errorf("handleIdentity %q, want the UID %s", backup.Spec.HandleIdentity, uid)
	}
	must(t, kube.Delete(ctx, x))
	eventually(t, "the export is gone", gone(x))
	x = backup
	must(t, kube.Create(ctx, x))
	eventually(t, "the restored export is ready", isReady(x))
	var configs corev1.ConfigMapList
	must(t, kube.List(ctx, &configs, client.InNamespace(ns), client.MatchingLabels{plan.LabelWorkload: "fast"}))
	if len(configs.Items) != 1 || x.UID == uid || !strings.Contains(configs.Items[0].Data[objects.GatewayFile], "uid: "+string(uid)+"\n") {
		t.Errorf("the restored export, UID %s, does not have the identity %s: %+v", x.UID, uid, configs.Items)
	}
	must(t, kube.Delete(ctx, x))
	must(t, kube.Delete(ctx, claimed))
	eventually(t, "the export's Service is gone", gone(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sluice-data"}}))
	golden(t, "emptied", ns)
}

// TestCascadeOrphan: after kubectl delete --cascade=orphan a gateway's objects stay, even when an
// operator starts anew, and a gateway of the same name takes them over.
func TestCascadeOrphan(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	op := start(t, ns, false, nil)
	ctx := t.Context()
	gw, x := newGateway(ns, "fast"), newExport(ns, "data", "fast")
	must(t, kube.Create(ctx, gw))
	must(t, kube.Create(ctx, x))
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sluice-data"}}
	eventually(t, "the Service is there", func() error { return kube.Get(ctx, client.ObjectKeyFromObject(service), service) })
	eventually(t, "the gateway is reported on", func() error {
		must(t, kube.Get(ctx, client.ObjectKeyFromObject(gw), gw))
		if gw.Status.Exports != 1 {
			return fmt.Errorf("%d exports", gw.Status.Exports)
		}
		return nil
	})
	owned := []client.Object{&appsv1.Deployment{}, &networkingv1.NetworkPolicy{}, &policyv1.PodDisruptionBudget{}}
	uids := map[client.Object]types.UID{}
	for _, o := range owned {
		must(t, kube.Get(ctx, client.ObjectKey{Namespace: ns, Name: "fast"}, o))
		uids[o] = o.GetUID()
	}
	stay := func(when string) {
		t.Helper()
		for _, o := range owned {
			must(t, kube.Get(ctx, client.ObjectKeyFromObject(o), o))
			if o.GetDeletionTimestamp() != nil || o.GetUID() != uids[o] {
				t.Errorf("%s: %T was deleted", when, o)
			}
		}
	}
	must(t, kube.Delete(ctx, gw, client.PropagationPolicy(metav1.DeletePropagationOrphan)))
	eventually(t, "the export has no gateway", condition(x, v1alpha1.ConditionAccepted, metav1.ConditionFalse, v1alpha1.ReasonGatewayNotFound))
	stay("before the garbage collector")

	// Stand in for the garbage collector, which does not run here.
	for _, o := range owned {
		eventually(t, "it has no owner", func() error {
			must(t, kube.Get(ctx, client.ObjectKeyFromObject(o), o))
			o.SetOwnerReferences(nil)
			return kube.Update(ctx, o)
		})
	}
	eventually(t, "the gateway is released", func() error {
		must(t, kube.Get(ctx, client.ObjectKeyFromObject(gw), gw))
		gw.Finalizers = nil
		return kube.Update(ctx, gw)
	})
	eventually(t, "the gateway is gone", gone(newGateway(ns, "fast")))
	op.stop()
	start(t, ns, false, nil) // sweeps at once
	other := newGateway(ns, "other")
	must(t, kube.Create(ctx, other))
	eventually(t, "the operator works", condition(other, v1alpha1.ConditionAccepted, metav1.ConditionTrue, v1alpha1.ReasonAccepted))
	stay("after another operator has started")

	must(t, kube.Create(ctx, newGateway(ns, "fast")))
	eventually(t, "they have an owner again", func() error {
		for _, o := range owned {
			must(t, kube.Get(ctx, client.ObjectKeyFromObject(o), o))
			if len(o.GetOwnerReferences()) != 1 {
				return fmt.Errorf("%T has the owners %+v", o, o.GetOwnerReferences())
			}
		}
		return nil
	})
	stay("taken over")
}

// scenario makes, changes and deletes objects, and waits for each result.
func scenario(t *testing.T, ns string) {
	ctx := t.Context()
	startNodes(t, ns)
	gw, x, y := newGateway(ns, "fast"), newExport(ns, "data", "fast"), newExport(ns, "more", "fast")
	must(t, kube.Create(ctx, gw))
	must(t, kube.Create(ctx, x))
	must(t, kube.Create(ctx, y))
	eventually(t, "one export is ready", isReady(x))
	eventually(t, "the other is ready", isReady(y))
	change(t, x, func(x *v1alpha1.NFSExport) { x.Spec.Transport.Credits.Max = 64 })
	must(t, kube.Delete(ctx, y))
	eventually(t, "the change is applied", condition(x, v1alpha1.ConditionProgrammed, metav1.ConditionTrue, v1alpha1.ReasonProgrammed))
	eventually(t, "the Service of the other is gone", gone(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "sluice-more"}}))
	eventually(t, "the export is ready", isReady(x))
	eventually(t, "the gateway is ready", func() error {
		if err := isReady(gw)(); err != nil { // of one pod alone
			return err
		}
		if err := condition(gw, v1alpha1.ConditionProgrammed, metav1.ConditionTrue, v1alpha1.ReasonProgrammed)(); err != nil {
			return err
		}
		if gw.Status.Exports != 1 {
			return fmt.Errorf("%d exports", gw.Status.Exports)
		}
		return nil
	})
}

// TestDeath ends the operator after each of its writes. Another one completes the work.
func TestDeath(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	var count atomic.Int32
	count.Store(1 << 20)
	op := start(t, ns, false, &count)
	scenario(t, ns)
	want := snapshot(t, ns)
	op.stop()
	n := int(1<<20 - count.Load())
	if n < 10 || n > 60 {
		t.Fatalf("%d writes in all", n)
	}
	t.Logf("%d writes in all", n)
	for k := 1; k <= n; k++ {
		t.Run(fmt.Sprint(k), func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			var budget atomic.Int32
			budget.Store(int32(k))
			op := start(t, ns, false, &budget)
			go func() {
				select {
				case <-op.ended:
					start(t, ns, false, nil)
				case <-t.Context().Done():
				}
			}()
			scenario(t, ns)
			eventually(t, "all is as without a death", func() error {
				if diff := cmp.Diff(want, snapshot(t, ns)); diff != "" {
					return fmt.Errorf("- want, + got:\n%s", diff)
				}
				return nil
			})
		})
	}
}
