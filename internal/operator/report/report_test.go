package report

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/speaker/api"
)

// env is a gateway with one export and two pods that serve it.
type env struct {
	gw   *v1alpha1.NFSGateway
	x    *v1alpha1.NFSExport
	plan plan.Plan
	seen Observed
}

const vip = "192.0.2.10"

func newEnv(virtual bool, edit func(*v1alpha1.NFSGateway, *v1alpha1.NFSExport)) *env {
	w := &env{
		gw: &v1alpha1.NFSGateway{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "fast"}},
		x: &v1alpha1.NFSExport{ObjectMeta: metav1.ObjectMeta{Namespace: "storage", Name: "data", UID: "00000000-0000-0000-0000-000000000001"}, Spec: v1alpha1.NFSExportSpec{
			GatewayRef: v1alpha1.GatewayReference{Name: "fast"},
			Backend:    v1alpha1.Backend{NFS: &v1alpha1.NFSServer{Server: "filer.example", Port: 2049, Path: "/vol"}},
			Access:     []v1alpha1.AccessRule{{From: v1alpha1.AccessFrom{Networks: []string{"10.0.0.0/8"}}, Mode: "ReadWrite", Squash: "Root"}},
			Address:    v1alpha1.Address{RDMAPort: 20049, TCPPort: 2049}, SignHandles: "Auto",
		}},
	}
	if virtual {
		w.gw.Spec.Exposure = v1alpha1.Exposure{Type: v1alpha1.ExposureVirtualIP, VirtualIP: &v1alpha1.VirtualIP{Pool: []string{vip}, Network: "rdma-net"}}
		w.gw.Spec.RDMA = &v1alpha1.RDMA{Networks: []v1alpha1.Network{{Name: "rdma-net", Interface: "rdma0"}}}
	}
	if edit != nil {
		edit(w.gw, w.x)
	}
	w.plan = plan.Make(plan.Input{
		Gateway: w.gw, Exports: []v1alpha1.NFSExport{*w.x}, Namespaces: map[string]map[string]string{"storage": {}}, Networks: map[string]bool{"storage/rdma-net": true},
		Claims: map[string]*corev1.PersistentVolumeClaim{"disk": {}},
	})
	e := &w.plan.Exports[0]
	w.seen = Observed{Refused: map[string]string{}, Failed: map[string]error{}, Blocked: map[string]Blocker{}, Services: map[string]*corev1.Service{e.Service: {Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.12"}}}}
	for _, name := range []string{"fast-0", "fast-1"} {
		w.seen.Pods = append(w.seen.Pods, w.pod(name))
	}
	return w
}

// pod is one that serves the export.
func (w *env) pod(name string) Pod {
	e := &w.plan.Exports[0]
	p := Pod{Pod: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{plan.LabelGateway: "fast", plan.LabelWorkload: e.Workload}}, Status: corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.1.0.7", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
	}}}
	if e.Workload != w.gw.Name { // a claim's
		p.Labels[plan.LabelExport] = w.x.Name
	}
	if e.Config == nil {
		return p
	}
	at := status.Export{Name: e.Config.Name, State: status.Serving, Hash: e.Hash, Backend: status.Backend{
		Kind: "nfs", Path: "/vol", Healthy: true, Versions: []string{"3", "4.1", "4.2"}, Remote: &status.Remote{},
	}}
	for _, l := range e.Config.Listeners {
		at.Listeners = append(at.Listeners, status.Listener{Network: l.Network, Configured: l.Address, State: status.Listening})
	}
	p.Status = &status.Status{Ready: true, Exports: []status.Export{at}}
	return p
}

func (w *env) at(pod int) *status.Export { return &w.seen.Pods[pod].Status.Exports[0] }

// alone leaves one pod, with a status that says nothing of its gateway.
func (w *env) alone(s corev1.PodStatus) {
	w.seen.Pods = w.seen.Pods[:1]
	p := &w.seen.Pods[0]
	p.Pod.Status, p.Status = s, nil
}

func replicas(n int32) func(*v1alpha1.NFSGateway, *v1alpha1.NFSExport) {
	return func(g *v1alpha1.NFSGateway, _ *v1alpha1.NFSExport) { g.Spec.Replicas = &n }
}

func device(g *v1alpha1.NFSGateway, _ *v1alpha1.NFSExport) {
	g.Spec.Replicas = new(int32(1))
	g.Spec.RDMA = &v1alpha1.RDMA{Devices: []v1alpha1.Device{{ResourceName: "nvidia.com/rdma_vf", Count: 1}}}
}

// troubled has the device of a pod report a problem.
func troubled(reason, message string) func(*env) {
	return func(w *env) {
		w.at(0).Listeners[0].Device = &status.Device{Name: "mlx5_4", Transport: "RoCE", Problems: []status.Problem{{Reason: reason, Message: message}}}
	}
}

// largePath has a client whose packets are larger than the MTU of the pod's port.
func largePath(w *env) {
	x := w.at(0)
	x.Listeners[0].Device = &status.Device{Name: "mlx5_4", Transport: "RoCE", Ports: []status.Port{{Number: 1, State: "ACTIVE", ActiveMTU: 1024}}}
	x.Clients = []status.Client{{Network: config.RDMA, Remote: netip.MustParseAddrPort("192.0.2.77:40000"), RDMA: &status.RDMA{QueuePair: &status.QueuePair{Device: "mlx5_4", Port: 1, PathMTU: 4096}}}}
}

func waitingFor(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
		Name: "gateway", Image: "gateway:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
	}}}
}

func unscheduled(words string) corev1.PodStatus {
	return corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: words}}}
}

