//go:build cluster

package cluster

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	status "sluice.dev/sluice/api/status/v1alpha1"
)

// Functions of the adapter: two gateway pods, the claim's pod, and one in reserve.
const functions = 4

// A quickstart is the page docs/quickstart-roce.md.
type quickstart struct{ values, commands, manifest string }

// replace replaces the names in the page that this cluster has others for. Each must occur.
func replace(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for pair := range slices.Chunk(pairs, 2) {
		if !strings.Contains(text, pair[0]) {
			t.Fatalf("docs/quickstart-roce.md: %q is not in\n%s", pair[0], text)
		}
		text = strings.ReplaceAll(text, pair[0], pair[1])
	}
	return text
}

// readQuickstart returns the page's values, commands and objects with the names of this cluster.
func readQuickstart(t *testing.T, backend string) quickstart {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(root, "docs/quickstart-roce.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(b)
	block := func(pattern string) string {
		found := regexp.MustCompile("(?s)" + pattern).FindStringSubmatch(page)
		if found == nil {
			t.Fatalf("docs/quickstart-roce.md has no %s", pattern)
		}
		return found[1]
	}
	return quickstart{
		values: replace(t, block("```yaml\n(# values.yaml.*?)```"),
			`vendors: ["15b3"], drivers: [mlx5_core], pfNames: [ens1f0]`, `vendors: ["8086"], drivers: [igbvf], pfNames: [eth1]`,
			"rdmaCNI: true", "type: host-device"),
		commands: replace(t, block("```sh\n(kubectl create namespace .*?)```"),
			"oci://registry.example/sluice/charts/sluice --version 0.1.0", "charts/sluice --set-string images.tag=test"),
		manifest: replace(t, block("```sh\n(kubectl apply .*?)```"), "nfs: {server: filer.example, path: /vol/data}", backend,
			// Emulated processors are slow.
			"--timeout=3m", "--timeout=9m", "network: rdma-net}\n", "network: rdma-net, leaseDuration: 1m}\n"),
	}
}

// sriov is the state that the steps share. The client, in the guest on the adapter's physical
// function, has data mounted at /mnt and share at /srv.
type sriov struct {
	*namespace
	guest   *guest
	address string
}

const claimManifest = `
apiVersion: v1
kind: PersistentVolume
metadata: {name: sluice-test-sriov}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  hostPath: {path: /var/lib/share, type: DirectoryOrCreate}
  claimRef: {namespace: storage, name: share}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: share}
spec: {storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, volumeName: sluice-test-sriov}
---
apiVersion: sluice.dev/v1alpha1
kind: NFSExport
metadata: {name: share}
spec:
  gatewayRef: {name: fast}
  backend: {persistentVolumeClaim: {claimName: share}}
  access: [{from: {networks: [192.0.2.0/24]}, mode: ReadWrite, squash: None}]
`

// TestSRIOV follows docs/quickstart-roce.md on a node whose pods get virtual functions of an
// adapter, from the SR-IOV network device plugin, Multus and the CNI plugin host-device. The Linux
// client mounts through the adapter's physical function. Steps build on each other.
func TestSRIOV(t *testing.T) {
	c := need(t, "operator")
	archives := c.archives(t, []string{"gateway-verbs", "operator", "sriovdp"})
	g := bootNode(t, c, functions)
	g.imports(t, c, archives)
	plugin, err := os.ReadFile(filepath.Join(root, "hack/sriov/plugin.yaml"))
	if err == nil {
		_, err = c.kubectl(string(plugin), "apply", "-f", "-")
	}
	if err != nil {
		t.Fatal(err)
	}
	ganesha := startGanesha(t, c)
	if err := os.Chmod(ganesha.dir, 0o777); err != nil { // the export maps root to nobody
		t.Fatal(err)
	}
	q := readQuickstart(t, ganesha.backend("/"))
	s := &sriov{namespace: &namespace{c, "storage"}, guest: g}
	s.quickstart(t, q)
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"mount", s.mount},
		{"deleted", s.deleted},
		{"plugin-restarted", s.pluginRestarted},
		{"function-removed", s.functionRemoved},
		{"upgraded", s.upgraded},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

// user runs a script of the page as a cluster's user does.
func (s *sriov) user(t *testing.T, script string) string {
	t.Helper()
	home := t.TempDir()
	cmd := s.command("enter", "control-plane", "bash", "-e", "-x", "-c", script)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(s.dir, "pki/admin.kubeconfig"), "HOME="+home,
		"PATH="+filepath.Join(s.dir, "bin")+":"+os.Getenv("PATH"))
	said, err := cmd.CombinedOutput()
	if t.Logf("%s", said); err != nil {
		t.Fatal(err)
	}
	return string(said)
}

