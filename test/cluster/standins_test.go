//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestStandIns checks that a pod on each node gets from the stand-ins for the SR-IOV network device
// plugin and for Multus the same as from the real ones: environment, device files, an interface of
// the given name, network-status. The interfaces reach each other.
func TestStandIns(t *testing.T) {
	c := need(t, "deviceplugin")
	c.deviceplugin(t)
	ns := c.namespace(t, "standins", "privileged")
	ns.apply(t, fabric)
	addresses := map[string]string{}
	for _, node := range []string{"n1", "n2"} {
		ns.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: pod-%[1]s, annotations: {k8s.v1.cni.cncf.io/networks: '[{"name": "fabric", "interface": "rdma0"}]'}}
spec:
  nodeName: %[1]s
  terminationGracePeriodSeconds: 0
  containers:
  - name: pod
    image: sluice.dev/pause:1
    securityContext: {runAsUser: 0}
    resources: {limits: {sluice.test/rdma_vf: 2}}
    volumeMounts: [{name: busybox, mountPath: /busybox}]
  volumes: [{name: busybox, hostPath: {path: /bin/busybox, type: File}}]
`, node))
	}
	for _, node := range []string{"n1", "n2"} {
		ns.wait(t, "condition=Ready", "pod/pod-"+node, time.Minute)
		addresses[node] = ns.checkPod(t, "pod-"+node)
	}
	ns.must(t, "exec", "pod-n1", "--", "/busybox", "ping", "-c", "1", "-I", "rdma0", addresses["n2"])
	if addresses["n1"] == addresses["n2"] {
		t.Errorf("both pods have %s", addresses["n1"])
	}
	ns.signal(t, "pod-n1", "pod", "SIGKILL")
	ns.wait(t, "jsonpath={.status.containerStatuses[0].restartCount}=1", "pod/pod-n1", time.Minute)
}

// checkPod checks a pod with two devices, and returns its address in the fabric.
func (ns *namespace) checkPod(t *testing.T, pod string) string {
	t.Helper()
	env := map[string]string{}
	for line := range strings.Lines(ns.must(t, "exec", pod, "--", "/busybox", "env")) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		env[key] = value
	}
	const key = "PCIDEVICE_SLUICE_TEST_RDMA_VF"
	var infos map[string]struct {
		RDMA map[string]string `json:"rdma"`
	}
	if err := json.Unmarshal([]byte(env[key+"_INFO"]), &infos); err != nil {
		t.Fatalf("%s_INFO=%s: %v", key, env[key+"_INFO"], err)
	}
	devices := strings.Split(env[key], ",")
	if len(devices) != 2 || len(infos) != 2 {
		t.Fatalf("%s=%s, %s_INFO=%s: want two devices in both", key, env[key], key, env[key+"_INFO"])
	}
	for _, d := range devices {
		if !strings.HasPrefix(infos[d].RDMA["rdma_dev"], "mlx5_") {
			t.Errorf("%s has RDMA device %q", d, infos[d].RDMA["rdma_dev"])
		}
		for _, file := range []string{"uverbs", "rdma_cm"} {
			ns.must(t, "exec", pod, "--", "/busybox", "test", "-c", infos[d].RDMA[file])
		}
	}

	var status []struct {
		Name, Interface, MAC string
		IPs                  []string
		Default              bool
	}
	said := ns.get(t, "pod/"+pod, `{.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
	if err := json.Unmarshal([]byte(said), &status); err != nil {
		t.Fatalf("network-status %s: %v", said, err)
	}
	if len(status) != 2 || !status[0].Default || status[1].Default || status[1].Name != "standins/fabric" || status[1].Interface != "rdma0" || len(status[1].IPs) != 1 {
		t.Fatalf("network-status %s: want the default network, and an address on standins/fabric, interface rdma0", said)
	}
	ip := status[1].IPs[0]
	if a, err := netip.ParseAddr(ip); err != nil || !netip.MustParsePrefix("10.77.0.0/24").Contains(a) {
		t.Errorf("address %q: want one in 10.77.0.0/24", ip)
	}
	if is := ns.must(t, "exec", pod, "--", "/busybox", "ip", "addr", "show", "dev", "rdma0"); !strings.Contains(is, ip+"/24") || !strings.Contains(is, status[1].MAC) {
		t.Errorf("network-status says %s, %s; the interface is\n%s", ip, status[1].MAC, is)
	}
	return ip
}

// fabric is the second network, across both nodes. Pods have the addresses 10.77.0.100 to .199 in
// it; tests may use the others.
const fabric = `
apiVersion: k8s.cni.cncf.io/v1
kind: NetworkAttachmentDefinition
metadata: {name: fabric}
spec:
  config: |
    {"cniVersion": "0.4.0", "type": "macvlan", "master": "eth1", "mode": "bridge",
     "ipam": {"type": "host-local", "subnet": "10.77.0.0/24", "rangeStart": "10.77.0.100", "rangeEnd": "10.77.0.199"}}
`

// deviceplugin has both nodes offer four sluice.test/rdma_vf until the test ends. The image
// "deviceplugin" must be loaded.
func (c *cluster) deviceplugin(t *testing.T) {
	t.Helper()
	manifest, err := os.ReadFile(filepath.Join(root, "hack/cluster/deviceplugin/daemonset.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	offered := func(want string) {
		t.Helper()
		eventually(t, time.Minute, func() error {
			said, err := c.kubectl("", "get", "nodes", "-o", `jsonpath={.items[*].status.allocatable.sluice\.test/rdma_vf}`)
			if err == nil && said != want {
				err = fmt.Errorf("the nodes offer %q of sluice.test/rdma_vf, want %q", said, want)
			}
			return err
		})
	}
	if _, err := c.kubectl(string(manifest), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := c.kubectl(string(manifest), "delete", "-f", "-", "--wait"); err != nil {
			t.Error(err)
		}
		offered("0 0")
	})
	offered("4 4")
}