func TestExportConditions(t *testing.T) {
	one := replicas(1)
	readyPod := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	problem := func(p api.Problem) func(*env) {
		return func(w *env) {
			for i := range w.seen.Pods {
				w.seen.Pods[i].Speaker = &api.Status{Problems: []api.Problem{p}}
			}
		}
	}
	rdma := func(f func(*status.Listener)) func(*env) { return func(w *env) { f(&w.at(0).Listeners[0]) } }
	for _, c := range []struct {
		name    string
		virtual bool
		edit    func(*v1alpha1.NFSGateway, *v1alpha1.NFSExport)
		see     func(*env)
		kind    string
		status  metav1.ConditionStatus
		reason  string
		message string
	}{
		{name: "applied", kind: "Programmed", status: "True", reason: "Programmed", message: "applied by 2 of 2 pods"},
		{name: "one pod has no node", see: func(w *env) {
			p := w.seen.Pods[1]
			p.Status, p.Pod.Status = nil, unscheduled("0/3 nodes are available")
			w.seen.Pods[1] = p
		},
			kind: "Programmed", status: "True", reason: "Programmed", message: `applied by 1 of 2 pods: pod fast-1 fits on no node: "0/3 nodes are available"`},
		{name: "no pods", see: func(w *env) { w.seen.Pods = nil }, kind: "Programmed", status: "False", reason: "PodsPending", message: "2 of 2 pods of fast are not created yet"},
		{name: "replicas 0", edit: replicas(0), see: func(w *env) { w.seen.Pods = nil }, kind: "Programmed", status: "False", reason: "NoReplicas",
			message: "no pod serves, because spec.replicas of the NFSGateway is 0: set it to 1 or more"},
		{name: "pods are going", see: func(w *env) {
			for i := range w.seen.Pods {
				w.seen.Pods[i].DeletionTimestamp = &metav1.Time{}
			}
		}, kind: "Programmed", status: "False", reason: "PodsPending", message: "2 of 2 pods of fast are not created yet"},
		{name: "admission", see: func(w *env) { w.seen.Pods = nil; w.seen.Refused["fast"] = "pods \"fast-\" is forbidden:\n violates" },
			kind: "Programmed", status: "False", reason: "PodsRefused", message: `cannot create a pod of fast: "pods \"fast-\" is forbidden: violates"; and 1 more`},
		{name: "the kubelet's admission", edit: one, see: func(w *env) {
			w.alone(corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", Message: "no healthy devices"})
		}, kind: "Programmed", status: "False", reason: "PodsRefused", message: `pod fast-0 was refused by its node: UnexpectedAdmissionError: "no healthy devices"`},
		{name: "failed", edit: one, see: func(w *env) { w.alone(corev1.PodStatus{Phase: corev1.PodFailed, Message: "gone"}) }, kind: "Programmed", status: "False", reason: "PodsCrashing",
			message: `pod fast-0 has failed: "gone"`},
		{name: "a failed pod that was replaced", see: evicted, kind: "Programmed", status: "True", reason: "Programmed", message: "applied by 2 of 2 pods"},
		{name: "a failed pod that is not replaced yet", see: func(w *env) { evicted(w); w.seen.Pods = w.seen.Pods[1:] }, kind: "Programmed", status: "True", reason: "Programmed",
			message: `applied by 1 of 2 pods: pod fast-2 was refused by its node: Evicted: "low on memory"`},
		{name: "crashing", edit: one, see: func(w *env) {
			s := waitingFor("CrashLoopBackOff", "back-off")
			s.ContainerStatuses[0].LastTerminationState.Terminated = &corev1.ContainerStateTerminated{ExitCode: 1, Message: "stateDir: no"}
			w.alone(s)
		}, kind: "Programmed", status: "False", reason: "PodsCrashing",
			message: `pod fast-0 crashes: container gateway, exit code 1: "stateDir: no": see kubectl logs --previous`},
		{name: "no image", edit: one, see: func(w *env) { w.alone(waitingFor("ErrImagePull", "denied")) }, kind: "Programmed", status: "False", reason: "ImageNotPulled",
			message: `pod fast-0 cannot pull image gateway:1: ErrImagePull: "denied"`},
		{name: "no image for a claim", edit: claimed, see: func(w *env) { w.alone(waitingFor("ErrImagePull", "denied")) }, kind: "Ready", status: "False", reason: "ImageNotPulled",
			message: `pod fast-0 cannot pull image gateway:1: ErrImagePull: "denied"`},
		{name: "no image for a claim, and another one since then", edit: claimed, see: func(w *env) {
			w.alone(waitingFor("ErrImagePull", "denied"))
			w.seen.Updated = map[string]int32{w.plan.Exports[0].Workload: 0}
		}, kind: "Ready", status: "False", reason: "ImageNotPulled",
			message: `pod fast-0 cannot pull image gateway:1: ErrImagePull: "denied"; its StatefulSet does not update a pod that is not ready: run kubectl delete pod --namespace storage fast-0`},
		{name: "no secret", edit: one, see: func(w *env) { w.alone(waitingFor("CreateContainerConfigError", "secret not found")) }, kind: "Programmed", status: "False", reason: "PodsPending",
			message: `pod fast-0 does not start: CreateContainerConfigError: "secret not found"`},
		{name: "starting", edit: one, see: func(w *env) { w.alone(corev1.PodStatus{Phase: corev1.PodPending}) }, kind: "Programmed", status: "False", reason: "PodsPending", message: "pod fast-0 is starting"},
		{name: "no device anywhere", edit: device, see: func(w *env) { w.alone(unscheduled("Insufficient nvidia.com/rdma_vf")) }, kind: "Programmed", status: "False", reason: "NoNodeOffersResource",
			message: "pod fast-0 waits for resource nvidia.com/rdma_vf, which no node offers: install its device plugin, or change rdma.devices[0].resourceName"},
		{name: "no device left", edit: device, see: func(w *env) {
			w.alone(unscheduled("Insufficient nvidia.com/rdma_vf"))
			w.seen.Nodes = []corev1.Node{{Status: corev1.NodeStatus{Allocatable: corev1.ResourceList{"nvidia.com/rdma_vf": resource.MustParse("2")}}}}
		}, kind: "Programmed", status: "False", reason: "PodsPending", message: `pod fast-0 fits on no node: "Insufficient nvidia.com/rdma_vf"`},
		{name: "not asked", edit: one, see: func(w *env) { w.alone(w.seen.Pods[0].Pod.Status) }, kind: "Programmed", status: "False", reason: "Applying", message: "pod fast-0 was not polled yet"},
		{name: "silent", edit: one, see: func(w *env) {
			w.alone(corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7", Conditions: readyPod})
			w.seen.Pods[0].Error = "connection refused"
		}, kind: "Programmed", status: "False", reason: "PodsUnreachable",
			message: `pod fast-0 is ready, but its /status does not answer the operator: "connection refused": allow the operator's pods to reach port 9180 of the gateway's pods, also in NetworkPolicies`},
		{name: "silent and not ready", edit: one, see: func(w *env) {
			w.alone(corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "10.1.0.7"})
			w.seen.Pods[0].Error = "connection refused"
		}, kind: "Programmed", status: "False", reason: "PodsPending", message: `pod fast-0 does not answer yet: "connection refused"`},
		{name: "a node that is lost", edit: one, see: lost, kind: "Programmed", status: "False", reason: "NodeLost",
			message: "pod fast-0 is on node n2, which does not answer: its tolerations decide when another node gets the pod"},
		{name: "a lost node's pod that is about to go", edit: one, see: func(w *env) { lost(w); w.seen.Pods[0].DeletionTimestamp = &metav1.Time{} },
			kind: "Programmed", status: "False", reason: "PodsPending", message: "1 of 1 pods of fast are not created yet"},
		{name: "a lost node's pod that answers", edit: one, see: func(w *env) { s := w.seen.Pods[0].Status; lost(w); w.seen.Pods[0].Status = s },
			kind: "Programmed", status: "True", reason: "Programmed", message: "applied by 1 of 1 pod"},
		{name: "a lost node's pod of a claim", edit: claimed, see: lost, kind: "Ready", status: "False", reason: "NodeLost", message: lostClaim},
		{name: "a lost node's pod of a claim that is about to go", edit: claimed, see: func(w *env) { lost(w); w.seen.Pods[0].DeletionTimestamp = &metav1.Time{} },
			kind: "Ready", status: "False", reason: "NodeLost", message: lostClaim},
		{name: "not ready", see: func(w *env) {
			for i := range w.seen.Pods {
				w.seen.Pods[i].Pod.Status.Conditions = nil
			}
		}, kind: "Programmed", status: "False", reason: "PodsPending", message: "pod fast-0 is not ready yet; and 1 more"},
		{name: "draining", edit: one, see: func(w *env) { w.seen.Pods = w.seen.Pods[:1]; w.seen.Pods[0].Status.Draining = true },
			kind: "Programmed", status: "False", reason: "PodsPending", message: "pod fast-0 is draining"},
		{name: "a file that is refused", see: func(w *env) { w.seen.Pods[1].Status.Config.Error = "line 3: no" }, kind: "Programmed", status: "False", reason: "NotApplied",
			message: `pod fast-1 refuses its configuration: "line 3: no"`},
		{name: "an export that is refused", see: func(w *env) { w.at(1).State, w.at(1).Error = status.Outdated, "address in use" }, kind: "Programmed", status: "False", reason: "NotApplied",
			message: `pod fast-1 refuses the configuration: "address in use"`},
		{name: "an older one", see: func(w *env) { w.at(1).Hash = "0123456789abcdef" }, kind: "Programmed", status: "False", reason: "Applying", message: "pod fast-1 has not applied it yet"},
		{name: "an older one can be mounted", see: func(w *env) { w.at(1).Hash = "0123456789abcdef" }, kind: "Ready", status: "True", reason: "Ready",
			message: "mount -t nfs -o vers=4.2,proto=rdma,port=20049 10.96.0.12:/ /mnt"},

		{name: "reachable", kind: "BackendReachable", status: "True", reason: "Reachable", message: "nfs filer.example:/vol answers 2 pods"},
		{name: "nobody asked", see: func(w *env) { w.seen.Pods = nil }, kind: "BackendReachable", status: "Unknown", reason: "Unknown", message: "no pod has asked nfs filer.example:/vol yet"},
		{name: "asked just now", see: func(w *env) { w.at(0).Backend.Healthy, w.at(1).Backend.Healthy = false, false }, kind: "BackendReachable", status: "Unknown", reason: "Unknown",
			message: "pod fast-0 waits for a first answer of nfs filer.example:/vol"},
		{name: "asked just now by one pod more", see: func(w *env) { w.at(0).Backend.Healthy = false }, kind: "BackendReachable", status: "True", reason: "Reachable",
			message: "nfs filer.example:/vol answers 2 pods"},
		{name: "a pod more has just begun", see: func(w *env) { w.at(0).Backend.Healthy = false }, kind: "Ready", status: "True", reason: "Ready"},
		{name: "away", see: func(w *env) { w.at(1).Backend.Healthy, w.at(1).Backend.Error = false, "no route to host" }, kind: "BackendReachable", status: "False", reason: "Unreachable",
			message: `nfs filer.example:/vol does not answer pod fast-1: "no route to host": check that it runs, and that firewalls and NetworkPolicies admit the pods`},
		{name: "refusing", see: func(w *env) {
			b := &w.at(0).Backend
			b.Healthy, b.Error, b.Refused, b.AskedFrom, b.AskedAddress = false, "version 3: MNT3ERR_ACCES", true, 812, netip.MustParseAddr("10.1.0.7")
		}, kind: "BackendReachable", status: "False", reason: "BackendRefuses",
			message: `nfs filer.example:/vol refuses pod fast-0 at 10.1.0.7:812: "version 3: MNT3ERR_ACCES": export /vol to that address, or to the node's address if the network plugin masquerades pods; add no_root_squash if root must stay root`},
		{name: "refusing a high port", see: func(w *env) {
			b := &w.at(0).Backend
			b.Healthy, b.Error, b.Refused, b.AskedFrom, b.AskedAddress = false, "MNT3ERR_ACCES", true, 40000, netip.MustParseAddr("fd00::7")
		}, kind: "Ready", status: "False", reason: "BackendRefuses",
			message: `nfs filer.example:/vol refuses pod fast-0 at [fd00::7]:40000: "MNT3ERR_ACCES": export /vol to that address, or to the node's address if the network plugin masquerades pods; add no_root_squash if root must stay root; add insecure, because the port is above 1023`},
		{name: "a volume", see: func(w *env) {
			b := &w.at(0).Backend
			b.Healthy, b.Error, b.Remote = false, "the directory has not answered for 1m0s", nil
		}, kind: "BackendReachable", status: "False", reason: "Unreachable", message: `the volume of pod fast-0 does not answer: "the directory has not answered for 1m0s"`},

		{name: "served", kind: "RDMAReady", status: "True", reason: "Serving", message: "served by 2 pods"},
		{name: "nowhere", see: func(w *env) { w.seen.Pods = nil }, kind: "RDMAReady", status: "Unknown", reason: "Unknown", message: "no pod serves the export yet"},
		{name: "a port in use", see: rdma(func(l *status.Listener) { l.State, l.Error = status.Retrying, "address already in use" }), kind: "RDMAReady", status: "False", reason: "ListenerFailed",
			message: `pod fast-0 cannot listen on :21000: "address already in use"`},
		{name: "no device", see: rdma(func(l *status.Listener) {
			l.Device = &status.Device{Problems: []status.Problem{{Reason: v1alpha1.ReasonDeviceMissing, Message: "there is no RDMA device"}, {Reason: v1alpha1.ReasonDeviceNodeMissing, Message: "load it"}}}
		}),
			kind: "RDMAReady", status: "False", reason: "DeviceMissing", message: "pod fast-0: there is no RDMA device; load it"},
		{name: "a device that is down", see: rdma(func(l *status.Listener) {
			l.Device = &status.Device{Name: "mlx5_4", Transport: "RoCE", Problems: []status.Problem{{Reason: v1alpha1.ReasonPortDown, Message: "port 1 is DOWN"}}}
		}), kind: "Ready", status: "False", reason: "PortDown", message: "pod fast-0: port 1 is DOWN"},
		{name: "in another namespace", see: troubled(v1alpha1.ReasonDeviceInOtherNamespace, "no RDMA device is in this network namespace"), kind: "Ready", status: "False",
			reason: "DeviceInOtherNamespace", message: "pod fast-0: no RDMA device is in this network namespace"},
		{name: "a function without RDMA", see: troubled(v1alpha1.ReasonFunctionWithoutDevice, "0000:3b:02.1 has no driver"), kind: "RDMAReady", status: "False",
			reason: "FunctionWithoutDevice", message: "pod fast-0: 0000:3b:02.1 has no driver"},
		{name: "no file of the device", see: troubled(v1alpha1.ReasonDeviceNodeMissing, "there is no /dev/infiniband"), kind: "RDMAReady", status: "False",
			reason: "DeviceNodeMissing", message: "pod fast-0: there is no /dev/infiniband"},
		{name: "a denied file", see: troubled(v1alpha1.ReasonDeviceNodeDenied, "uverbs0 cannot be opened"), kind: "RDMAReady", status: "False",
			reason: "DeviceNodeDenied", message: "pod fast-0: uverbs0 cannot be opened"},
		{name: "RoCE v1", see: troubled(v1alpha1.ReasonRoCEv1Only, "the GID is RoCE v1 only"), kind: "RDMAReady", status: "False",
			reason: "RoCEv1Only", message: "pod fast-0: the GID is RoCE v1 only"},
		{name: "too little memory", see: troubled(v1alpha1.ReasonDeviceNotUsable, "this process may lock 64 KiB"), kind: "RDMAReady", status: "False",
			reason: "DeviceNotUsable", message: "pod fast-0: this process may lock 64 KiB"},
		{name: "a reason of a newer gateway", see: troubled("Overheated", "mlx5_4 is too hot"), kind: "RDMAReady", status: "False",
			reason: "DeviceNotUsable", message: "pod fast-0: mlx5_4 is too hot"},
		{name: "a client with a larger MTU", see: largePath, kind: "RDMAReady", status: "True", reason: "MTUMismatch",
			message: "served by 2 pods; pod fast-0: the path MTU of client 192.0.2.77 is 4096, and the active MTU of port 1 of mlx5_4 is 1024, so large messages are lost: give the network interfaces of both, and the switches in between, the same MTU"},
		{name: "readable memory", edit: readRead, kind: "RDMAReady", status: "True", reason: "MemoryReadable",
			message: "served by 2 pods; transport.rfc5666 has ReadRead, so a client can read its replies in the pod's memory, and keep that memory in use for up to 30 s a reply: remove ReadRead if no old client needs it"},
		{name: "readable memory can be mounted", edit: readRead, kind: "Ready", status: "True", reason: "Ready"},
		{name: "a client with a larger MTU can mount", see: largePath, kind: "Ready", status: "True", reason: "Ready"},
		{name: "the other pod's device has no GID of the address", virtual: true, edit: onVerbs, see: func(w *env) {
			carried(api.Problem{})(w)
			w.at(0).Listeners[0].Device = &status.Device{Name: "mlx5_4", Transport: "RoCE", Problems: []status.Problem{{Reason: v1alpha1.ReasonGIDMissing, Message: "mlx5_4 has no GID for the address 192.0.2.10"}}}
		}, kind: "Ready", status: "True", reason: "Ready"},
		{name: "the other pod has no device", virtual: true, edit: onVerbs, see: func(w *env) {
			carried(api.Problem{})(w)
			w.at(0).Listeners[0].Device = &status.Device{Problems: []status.Problem{{Reason: v1alpha1.ReasonDeviceMissing, Message: "there is no RDMA device"}}}
		}, kind: "RDMAReady", status: "True", reason: "Serving",
			message: "served by pod fast-1, which carries 192.0.2.10; pod fast-0 cannot take it over: there is no RDMA device"},
		{name: "the pod that carries the address has no GID of it", virtual: true, edit: onVerbs, see: func(w *env) {
			carried(api.Problem{})(w)
			w.at(1).Listeners[0].Device = &status.Device{Name: "mlx5_4", Transport: "RoCE", Problems: []status.Problem{{Reason: v1alpha1.ReasonGIDMissing, Message: "mlx5_4 has no GID for the address 192.0.2.10"}}}
		}, kind: "Ready", status: "False", reason: "GIDMissing", message: "pod fast-1: mlx5_4 has no GID for the address 192.0.2.10"},
		{name: "nobody carries the address, and a device is missing", virtual: true, edit: onVerbs, see: func(w *env) {
			w.at(0).Listeners[0].Device = &status.Device{Problems: []status.Problem{{Reason: v1alpha1.ReasonDeviceMissing, Message: "there is no RDMA device"}}}
		}, kind: "RDMAReady", status: "False", reason: "DeviceMissing", message: "pod fast-0: there is no RDMA device"},
		{name: "one pod does not listen yet", see: func(w *env) { w.at(1).State, w.at(1).Hash, w.at(1).Listeners = status.Applying, "", nil },
			kind: "Ready", status: "False", reason: "Applying", message: "pod fast-1 accepts clients, but does not serve the export yet"},
		{name: "one pod has not read of it yet", see: func(w *env) { w.seen.Pods[1].Status.Exports = nil },
			kind: "Ready", status: "False", reason: "Applying", message: "pod fast-1 accepts clients, but does not serve the export yet"},
		{name: "one pod refuses it", see: func(w *env) {
			w.at(1).State, w.at(1).Hash, w.at(1).Listeners, w.at(1).Error = status.Refused, "", nil, "no such server"
		}, kind: "Ready", status: "False", reason: "NotApplied", message: `pod fast-1 accepts clients, but refuses the export: "no such server"`},
		{name: "the pod without the address does not listen yet", virtual: true, see: func(w *env) {
			carried(api.Problem{})(w)
			w.seen.Pods[0].Status.Exports = nil
		}, kind: "Ready", status: "True", reason: "Ready"},
		{name: "the pod with the address does not listen yet", virtual: true, see: func(w *env) {
			carried(api.Problem{})(w)
			w.seen.Pods[1].Status.Exports = nil
		}, kind: "Ready", status: "False", reason: "Applying", message: "pod fast-1 accepts clients, but does not serve the export yet"},
		{name: "no speaker", virtual: true, kind: "RDMAReady", status: "False", reason: "AddressNotHeld",
			message: "no pod is known to carry 192.0.2.10: the speaker of pod fast-1 does not answer on port 9181"},
		{name: "nobody", virtual: true, see: problem(api.Problem{Reason: api.LeaseUnreachable, Address: "192.0.2.99"}), kind: "RDMAReady", status: "False", reason: "AddressNotHeld",
			message: "no pod carries 192.0.2.10 now"},
		{name: "somebody else", virtual: true, see: problem(api.Problem{Reason: api.AddressConflict, Address: vip, Message: "02:00:00:00:00:01 answers for it"}),
			kind: "RDMAReady", status: "False", reason: "AddressNotHeld", message: "pod fast-0 cannot carry 192.0.2.10: 02:00:00:00:00:01 answers for it"},
		{name: "not layer 2", virtual: true, see: problem(api.Problem{Reason: api.NetworkNotLayer2, Message: "rdma0 is an ipvlan in mode l3"}),
			kind: "RDMAReady", status: "False", reason: "NetworkNotLayer2", message: "pod fast-0 cannot carry 192.0.2.10: rdma0 is an ipvlan in mode l3"},
		{name: "too many addresses", virtual: true, see: problem(api.Problem{Reason: api.DeviceAddressLimit, Address: vip, Message: "its table is full"}),
			kind: "Ready", status: "False", reason: "DeviceAddressLimit", message: "pod fast-0 cannot carry 192.0.2.10: its table is full"},

		{name: "no GID", virtual: true, edit: onVerbs, see: carried(api.Problem{Reason: api.DeviceAddressLimit, Address: vip, Message: "RDMA device mlx5_4 has no GID for 192.0.2.10"}),
			kind: "RDMAReady", status: "False", reason: "DeviceAddressLimit", message: "pod fast-1 carries 192.0.2.10, but RDMA does not come by it: RDMA device mlx5_4 has no GID for 192.0.2.10"},
		{name: "no GID, and none needed", virtual: true, see: carried(api.Problem{Reason: api.DeviceAddressLimit, Address: vip, Message: "no GID"}), kind: "RDMAReady", status: "True", reason: "Serving"},
		{name: "another address has no GID", virtual: true, edit: onVerbs, see: carried(api.Problem{Reason: api.DeviceAddressLimit, Address: "192.0.2.11", Message: "no GID"}),
			kind: "Ready", status: "True", reason: "Ready"},

		{name: "no clients", kind: "ClientAddressesVisible", status: "Unknown", reason: "NoClients",
			message: "no client is connected"},
		{name: "nodes", see: clients("10.9.0.1", "10.244.1.1", "::ffff:10.9.0.1"), kind: "ClientAddressesVisible", status: "False", reason: "NodesOnly",
			message: "all connections come from node addresses: either the clients are nodes, or kube-proxy or the network plugin hides them; then access rules match only nodes"},
		{name: "clients", see: clients("10.9.0.1", "10.9.0.2"), kind: "ClientAddressesVisible", status: "True", reason: "Visible", message: "connections come from addresses other than those of nodes"},

		{name: "no address", see: func(w *env) { clear(w.seen.Services) }, kind: "Ready", status: "False", reason: "AddressPending",
			message: "Service sluice-data has no address yet: check its events and its load balancer"},
		{name: "no Service", see: func(w *env) { w.seen.Failed["sluice-data"] = errors.New("quota exceeded") }, kind: "Ready", status: "False", reason: "AddressPending",
			message: `cannot create Service sluice-data; retrying: "quota exceeded"`},
		{name: "an address that is refused, not asked for", see: clusterIPs("failed to allocate IP: the range is full"), kind: "Ready", status: "False", reason: "AddressPending"},
		{name: "an address of another Service", edit: asksFor, see: clusterIPs("failed to allocate IP 10.96.0.9: provided IP is already allocated"), kind: "Accepted", status: "False", reason: "AddressTaken",
			message: "address.ip: 10.96.0.9 belongs to another Service: choose another one, or omit it"},
		{name: "an address outside the range", edit: asksFor, see: clusterIPs("the provided network does not match the current range"), kind: "Ready", status: "False", reason: "AddressOutsidePool",
			message: `address.ip: 10.96.0.9 is not in the cluster's Service range: "Invalid value: [\"10.96.0.9\"]: the provided network does not match the current range": choose another one, or omit it`},
		{name: "somebody else's Service", see: func(w *env) {
			w.seen.Failed["sluice-data"] = fmt.Errorf("apply: %w", occupied("Service", "sluice-data"))
		}, kind: "Accepted", status: "False", reason: "AddressTaken",
			message: "Service storage/sluice-data exists, and the operator did not create it: delete it, or re-create the export under another name"},
		{name: "somebody else's Deployment", see: func(w *env) { w.seen.Pods, w.seen.Blocked["fast"] = nil, occupied("Deployment", "fast") }, kind: "Ready", status: "False", reason: "NameTaken",
			message: "Deployment storage/fast exists, and the operator did not create it: delete it, or re-create the NFSGateway under another name; and 1 more"},
		{name: "a StatefulSet that is refused", see: func(w *env) { w.seen.Pods, w.seen.Blocked["fast"] = nil, refused("StatefulSet", "fast") }, kind: "Ready", status: "False", reason: "ObjectRefused",
			message: `the API server refuses StatefulSet storage/fast: "exceeded quota: sets": change the quota, policy, webhook or field named there; and 1 more`},
		{name: "a ConfigMap that is refused, while an older one is applied", see: func(w *env) {
			w.at(0).Hash, w.at(1).Hash, w.seen.Blocked["fast"] = "0123456789abcdef", "0123456789abcdef", refused("ConfigMap", "fast-1")
		}, kind: "Programmed", status: "False", reason: "ObjectRefused",
			message: `the API server refuses ConfigMap storage/fast-1: "exceeded quota: sets": change the quota, policy, webhook or field named there; and 2 more`},
		{name: "a Service that is refused", see: func(w *env) { w.seen.Failed["sluice-data"] = refused("Service", "sluice-data") }, kind: "Ready", status: "False", reason: "AddressPending",
			message: `the API server refuses Service storage/sluice-data: "exceeded quota: sets": change the quota, policy, webhook or field named there`},
		{name: "not accepted", edit: func(_ *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) { x.Namespace = "elsewhere" }, kind: "Ready", status: "False", reason: "NamespaceNotAllowed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newEnv(c.virtual, c.edit)
			if c.see != nil {
				c.see(w)
			}
			got := Export(&w.plan, &w.plan.Exports[0], &w.seen)
			check(t, got.Conditions, c.kind, c.status, c.reason, c.message)
		})
	}
}