// quickstart installs Sluice and makes the page's objects, and an export of a claim.
func (s *sriov) quickstart(t *testing.T, q quickstart) {
	t.Helper()
	values := filepath.Join(t.TempDir(), "values.yaml")
	// Emulated processors are slow: the operator has another node.
	if err := os.WriteFile(values, []byte(q.values+"operator: {nodeSelector: {kubernetes.io/hostname: n1}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			s.show(t)
			for _, args := range [][]string{{"logs", "-n", "kube-system", "daemonset/kube-sriov-device-plugin"}, {"logs", "-n", "sluice-system", "deployment/sluice-operator"}} {
				said, err := s.cluster.kubectl("", args...)
				t.Logf("kubectl %s: %v\n%s", strings.Join(args, " "), err, said)
			}
		}
		_, _ = s.tryHelm("uninstall", "sluice", "--namespace", "sluice-system", "--no-hooks", "--ignore-not-found")
		for _, args := range [][]string{
			{"delete", "namespace", "storage", "sluice-system", "--ignore-not-found", "--wait", "--timeout=6m"},
			{"delete", "persistentvolume", "sluice-test-sriov", "--ignore-not-found"},
			{"delete", "crd", "nfsexports.sluice.dev", "nfsgateways.sluice.dev", "--ignore-not-found"},
			{"delete", "daemonset", "-n", "kube-system", "kube-sriov-device-plugin", "--ignore-not-found"},
		} {
			if _, err := s.cluster.kubectl("", args...); err != nil {
				t.Error(err)
			}
		}
	})
	s.user(t, strings.ReplaceAll(q.commands, "values.yaml", values))
	s.offered(t)
	s.user(t, q.manifest)
	s.apply(t, claimManifest)
	for _, x := range []string{"data", "share"} {
		s.wait(t, "condition=Ready", "nfsexport/"+x, 4*time.Minute)
	}
	s.wait(t, "condition=Available", "deployment/fast", 2*time.Minute)
	t.Log(s.must(t, "get", "nfsgateways,nfsexports,pods", "-o", "wide"))
	s.address = s.get(t, "nfsexport/data", "{.status.address}")
}

// offered waits until the node offers all functions.
func (s *sriov) offered(t *testing.T) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error {
		said, err := s.cluster.kubectl("", "get", "node", "n3", "-o", `jsonpath={.status.allocatable.nvidia\.com/rdma_vf}`)
		if err == nil && said != fmt.Sprint(functions) {
			err = fmt.Errorf("n3 offers %q of nvidia.com/rdma_vf, must be %d", said, functions)
		}
		return err
	})
}

// fastPods selects the shared pods of the gateway, allPods also those of claims.
const (
	fastPods = "sluice.dev/workload=fast"
	allPods  = "sluice.dev/workload"
)

// A function is a virtual function of the adapter, in a pod.
type function struct{ pci, rdma string }

