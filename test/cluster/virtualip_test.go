//go:build cluster

package cluster

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const virtualIPManifest = fabric + `
---
apiVersion: sluice.dev/v1alpha1
kind: NFSGateway
metadata: {name: gateway}
spec:
  replicas: 2
  rdma: {networks: [{name: fabric, interface: rdma0}]}
  exposure:
    type: VirtualIP
    virtualIP: {pool: [10.77.0.200-10.77.0.210], network: fabric}
---
apiVersion: sluice.dev/v1alpha1
kind: NFSExport
metadata: {name: data}
spec:
  gatewayRef: {name: gateway}
  backend: {%s}
  access: [{from: {networks: [10.77.0.0/24]}, mode: ReadWrite, squash: None}]
`

// TestVirtualIP mounts an address that one of two pods carries on a macvlan across both nodes.
// During fio the pod is deleted, then its speaker is stopped, then it is cut off from the API
// server. An ARP request is sent each second throughout, and all ARP on the network is captured.
func TestVirtualIP(t *testing.T) {
	c := need(t, "gateway", "operator")
	p := install(t, c, "virtualip", "privileged") // speakers have NET_ADMIN
	p.apply(t, fmt.Sprintf(virtualIPManifest, p.ganesha.backend("/")))
	p.wait(t, "condition=Ready", "nfsexport/data", 2*time.Minute)
	p.wait(t, "condition=Available", "deployment/gateway", time.Minute)
	t.Log(p.must(t, "get", "nfsgateways,nfsexports", "-o", "wide"))
	v := &virtualIP{product: p, address: p.get(t, "nfsexport/data", "{.status.address}"), file: filepath.Join(t.TempDir(), "arp.pcapng")}
	if ip := p.get(t, "service/sluice-data", "{.status.loadBalancer.ingress[0].ip}"); ip != v.address || !strings.HasPrefix(ip, "10.77.0.20") {
		t.Errorf("the Service's address is %s, the export's %s, must be one of the pool", ip, v.address)
	}
	stopCapture := v.capture(t)
	g := boot(t, c, "control-plane")
	g.run(t, p.get(t, "nfsexport/data", "{.status.mount}"))
	v.guest = g
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"deleted", v.deleted},
		{"stopped", v.stopped},
		{"cut-off", v.cutOff},
	} {
		if !t.Run(step.name, step.run) {
			break
		}
	}
	g.run(t, "umount /mnt")
	stopCapture()
	v.claims(t)
}

type virtualIP struct {
	*product
	guest   *guest
	address string
	file    string // the capture
	moves   int
}

// capture starts to capture ARP on the fabric, and to request the address each second.
func (v *virtualIP) capture(t *testing.T) (stop func()) {
	t.Helper()
	var running []*exec.Cmd
	for _, args := range [][]string{
		{"dumpcap", "-q", "-i", "fabric", "-f", "arp", "-w", v.file},
		{"busybox", "arping", "-q", "-I", "fabric", v.address},
	} {
		cmd := v.command("enter", append([]string{"control-plane"}, args...)...)
		cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		running = append(running, cmd)
	}
	ended := false
	stop = func() {
		if ended {
			return
		}
		ended = true
		for _, cmd := range running {
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
			_ = cmd.Wait()
		}
	}
	t.Cleanup(stop)
	return stop
}

// claims checks the capture: a holder claims the address until it moves, and never again unless it
// moves back, so no two holders claim it at any instant. There are as many changes of the hardware
// address as moves.
func (v *virtualIP) claims(t *testing.T) {
	out, err := exec.Command("tshark", "-r", v.file, "-Y", "arp.src.proto_ipv4 == "+v.address, "-T", "fields", "-e", "frame.time_epoch", "-e", "arp.src.hw_mac").Output()
	if err != nil {
		t.Fatal(err)
	}
	var answers, changes int
	var former string
	for line := range strings.Lines(string(out)) {
		at, mac, _ := strings.Cut(strings.TrimSpace(line), "\t")
		answers++
		if mac != former {
			t.Logf("from %s on %s has %s", at, mac, v.address)
			changes++
		}
		former = mac
	}
	t.Logf("%d answers and announcements, %d moves", answers, v.moves)
	if changes != v.moves+1 || answers < 20 {
		t.Errorf("the hardware address changed %d times in %d answers, must change once for each of %d moves", changes-1, answers, v.moves)
	}
}