const lostClaim = "pod fast-0 is on node n2, which does not answer, and may still use the volume there: check that the node is off, " +
	"then run kubectl taint nodes n2 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute to move the pod"

func claimed(_ *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
	x.Spec.Backend = v1alpha1.Backend{PersistentVolumeClaim: &v1alpha1.Claim{ClaimName: "disk"}}
}

// lost leaves one pod, on a node that answers nobody.
func lost(w *env) {
	w.alone(w.seen.Pods[0].Pod.Status)
	p := &w.seen.Pods[0]
	p.Error, p.Spec.NodeName = "no route to host", "n2"
	w.seen.Nodes = []corev1.Node{
		{ObjectMeta: metav1.ObjectMeta{Name: "n1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "n2"}, Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}}},
	}
}

// evicted adds a pod that its node ended: a Deployment makes another one, and leaves it for people
// to look at.
func evicted(w *env) {
	p := w.pod("fast-2")
	p.Status, p.Pod.Status = nil, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "Evicted", Message: "low on memory"}
	w.seen.Pods = append(w.seen.Pods, p)
}

func readRead(_ *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
	x.Spec.Transport.RFC5666 = []v1alpha1.RFC5666Form{"Padding", "ReadRead"}
}

func onVerbs(g *v1alpha1.NFSGateway, _ *v1alpha1.NFSExport) { g.Spec.Provider = v1alpha1.Verbs }

// carried has the second pod carry the address, with a problem.
func carried(p api.Problem) func(*env) {
	return func(w *env) {
		w.seen.Pods[0].Speaker = &api.Status{}
		w.seen.Pods[1].Speaker = &api.Status{
			Groups:   []api.GroupStatus{{Addresses: []api.AddressStatus{{Address: netip.MustParseAddr(vip), State: "Carried"}}}},
			Problems: []api.Problem{p},
		}
	}
}

func asksFor(_ *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) { x.Spec.Address.IP = "10.96.0.9" }

// clusterIPs has the API server refuse a Service for its address.
func clusterIPs(words string) func(*env) {
	return func(w *env) {
		w.seen.Failed["sluice-data"] = fmt.Errorf("apply: %w", apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), "sluice-data", field.ErrorList{
			field.Invalid(field.NewPath("spec", "clusterIPs"), []string{"10.96.0.9"}, words),
		}))
	}
}

