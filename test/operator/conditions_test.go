//go:build operator

package operator

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

const (
	yes     = metav1.ConditionTrue
	no      = metav1.ConditionFalse
	unknown = metav1.ConditionUnknown
)

// TestWholeCluster: exports of other namespaces need the gateway's consent, which follows the
// labels of namespaces; nodes give access rules their addresses.
func TestWholeCluster(t *testing.T) {
	home, away := newNamespace(t), newNamespace(t)
	kubelets := startNodes(t, home)
	start(t, "", false, nil)
	ctx := t.Context()
	gw, x := newGateway(home, "fast"), newExport(away, "data", "fast")
	gw.Spec.AllowedExports.Namespaces = v1alpha1.AllowedNamespaces{From: v1alpha1.NamespacesSelector, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}
	gw.Spec.AllowedBackends = []v1alpha1.AllowedBackend{{Servers: []string{"127.0.0.1"}}}
	x.Spec.GatewayRef.Namespace = home
	x.Spec.Access[0].From = v1alpha1.AccessFrom{Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"rack": away}}}
	must(t, kube.Create(ctx, x))
	eventually(t, "there is no gateway", condition(x, v1alpha1.ConditionAccepted, no, v1alpha1.ReasonGatewayNotFound))
	must(t, kube.Create(ctx, gw))
	eventually(t, "the namespace is not allowed", condition(x, v1alpha1.ConditionAccepted, no, v1alpha1.ReasonNamespaceNotAllowed))

	for _, name := range []string{home, away} {
		var ns corev1.Namespace
		must(t, kube.Get(ctx, client.ObjectKey{Name: name}, &ns))
		ns.Labels["team"] = "a"
		must(t, kube.Update(ctx, &ns))
	}
	eventually(t, "no node has the labels", condition(x, v1alpha1.ConditionResolvedRefs, no, v1alpha1.ReasonNoSuchNodes))

	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + away, Labels: map[string]string{"rack": away}}}
	must(t, kube.Create(ctx, node))
	t.Cleanup(func() { _ = kube.Delete(context.Background(), node) })
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	must(t, kube.Status().Update(ctx, node))
	eventually(t, "the export is ready", isReady(x))

	eventually(t, "no client is connected", condition(x, v1alpha1.ConditionClientAddressesVisible, unknown, v1alpha1.ReasonNoClients))
	var pods corev1.PodList
	must(t, kube.List(ctx, &pods, client.InNamespace(home)))
	c, err := net.Dial("tcp", net.JoinHostPort(pods.Items[0].Status.PodIP, fmt.Sprint(plan.FirstPort+1)))
	must(t, err)
	defer c.Close() //nolint:errcheck // the test ends
	eventually(t, "its address is a node's", condition(x, v1alpha1.ConditionClientAddressesVisible, no, v1alpha1.ReasonNodesOnly))

	claimed := newExport(away, "claimed", "fast")
	claimed.Spec.GatewayRef.Namespace = home
	claimed.Spec.Backend = v1alpha1.Backend{PersistentVolumeClaim: &v1alpha1.Claim{ClaimName: "disk"}}
	must(t, kube.Create(ctx, claimed))
	eventually(t, "the claim would be another namespace's", condition(claimed, v1alpha1.ConditionAccepted, no, v1alpha1.ReasonClaimElsewhere))

	mine := newExport(home, "mine", "fast")
	mine.Spec.Backend = claimed.Spec.Backend
	must(t, kube.Create(ctx, newClaim(home, "disk")))
	must(t, kube.Create(ctx, mine))
	eventually(t, "the claim's export is ready", isReady(mine))
	must(t, kube.List(ctx, &pods, client.InNamespace(home), client.MatchingLabels{plan.LabelExport: "mine"}))
	bound := &pods.Items[0]
	must(t, kube.SubResource("binding").Create(ctx, bound, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}))
	kubelets.lose(t, bound.Name)
	must(t, kube.Get(ctx, client.ObjectKeyFromObject(node), node))
	node.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnreachable, Effect: corev1.TaintEffectNoExecute}}
	must(t, kube.Update(ctx, node))
	eventually(t, "the node of the claim's pod is lost", condition(mine, v1alpha1.ConditionReady, no, v1alpha1.ReasonNodeLost))
	if m, want := find(mine, v1alpha1.ConditionReady).Message, "kubectl taint nodes "+node.Name+" node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"; !strings.Contains(m, want) {
		t.Errorf("message %q, want %q in it", m, want)
	}
	must(t, kube.Delete(ctx, mine))

	must(t, kube.Delete(ctx, x))
	eventually(t, "the Service in the gateway's namespace is gone", func() error {
		var services corev1.ServiceList
		must(t, kube.List(ctx, &services, client.InNamespace(home)))
		if len(services.Items) > 0 {
			return fmt.Errorf("%d Services", len(services.Items))
		}
		return nil
	})
}

