//go:build cluster

package cluster

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const productManifest = `
apiVersion: sluice.dev/v1alpha1
kind: NFSGateway
metadata: {name: gateway}
spec: {replicas: 2}
---
apiVersion: v1
kind: PersistentVolume
metadata: {name: sluice-test-share}
spec:
  capacity: {storage: 1Gi}
  accessModes: [ReadWriteOnce]
  storageClassName: ""
  hostPath: {path: %[2]s}
  claimRef: {namespace: %[3]s, name: share}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: share}
spec: {storageClassName: "", accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, volumeName: sluice-test-share}
---
apiVersion: sluice.dev/v1alpha1
kind: NFSExport
metadata: {name: data}
spec:
  gatewayRef: {name: gateway}
  backend: {%[1]s}
  access: [{from: {nodes: {matchLabels: {kubernetes.io/hostname: n1}}}, mode: ReadWrite, squash: None}]
---
apiVersion: sluice.dev/v1alpha1
kind: NFSExport
metadata: {name: share}
spec:
  gatewayRef: {name: gateway}
  backend: {persistentVolumeClaim: {claimName: share}}
  access: [{from: {nodes: {}}, mode: ReadWrite, squash: None}]
`

// TestOperator follows a user from helm install to helm uninstall, with the Linux client at the
// other end. Its steps build on each other.
func TestOperator(t *testing.T) {
	c := need(t, "gateway", "operator")
	p := install(t, c, "operator", "privileged") // a volume's server takes its callers' identities
	volume := t.TempDir()
	t.Cleanup(func() {
		_, _ = c.kubectl("", "delete", "persistentvolume", "sluice-test-share", "--ignore-not-found", "--wait=false")
	})
	p.apply(t, fmt.Sprintf(productManifest, p.ganesha.backend("/"), volume, p.name))
	for _, x := range []string{"data", "share"} {
		p.wait(t, "condition=Ready", "nfsexport/"+x, 2*time.Minute)
	}
	p.wait(t, "condition=Available", "deployment/gateway", time.Minute)
	t.Log(p.must(t, "get", "nfsgateways,nfsexports", "-o", "wide"))
	g := boot(t, c, "n1")
	o := &userWay{product: p, guest: g, volume: volume}
	for _, step := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"mount", o.mount},
		{"rules-in-the-guest", o.rulesInGuest},
		{"edit", o.edit},
		{"access", o.access},
		{"conditions", o.conditions},
		{"upgrade", o.upgrade},
		{"helm-test", o.helmTest},
		{"pod-deleted", o.podDeleted},
		{"claim-pod-deleted", o.claimPodDeleted},
		{"without-the-control-plane", o.withoutControlPlane},
		{"node-killed", o.nodeKilled},
		{"uninstall", o.uninstall},
	} {
		if !t.Run(step.name, step.run) {
			return
		}
	}
}

// userWay is the state that the steps share: the guest has data mounted at /mnt and share at /srv.
type userWay struct {
	*product
	guest  *guest
	volume string
}

// at is the mount command of an export's status.mount, for another directory.
func (o *userWay) at(t *testing.T, export, dir string) string {
	t.Helper()
	mount := o.get(t, "nfsexport/"+export, "{.status.mount}")
	cut, ok := strings.CutSuffix(mount, " /mnt")
	if !ok || !strings.Contains(mount, "proto=rdma") || !strings.Contains(mount, " "+o.get(t, "nfsexport/"+export, "{.status.address}")+":/ ") {
		t.Fatalf("status.mount of %s: %q", export, mount)
	}
	return cut + " " + dir
}

// bothWays writes, reads back, and compares with the backend.
func (o *userWay) bothWays(t *testing.T, dir, backend string) {
	t.Helper()
	written := o.guest.run(t, "head -c 4M /dev/urandom >"+dir+"/random; sha256sum <"+dir+"/random; sync "+dir+"/random; echo 3 >/proc/sys/vm/drop_caches")
	b, err := os.ReadFile(filepath.Join(backend, "random"))
	if err != nil {
		t.Fatal(err)
	}
	if stored := fmt.Sprintf("%x  -", sha256.Sum256(b)); len(b) != 4<<20 || stored != written {
		t.Errorf("the client wrote 4 MiB with checksum %s, the backend has %d bytes with %s", written, len(b), stored)
	}
	if read := o.guest.run(t, "sha256sum <"+dir+"/random"); read != written {
		t.Errorf("the client reads checksum %s, wrote %s", read, written)
	}
}