func occupied(kind, name string) *NameConflict {
	return &NameConflict{Kind: kind, Name: types.NamespacedName{Namespace: "storage", Name: name}}
}

func refused(kind, name string) *Refused {
	return &Refused{Kind: kind, Name: types.NamespacedName{Namespace: "storage", Name: name}, Err: errors.New("exceeded quota:\nsets")}
}

func clients(addresses ...string) func(*env) {
	return func(w *env) {
		w.seen.Nodes = []corev1.Node{{
			Spec:   corev1.NodeSpec{PodCIDRs: []string{"10.244.1.0/24"}},
			Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.9.0.1"}, {Type: corev1.NodeHostName, Address: "node"}}},
		}}
		for i, a := range addresses {
			e := w.at(i % 2)
			e.Clients = append(e.Clients, status.Client{Network: config.TCP, Remote: netip.AddrPortFrom(netip.MustParseAddr(a), 700)})
		}
	}
}

// check compares one condition. The message is wanted without its anchor; an empty one is not
// compared.
func check(t *testing.T, all []metav1.Condition, kind string, want metav1.ConditionStatus, reason, message string) {
	t.Helper()
	c := meta.FindStatusCondition(all, kind)
	if c == nil {
		t.Fatalf("no condition %s in %+v", kind, all)
	}
	if c.Status != want || c.Reason != reason {
		t.Errorf("%s is %s, %s: %s; want %s, %s", kind, c.Status, c.Reason, c.Message, want, reason)
	}
	anchor := " (sluicectl explain " + reason + ")"
	if want == metav1.ConditionTrue {
		anchor = ""
	}
	got, ended := strings.CutSuffix(c.Message, anchor)
	if !ended {
		t.Errorf("%q does not end with %q", c.Message, anchor)
	}
	if message != "" && got != message {
		t.Errorf("got  %s\nwant %s", got, message)
	}
}

