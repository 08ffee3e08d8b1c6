//go:build operator

package api

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/test/apiserver"
)

// TestDeletionProtection: an NFSGateway that serves NFSExports can be deleted only when it is
// annotated, serves none any more, or its namespace is deleted.
func TestDeletionProtection(t *testing.T) {
	ctx := context.Background()
	for _, file := range []string{"protection.yaml", "binding.yaml"} {
		keep(t, readObject(t, apiserver.Path("config/admission/"+file)))
	}
	gw := object(t, "nfsgateway-plain")
	gw.SetName("in-use")
	if err := kube.Create(ctx, gw); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		serving(t, gw, 0)
		if err := kube.Delete(ctx, gw); err != nil {
			t.Error(err)
		}
	})
	as := rest.CopyConfig(cfg)
	as.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:namespace-controller", Groups: []string{"system:masters"}}
	namespaces, err := client.New(as, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	try := func(c client.Client) error { return c.Delete(ctx, gw, client.DryRunAll) }
	if err := try(kube); err != nil {
		t.Errorf("without a status: %v", err)
	}
	serving(t, gw, 3)
	// a policy takes effect some time after its creation
	deadline := time.Now().Add(2 * time.Minute)
	for !apierrors.IsForbidden(try(kube)) && time.Now().Before(deadline) {
		time.Sleep(100 * time.Millisecond)
	}
	const want = "it serves 3 NFSExports, and their clients would lose their mounts: delete these first, or allow it by " +
		"kubectl annotate nfsgateway in-use -n default sluice.dev/allow-deletion=true"
	if err := try(kube); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want) {
		t.Errorf("in use: %v, want %q in it", err, want)
	}
	if err := kube.DeleteAllOf(ctx, gw, client.InNamespace("default"), client.DryRunAll); !apierrors.IsForbidden(err) {
		t.Errorf("all of a namespace: %v", err)
	}
	if err := try(namespaces); err != nil {
		t.Errorf("with its namespace: %v", err)
	}
	for value, allowed := range map[string]bool{"false": false, "true": true} {
		gw.SetAnnotations(map[string]string{"sluice.dev/allow-deletion": value})
		if err := kube.Update(ctx, gw); err != nil {
			t.Fatal(err)
		}
		if err := try(kube); allowed && err != nil || !allowed && !apierrors.IsForbidden(err) {
			t.Errorf("annotated with %q: %v", value, err)
		}
	}
	gw.SetAnnotations(nil)
	if err := kube.Update(ctx, gw); err != nil {
		t.Fatal(err)
	}
	serving(t, gw, 0)
	if err := try(kube); err != nil {
		t.Errorf("without exports: %v", err)
	}
}

// serving writes the number of exports that a gateway serves.
func serving(t *testing.T, gw *unstructured.Unstructured, exports int64) {
	t.Helper()
	if err := errors.Join(unstructured.SetNestedField(gw.Object, exports, "status", "exports"), kube.Status().Update(context.Background(), gw)); err != nil {
		t.Fatal(err)
	}
}