// crcErrors counts the connections that siw in the guest ended for a CRC. It miscompares a CRC that
// arrives in two TCP segments.
func (v *virtualIP) crcErrors(t *testing.T) string {
	t.Helper()
	return v.guest.run(t, "dmesg | grep -c 'siw: crc error' || true")
}

// stays checks that the client is still at the same pod, over the same connection unless siw ended
// one since crcErrors was counted.
func (v *virtualIP) stays(t *testing.T, was connection, crcErrors string) {
	t.Helper()
	is := v.holder(t)
	if is.pod != was.pod || !is.since.Equal(was.since) && v.crcErrors(t) == crcErrors {
		t.Errorf("the client was at %+v, is at %+v", was, is)
	}
}

// holder returns the connection to the pod that carries the address, from that pod's /status.
func (v *virtualIP) holder(t *testing.T) connection { return v.only(t, gatewayPods, "data") }

// signalSpeaker sends a signal to a pod's speaker.
func (v *virtualIP) signalSpeaker(t *testing.T, pod, signal string) {
	t.Helper()
	node := v.get(t, "pod/"+pod, "{.spec.nodeName}")
	id := v.get(t, "pod/"+pod, `{.status.initContainerStatuses[?(@.name=="speaker")].containerID}`)
	v.do(t, "inside", node, "ctr", "-n", "k8s.io", "tasks", "kill", "--signal", signal, strings.TrimPrefix(id, "containerd://"))
}

// deleted: the gateway drains and exits, then the speaker gives the address up, and the other pod
// takes it.
func (v *virtualIP) deleted(t *testing.T) {
	before := v.holder(t)
	fio := v.guest.fio(t, "/mnt")
	begun := time.Now()
	v.must(t, "delete", "pod", before.pod, "--wait=false")
	if now := v.moved(t, gatewayPods, "data", before, begun); now.pod == before.pod {
		t.Errorf("the client is at %s as before", now.pod)
	}
	v.moves++
	fio.wait(t, 5*time.Minute)
	v.wait(t, "condition=Available", "deployment/gateway", time.Minute)
	v.wait(t, "condition=Ready", "nfsexport/data", time.Minute)
}

// stopped: the holder's speaker is stopped. Another one takes the address over when the Lease has
// expired, and the first gives way when it continues.
func (v *virtualIP) stopped(t *testing.T) {
	before, crcErrors := v.holder(t), v.crcErrors(t)
	fio := v.guest.fio(t, "/mnt")
	begun := time.Now()
	v.signalSpeaker(t, before.pod, "SIGSTOP")
	now := v.moved(t, gatewayPods, "data", before, begun)
	v.moves++
	v.signalSpeaker(t, before.pod, "SIGCONT")
	fio.wait(t, 5*time.Minute)
	v.stays(t, now, crcErrors)
	v.wait(t, "condition=Available", "deployment/gateway", time.Minute)
}

// cutOff: a holder that cannot reach the API server keeps its address, and clients notice nothing.
func (v *virtualIP) cutOff(t *testing.T) {
	before, crcErrors := v.holder(t), v.crcErrors(t)
	node, pod := v.get(t, "pod/"+before.pod, "{.spec.nodeName}"), v.get(t, "pod/"+before.pod, "{.status.podIP}")
	fio := v.guest.fio(t, "/mnt")
	table := fmt.Sprintf("table ip cut { chain forward { type filter hook forward priority -200; ip saddr %s ip daddr 10.88.0.1 tcp dport 6443 drop; }; }", pod)
	v.do(t, "enter", node, "nft", table)
	fio.wait(t, 5*time.Minute) // longer than the Lease, which expires meanwhile
	v.do(t, "enter", node, "nft", "delete", "table", "ip", "cut")
	v.stays(t, before, crcErrors)
}