func TestNoGateway(t *testing.T) {
	w := newEnv(false, nil)
	w.x.Status.Backend = "nfs filer.example:/vol"
	check(t, NoGateway(w.x, false).Conditions, "Ready", "False", "GatewayNotFound", `gatewayRef: NFSGateway storage/fast is in namespace "storage", which the operator does not watch: `+
		"add it to --watch-namespaces (watchNamespaces of the chart), or re-create the export with another gatewayRef")
	s := NoGateway(w.x, true)
	check(t, s.Conditions, "Accepted", "False", "GatewayNotFound", "NFSGateway storage/fast does not exist: create it, or re-create the export with another gatewayRef")
	check(t, s.Conditions, "Ready", "False", "GatewayNotFound", "")
	if s.Backend != w.x.Status.Backend || s.Address != "" {
		t.Errorf("%+v", s)
	}
}

func TestExportStatus(t *testing.T) {
	w := newEnv(true, nil)
	clients("10.9.0.1", "10.9.0.2", "10.9.0.3")(w)
	w.at(1).Backend.Versions = []string{"3"}
	w.seen.Pods[1].Speaker = &api.Status{Groups: []api.GroupStatus{{Addresses: []api.AddressStatus{{Address: netip.MustParseAddr(vip), State: "Carried"}}}}}
	s := Export(&w.plan, &w.plan.Exports[0], &w.seen)
	if s.Address != vip || s.AddressHolder != "fast-1" || s.Clients != 3 || s.ConfigHash != w.plan.Exports[0].Hash || len(s.NFSVersions) != 1 {
		t.Errorf("%+v", s)
	}
	if want := "mount -t nfs -o vers=3,proto=rdma,port=20049,mountproto=tcp,mountport=2049,nolock 192.0.2.10:/ /mnt"; s.Mount != want {
		t.Errorf("got  %s\nwant %s", s.Mount, want)
	}
	if want := "mount -t nfs -o vers=3,proto=tcp,port=2049,mountproto=tcp,mountport=2049,nolock 10.96.0.12:/ /mnt"; s.MountTCP != want {
		t.Errorf("got  %s\nwant %s", s.MountTCP, want)
	}
	check(t, s.Conditions, "Ready", "True", "Ready", s.Mount)
	w.at(0).Hash = "0123456789abcdef"
	if s := Export(&w.plan, &w.plan.Exports[0], &w.seen); s.ConfigHash != "" {
		t.Errorf("hash %s, though the pods differ", s.ConfigHash)
	}
}

