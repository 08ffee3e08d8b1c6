// Package cluster tests Sluice in Kubernetes: a control plane and two real nodes, which
// hack/cluster/run starts once for all tests, the images of this checkout, and the Linux kernel's
// NFS/RDMA client in guests of hack/vm/run, which mount by Service IP.
//
// The tests have the build tag "cluster"; make test-cluster runs them. With
// SLUICE_CLUSTER=DIRECTORY they use the cluster in that directory, start it if necessary, and leave
// it running:
//
//	SLUICE_CLUSTER=/tmp/cluster go test -tags cluster -run TestGateway -v ./test/cluster
//	hack/cluster/run kubectl /tmp/cluster get pods -A
//
// Each test has a namespace of its own, deleted with it. A test ends at its first failure and logs
// the namespace's events, pods and logs:
//
//	func TestShare(t *testing.T) {
//		t.Parallel() // not if a guest boots: one at a time
//		c := need(t, "gateway", "operator")       // with images sluice.dev/gateway:test, ...
//		ns := c.namespace(t, "share", "restricted")
//		g := startGanesha(t, c)                   // on the control plane; see g.backend
//		ns.helm(t, "install", "sluice", "charts/sluice")
//		ns.apply(t, manifest)
//		ns.wait(t, "condition=Ready", "nfsexport/data", time.Minute)
//		ip := ns.get(t, "service/data", "{.spec.clusterIP}")
//		guest := boot(t, c, "n1")                 // 10.0.2.15, siw0 on eth0; sends from n1
//		guest.run(t, "mount -t nfs -o vers=4.1,proto=rdma,port=20049 "+ip+":/ /mnt")
//		fio := guest.start(t, "fio ...")          // runs meanwhile
//		c.kill(t, "n2")                           // a node dies; c.start(t, "n2")
//		ns.signal(t, pod, "gateway", "SIGSTOP")   // a pod's process stops
//		fio.wait(t, time.Minute)
//		eventually(t, time.Minute, func() error { ... })
//	}
//
// hack/cluster/run describes the networks. A guest in place "control-plane" reaches the fabric,
// 10.77.0.0/24, on layer 3.
package cluster