// mount mounts both exports, through kube-proxy of the node.
func (o *userWay) mount(t *testing.T) {
	o.guest.run(t, o.at(t, "data", "/mnt"))
	o.guest.run(t, o.at(t, "share", "/srv"))
	o.bothWays(t, "/mnt", o.ganesha.dir)
	o.bothWays(t, "/srv", o.volume)
	if n := strings.Count(o.guest.run(t, "cat /proc/self/mountstats"), "xprt:\trdma"); n != 2 {
		t.Errorf("%d mounts over RDMA, must be 2", n)
	}
}

// rulesInGuest gives the guest's own kernel the rules of kube-proxy, as on a cluster's node that
// mounts for its pods. They lead to addresses of pods, which the network under the guest routes.
func (o *userWay) rulesInGuest(t *testing.T) {
	rules, err := o.command("enter", "n1", "nft", "list", "table", "ip", "kube-proxy").Output()
	if err != nil {
		t.Fatalf("nft list table: %v: %.300s", err, rules)
	}
	if err := os.WriteFile(filepath.Join(o.guest.out, "rules.nft"), rules, 0o644); err != nil {
		t.Fatal(err)
	}
	defer o.guest.run(t, "nft flush ruleset")
	// Only the rules know the Service's address: the packets that leave the guest are for a pod.
	o.guest.run(t, "nft -f /run/out/rules.nft; mkdir -p /run/here")
	o.guest.run(t, o.at(t, "data", "/run/here")+" -o nosharecache")
	defer o.guest.run(t, "umount /run/here")
	if translated := o.guest.run(t, "grep -c 'dst="+o.get(t, "nfsexport/data", "{.status.address}")+" .*dport=20049.* src=10[.]244[.]' /proc/net/nf_conntrack"); translated != "1" {
		t.Errorf("%s connections are translated to a pod's address in the guest, must be 1", translated)
	}
	o.bothWays(t, "/run/here", o.ganesha.dir)
}

// edit checks that clients see an edit, and that no connection of the other export drops.
func (o *userWay) edit(t *testing.T) {
	o.guest.run(t, "touch /srv/again") // Linux ends an idle connection after five minutes
	before := o.only(t, "sluice.dev/workload", "share")
	o.must(t, "patch", "nfsexport/data", "--type=merge", "-p", `{"spec": {"transport": {"credits": {"max": 17}, "inlineThreshold": {"call": "16Ki", "reply": "8Ki"}}}}`)
	o.wait(t, `jsonpath={.status.observedGeneration}=2`, "nfsexport/data", time.Minute)
	o.wait(t, "condition=Programmed", "nfsexport/data", time.Minute)
	o.wait(t, "condition=Ready", "nfsexport/data", time.Minute)
	said, err := o.sluicectl(t, "n1", "ping", "--inline", "65536", "--credits", "100", "nfs+rdma://"+o.get(t, "nfsexport/data", "{.status.address}")+":20049/")
	t.Log(said)
	if err != nil || !strings.Contains(said, "17") || !strings.Contains(said, "16384") && !strings.Contains(said, "16 KiB") || !strings.Contains(said, "8192") && !strings.Contains(said, "8 KiB") {
		t.Errorf("sluicectl ping has to tell 17 credits and thresholds of 16 and 8 KiB: %v", err)
	}
	o.bothWays(t, "/mnt", o.ganesha.dir)
	if after := o.only(t, "sluice.dev/workload", "share"); !after.since.Equal(before.since) || after.pod != before.pod {
		t.Errorf("the other export's connection was %+v, is %+v", before, after)
	}
}

// access checks that a client without a rule is refused. n2 is missing from the nodes of data, but
// not from those of share.
func (o *userWay) access(t *testing.T) {
	url := func(export string) string {
		return "nfs+rdma://" + o.get(t, "nfsexport/"+export, "{.status.address}") + ":20049/"
	}
	if said, err := o.sluicectl(t, "n1", "ls", url("data")); err != nil || !strings.Contains(said, "random") {
		t.Errorf("from n1, which is listed: %v: %s", err, said)
	}
	if said, err := o.sluicectl(t, "n2", "ls", url("data")); err == nil {
		t.Errorf("from n2, which is not listed: %s", said)
	} else {
		t.Log(said)
	}
	if said, err := o.sluicectl(t, "n2", "ls", url("share")); err != nil || !strings.Contains(said, "random") {
		t.Errorf("share from n2: %v: %s", err, said)
	}
}

