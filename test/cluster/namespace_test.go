//go:build cluster

package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// namespace belongs to one test.
type namespace struct {
	*cluster
	name string
}

// namespace makes a namespace that enforces a PodSecurity level: restricted, baseline or
// privileged. It is deleted at the end of the test.
func (c *cluster) namespace(t *testing.T, name, level string) *namespace {
	t.Helper()
	ns := &namespace{c, name}
	_, err := c.kubectl(fmt.Sprintf(`{"apiVersion": "v1", "kind": "Namespace",
		"metadata": {"name": %q, "labels": {"pod-security.kubernetes.io/enforce": %q}}}`, name, level), "create", "-f", "-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			ns.show(t)
		}
		if _, err := c.kubectl("", "delete", "namespace", name, "--wait", "--timeout=6m"); err != nil {
			t.Error(err)
		}
	})
	return ns
}

// show logs the namespace's state after a failure.
func (ns *namespace) show(t *testing.T) {
	for _, args := range [][]string{
		{"get", "all,configmaps,network-attachment-definitions", "-o", "wide"},
		{"get", "events", "--sort-by=.lastTimestamp"},
		{"describe", "pods"},
	} {
		said, err := ns.kubectl(args...)
		t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, said)
	}
	pods, _ := ns.kubectl("get", "pods", "-o", "name")
	for _, pod := range strings.Fields(pods) {
		said, _ := ns.kubectl("logs", "--all-containers", "--tail=60", pod)
		t.Logf("logs of %s:\n%s", pod, said)
	}
}

// kubectl runs kubectl in the namespace.
func (ns *namespace) kubectl(args ...string) (string, error) {
	return ns.cluster.kubectl("", append([]string{"--namespace", ns.name}, args...)...)
}

// must runs kubectl in the namespace. A failure ends the test.
func (ns *namespace) must(t *testing.T, args ...string) string {
	t.Helper()
	said, err := ns.kubectl(args...)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// apply applies a manifest, which may hold several objects.
func (ns *namespace) apply(t *testing.T, manifest string) {
	t.Helper()
	if _, err := ns.cluster.kubectl(manifest, "--namespace", ns.name, "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// wait waits for objects: "condition=Ready" of "nfsexport/data", "delete" of "pod/x",
// "jsonpath={.status.clients}=1" of …
func (ns *namespace) wait(t *testing.T, what, objects string, limit time.Duration) {
	t.Helper()
	ns.must(t, append([]string{"wait", "--for=" + what, "--timeout=" + (patience * limit).String()}, strings.Fields(objects)...)...)
}

// get evaluates a JSONPath on an object.
func (ns *namespace) get(t *testing.T, object, path string) string {
	t.Helper()
	return ns.must(t, "get", object, "-o", "jsonpath="+path)
}

// signal sends a signal, for example SIGSTOP, to the first process of a pod's container.
func (ns *namespace) signal(t *testing.T, pod, container, signal string) {
	t.Helper()
	node := ns.get(t, "pod/"+pod, "{.spec.nodeName}")
	id := ns.get(t, "pod/"+pod, `{.status.containerStatuses[?(@.name=="`+container+`")].containerID}`)
	ns.do(t, "inside", node, "ctr", "-n", "k8s.io", "tasks", "kill", "--signal", signal, strings.TrimPrefix(id, "containerd://"))
}

// helm runs helm in the namespace, from the checkout: charts/sluice is the chart.
func (ns *namespace) helm(t *testing.T, args ...string) string {
	t.Helper()
	said, err := ns.tryHelm(args...)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// tryHelm is helm, and may fail.
func (ns *namespace) tryHelm(args ...string) (string, error) {
	cmd := ns.command("enter", append([]string{"control-plane", filepath.Join(ns.dir, "bin/helm"), "--namespace", ns.name}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(ns.dir, "pki/admin.kubeconfig"),
		"HELM_CACHE_HOME="+filepath.Join(ns.dir, "helm"), "HELM_CONFIG_HOME="+filepath.Join(ns.dir, "helm"), "HELM_DATA_HOME="+filepath.Join(ns.dir, "helm"))
	var out, trouble bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &trouble
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("helm %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(trouble.Bytes()))
	}
	return out.String(), nil
}

// patience multiplies the limits of waits, which are those of an idle machine.
const patience = 3

// eventually retries until there is no error. At the limit the last error ends the test.
func eventually(t *testing.T, limit time.Duration, try func() error) {
	t.Helper()
	limit *= patience
	for begun := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := try()
		if err == nil {
			return
		}
		if time.Since(begun) > limit {
			t.Fatalf("after %v: %v", limit, err)
		}
	}
}

// ganesha is NFS-Ganesha on the control plane, for pods at 10.88.0.1.
type ganesha struct{ dir string }

// startGanesha exports a new directory as /vol, in NFS 3, 4.0, 4.1 and 4.2, until the test ends.
// One runs at a time.
func startGanesha(t *testing.T, c *cluster) *ganesha {
	t.Helper()
	g := &ganesha{dir: t.TempDir()}
	state := t.TempDir()
	program := filepath.Join(root, "hack/ganesha/run")
	// rpcbind, which Ganesha needs, has a socket in /run. Use a /run of our own.
	cmd := c.command("enter", "control-plane", "unshare", "--mount", "bash", "-c", `mount -t tmpfs tmpfs /run && exec "$@"`, "ganesha",
		program, "--dir", g.dir, "--port", "2049", "--mount-port", "20048", "--path", "/vol", "--state", state)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("hack/ganesha/run: %v\n%s", err, said)
	}
	t.Cleanup(func() {
		if said, err := exec.Command(program, "--stop", "--state", state).CombinedOutput(); err != nil {
			t.Errorf("hack/ganesha/run --stop: %v\n%s", err, said)
		}
	})
	return g
}

// backend returns the backend of a gateway's configuration for a path below /vol.
func (g *ganesha) backend(path string) string {
	return fmt.Sprintf(`nfs: {server: 10.88.0.1, port: 2049, mountPort: 20048, path: %q, versions: ["3", "4.1", "4.2"]}`, filepath.Join("/vol", path))
}