// conditionCase leads to a condition of an export, or of its gateway.
type conditionCase struct {
	name    string
	pods    bool // real ones
	change  func(t *testing.T, n *nodes, gw *v1alpha1.NFSGateway, x *v1alpha1.NFSExport)
	before  func(t *testing.T, ns string)
	after   func(t *testing.T, n *nodes, ns string)
	gateway bool // the condition is the gateway's
	kind    string
	status  metav1.ConditionStatus
	reason  string
	words   string // in the message
}

func (c conditionCase) run(t *testing.T) {
	t.Parallel()
	ns := newNamespace(t)
	var n *nodes
	if c.pods {
		n = startNodes(t, ns)
	}
	gw, x := newGateway(ns, "fast"), newExport(ns, "data", "fast")
	if c.change != nil {
		c.change(t, n, gw, x)
	}
	if c.before != nil {
		c.before(t, ns)
	}
	start(t, ns, false, nil)
	must(t, kube.Create(t.Context(), gw))
	must(t, kube.Create(t.Context(), x))
	if c.after != nil {
		c.after(t, n, ns)
	}
	var o client.Object = x
	if c.gateway {
		o = gw
	}
	eventually(t, c.reason, condition(o, c.kind, c.status, c.reason))
	m := find(o, c.kind).Message
	anchored := strings.HasSuffix(m, "(sluicectl explain "+c.reason+")")
	if !strings.Contains(m, c.words) || anchored != (c.status != yes) {
		t.Errorf("message %q, want %q in it and the anchor at its end", m, c.words)
	}
}

// podStatus makes a pod of the gateway's by hand, in a state.
func podStatus(t *testing.T, ns string, s corev1.PodStatus) {
	t.Helper()
	var d appsv1.Deployment
	eventually(t, "the Deployment is there", func() error { return kube.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "fast"}, &d) })
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "fast-x", Namespace: ns, Labels: d.Spec.Template.Labels}, Spec: d.Spec.Template.Spec}
	must(t, kube.Create(t.Context(), pod))
	pod.Status = s
	must(t, kube.Status().Update(t.Context(), pod))
}

