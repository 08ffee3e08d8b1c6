//go:build cluster

package cluster

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const provisionerManifest = `
apiVersion: sluice.dev/v1alpha1
kind: NFSGateway
metadata: {name: gateway}
spec: {replicas: 1, podTemplate: {nodeSelector: {kubernetes.io/hostname: n2}}}
---
apiVersion: sluice.dev/v1alpha1
kind: NFSExport
metadata: {name: data}
spec:
  gatewayRef: {name: gateway}
  backend: {%[1]s}
  access:
  - {from: {provisioner: true}, mode: ReadWrite, squash: None}
  - {from: {nodes: {}}, mode: ReadWrite, squash: Root}
---
apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: {name: sluice}
provisioner: sluice.dev/nfs
parameters: {export: %[2]s/data, parent: /volumes}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: scratch}
spec:
  storageClassName: sluice
  accessModes: [ReadWriteMany]
  resources: {requests: {storage: 1Gi}}
`

// claimPod is a pod of the node n3 with the claim at /data. Programs come from the node: the image
// has none.
const claimPod = `
apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  nodeSelector: {kubernetes.io/hostname: n3}
  restartPolicy: Never
  automountServiceAccountToken: false
  securityContext: {runAsUser: 1000, runAsGroup: 1000}
  containers:
  - name: shell
    image: sluice.dev/pause:1
    command: [/bin/bash, -e, -c, %[2]q]
    volumeMounts:
    - {name: data, mountPath: /data}
    - {name: usr, mountPath: /usr, readOnly: true}
    - {name: bin, mountPath: /bin, readOnly: true}
    - {name: lib, mountPath: /lib, readOnly: true}
    - {name: lib64, mountPath: /lib64, readOnly: true}
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: scratch}}
  - {name: usr, hostPath: {path: /usr}}
  - {name: bin, hostPath: {path: /usr/bin}}
  - {name: lib, hostPath: {path: /usr/lib}}
  - {name: lib64, hostPath: {path: /usr/lib64}}
`

// runPod runs a script in a pod with the claim, and returns its output.
func (p *product) runPod(t *testing.T, name, script string) string {
	t.Helper()
	p.apply(t, fmt.Sprintf(claimPod, name, script))
	p.wait(t, "jsonpath={.status.phase}=Succeeded", "pod/"+name, 3*time.Minute)
	return p.must(t, "logs", name)
}

// TestProvisioner: pods with a claim of a StorageClass write and read it over RDMA, on a node with
// the Linux kernel's client. The volume's directory goes with the claim.
func TestProvisioner(t *testing.T) {
	c := need(t, "gateway", "operator")
	p := install(t, c, "provisioner", "privileged", "--set", "provisioner.enabled=true", "--set-json", `operator.nodeSelector={"kubernetes.io/hostname":"n1"}`)
	t.Cleanup(func() {
		if _, err := c.kubectl("", "delete", "storageclass", "sluice", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	volumes := filepath.Join(p.ganesha.dir, "volumes")
	if err := os.Mkdir(volumes, 0o755); err != nil {
		t.Fatal(err)
	}
	p.apply(t, fmt.Sprintf(provisionerManifest, p.ganesha.backend("/"), p.name))
	p.wait(t, "jsonpath={.status.phase}=Bound", "persistentvolumeclaim/scratch", 2*time.Minute)
	volume := p.get(t, "persistentvolumeclaim/scratch", "{.spec.volumeName}")
	t.Log(p.must(t, "get", "persistentvolume", volume, "-o", "yaml"))
	dir := filepath.Join(volumes, volume)
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o777 {
		t.Fatalf("the volume's directory: %v, %v", info, err)
	}

	g := bootNode(t, c, 0)
	g.imports(t, c, nil)
	said := p.runPod(t, "writer", `head -c 4M /dev/urandom >/dev/shm/random; cp /dev/shm/random /data/random; sync /data/random
		dd if=/data/random iflag=direct bs=1M status=none | cmp - /dev/shm/random; mkdir -p /data/a/b; ln -s /nowhere /data/a/link
		grep -A 60 ' mounted on /data ' /proc/self/mountstats; sha256sum </dev/shm/random`)
	if !strings.Contains(said, "xprt:\trdma") || !strings.Contains(said, "proto=rdma") {
		t.Errorf("the pod's mount is not over RDMA:\n%s", said)
	}
	t.Log(said)
	b, err := os.ReadFile(filepath.Join(dir, "random"))
	if err != nil {
		t.Fatal(err)
	}
	sum := fmt.Sprintf("%x  -\n", sha256.Sum256(b))
	if len(b) != 4<<20 || !strings.HasSuffix(said, sum) {
		t.Errorf("stored are %d bytes with checksum %s, the pod says:\n%s", len(b), sum, said)
	}
	if said := p.runPod(t, "reader", "sha256sum </data/random; stat -c %u /data/random"); said != sum+"1000\n" {
		t.Errorf("another pod reads %q, must be %q", said, sum+"1000\n")
	}

	p.must(t, "delete", "pod", "writer", "reader", "--wait", "--timeout=6m")
	p.must(t, "delete", "persistentvolumeclaim", "scratch", "--wait", "--timeout=3m")
	p.wait(t, "delete", "persistentvolume/"+volume, time.Minute)
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the volume's directory: %v", err)
	}
	if _, err := os.Stat(volumes); err != nil {
		t.Error(err)
	}
}
