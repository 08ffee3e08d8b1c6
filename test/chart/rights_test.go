//go:build operator

package chart

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/test/apiserver"
)

// TestRightsSuffice runs the operator with the chart's account, flags and rights: in the whole
// cluster, and in one namespace. It reconciles two gateways and an export, and no request is
// forbidden.
func TestRightsSuffice(t *testing.T) {
	program := filepath.Join(t.TempDir(), "operator")
	build := exec.Command("go", "build", "-o", program, "./cmd/operator")
	build.Dir = apiserver.Path(".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, tt := range []struct{ name, values string }{
		{"cluster", `watchNamespaces=[]`}, {"namespaces", `watchNamespaces=["team-a"]`}, {"provisioner", `provisioner.enabled=true,watchNamespaces=["team-a"]`},
	} {
		t.Run(tt.name, func(t *testing.T) { rights(t, program, tt.values) })
	}
}

func rights(t *testing.T, program, values string) {
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
	if _, err := apiserver.InstallCRDs(cfg, envtest.CRDInstallOptions{Paths: []string{"testdata/crds"}}); err != nil {
		t.Fatal(err)
	}
	kube, err := client.New(cfg, client.Options{Scheme: kube.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	if err := kube.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "team-a"}}); err != nil {
		t.Fatal(err)
	}
	kubeconfig := func(account string) string {
		text, err := apiserver.Kubeconfig(cfg, account)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "kubeconfig")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	if _, err := output("helm", kubeconfig(""), "install", release, chart, "--namespace", namespace, "--create-namespace", "--set-json", values); err != nil {
		t.Fatal(err)
	}
	established(t, cfg)
	create := func(text string) {
		for _, u := range objects(t, text) {
			if u.GetKind() != "StorageClass" {
				u.SetNamespace("team-a")
			}
			if err := kube.Create(ctx, u); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(`{apiVersion: k8s.cni.cncf.io/v1, kind: NetworkAttachmentDefinition, metadata: {name: net}, spec: {config: "{}"}}`)
	for _, sample := range []string{"gateway", "gateway_verbs", "export_nfs"} {
		text, err := os.ReadFile(apiserver.Path("config/samples/" + sample + ".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		create(strings.ReplaceAll(string(text), "rdma-net", "net"))
	}

	var d appsv1.Deployment
	if err := kube.Get(ctx, types.NamespacedName{Namespace: namespace, Name: "sluice-operator"}, &d); err != nil {
		t.Fatal(err)
	}
	var args []string
	for _, arg := range d.Spec.Template.Spec.Containers[0].Args {
		args = append(args, strings.NewReplacer("$(NAMESPACE)", namespace, "$(POD_IPS)", "192.0.2.1").Replace(arg))
	}
	var log bytes.Buffer
	cmd := exec.Command(program, append(args, "--metrics-address=0", "--health-address=0", "--log-level=debug")...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig("system:serviceaccount:"+namespace+":"+d.Spec.Template.Spec.ServiceAccountName))
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) { return takenUp(ctx, kube) == nil, nil })
	if err != nil {
		t.Errorf("%v: %v", err, takenUp(ctx, kube))
	}
	if strings.Contains(values, "provisioner") {
		create(claim)
		err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, 3*time.Minute, true, func(ctx context.Context) (bool, error) { return refused(ctx, kube) == nil, nil })
		if err != nil {
			t.Errorf("%v: %v", err, refused(ctx, kube))
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("the operator ended with %v", err)
	}
	if t.Failed() || strings.Contains(log.String(), "forbidden") {
		t.Errorf("want nothing forbidden:\n%s", &log)
	}
}

// claim is a claim of a StorageClass without an export, with the annotation of Kubernetes' own
// controller.
const claim = `
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: sluice}
provisioner: sluice.dev/nfs
parameters: {export: team-a/none}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: scratch, annotations: {volume.kubernetes.io/storage-provisioner: sluice.dev/nfs}}
spec: {storageClassName: sluice, accessModes: [ReadWriteMany], resources: {requests: {storage: 1Gi}}}
`

// refused returns an error until the claim has an event about its export.
func refused(ctx context.Context, kube client.Client) error {
	var all corev1.EventList
	if err := kube.List(ctx, &all, client.InNamespace("team-a")); err != nil {
		return err
	}
	for _, e := range all.Items {
		if e.InvolvedObject.Name == "scratch" && strings.Contains(e.Message, "there is no NFSExport team-a/none") {
			return nil
		}
	}
	return fmt.Errorf("no event of the claim about its export among %d", len(all.Items))
}

// takenUp reports unfinished work: workloads, the speakers' objects, and conditions.
func takenUp(ctx context.Context, kube client.Client) error {
	for _, o := range []client.Object{
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "gateway"}}, &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "fast"}},
		&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "fast-speaker"}}, &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "fast-speaker"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "sluice-data"}},
	} {
		if err := kube.Get(ctx, types.NamespacedName{Namespace: "team-a", Name: o.GetName()}, o); err != nil {
			return err
		}
	}
	var export v1alpha1.NFSExport
	if err := kube.Get(ctx, types.NamespacedName{Namespace: "team-a", Name: "data"}, &export); err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(export.Status.Conditions, v1alpha1.ConditionAccepted) {
		return fmt.Errorf("the export is not accepted: %+v", export.Status.Conditions)
	}
	var gateway v1alpha1.NFSGateway
	if err := kube.Get(ctx, types.NamespacedName{Namespace: "team-a", Name: "fast"}, &gateway); err != nil {
		return err
	}
	if !meta.IsStatusConditionTrue(gateway.Status.Conditions, v1alpha1.ConditionResolvedRefs) {
		return fmt.Errorf("the gateway's references are not resolved: %+v", gateway.Status.Conditions)
	}
	return nil
}
