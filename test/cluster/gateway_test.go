//go:build cluster

package cluster

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestGateway runs a gateway without the operator, in front of NFS-Ganesha, in a namespace that
// admits no privileges. The Linux client mounts the Service's IP through kube-proxy; gateway and
// client are on different nodes.
func TestGateway(t *testing.T) {
	c := need(t, "gateway")
	ns := c.namespace(t, "gateway", "restricted")
	g := startGanesha(t, c)
	ns.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: ConfigMap
metadata: {name: gateway}
data:
  gateway.yaml: |
    apiVersion: config.sluice.dev/v1alpha1
    kind: GatewayConfig
    admin: {address: "0.0.0.0:9180"}
    exports:
    - name: data
      listeners:
      - {network: rdma, provider: iwarp, address: "0.0.0.0:20049"}
      - {network: tcp, address: "0.0.0.0:2049"}
      backend: {%s}
      access: [{from: {networks: [10.88.0.0/24]}, mode: ReadWrite, squash: None}]
---
apiVersion: v1
kind: Service
metadata: {name: data}
spec:
  selector: {app: gateway}
  ports: [{name: rdma, port: 20049}, {name: tcp, port: 2049}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: gateway}
spec:
  selector: {matchLabels: {app: gateway}}
  template:
    metadata: {labels: {app: gateway}}
    spec:
      nodeSelector: {kubernetes.io/hostname: n2}
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
      containers:
      - name: gateway
        image: sluice.dev/gateway:test
        args: [--config, /etc/sluice/gateway.yaml]
        readinessProbe: {httpGet: {path: /readyz, port: 9180}, periodSeconds: 1}
        securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
        volumeMounts:
        - {name: config, mountPath: /etc/sluice}
        - {name: state, mountPath: /var/lib/sluice}
      volumes:
      - {name: config, configMap: {name: gateway}}
      - {name: state, emptyDir: {}}
`, g.backend("/")))
	ns.wait(t, "condition=Available", "deployment/gateway", time.Minute)
	ip := ns.get(t, "service/data", "{.spec.clusterIP}")

	guest := boot(t, c, "n1")
	mount := "mount -t nfs -o vers=4.1,proto=rdma,port=20049 " + ip + ":/ /mnt"
	guest.run(t, mount)
	written := guest.run(t, "head -c 4M /dev/urandom >/mnt/random; sha256sum </mnt/random; umount /mnt")
	b, err := os.ReadFile(filepath.Join(g.dir, "random"))
	if err != nil {
		t.Fatal(err)
	}
	if stored := fmt.Sprintf("%x  -", sha256.Sum256(b)); len(b) != 4<<20 || stored != written {
		t.Errorf("the client wrote 4 MiB with checksum %s, stored are %d bytes with %s", written, len(b), stored)
	}
	// past its cache: it was unmounted
	if read := guest.run(t, mount+"; sha256sum </mnt/random"); read != written {
		t.Errorf("the client reads checksum %s, wrote %s", read, written)
	}
	if stats := guest.run(t, "cat /proc/self/mountstats"); !strings.Contains(stats, "xprt:\trdma") {
		t.Errorf("the mount is not over RDMA:\n%s", stats)
	}
	guest.run(t, "umount /mnt")
}
