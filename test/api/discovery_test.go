//go:build operator

package api

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscaling "k8s.io/api/autoscaling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/test/apiserver"
)

func TestDiscovery(t *testing.T) {
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.ServerResourcesForGroupVersion("sluice.dev/v1alpha1")
	if err != nil {
		t.Fatal(err)
	}
	type resource struct {
		Kind                   string
		ShortNames, Categories []string
	}
	have := map[string]resource{}
	for _, r := range list.APIResources {
		have[r.Name] = resource{r.Kind, r.ShortNames, r.Categories}
		if !r.Namespaced {
			t.Errorf("%s: not in a namespace", r.Name)
		}
	}
	want := map[string]resource{
		"nfsgateways":        {"NFSGateway", []string{"nfsgw"}, []string{"sluice"}},
		"nfsgateways/status": {Kind: "NFSGateway"},
		"nfsgateways/scale":  {Kind: "Scale"},
		"nfsexports":         {"NFSExport", []string{"nfsx"}, []string{"sluice"}},
		"nfsexports/status":  {Kind: "NFSExport"},
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
}

// TestColumns checks the columns of kubectl get; those with "wide:" before them appear only with -o
// wide.
func TestColumns(t *testing.T) {
	tests := []struct {
		object, resource string
		columns          []string
		cells            []any
	}{
		{
			"nfsexport-nfs", "nfsexports",
			[]string{"Name", "Gateway", "Backend", "Address", "Clients", "Ready", "Reason", "Age", "wide:Mount"},
			[]any{"nfs", "fast", "nfs filer.example:/vol/data", "10.0.0.77", 3.0, "True", "Ready", "mount -t nfs -o vers=4.2,proto=rdma,port=20049 10.0.0.77:/ /mnt"},
		},
		{
			"nfsgateway-service", "nfsgateways",
			[]string{"Name", "Provider", "Exposure", "Pods", "Exports", "Clients", "Ready", "Reason", "Age"},
			[]any{"service", "SoftwareIWARP", "Service", "2/2", 3.0, 7.0, "True", "Ready"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.resource, func(t *testing.T) {
			u := object(t, tt.object)
			status := u.Object["status"]
			u = keep(t, u)
			u.Object["status"] = status
			if err := kube.Status().Update(context.Background(), u); err != nil {
				t.Fatal(err)
			}
			table := getTable(t, tt.resource, u.GetName())
			var columns []string
			var cells []any
			for i, c := range table.ColumnDefinitions {
				name := c.Name
				if c.Priority > 0 {
					name = "wide:" + name
				}
				columns = append(columns, name)
				if c.Name != "Age" {
					cells = append(cells, table.Rows[0].Cells[i])
				}
			}
			if diff := cmp.Diff(tt.columns, columns); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(tt.cells, cells); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func getTable(t *testing.T, resource, name string) metav1.Table {
	t.Helper()
	d, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := d.RESTClient().Get().AbsPath("/apis/sluice.dev/v1alpha1/namespaces/default", resource, name).
		SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(context.Background()).Raw()
	if err != nil {
		t.Fatal(err)
	}
	var table metav1.Table
	if err := json.Unmarshal(raw, &table); err != nil {
		t.Fatal(err)
	}
	return table
}

func TestScale(t *testing.T) {
	ctx := context.Background()
	u := keep(t, object(t, "nfsgateway-service"))
	u.Object["status"] = object(t, "nfsgateway-service").Object["status"]
	if err := kube.Status().Update(ctx, u); err != nil {
		t.Fatal(err)
	}
	scale := &unstructured.Unstructured{}
	scale.SetGroupVersionKind(autoscaling.SchemeGroupVersion.WithKind("Scale"))
	if err := kube.SubResource("scale").Get(ctx, u, scale); err != nil {
		t.Fatal(err)
	}
	have := []any{scale.Object["spec"], scale.Object["status"]}
	want := []any{map[string]any{"replicas": int64(2)}, map[string]any{"replicas": int64(2), "selector": "sluice.dev/gateway=service"}}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Error(diff)
	}
	scaleTo := func(replicas int64) error {
		find(scale.Object, "spec.replicas")[0].set(replicas)
		return kube.SubResource("scale").Update(ctx, u, client.WithSubResourceBody(scale))
	}
	if err := scaleTo(5); err != nil {
		t.Fatal(err)
	}
	if err := kube.Get(ctx, client.ObjectKeyFromObject(u), u); err != nil {
		t.Fatal(err)
	}
	if have := find(u.Object, "spec.replicas")[0].value; have != int64(5) {
		t.Errorf("spec.replicas: have %v, want 5", have)
	}
	if err := scaleTo(65); err == nil {
		t.Error("scaled beyond the maximum")
	}
}

// TestExplain runs kubectl explain on fields of both kinds. TestEveryFieldIsDescribed checks that
// each has a description.
func TestExplain(t *testing.T) {
	bin, err := apiserver.Prepare("kubernetes")
	if err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := apiserver.Kubeconfig(cfg, "")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(file, kubeconfig, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct{ path, want string }{
		{"nfsx", "that clients mount through an NFSGateway"},
		{"nfsexports.spec.transport.inlineThreshold", "multiples of 1Ki from 1Ki to 256Ki"},
		{"nfsgw.spec.exposure", "VirtualIP gives each export an address of a pool"},
	} {
		var out []byte
		// The server publishes the schema some time after it has the CRD.
		err := wait.PollUntilContextTimeout(context.Background(), 200*time.Millisecond, 3*time.Minute, true, func(context.Context) (bool, error) {
			out, err = exec.Command(filepath.Join(bin, "kubectl"), "explain", tt.path, "--kubeconfig", file, "--cache-dir", t.TempDir()).CombinedOutput()
			return err == nil, nil
		})
		if err != nil {
			t.Fatalf("kubectl explain %s: %v\n%s", tt.path, err, out)
		}
		if text := strings.Join(strings.Fields(string(out)), " "); !strings.Contains(text, tt.want) || slices.Contains(strings.Fields(text), "<empty>") {
			t.Errorf("kubectl explain %s: want %q\n%s", tt.path, tt.want, out)
		}
	}
}