// function returns the pod's function by the environment of its gateway. The interface, the RDMA
// device and /status must agree.
func (s *sriov) function(t *testing.T, pod string) function {
	t.Helper()
	const variable = "PCIDEVICE_NVIDIA_COM_RDMA_VF"
	environ := s.guest.run(t, `for p in $(pgrep -x gateway); do
		if grep -qz '^HOSTNAME=`+pod+`$' /proc/$p/environ; then tr '\0' '\n' </proc/$p/environ; fi
	done | grep ^`+variable)
	t.Logf("environment of %s:\n%s", pod, environ)
	found := regexp.MustCompile("(?m)^" + variable + "=(.*)$").FindStringSubmatch(environ)
	if found == nil {
		t.Fatalf("pod %s has no %s:\n%s", pod, variable, environ)
	}
	f := function{pci: found[1]}
	f.rdma = s.guest.run(t, "ls /sys/bus/pci/devices/"+f.pci+"/infiniband")

	var networks []struct {
		Interface, MAC string
		DeviceInfo     struct {
			PCI struct {
				Address string `json:"pci-address"`
			}
		} `json:"device-info"`
	}
	said := s.get(t, "pod/"+pod, `{.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`)
	if err := json.Unmarshal([]byte(said), &networks); err != nil {
		t.Fatalf("network-status %s: %v", said, err)
	}
	if len(networks) != 2 || networks[1].Interface != "rdma0" || networks[1].DeviceInfo.PCI.Address != f.pci {
		t.Errorf("pod %s has the function %s; its network-status is %s", pod, f.pci, said)
	}

	var at *status.Status
	eventually(t, time.Minute, func() (err error) { at, err = s.status(pod); return err })
	for _, e := range at.Exports {
		for i, l := range e.Listeners {
			if l.Device == nil {
				continue
			}
			shown, _ := json.MarshalIndent(e.Listeners[i], "", "  ")
			t.Logf("/status of %s, export %s: %s", pod, e.Name, shown)
			if l.Device.Name != f.rdma || len(l.Device.Problems) != 0 || l.State != status.Listening {
				t.Errorf("pod %s has the RDMA device %s, and listens on\n%s", pod, f.rdma, shown)
			}
		}
	}
	return f
}

// at is the mount command of an export's status.mount, for another directory. It is empty while no
// pod answers the operator.
func (s *sriov) at(t *testing.T, export, dir string) (mount string) {
	t.Helper()
	eventually(t, time.Minute, func() error {
		said, err := s.kubectl("get", "nfsexport/"+export, "-o", "jsonpath={.status.mount}")
		command, ok := strings.CutSuffix(said, " /mnt")
		if mount = command + " " + dir; err == nil && !ok {
			err = fmt.Errorf("status.mount of %s is %q", export, said)
		}
		return err
	})
	return mount
}

// mount mounts both exports over RDMA, and writes and reads.
func (s *sriov) mount(t *testing.T) {
	functions := map[string]string{}
	for _, pod := range s.pods(t, allPods) {
		f := s.function(t, pod)
		if other := functions[f.pci]; other != "" {
			t.Errorf("pods %s and %s have the function %s", other, pod, f.pci)
		}
		functions[f.pci] = pod
	}
	if len(functions) != 3 {
		t.Fatalf("functions of pods: %v, must be three", functions)
	}
	s.guest.run(t, s.at(t, "data", "/mnt")+"; mkdir -p /srv; "+s.at(t, "share", "/srv"))
	for _, dir := range []string{"/mnt", "/srv"} {
		s.guest.run(t, "cd "+dir+`; mkdir try; head -c 3000001 /dev/urandom >/run/random; cp /run/random try/random; sync try/random
			echo 3 >/proc/sys/vm/drop_caches; cmp /run/random try/random`)
	}
	s.guest.run(t, "mkdir /run/three; mount -t nfs -o vers=3,proto=rdma,port=20049,mountproto=tcp,mountport=2049,nolock "+s.get(t, "nfsexport/share", "{.status.address}")+`:/ /run/three
		cmp /run/random /run/three/try/random; umount /run/three`)
	stats := s.guest.run(t, "grep -A 60 'fstype nfs' /proc/self/mountstats")
	t.Log(stats)
	if n := strings.Count(stats, "xprt:\trdma"); n != 2 {
		t.Errorf("%d mounts over RDMA, must be 2:\n%s", n, stats)
	}
}

// holder returns the client's connection to data.
func (s *sriov) holder(t *testing.T) connection { t.Helper(); return s.only(t, fastPods, "data") }

// during runs fault while the client writes and verifies, and returns the connection before.
func (s *sriov) during(t *testing.T, fault func(before connection)) {
	t.Helper()
	s.guest.run(t, "touch /mnt/again") // Linux ends an idle connection after five minutes
	before := s.holder(t)
	fio := s.guest.fio(t, "/mnt")
	fault(before)
	fio.wait(t, 5*time.Minute)
	s.wait(t, "condition=Available", "deployment/fast", 2*time.Minute)
	s.wait(t, "condition=Ready", "nfsexport/data", 2*time.Minute)
}

