//go:build operator

// Package api tests the CRDs against a real kube-apiserver: acceptance and refusal of objects with
// their messages, kubectl's output, and upgrades from earlier releases.
package api

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"

	jsonpatch "github.com/evanphx/json-patch/v5"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/test/apiserver"
)

var (
	cfg  *rest.Config
	kube client.Client
	// crds has those of config/crd, by kind.
	crds = map[string]*apiextensions.CustomResourceDefinition{}
)

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	var stop func() error
	if cfg, stop, err = apiserver.Start(); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if kube, err = client.New(cfg, client.Options{}); err != nil {
		return 1, err
	}
	installed, err := apiserver.InstallCRDs(cfg, envtest.CRDInstallOptions{Paths: []string{apiserver.Path("config/crd")}})
	if err != nil {
		return 1, err
	}
	for _, crd := range installed {
		crds[crd.Spec.Names.Kind] = crd
	}
	return m.Run(), nil
}

// object reads testdata/objects/NAME.yaml.
func object(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	return readObject(t, filepath.Join("testdata/objects", name+".yaml"))
}

func readObject(t *testing.T, file string) *unstructured.Unstructured {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	u := &unstructured.Unstructured{}
	if err := yaml.UnmarshalStrict(text, &u.Object); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return u.DeepCopy()
}

// objects lists the files in testdata/objects.
func objects(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/objects/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata/objects: %d files, %v", len(files), err)
	}
	for i, f := range files {
		files[i] = strings.TrimSuffix(filepath.Base(f), ".yaml")
	}
	return files
}

// merged returns a copy of the object with an RFC 7386 merge patch in YAML applied.
func merged(t *testing.T, u *unstructured.Unstructured, patch string) *unstructured.Unstructured {
	t.Helper()
	doc, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	p, err := yaml.YAMLToJSONStrict([]byte(patch))
	if err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	if patch == "" {
		p = []byte("{}")
	}
	if doc, err = jsonpatch.MergePatch(doc, p); err != nil {
		t.Fatalf("%s: %v", patch, err)
	}
	out := &unstructured.Unstructured{}
	if err := out.UnmarshalJSON(doc); err != nil {
		t.Fatal(err)
	}
	return out
}

// create dry-runs the creation of the object.
func create(u *unstructured.Unstructured) error {
	return kube.Create(context.Background(), u.DeepCopy(), client.DryRunAll)
}

// keep creates the object for the duration of the test.
func keep(t *testing.T, u *unstructured.Unstructured) *unstructured.Unstructured {
	t.Helper()
	u = u.DeepCopy()
	if err := kube.Create(context.Background(), u); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := kube.Delete(context.Background(), u); err != nil {
			t.Error(err)
		}
	})
	return u
}

// unchecked is the server's addition when the schema refuses an object before its CEL rules are
// tried.
const unchecked = "some validation rules were not checked because the object was invalid; correct the existing errors to complete validation"

// causes returns those of a refusal, as "FIELD: MESSAGE", sorted; none if the object was accepted.
func causes(t *testing.T, err error) []string {
	t.Helper()
	if err == nil {
		return nil
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || status.Status().Reason != metav1.StatusReasonInvalid {
		t.Fatalf("not a refusal by validation: %v", err)
	}
	var out []string
	for _, c := range status.Status().Details.Causes {
		if !strings.Contains(c.Message, unchecked) {
			out = append(out, c.Field+": "+c.Message)
		}
	}
	sort.Strings(out)
	return out
}
