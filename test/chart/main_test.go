//go:build operator

// Package chart tests charts/sluice and config: their rendering for all kinds of values, and its
// acceptance by a real kube-apiserver.
package chart

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"sluice.dev/sluice/internal/operator/uninstall"
	"sluice.dev/sluice/test/apiserver"
)

var update = flag.Bool("update", false, "write the golden files")

// The chart's directory, and the release and namespace for which it is rendered.
const (
	release   = "sluice"
	namespace = "sluice-system"
)

var (
	chart = apiserver.Path("charts/sluice")
	bin   string // directory of helm and kubectl
	kube  client.Client
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	if bin, err = apiserver.Prepare("helm", "kubernetes"); err != nil {
		return 1, err
	}
	cfg, stop, err := apiserver.Start()
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	crds := envtest.CRDInstallOptions{Paths: []string{"testdata/crds", apiserver.Path("config/crd")}}
	if _, err := apiserver.InstallCRDs(cfg, crds); err != nil {
		return 1, err
	}
	s := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(s), uninstall.AddToScheme(s)); err != nil {
		return 1, err
	}
	if kube, err = client.New(cfg, client.Options{Scheme: s}); err != nil {
		return 1, err
	}
	// Namespaces that admit only restricted pods.
	for _, name := range []string{namespace, "team-a", "team-b", "monitoring", "storage"} {
		n := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}}}
		if err := kube.Create(context.Background(), n); err != nil {
			return 1, err
		}
	}
	return m.Run(), nil
}

// helm runs helm, without any cluster, and returns its standard output.
func helm(args ...string) (string, error) {
	return output("helm", "/dev/null", args...)
}

func output(program, kubeconfig string, args ...string) (string, error) {
	cmd := exec.Command(filepath.Join(bin, program), args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "HELM_PLUGINS=/nonexistent")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, &stderr)
	}
	return string(out), err
}

// render returns the output of helm template, with a file of values unless values is empty.
func render(chart, values string, more ...string) (string, error) {
	args := append([]string{"template", release, chart, "--namespace", namespace, "--kube-version", "1.36.0"}, more...)
	if values != "" {
		args = append(args, "--values", values)
	}
	return helm(args...)
}

// established waits until a server serves the CRDs that helm just installed.
func established(t *testing.T, cfg *rest.Config) {
	t.Helper()
	o := envtest.CRDInstallOptions{Paths: []string{apiserver.Path("config/crd")}, ErrorIfPathMissing: true, MaxTime: 2 * time.Minute, PollInterval: 100 * time.Millisecond}
	if err := envtest.ReadCRDFiles(&o); err != nil {
		t.Fatal(err)
	}
	if err := envtest.WaitForCRDs(cfg, o.CRDs, o); err != nil {
		t.Fatal(err)
	}
}

// objects parses documents of YAML.
func objects(t *testing.T, text string) []*unstructured.Unstructured {
	t.Helper()
	d := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(text), 4096)
	var out []*unstructured.Unstructured
	for {
		u := &unstructured.Unstructured{}
		if err := d.Decode(&u.Object); errors.Is(err, io.EOF) {
			return out
		} else if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if len(u.Object) > 0 {
			out = append(out, u)
		}
	}
}

// accepted has the server dry-run the object, and the pods of a Deployment or Job in a namespace
// that wants them restricted; those of a DaemonSet, which act on the node, in kube-system.
func accepted(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	ctx := context.Background()
	apply := client.ApplyConfigurationFromUnstructured(u.DeepCopy())
	if err := kube.Apply(ctx, apply, client.DryRunAll, client.ForceOwnership, client.FieldOwner("test")); err != nil {
		t.Errorf("%s %s: %v", u.GetKind(), u.GetName(), err)
	}
	template, ok, _ := unstructured.NestedMap(u.Object, "spec", "template")
	if !ok {
		return
	}
	pod := &unstructured.Unstructured{Object: template}
	pod.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Pod"))
	pod.SetNamespace(u.GetNamespace())
	if u.GetKind() == "DaemonSet" {
		pod.SetNamespace(metav1.NamespaceSystem)
	}
	pod.SetName(u.GetName())
	if err := kube.Create(ctx, pod, client.DryRunAll); err != nil {
		t.Errorf("pod of %s %s: %v", u.GetKind(), u.GetName(), err)
	}
}

// golden compares text with a file of testdata.
func golden(t *testing.T, file, text string) {
	t.Helper()
	file = filepath.Join("testdata", file)
	if *update {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if text != string(want) {
		t.Errorf("not as in %s; go test -tags operator ./test/chart -args -update writes it anew, for git diff to show:\n%s", file, text)
	}
}