func TestMountLine(t *testing.T) {
	for _, c := range []struct {
		network, address string
		versions         []string
		want             string
	}{
		{"rdma", "10.96.0.12", []string{"3", "4.0", "4.1"}, "mount -t nfs -o vers=4.1,proto=rdma,port=20049 10.96.0.12:/ /mnt"},
		{"rdma", "fd00::12", []string{"4.2", "3"}, "mount -t nfs -o vers=4.2,proto=rdma6,port=20049 [fd00::12]:/ /mnt"},
		{"tcp", "fd00::12", []string{"3"}, "mount -t nfs -o vers=3,proto=tcp6,port=20049,mountproto=tcp6,mountport=2049,nolock [fd00::12]:/ /mnt"},
		{"tcp", "lb.example", []string{"4.1"}, "mount -t nfs -o vers=4.1,proto=tcp,port=20049 lb.example:/ /mnt"},
		{"rdma", "", []string{"4.1"}, ""},
		{"rdma", "10.96.0.12", nil, ""},
	} {
		if got := mountLine(c.network, c.address, 20049, 2049, c.versions); got != c.want {
			t.Errorf("%s %s %v:\ngot  %s\nwant %s", c.network, c.address, c.versions, got, c.want)
		}
	}
}

func TestLoadBalancerAddress(t *testing.T) {
	w := newEnv(false, nil)
	x := &w.plan.Exports[0]
	svc := w.seen.Services[x.Service]
	svc.Spec.Type = corev1.ServiceTypeLoadBalancer
	for _, c := range []struct {
		ingress []corev1.LoadBalancerIngress
		want    string
	}{{nil, ""}, {[]corev1.LoadBalancerIngress{{IP: "198.51.100.1"}}, "198.51.100.1"}, {[]corev1.LoadBalancerIngress{{Hostname: "lb.example"}}, "lb.example"}} {
		svc.Status.LoadBalancer.Ingress = c.ingress
		if got := Export(&w.plan, x, &w.seen).Address; got != c.want {
			t.Errorf("%+v: %q, want %q", c.ingress, got, c.want)
		}
	}
}