// deleted: the pod that carries the address is deleted, and the client goes to the other one.
func (s *sriov) deleted(t *testing.T) {
	s.during(t, func(before connection) {
		begun := time.Now()
		s.must(t, "delete", "pod", before.pod, "--wait=false")
		if now := s.moved(t, fastPods, "data", before, begun); now.pod == before.pod {
			t.Errorf("the client is at %s as before", now.pod)
		}
	})
}

// pluginRestarted: without the device plugin and with a new one, pods keep their functions.
func (s *sriov) pluginRestarted(t *testing.T) {
	s.during(t, func(before connection) {
		s.restartPlugin(t)
		if now := s.holder(t); now.pod != before.pod || !now.since.Equal(before.since) {
			t.Errorf("the client was at %+v, is at %+v", before, now)
		}
	})
	s.offered(t)
}

// restartPlugin replaces the device plugin, which looks for devices at its start.
func (s *sriov) restartPlugin(t *testing.T) {
	t.Helper()
	s.user(t, "kubectl rollout restart -n kube-system daemonset/kube-sriov-device-plugin; kubectl rollout status -n kube-system daemonset/kube-sriov-device-plugin --timeout=6m")
}

// functionRemoved: the function of the pod that carries the address loses its driver, and with it
// the interface and the RDMA device. The client goes to the other pod. When the function is back, a
// new pod gets it.
func (s *sriov) functionRemoved(t *testing.T) {
	s.during(t, func(before connection) {
		f := s.function(t, before.pod)
		begun := time.Now()
		s.guest.run(t, "echo "+f.pci+" >/sys/bus/pci/drivers/igbvf/unbind")
		if now := s.moved(t, fastPods, "data", before, begun); now.pod == before.pod {
			t.Errorf("the client is at %s as before", now.pod)
		}
		eventually(t, time.Minute, func() error {
			said, err := s.kubectl("get", "nfsexport/data", "-o", `jsonpath={.status.conditions[?(@.type=="RDMAReady")]}`)
			if err == nil && (!strings.Contains(said, before.pod) || !strings.Contains(said, f.pci+" to this container, but the device has no driver")) {
				err = fmt.Errorf("RDMAReady is %s, must tell that %s of %s has no driver", said, f.pci, before.pod)
			}
			if err == nil {
				t.Log(said)
			}
			return err
		})
		s.guest.run(t, "echo "+f.pci+` >/sys/bus/pci/drivers/igbvf/bind
			until n=$(ls /sys/bus/pci/devices/`+f.pci+`/net); do sleep 0.2; done
			ip link set "$n" up; until [ "$(cat /sys/class/net/$n/operstate)" = up ]; do sleep 0.2; done
			rdma link add `+f.rdma+` type siw netdev "$n"`)
		s.restartPlugin(t)
		s.offered(t)
		s.must(t, "delete", "pod", before.pod)
	})
}

// upgraded: a release with another image replaces the pods one by one.
func (s *sriov) upgraded(t *testing.T) {
	s.guest.ctr(t, "images tag sluice.dev/gateway-verbs:test sluice.dev/gateway-verbs:next")
	s.during(t, func(before connection) {
		begun := time.Now()
		s.user(t, "helm upgrade sluice charts/sluice --namespace sluice-system --reuse-values --set-string images.gatewayVerbs.tag=next --wait --timeout 6m")
		s.moved(t, fastPods, "data", before, begun)
		s.user(t, "kubectl rollout status -n storage deployment/fast statefulset/fast-share --timeout=6m")
	})
	if images := s.must(t, "get", "pods", "-l", allPods, "-o", "jsonpath={.items[*].spec.containers[0].image}"); strings.Count(images, ":next") != 3 || strings.Contains(images, ":test") {
		t.Errorf("images of the pods: %s", images)
	}
	s.guest.run(t, "cmp /run/random /srv/try/random; umount /mnt /srv")
}