// conditions checks the conditions of faulty objects and their advice.
func (o *userWay) conditions(t *testing.T) {
	foreign := o.cluster.namespace(t, "foreign", "restricted")
	export := func(name, gateway, backend string) string {
		return fmt.Sprintf(`
apiVersion: sluice.dev/v1alpha1
kind: NFSExport
metadata: {name: %s}
spec: {gatewayRef: {%s}, backend: {%s}, access: [{from: {networks: [0.0.0.0/0]}}]}
---`, name, gateway, backend)
	}
	o.apply(t, export("away", "name: gateway", "nfs: {server: 10.88.0.1, port: 9, path: /vol}")+
		export("missing", "name: gateway", "persistentVolumeClaim: {claimName: none}")+
		export("lost", "name: nobody", "nfs: {server: 10.88.0.1, path: /vol}"))
	foreign.apply(t, export("guest", "name: gateway, namespace: operator", "nfs: {server: 10.88.0.1, path: /vol}"))
	t.Log(o.condition(t, "nfsexport/away", "BackendReachable", "False", "Unreachable"))
	t.Log(o.condition(t, "nfsexport/missing", "ResolvedRefs", "False", "ClaimNotFound"))
	t.Log(o.condition(t, "nfsexport/lost", "Accepted", "False", "GatewayNotFound"))
	t.Log(foreign.condition(t, "nfsexport/guest", "Accepted", "False", "NamespaceNotAllowed"))
	t.Log(o.must(t, "get", "nfsexports"))
	o.must(t, "delete", "nfsexport", "away", "missing", "lost")
	foreign.must(t, "delete", "nfsexport", "guest")
}

// upgrade checks that an upgrade with the same gateway image restarts no gateway pod.
func (o *userWay) upgrade(t *testing.T) {
	uids := func(selector string) string {
		return o.must(t, "get", "pods", "-l", selector, "-o", "jsonpath={.items[*].metadata.uid}")
	}
	const operator = "app.kubernetes.io/component=operator"
	before, former := uids("sluice.dev/workload"), uids(operator)
	o.helm(t, append([]string{"upgrade", "sluice", "charts/sluice", "--wait", "--timeout", "6m", "--set", "operator.logLevel=debug",
		"--set", "test.address=" + o.get(t, "nfsexport/data", "{.status.address}")}, images()...)...)
	if now := uids(operator); now == former {
		t.Error("the operator was not upgraded")
	}
	eventually(t, time.Minute, func() error { // the new one acts
		if n := o.get(t, "nfsgateway/gateway", "{.status.conditions[?(@.type==\"Ready\")].status}"); n != "True" {
			return fmt.Errorf("the gateway's Ready is %s", n)
		}
		return nil
	})
	if after := uids("sluice.dev/workload"); after != before {
		t.Errorf("the gateways' pods were %s, are %s", before, after)
	}
}

// helmTest runs helm test: a pod pings the export that the release's values name, once access
// allows it.
func (o *userWay) helmTest(t *testing.T) {
	if said, err := o.tryHelm("test", "sluice", "--timeout", "3m"); err == nil {
		t.Errorf("helm test from a pod that no rule lists: %s", said)
	}
	o.must(t, "patch", "nfsexport/data", "--type=json", "-p", `[{"op": "add", "path": "/spec/access/-", "value": {"from": {"networks": ["10.244.0.0/16"]}, "mode": "ReadOnly"}}]`)
	o.wait(t, `jsonpath={.status.observedGeneration}=3`, "nfsexport/data", time.Minute)
	o.wait(t, "condition=Programmed", "nfsexport/data", time.Minute)
	said := o.helm(t, "test", "sluice", "--timeout", "3m")
	if t.Log(said); !strings.Contains(said, "Succeeded") {
		t.Error("helm test does not say that it succeeded")
	}
}

// podDeleted checks that the client of a deleted pod moves to the other one.
func (o *userWay) podDeleted(t *testing.T) {
	before := o.only(t, gatewayPods, "data")
	fio := o.guest.fio(t, "/mnt")
	begun := time.Now()
	o.must(t, "delete", "pod", before.pod, "--wait=false")
	if now := o.moved(t, gatewayPods, "data", before, begun); now.pod == before.pod {
		t.Errorf("the client is at %s as before", now.pod)
	}
	fio.wait(t, 5*time.Minute)
	o.wait(t, "condition=Available", "deployment/gateway", time.Minute)
}

// claimPods selects the pod of the claim.
const claimPods = "sluice.dev/workload!=gateway,sluice.dev/workload"

