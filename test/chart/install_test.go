//go:build operator

package chart

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/test/apiserver"
)

// TestInstall has helm install, upgrade and remove the chart, on a server of its own without pods.
// The users' objects stay.
func TestInstall(t *testing.T) {
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
	config, err := apiserver.Kubeconfig(cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(kubeconfig, config, 0o600); err != nil {
		t.Fatal(err)
	}
	helm := func(args ...string) string {
		t.Helper()
		out, err := output("helm", kubeconfig, append(args, "--namespace", namespace)...)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}

	notes := helm("install", release, chart, "--create-namespace")
	established(t, cfg)
	scheme := kube.Scheme()
	if err := apiextensions.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	kube, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	commands := regexp.MustCompile(`(?m)^   kubectl .*$`).FindAllString(notes, -1)
	if len(commands) != 3 {
		t.Errorf("want three commands in the notes, have %q", commands)
	}
	manifests := regexp.MustCompile(`(?s)<<'EOF'\n(.*?)   EOF\n`).FindAllStringSubmatch(notes, -1)
	if len(manifests) != 2 {
		t.Errorf("want two manifests in the notes, have %d", len(manifests))
	}
	for _, m := range manifests {
		for _, u := range objects(t, m[1]) {
			if err := kube.Create(ctx, u); err != nil {
				t.Errorf("notes: %v", err)
			}
		}
	}

	helm("upgrade", release, chart, "--reuse-values", "--set", "images.operator.tag=v9")
	helm("uninstall", release, "--no-hooks")

	var crd apiextensions.CustomResourceDefinition
	if err := kube.Get(ctx, types.NamespacedName{Name: "nfsexports.sluice.dev"}, &crd); err != nil {
		t.Error(err)
	}
	var exports v1alpha1.NFSExportList
	if err := kube.List(ctx, &exports); err != nil || len(exports.Items) != 1 {
		t.Errorf("have %d exports, want the one from the notes (%v)", len(exports.Items), err)
	}
	deployment := &metav1.PartialObjectMetadata{}
	deployment.SetGroupVersionKind(appsv1.SchemeGroupVersion.WithKind("Deployment"))
	if err := kube.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "sluice-operator"}, deployment); !apierrors.IsNotFound(err) {
		t.Errorf("the operator is left: %v", err)
	}
	helm("install", release, chart) // over the CRDs that stayed
}
