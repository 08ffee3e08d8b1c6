//go:build operator

package operator

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/test/apiserver"
)

// sysfs writes files of /sys into a pod's root. A line has a path and its content, or the target of
// a link behind ->.
func sysfs(root, file string, change *strings.Replacer) error {
	f, err := os.Open(apiserver.Path("internal/doctor/testdata/sysfs/" + file))
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		path, content, _ := strings.Cut(change.Replace(lines.Text()), " ")
		at := filepath.Join(root, "sys", path)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			return err
		}
		if target, link := strings.CutPrefix(content, "-> "); link {
			err = os.Symlink(target, at)
		} else if strings.HasSuffix(path, "/") {
			err = os.Mkdir(at, 0o755)
		} else {
			err = os.WriteFile(at, []byte(content+"\n"), 0o444)
		}
		if err != nil {
			return err
		}
	}
	return lines.Err()
}

// TestDeviceReasons has gateways in pods read the files of devices: each fault gives the export and
// its gateway a condition.
func TestDeviceReasons(t *testing.T) {
	t.Parallel()
	const usable = "mkdir -p dev/infiniband && touch dev/infiniband/rdma_cm dev/infiniband/uverbs0 dev/infiniband/uverbs1 dev/infiniband/uverbs2\n"
	const function = "PCIDEVICE_EXAMPLE_COM_VF=0000:00:02.0"
	for _, c := range []struct {
		name, file, prepare string
		environ             []string
		change              []string // of the tree
		reason, words       string
	}{
		{name: "in another namespace", file: "pod-exclusive.txt", prepare: usable, reason: v1alpha1.ReasonDeviceInOtherNamespace, words: "no RDMA device is in this network namespace"},
		{name: "a function without RDMA", file: "healthy.txt", prepare: usable, environ: []string{function}, reason: v1alpha1.ReasonFunctionWithoutDevice,
			words: "PCIDEVICE_EXAMPLE_COM_VF gives 0000:00:02.0 to this container, but its driver virtio-pci has no RDMA device"},
		{name: "no file", file: "healthy.txt", reason: v1alpha1.ReasonDeviceNodeMissing, words: "there is no /dev/infiniband"},
		// Files of devices on a file system without them are denied, as by SELinux.
		{name: "a file that is denied", file: "healthy.txt",
			prepare: "mkdir dev && mount -t tmpfs -o nodev none dev && mkdir dev/infiniband && cd dev/infiniband && mknod rdma_cm c 10 58 && mknod uverbs0 c 231 192 && mknod uverbs1 c 231 193 && cd ../..\n",
			reason:  v1alpha1.ReasonDeviceNodeDenied, words: "cannot be opened (permission denied)"},
		{name: "a port that is down", file: "interface-down.txt", prepare: usable, environ: []string{`PCIDEVICE_EXAMPLE_COM_SF_INFO={"sluice.sf.1":{"rdma":{"rdma_dev":"rxe0"}}}`}, reason: v1alpha1.ReasonPortDown, words: "because its network interface g0 is down"},
		{name: "RoCE version 1", file: "healthy.txt", prepare: usable, change: []string{"RoCE v2", "IB/RoCE v1"}, reason: v1alpha1.ReasonRoCEv1Only, words: "is RoCE v1 only"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			ns := newNamespace(t)
			n := startNodes(t, ns)
			n.mu.Lock()
			n.environ = c.environ
			n.prepare = func(root string) (string, error) {
				return c.prepare, sysfs(root, c.file, strings.NewReplacer(c.change...))
			}
			n.mu.Unlock()
			gw, x := newGateway(ns, "fast"), newExport(ns, "data", "fast")
			gw.Spec.Provider, gw.Spec.Replicas = v1alpha1.Verbs, new(int32(1))
			gw.Spec.Exposure = v1alpha1.Exposure{Type: v1alpha1.ExposureVirtualIP, VirtualIP: &v1alpha1.VirtualIP{Pool: []string{"192.0.2.10"}, Network: "rdma-net"}}
			gw.Spec.RDMA = &v1alpha1.RDMA{Devices: []v1alpha1.Device{{ResourceName: "example.com/vf"}}, Networks: []v1alpha1.Network{{Name: "rdma-net"}}}
			start(t, ns, false, nil)
			must(t, kube.Create(t.Context(), gw))
			must(t, kube.Create(t.Context(), x))
			for _, o := range []client.Object{x, gw} {
				eventually(t, c.reason, condition(o, v1alpha1.ConditionRDMAReady, metav1.ConditionFalse, c.reason))
				m := find(o, v1alpha1.ConditionRDMAReady).Message
				t.Logf("%T: %s: %s", o, c.reason, m)
				if !strings.Contains(m, c.words) || !strings.HasSuffix(m, "(sluicectl explain "+c.reason+")") {
					t.Errorf("message %q, want %q in it and the anchor at its end", m, c.words)
				}
			}
		})
	}
}
