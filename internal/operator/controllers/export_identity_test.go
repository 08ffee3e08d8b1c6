package controllers

import (
	"context"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
)

// oneExport is an API server with one NFSExport.
type oneExport struct {
	client.Client
	x       v1alpha1.NFSExport
	patches []string
	answer  error
}

func (c *oneExport) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	c.x.DeepCopyInto(o.(*v1alpha1.NFSExport))
	return nil
}

func (c *oneExport) Patch(_ context.Context, o client.Object, p client.Patch, _ ...client.PatchOption) error {
	data, err := p.Data(o)
	c.patches = append(c.patches, string(data))
	if err == nil && c.answer == nil {
		o.(*v1alpha1.NFSExport).DeepCopyInto(&c.x)
	}
	return c.answer
}

// The identity is set once, to the UID, and only over the export as it was seen.
func TestHandleIdentity(t *testing.T) {
	const patch = `{"metadata":{"resourceVersion":"7"},"spec":{"handleIdentity":"1-2-3-4-5"}}`
	nfs := v1alpha1.Backend{NFS: &v1alpha1.NFSServer{Server: "filer.example", Path: "/vol"}}
	for _, c := range []struct {
		name    string
		backend v1alpha1.Backend
		has     string
		gone    bool
		answer  error
		patches int
		set     string
	}{
		{name: "none yet", backend: nfs, patches: 1, set: "1-2-3-4-5"},
		{name: "one of a backup", backend: nfs, has: "data-2024", set: "data-2024"},
		{name: "a claim", backend: v1alpha1.Backend{PersistentVolumeClaim: &v1alpha1.Claim{ClaimName: "data"}}},
		{name: "about to go", backend: nfs, gone: true},
		{name: "changed meanwhile", backend: nfs, answer: apierrors.NewConflict(schema.GroupResource{}, "data", nil), patches: 2},
	} {
		api := &oneExport{answer: c.answer, x: v1alpha1.NFSExport{
			ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "data", UID: "1-2-3-4-5", ResourceVersion: "7"},
			Spec:       v1alpha1.NFSExportSpec{Backend: c.backend, HandleIdentity: c.has},
		}}
		if c.gone {
			api.x.DeletionTimestamp = &metav1.Time{}
		}
		for range 2 {
			if _, err := (&ExportIdentityReconciler{api}).Reconcile(t.Context(), ctrl.Request{}); err != nil {
				t.Errorf("%s: %v", c.name, err)
			}
		}
		if len(api.patches) != c.patches || len(api.patches) > 0 && api.patches[0] != patch || api.x.Spec.HandleIdentity != c.set {
			t.Errorf("%s: patches %q, identity %q; want %d of %s, %q", c.name, api.patches, api.x.Spec.HandleIdentity, c.patches, patch, c.set)
		}
	}
}
