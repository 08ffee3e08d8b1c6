package sluicectl

import (
	"bytes"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// kubectlScript stands in for kubectl: it notes its arguments, and answers from files of FOLDER.
const kubectlScript = `#!/bin/sh
echo "$*" >>FOLDER/calls
case "$*" in
  *"get nfsgateways"*) cat FOLDER/list.json ;;
  *"get nfsexports"*" none") echo 'Error from server (NotFound): nfsexports.sluice.dev "none" not found' >&2; exit 1 ;;
  *"get nfsexports"*) cat FOLDER/export.yaml ;;
  *"get pods"*sluice.dev/gateway=idle*) ;;
  *"get pods"*) printf 'fast-0 fast-1' ;;
  *port-forward*pod/gone*) echo 'error: pods "gone" not found' >&2; exit 1 ;;
  *port-forward*) echo "Forwarding from ADMIN -> 9180"; echo "Handling connection for 1"; exec sleep 600 ;;
  *) echo "unexpected $*" >&2; exit 1 ;;
esac
`

// cluster puts a kubectl that stands for a cluster in front of the path. plugin runs the plugin.
func cluster(t *testing.T, export, admin string) (plugin func(args ...string) (code int, out, errs string), calls func() string) {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string, mode os.FileMode) {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), mode))
	}
	write("kubectl", strings.NewReplacer("FOLDER", dir, "ADMIN", admin).Replace(kubectlScript), 0o755)
	write("export.yaml", export, 0o600)
	write("list.json", `{"items": [
		{"kind": "NFSExport", "metadata": {"namespace": "b", "name": "data"}, "spec": {"gatewayRef": {"name": "fast"}},
		 "status": {"address": "10.96.0.12", "clients": 3, "conditions": [{"type": "Accepted", "status": "True", "reason": "Accepted"}, {"type": "Ready", "status": "True", "reason": "Ready", "message": "fine"}]}},
		{"kind": "NFSExport", "metadata": {"namespace": "a", "name": "new"}, "spec": {"gatewayRef": {"name": "fast"}}},
		{"kind": "NFSGateway", "metadata": {"namespace": "a", "name": "fast"},
		 "status": {"pods": "1/2", "clients": 3, "conditions": [{"type": "Ready", "status": "False", "reason": "PodsUnavailable", "message": "one pod waits for a node"}]}}]}`, 0o600)
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	plugin = func(args ...string) (int, string, string) {
		var out, errs bytes.Buffer
		code := RunPlugin(t.Context(), "v1.2.3", args, Streams{Out: &out, Err: &errs})
		return code, out.String(), errs.String()
	}
	return plugin, func() string {
		b, err := os.ReadFile(filepath.Join(dir, "calls"))
		must(t, err)
		must(t, os.Remove(filepath.Join(dir, "calls")))
		return string(b)
	}
}

func TestPluginStatus(t *testing.T) {
	plugin, calls := cluster(t, "", "")
	code, out, errs := plugin("status", "-A", "--context", "test")
	want := []string{
		"GATEWAY READY REASON PODS CLIENTS", "a/fast False PodsUnavailable 1/2 3", "",
		"EXPORT READY REASON GATEWAY ADDRESS CLIENTS", "a/new Unknown NoStatus fast - 0", "b/data True Ready fast 10.96.0.12 3", "",
		"a/fast: one pod waits for a node",
	}
	if d := cmp.Diff(want, lines(out)); d != "" || code != 0 || errs != "" {
		t.Errorf("exit %d, %s: %s", code, errs, d)
	}
	if got := calls(); got != "--context=test get nfsgateways.sluice.dev,nfsexports.sluice.dev -o json --all-namespaces\n" {
		t.Errorf("kubectl %s", got)
	}
}

// TestPluginExport: mount, pv and ping go by the status of an export.
func TestPluginExport(t *testing.T) {
	e := newEnv(t)
	export, err := os.ReadFile("testdata/pv/data.yaml")
	must(t, err)
	host, port, _ := strings.Cut(e.tcp, ":")
	here := strings.ReplaceAll(string(export), "proto=tcp,port=2049 10.96.0.12", "proto=tcp,port="+port+" "+host)
	plugin, calls := cluster(t, here, "")
	if code, out, errs := plugin("mount", "data", "-n", "team-a"); code != 0 || out != "mount -t nfs -o vers=4.2,proto=rdma,port=20049 10.96.0.12:/ /mnt\n" {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if got := calls(); got != "--namespace=team-a get nfsexports.sluice.dev -o json -- data\n" {
		t.Errorf("kubectl %s", got)
	}
	want, err := os.ReadFile("testdata/pv/data-tcp-pod.golden")
	must(t, err)
	plain, _ := cluster(t, string(export), "")
	if code, out, errs := plain("pv", "data", "--tcp", "--pod", "--claim-namespace", "other", "--capacity", "20Gi"); code != 0 || out != string(want) {
		t.Errorf("exit %d, %s: %s", code, errs, cmp.Diff(string(want), out))
	}
	plugin, _ = cluster(t, here, "")
	if code, out, errs := plugin("ping", "--tcp", "data"); code != 0 || !strings.HasPrefix(out, "nfs+tcp://"+e.tcp+"/ answers NFS version ") {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if code, _, errs := plugin("mount", "none"); code != 1 || errs != "kubectl-sluice: kubectl get: Error from server (NotFound): nfsexports.sluice.dev \"none\" not found.\n" {
		t.Errorf("exit %d, %q", code, errs)
	}
}

// TestPluginTop: top reads the status of a gateway's pod by a forwarded port.
func TestPluginTop(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _ = json.NewEncoder(w).Encode(topStatus(500)) }))
	t.Cleanup(server.Close)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	plugin, calls := cluster(t, "", server.Listener.Addr().String())
	code, out, errs := plugin("top", "fast", "--interval", "100ms", "--count", "2")
	if code != 0 || strings.Count(out, "192.0.2.7:701") != 2 || errs != "Pod fast-0; --pod NAME shows another of the 2.\n" {
		t.Errorf("exit %d, %s%s", code, out, errs)
	}
	if got := calls(); !strings.HasSuffix(got, "\nport-forward --address=127.0.0.1 pod/fast-0 :9180\n") {
		t.Errorf("kubectl %s", got)
	}
	for args, want := range map[string]string{
		"idle":            `gateway "idle" has no running pod in this namespace; "kubectl sluice status -A" lists gateways.`,
		"a,b":             `"a,b": want the name of an NFSGateway.`,
		"fast --pod gone": `kubectl port-forward: error: pods "gone" not found.`,
	} {
		if code, _, errs := plugin(append([]string{"top"}, strings.Fields(args)...)...); code != 1 || errs != "kubectl-sluice: "+want+"\n" {
			t.Errorf("%s: exit %d, %q", args, code, errs)
		}
	}
}

// TestPluginWithoutKubectl names the missing program.
func TestPluginWithoutKubectl(t *testing.T) {
	plugin, _ := cluster(t, "", "")
	t.Setenv("PATH", t.TempDir())
	if code, _, errs := plugin("status"); code != 1 || !strings.Contains(errs, "this plugin runs kubectl") {
		t.Errorf("exit %d, %q", code, errs)
	}
	if code, out, _ := plugin("version"); code != 0 || out != "kubectl sluice v1.2.3\n" {
		t.Errorf("exit %d, %q", code, out)
	}
}
