//go:build operator

// Package operator tests the controllers against a real kube-apiserver, with real gateways as pods.
package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/internal/operator/controllers"
	"sluice.dev/sluice/test/apiserver"
)

// operatorUser is the operator's user, with the rights of config/rbac.
const operatorUser = "system:serviceaccount:sluice-system:sluice-operator"

const systemNamespace = "sluice-system"

var (
	admin   *rest.Config
	kube    client.Client // as the administrator
	gateway string        // the program
	backend *server       // an NFS server for all
	audit   string        // the API server's log
)

func TestMain(m *testing.M) {
	// Tests wait more than they compute.
	if err := flag.Set("test.parallel", fmt.Sprint(2*runtime.GOMAXPROCS(0))); err != nil {
		panic(err)
	}
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (code int, err error) {
	dir, err := os.MkdirTemp("", "operator")
	if err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	gateway, audit = filepath.Join(dir, "gateway"), filepath.Join(dir, "audit.log")
	build := exec.Command("go", "build", "-o", gateway, "./cmd/gateway")
	build.Dir, build.Stderr, build.Env = apiserver.Path("."), os.Stderr, append(os.Environ(), "CGO_ENABLED=0")
	if err := build.Run(); err != nil {
		return 1, fmt.Errorf("go build: %w", err)
	}
	policy := filepath.Join(dir, "audit.yaml")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules: [{level: Metadata}]\n"), 0o600); err != nil {
		return 1, err
	}
	var stop func() error
	if admin, stop, err = apiserver.Start("audit-policy-file="+policy, "audit-log-path="+audit, "service-cluster-ip-range=10.0.0.0/16"); err != nil {
		return 1, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	scheme := controllers.Scheme()
	if err := storagev1.AddToScheme(scheme); err != nil {
		return 1, err
	}
	if kube, err = client.New(admin, client.Options{Scheme: scheme}); err != nil {
		return 1, err
	}
	if _, err := apiserver.InstallCRDs(admin, envtest.CRDInstallOptions{Paths: []string{apiserver.Path("config/crd")}}); err != nil {
		return 1, err
	}
	if err := rights(); err != nil {
		return 1, err
	}
	if backend, err = startServer(filepath.Join(dir, "backend")); err != nil {
		return 1, err
	}
	defer backend.stop()
	return m.Run(), nil
}

// rights grants the operator's user the rights of config/rbac.
func rights() error {
	var text []byte
	for _, file := range []string{"role.yaml", "leader_election.yaml", "provisioner.yaml"} {
		b, err := os.ReadFile(apiserver.Path("config/rbac/" + file))
		if err != nil {
			return err
		}
		text = append(append(text, "---\n"...), b...)
	}
	ctx := context.Background()
	if err := kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: systemNamespace}}); err != nil {
		return err
	}
	subject := []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: operatorUser}}
	for doc := range bytes.SplitSeq(text, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			return err
		}
		meta := metav1.ObjectMeta{Name: "operator", Namespace: systemNamespace}
		var role, binding client.Object
		switch kind.Kind {
		case "ClusterRole":
			r := &rbacv1.ClusterRole{}
			if err := yaml.UnmarshalStrict(doc, r); err != nil {
				return err
			}
			meta.Name, meta.Namespace = r.Name, ""
			role, binding = r, &rbacv1.ClusterRoleBinding{ObjectMeta: meta, Subjects: subject, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind.Kind, Name: r.Name}}
		case "Role":
			r := &rbacv1.Role{}
			if err := yaml.UnmarshalStrict(doc, r); err != nil {
				return err
			}
			r.Namespace = systemNamespace
			role, binding = r, &rbacv1.RoleBinding{ObjectMeta: meta, Subjects: subject, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: kind.Kind, Name: r.Name}}
		default:
			continue
		}
		if err := errors.Join(kube.Create(ctx, role), kube.Create(ctx, binding)); err != nil {
			return err
		}
	}
	return nil
}

// write is a changing request of the operator, from the API server's audit log.
type write struct {
	Verb      string
	ObjectRef struct{ Resource, Subresource, Namespace, Name string }
}

// writes returns the operator's writes in a namespace since a time.
func writes(t *testing.T, namespace string, since time.Time) (out []write) {
	t.Helper()
	log, err := os.ReadFile(audit)
	if err != nil {
		t.Fatal(err)
	}
	whole := log[:bytes.LastIndexByte(log, '\n')+1] // the last line may be half written
	for line := range bytes.Lines(whole) {
		var e struct {
			write
			ImpersonatedUser         struct{ Username string }
			RequestReceivedTimestamp time.Time
		}
		if err := json.Unmarshal(line, &e); err != nil {
			t.Fatal(err)
		}
		switch e.Verb {
		case "get", "list", "watch":
			continue
		}
		if e.ImpersonatedUser.Username == operatorUser && e.ObjectRef.Namespace == namespace && e.RequestReceivedTimestamp.After(since) {
			out = append(out, e.write)
		}
	}
	return out
}