// TestConditions has one case for each condition that the state of exports and pods in a live
// cluster leads to.
func TestConditions(t *testing.T) {
	t.Parallel()
	backendOf := func(server string, port int32, path string) v1alpha1.Backend {
		return v1alpha1.Backend{NFS: &v1alpha1.NFSServer{Server: server, Port: port, MountPort: port, Path: path}}
	}
	waiting := func(reason, message string) corev1.PodStatus {
		return corev1.PodStatus{Phase: corev1.PodPending, ContainerStatuses: []corev1.ContainerStatus{{
			Name: "gateway", Image: "registry.example/gateway:1", State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}},
		}}}
	}
	readyPod := []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	for _, c := range []conditionCase{
		{name: "a claim that is missing", kind: v1alpha1.ConditionResolvedRefs, status: no, reason: v1alpha1.ReasonClaimNotFound, words: `"disk"`,
			change: func(_ *testing.T, _ *nodes, _ *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
				x.Spec.Backend = v1alpha1.Backend{PersistentVolumeClaim: &v1alpha1.Claim{ClaimName: "disk"}}
			}},
		{name: "a backend that is away", pods: true, kind: v1alpha1.ConditionBackendReachable, status: no, reason: v1alpha1.ReasonUnreachable, words: "does not answer pod fast-",
			change: func(_ *testing.T, _ *nodes, _ *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
				x.Spec.Backend = backendOf("127.0.0.1", 1, "/")
			}},
		{name: "a backend that refuses", pods: true, kind: v1alpha1.ConditionBackendReachable, status: no, reason: v1alpha1.ReasonBackendRefuses, words: " at 127.0.0.1:",
			change: func(_ *testing.T, _ *nodes, _ *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
				x.Spec.Backend = backendOf("127.0.0.1", int32(backend.port), "/nowhere")
			}},
		{name: "no pods wanted", kind: v1alpha1.ConditionProgrammed, status: no, reason: v1alpha1.ReasonNoReplicas, words: "spec.replicas",
			change: func(_ *testing.T, _ *nodes, gw *v1alpha1.NFSGateway, _ *v1alpha1.NFSExport) {
				gw.Spec.Replicas = new(int32(0))
			}},
		{name: "no pods yet", kind: v1alpha1.ConditionReady, status: no, reason: v1alpha1.ReasonPodsPending, words: "2 of 2 pods"},
		{name: "refused by admission", kind: v1alpha1.ConditionProgrammed, status: no, reason: v1alpha1.ReasonPodsRefused, words: `violates PodSecurity`,
			after: func(t *testing.T, _ *nodes, ns string) {
				var d appsv1.Deployment
				eventually(t, "the Deployment is there", func() error { return kube.Get(t.Context(), client.ObjectKey{Namespace: ns, Name: "fast"}, &d) })
				d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Reason: "FailedCreate", Message: `pods "fast-x" is forbidden: violates PodSecurity`}}
				must(t, kube.Status().Update(t.Context(), &d))
			}},
		{name: "a claim's pod refused by admission", kind: v1alpha1.ConditionProgrammed, status: no, reason: v1alpha1.ReasonPodsRefused, words: `exceeded quota`,
			change: func(_ *testing.T, _ *nodes, _ *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
				x.Spec.Backend = v1alpha1.Backend{PersistentVolumeClaim: &v1alpha1.Claim{ClaimName: "disk"}}
			},
			after: func(t *testing.T, _ *nodes, ns string) {
				must(t, kube.Create(t.Context(), newClaim(ns, "disk")))
				var sets appsv1.StatefulSetList
				eventually(t, "the StatefulSet is there", func() error {
					must(t, kube.List(t.Context(), &sets, client.InNamespace(ns)))
					if len(sets.Items) == 0 {
						return errors.New("it is not")
					}
					return nil
				})
				s := &sets.Items[0]
				must(t, kube.Create(t.Context(), &corev1.Event{
					ObjectMeta:     metav1.ObjectMeta{GenerateName: "refused-", Namespace: ns},
					InvolvedObject: corev1.ObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Namespace: ns, Name: s.Name, UID: s.UID},
					Reason:         "FailedCreate", Message: "exceeded quota", LastTimestamp: metav1.Now(),
				}))
				s.Status.ObservedGeneration = s.Generation
				must(t, kube.Status().Update(t.Context(), s))
			}},
		{name: "refused by the node", kind: v1alpha1.ConditionProgrammed, status: no, reason: v1alpha1.ReasonPodsRefused, words: "UnexpectedAdmissionError",
			after: func(t *testing.T, _ *nodes, ns string) {
				podStatus(t, ns, corev1.PodStatus{Phase: corev1.PodFailed, Reason: "UnexpectedAdmissionError", Message: "Allocate failed"})
			}},
		{name: "no image", kind: v1alpha1.ConditionProgrammed, status: no, reason: v1alpha1.ReasonImageNotPulled, words: "registry.example/gateway:1",
			after: func(t *testing.T, _ *nodes, ns string) { podStatus(t, ns, waiting("ImagePullBackOff", "not found")) }},
		{name: "crashing", kind: v1alpha1.ConditionProgrammed, status: no, reason: v1alpha1.ReasonPodsCrashing, words: "crashes: ",
			after: func(t *testing.T, _ *nodes, ns string) { podStatus(t, ns, waiting("CrashLoopBackOff", "back-off")) }},
		{name: "silent", kind: v1alpha1.ConditionProgrammed, status: no, reason: v1alpha1.ReasonPodsUnreachable, words: "/status",
			after: func(t *testing.T, _ *nodes, ns string) {
				podStatus(t, ns, corev1.PodStatus{Phase: corev1.PodRunning, PodIP: "127.250.0.1", PodIPs: []corev1.PodIP{{IP: "127.250.0.1"}}, Conditions: readyPod})
			}},
		{name: "a listener that fails", pods: true, kind: v1alpha1.ConditionRDMAReady, status: no, reason: v1alpha1.ReasonListenerFailed, words: "cannot listen on :21000",
			change: func(t *testing.T, n *nodes, gw *v1alpha1.NFSGateway, _ *v1alpha1.NFSExport) {
				gw.Spec.Replicas = new(int32(1))
				// the first pod's address and port
				l, err := net.Listen("tcp", fmt.Sprintf("127.%d.0.2:%d", n.subnet, plan.FirstPort))
				must(t, err)
				t.Cleanup(func() { _ = l.Close() })
			}},
	} {
		t.Run(c.name, c.run)
	}
}
