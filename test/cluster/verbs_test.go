//go:build cluster

package cluster

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

const verbsManifest = fabric + `
---
apiVersion: sluice.dev/v1alpha1
kind: NFSGateway
metadata: {name: gateway}
spec:
  replicas: 2
  provider: Verbs
  rdma:
    devices: [{resourceName: sluice.test/rdma_vf}]
    networks: [{name: fabric, interface: rdma0}]
  exposure:
    type: VirtualIP
    virtualIP: {pool: [10.77.0.220-10.77.0.229], network: fabric}
---
apiVersion: sluice.dev/v1alpha1
kind: NFSExport
metadata: {name: data}
spec:
  gatewayRef: {name: gateway}
  backend: {%s}
  access: [{from: {nodes: {}}, mode: ReadWrite, squash: None}]
`

// TestVerbs goes as far as a cluster without adapters allows. Pods get the devices of the device
// plugin, the interfaces of the meta plugin, and their privileges. A condition reports that the
// devices are no RDMA devices, and TCP works.
func TestVerbs(t *testing.T) {
	c := need(t, "gateway", "gateway-verbs", "operator", "deviceplugin")
	p := install(t, c, "verbs", "privileged")
	p.apply(t, fmt.Sprintf(verbsManifest, p.ganesha.backend("/")))
	t.Log(p.condition(t, "nfsgateway/gateway", "Programmed", "False", "NoNodeOffersResource"))
	c.deviceplugin(t)
	p.wait(t, "condition=Available", "deployment/gateway", 2*time.Minute)

	pod := p.pods(t, gatewayPods)[0]
	if said := p.get(t, "pod/"+pod, `{.spec.containers[?(@.name=="gateway")].securityContext.capabilities}`); said != `{"add":["IPC_LOCK"],"drop":["ALL"]}` {
		t.Errorf("capabilities of the gateway: %s", said)
	}
	if said := p.get(t, "pod/"+pod, `{.spec.initContainers[?(@.name=="speaker")].securityContext.capabilities}`); !strings.Contains(said, "NET_ADMIN") || strings.Contains(said, "IPC_LOCK") {
		t.Errorf("capabilities of the speaker: %s", said)
	}
	if said := p.get(t, "pod/"+pod, `{.metadata.annotations.k8s\.v1\.cni\.cncf\.io/network-status}`); !strings.Contains(said, "rdma0") {
		t.Errorf("network-status: %s", said)
	}
	pids := processes(t, "gateway", pod)
	if len(pids) != 1 {
		t.Fatalf("processes of %s: %v", pod, pids)
	}
	environ := environment(t, pids[0])
	if environ["PCIDEVICE_SLUICE_TEST_RDMA_VF"] == "" || !strings.Contains(environ["PCIDEVICE_SLUICE_TEST_RDMA_VF_INFO"], "rdma_dev") {
		t.Errorf("the device plugin's environment is not there: %v", environ)
	}
	t.Log(p.condition(t, "nfsexport/data", "RDMAReady", "False", "FunctionWithoutDevice"))

	ip := p.get(t, "service/sluice-data", "{.spec.clusterIP}")
	if said, err := c.sluicectl(t, "n1", "ping", "nfs+tcp://"+ip+":2049/"); err != nil {
		t.Errorf("TCP: %v: %s", err, said)
	}
}
