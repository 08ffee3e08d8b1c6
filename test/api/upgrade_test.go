//go:build operator

package api

import (
	"bytes"
	"context"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"sluice.dev/sluice/test/apiserver"
)

// TestUpgrade installs each former release's CRDs (testdata/releases/VERSION/crd), makes that
// release's objects, and installs the present CRDs over them. The objects are read back unchanged
// and can still be written.
func TestUpgrade(t *testing.T) {
	releases, err := filepath.Glob("testdata/releases/*")
	if err != nil || len(releases) == 0 {
		t.Fatalf("testdata/releases: %d, %v", len(releases), err)
	}
	for _, release := range releases {
		t.Run(filepath.Base(release), func(t *testing.T) { upgrade(t, release) })
	}
}

func upgrade(t *testing.T, release string) {
	ctx := context.Background()
	cfg, stop, err := apiserver.Start()
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	}()
	kube, err := client.New(cfg, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	install := func(dir string) {
		t.Helper()
		if _, err := apiserver.InstallCRDs(cfg, envtest.CRDInstallOptions{Paths: []string{dir}}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(u *unstructured.Unstructured) []byte {
		t.Helper()
		now := u.DeepCopy()
		if err := kube.Get(ctx, client.ObjectKeyFromObject(u), now); err != nil {
			t.Fatal(err)
		}
		now.SetResourceVersion("")
		now.SetManagedFields(nil)
		text, err := now.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return text
	}

	install(filepath.Join(release, "crd"))
	files, err := filepath.Glob(filepath.Join(release, "objects/*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %d objects, %v", release, len(files), err)
	}
	before := map[*unstructured.Unstructured][]byte{}
	for _, file := range files {
		u := readObject(t, file)
		status := u.Object["status"]
		if err := kube.Create(ctx, u); err != nil {
			t.Fatal(err)
		}
		if status != nil {
			u.Object["status"] = status
			if err := kube.Status().Update(ctx, u); err != nil {
				t.Fatal(err)
			}
		}
		before[u] = read(u)
	}

	install(apiserver.Path("config/crd"))
	for u, was := range before {
		if is := read(u); !bytes.Equal(was, is) {
			t.Errorf("%s %s: before\n%s\nafter\n%s", u.GetKind(), u.GetName(), was, is)
		}
		patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata": {"annotations": {"example.com/touched": "yes"}}}`))
		if err := kube.Patch(ctx, u, patch); err != nil {
			t.Errorf("cannot be written any more: %v", err)
		}
	}
}