// claimPodDeleted checks that a volume's client waits for the next pod: there is only one. It keeps
// its lock and its open file.
func (o *userWay) claimPodDeleted(t *testing.T) {
	o.guest.run(t, "touch /srv/again") // Linux has ended an idle connection by now
	lock := o.lock(t)
	before := o.only(t, claimPods, "share")
	fio := o.guest.fio(t, "/srv")
	begun := time.Now()
	o.must(t, "delete", "pod", before.pod, "--wait=false")
	o.moved(t, claimPods, "share", before, begun)
	fio.wait(t, 5*time.Minute)
	lock.release(t)
}

// claimLock is a lock on a file of the claim, by the client in the guest.
type claimLock struct {
	o             *userWay
	holder, thief *process
}

// lock takes a lock on an open file, by version 4.2, and tries again and again to take it by
// another mount, which must not succeed.
func (o *userWay) lock(t *testing.T) *claimLock {
	t.Helper()
	if mounted := o.guest.run(t, "grep ' /srv ' /proc/mounts"); !strings.Contains(mounted, "vers=4.2") {
		t.Fatalf("mounted as %s", mounted)
	}
	o.guest.run(t, "rm -f /run/out/release /run/out/stolen; mkdir -p /run/thief; "+o.at(t, "share", "/run/thief")+" -o nosharecache")
	l := &claimLock{o: o}
	l.holder = o.guest.start(t, `
		exec 8>/srv/locked; flock -n 8; echo before >&8
		until [ -e /run/out/release ]; do sleep 0.1; done
		echo after >&8; flock -u 8; exec 8>&-`)
	eventually(t, time.Minute, func() error { return l.state(t, true) })
	l.thief = o.guest.start(t, `
		exec 9<>/run/thief/locked
		until [ -e /run/out/release ]; do
			! flock -n 9 || { touch /run/out/stolen; break; }
			sleep 0.1
		done`)
	return l
}

// state returns an error unless the gateway has the file locked, or has not. It is a lock of the
// file system, so it is seen here.
func (l *claimLock) state(t *testing.T, want bool) error {
	t.Helper()
	f, err := os.OpenFile(filepath.Join(l.o.volume, "locked"), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	lock := unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock); err != nil {
		t.Fatal(err)
	}
	if locked := lock.Type != unix.F_UNLCK; locked != want {
		return fmt.Errorf("locked: %v, must be %v", locked, want)
	}
	return nil
}

// release checks that the client has the lock again, and nobody else had it, and ends it.
func (l *claimLock) release(t *testing.T) {
	t.Helper()
	eventually(t, 2*time.Minute, func() error { return l.state(t, true) })
	l.o.guest.run(t, "[ ! -e /run/out/stolen ]; touch /run/out/release")
	l.holder.wait(t, time.Minute)
	l.thief.wait(t, 2*time.Minute)
	eventually(t, time.Minute, func() error { return l.state(t, false) })
	l.o.guest.run(t, "[ ! -e /run/out/stolen ]; umount /run/thief")
	if b, err := os.ReadFile(filepath.Join(l.o.volume, "locked")); err != nil || string(b) != "before\nafter\n" {
		t.Errorf("the locked file has %q, %v", b, err)
	}
}

// withoutControlPlane checks that clients mount and reconnect, and that pods drain, with operator
// and API server stopped.
func (o *userWay) withoutControlPlane(t *testing.T) {
	mount := o.at(t, "data", "/run/here")
	before := o.only(t, gatewayPods, "data")
	pids := processes(t, "gateway", before.pod)
	if len(pids) != 1 {
		t.Fatalf("processes of %s: %v", before.pod, pids)
	}
	o.must(t, "scale", "deployment/sluice-operator", "--replicas=0")
	o.wait(t, "delete", "pod --selector=app.kubernetes.io/component=operator", time.Minute)
	control := []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"}
	o.kill(t, control...)
	func() {
		defer o.start(t, control...)
		o.guest.run(t, "mkdir -p /run/here; "+mount+" -o nosharecache; echo yes >/run/here/mounted; umount /run/here")
		fio := o.guest.fio(t, "/mnt")
		if err := syscall.Kill(pids[0], syscall.SIGTERM); err != nil { // as the kubelet ends it
			t.Fatal(err)
		}
		eventually(t, time.Minute, func() error {
			if err := syscall.Kill(pids[0], 0); err == nil {
				return fmt.Errorf("the gateway drains")
			}
			return nil
		})
		fio.wait(t, 5*time.Minute)
	}()
	eventually(t, time.Minute, func() error { _, err := o.kubectl("get", "pods"); return err })
	o.must(t, "scale", "deployment/sluice-operator", "--replicas=1")
	// The nodes' agents need up to half a minute each to return to the API server.
	o.wait(t, "condition=Available", "deployment/sluice-operator", 3*time.Minute)
	o.wait(t, "condition=Available", "deployment/gateway", 3*time.Minute)
	o.bothWays(t, "/mnt", o.ganesha.dir)
}