func TestGateway(t *testing.T) {
	for _, c := range []struct {
		name            string
		virtual         bool
		edit            func(*v1alpha1.NFSGateway, *v1alpha1.NFSExport)
		see             func(*env)
		kind            string
		status          metav1.ConditionStatus
		reason, message string
		pods            string
	}{
		{name: "well", kind: "Ready", status: "True", reason: "Ready", message: "exports can be mounted", pods: "2/2"},
		{name: "all run", kind: "Programmed", status: "True", reason: "Programmed", message: "all of 2 pods run", pods: "2/2"},
		{name: "served", kind: "RDMAReady", status: "True", reason: "Serving", message: "1 export served", pods: "2/2"},
		{name: "room", kind: "ConfigCapacity", status: "True", reason: "CapacitySufficient", message: "the ConfigMap of the pods has room for more exports", pods: "2/2"},
		{name: "readable memory", edit: readRead, kind: "RDMAReady", status: "True", reason: "MemoryReadable",
			message: "1 export served; export storage/data: served by 2 pods; transport.rfc5666 has ReadRead, so a client can read its replies in the pod's memory, and keep that memory in use for up to 30 s a reply: remove ReadRead if no old client needs it", pods: "2/2"},
		{name: "little room", see: func(w *env) { w.plan.Capacity.Used = 839_000 }, kind: "ConfigCapacity", status: "False", reason: "CapacityLow",
			message: "the configuration of the pods takes more than 80 % of the 1 MiB of a ConfigMap: create another NFSGateway for further exports, or shorten access rules", pods: "2/2"},
		{name: "no room", see: func(w *env) { w.plan.Capacity.Refused = 1 }, kind: "ConfigCapacity", status: "False", reason: "CapacityExhausted",
			message: "the configuration of the pods fills its ConfigMap: create another NFSGateway for new exports, or shorten access rules", pods: "2/2"},
		{name: "no room, and ready", see: func(w *env) { w.plan.Capacity.Refused = 1 }, kind: "Ready", status: "True", reason: "Ready", message: "exports can be mounted", pods: "2/2"},
		{name: "one is missing", see: func(w *env) { w.seen.Pods = w.seen.Pods[:1] }, kind: "Programmed", status: "False", reason: "PodsPending",
			message: "1 of 2 pods of fast are not created yet", pods: "1/2"},
		{name: "one is enough", see: func(w *env) { w.seen.Pods = w.seen.Pods[:1] }, kind: "Ready", status: "True", reason: "Ready", message: "exports can be mounted", pods: "1/2"},
		{name: "a failed pod that was replaced", see: evicted, kind: "Programmed", status: "True", reason: "Programmed", message: "all of 2 pods run", pods: "2/2"},
		{name: "another template", see: func(w *env) { w.seen.Updated = map[string]int32{"fast": 1} }, kind: "Programmed", status: "False", reason: "Applying",
			message: "pods of fast are being replaced: 1 of 2 done", pods: "2/2"},
		{name: "none", see: func(w *env) { w.seen.Pods = nil }, kind: "Ready", status: "False", reason: "PodsPending", message: "2 of 2 pods of fast are not created yet", pods: "0/2"},
		{name: "without exports", see: func(w *env) { w.plan.Exports, w.seen.Pods[0].Status.Exports = nil, nil }, kind: "Ready", status: "True", reason: "Ready", message: "no NFSExport refers to it yet", pods: "2/2"},
		{name: "nothing to serve", see: func(w *env) { w.plan.Exports = nil }, kind: "RDMAReady", status: "Unknown", reason: "Unknown", message: "no NFSExport refers to it yet", pods: "2/2"},
		{name: "exports of elsewhere", edit: func(_ *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) { x.Namespace = "elsewhere" }, see: func(w *env) {
			for i := range w.seen.Pods {
				w.seen.Pods[i].Status = &status.Status{Ready: true}
			}
		}, kind: "Ready", status: "True", reason: "Ready", message: "none of its 1 NFSExports can be served: check their conditions", pods: "2/2"},
		{name: "none serves", see: func(w *env) { w.seen.Pods = nil }, kind: "RDMAReady", status: "Unknown", reason: "Unknown", message: "no export is served yet", pods: "0/2"},
		{name: "replicas 0", edit: replicas(0), see: func(w *env) { w.seen.Pods = nil }, kind: "Ready", status: "False", reason: "NoReplicas",
			message: "no pod serves, because spec.replicas of the NFSGateway is 0: set it to 1 or more", pods: "0/0"},
		{name: "an address that nobody carries", virtual: true, kind: "Ready", status: "False", reason: "AddressNotHeld",
			message: "export storage/data: no pod is known to carry 192.0.2.10: the speaker of pod fast-1 does not answer on port 9181 (sluicectl explain AddressNotHeld)", pods: "2/2"},
		{name: "somebody else's Deployment", see: func(w *env) { w.seen.Pods, w.seen.Blocked["fast"] = nil, occupied("Deployment", "fast") }, kind: "Ready", status: "False", reason: "NameTaken",
			message: "Deployment storage/fast exists, and the operator did not create it: delete it, or re-create the NFSGateway under another name; and 1 more", pods: "0/2"},
		{name: "somebody else's NetworkPolicy", see: func(w *env) { w.seen.Blocked[""] = occupied("NetworkPolicy", "fast") }, kind: "Programmed", status: "False", reason: "NameTaken",
			message: "NetworkPolicy storage/fast exists, and the operator did not create it: delete it, or re-create the NFSGateway under another name", pods: "2/2"},
		{name: "a NetworkPolicy that is refused", see: func(w *env) { w.seen.Blocked[""] = refused("NetworkPolicy", "fast") }, kind: "Programmed", status: "False", reason: "ObjectRefused",
			message: `the API server refuses NetworkPolicy storage/fast: "exceeded quota: sets": change the quota, policy, webhook or field named there`, pods: "2/2"},
		{name: "a bad pool", virtual: true, edit: func(g *v1alpha1.NFSGateway, _ *v1alpha1.NFSExport) {
			g.Spec.Exposure.VirtualIP.Pool = []string{"192.0.2.9-192.0.2.1"}
		},
			kind: "Ready", status: "False", reason: "PoolInvalid", pods: "0/2"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newEnv(c.virtual, c.edit)
			if c.see != nil {
				c.see(w)
			}
			s := Gateway(&w.plan, &w.seen)
			check(t, s.Conditions, c.kind, c.status, c.reason, strings.TrimSuffix(c.message, " (sluicectl explain AddressNotHeld)"))
			if s.Pods != c.pods || s.Replicas != running(w.seen.Pods) || s.HandleKeysSecret != "fast-handle-keys" || s.Selector != "sluice.dev/gateway=fast,sluice.dev/workload=fast" {
				t.Errorf("%+v", s)
			}
		})
	}
}

// running counts pods that have not failed.
func running(pods []Pod) (n int32) {
	for i := range pods {
		if pods[i].Pod.Status.Phase != corev1.PodFailed {
			n++
		}
	}
	return n
}