// nodeKilled kills the node of the client's pod and of the claim's. The guest's own node is spared:
// a pod there is moved away first. The claim's next pod comes as docs/kubernetes.md says.
func (o *userWay) nodeKilled(t *testing.T) {
	node := func(pod string) string { return o.get(t, "pod/"+pod, "{.spec.nodeName}") }
	o.guest.run(t, "touch /srv/again")
	claim := o.only(t, claimPods, "share")
	if node(claim.pod) == "n1" {
		o.must(t, "cordon", "n1")
		defer o.must(t, "uncordon", "n1")
		begun := time.Now()
		o.must(t, "delete", "pod", claim.pod, "--wait=false")
		claim = o.moved(t, claimPods, "share", claim, begun)
		o.must(t, "uncordon", "n1")
	}
	if node(claim.pod) != "n2" {
		t.Fatalf("the claim's pod is on %s", node(claim.pod))
	}
	lock := o.lock(t)
	before := o.only(t, gatewayPods, "data")
	if node(before.pod) == "n1" {
		begun := time.Now()
		o.must(t, "delete", "pod", before.pod, "--wait=false")
		o.guest.run(t, "touch /mnt/again") // an idle client does not reconnect
		before = o.moved(t, gatewayPods, "data", before, begun)
		o.wait(t, "condition=Available", "deployment/gateway", time.Minute)
	}
	if node(before.pod) != "n2" {
		t.Fatalf("the client is at %s on %s; pods have to be on both nodes", before.pod, node(before.pod))
	}
	fio := o.guest.fio(t, "/mnt")
	begun := time.Now()
	o.kill(t, "n2")
	defer o.start(t, "n2")
	now := o.moved(t, gatewayPods, "data", before, begun)
	t.Logf("the stall is %.1f s; the connections of a node that dies here are reset, since its kernel lives on", now.since.Sub(begun).Seconds())
	fio.wait(t, 5*time.Minute)
	o.must(t, "taint", "nodes", "n2", "node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
	defer o.must(t, "taint", "nodes", "n2", "node.kubernetes.io/out-of-service-")
	o.moved(t, claimPods, "share", claim, begun) // the mount that tries for the lock connects again
	lock.release(t)
}

// uninstall is refused as long as there are exports, and then forced: only CRDs, keys and data
// stay.
func (o *userWay) uninstall(t *testing.T) {
	o.guest.run(t, "umount /mnt /srv")
	if said, err := o.tryHelm("uninstall", "sluice", "--timeout", "6m"); err == nil {
		t.Fatalf("helm uninstall under living exports: %s", said)
	} else {
		t.Log(err)
	}
	o.wait(t, "condition=Ready", "nfsexport/data", time.Minute)
	o.must(t, "annotate", "deployment/sluice-operator", "sluice.dev/uninstall=force")
	o.helm(t, "uninstall", "sluice", "--wait", "--timeout", "6m")
	eventually(t, 2*time.Minute, func() error {
		left := strings.Fields(o.must(t, "get", "all,configmaps,secrets,serviceaccounts,roles,rolebindings,leases,networkpolicies,poddisruptionbudgets,nfsexports,nfsgateways", "-o", "name"))
		left = slices.DeleteFunc(left, func(name string) bool {
			return name == "configmap/kube-root-ca.crt" || name == "serviceaccount/default"
		})
		if len(left) != 1 || !strings.HasPrefix(left[0], "secret/") {
			return fmt.Errorf("left in the namespace: %q, must be the Secret with the keys alone", left)
		}
		return nil
	})
	crds, err := o.cluster.kubectl("", "get", "crds", "-o", "name")
	if err != nil || strings.Count(crds, ".sluice.dev") != 2 {
		t.Errorf("CRDs: %s, %v", crds, err)
	}
	roles, err := o.cluster.kubectl("", "get", "clusterroles,clusterrolebindings", "-o", "name")
	if err != nil || strings.Contains(roles, "sluice") {
		t.Errorf("left in the cluster: %s, %v", roles, err)
	}
	for _, dir := range []string{o.ganesha.dir, o.volume} {
		if _, err := os.Stat(filepath.Join(dir, "random")); err != nil {
			t.Errorf("the users' data: %v", err)
		}
	}
}
