//go:build operator

package operator

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/speaker/api"
	"sluice.dev/sluice/test/apiserver"
)

// TestReasons leads to the reasons that no other test meets.
func TestReasons(t *testing.T) {
	t.Parallel()
	onClaim := func(_ *testing.T, _ *nodes, _ *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
		x.Spec.Backend = v1alpha1.Backend{PersistentVolumeClaim: &v1alpha1.Claim{ClaimName: "disk"}}
	}
	virtual := func(_ *testing.T, _ *nodes, gw *v1alpha1.NFSGateway, _ *v1alpha1.NFSExport) {
		gw.Spec.Exposure = v1alpha1.Exposure{Type: v1alpha1.ExposureVirtualIP, VirtualIP: &v1alpha1.VirtualIP{Pool: []string{"192.0.2.10"}, Network: "rdma-net"}}
		gw.Spec.RDMA = &v1alpha1.RDMA{Networks: []v1alpha1.Network{{Name: "rdma-net"}}}
		gw.Spec.Replicas = new(int32(1))
	}
	speaking := func(p api.Problem) func(*testing.T, *nodes, *v1alpha1.NFSGateway, *v1alpha1.NFSExport) {
		return func(t *testing.T, n *nodes, gw *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
			virtual(t, n, gw, x)
			n.speakers.Store(&api.Status{Problems: []api.Problem{p}})
		}
	}
	// older makes an export before the others.
	older := func(backend v1alpha1.Backend) func(*testing.T, string) {
		return func(t *testing.T, ns string) {
			x := newExport(ns, "a", "fast")
			if backend.PersistentVolumeClaim != nil {
				x.Spec.Backend = backend
			}
			must(t, kube.Create(t.Context(), x))
		}
	}
	keys := func(t *testing.T, _ *nodes, gw *v1alpha1.NFSGateway, _ *v1alpha1.NFSExport) {
		gw.Spec.HandleKeys.SecretName = "mine"
	}
	// edit changes the export when it is served.
	edit := func(t *testing.T, ns string) {
		x := newExport(ns, "data", "fast")
		eventually(t, "the export is ready", isReady(x))
		eventually(t, "the export is changed", func() error { // its status may be written meanwhile
			must(t, kube.Get(t.Context(), client.ObjectKeyFromObject(x), x))
			x.Spec.Transport.Credits.Max = 64
			return kube.Update(t.Context(), x)
		})
	}
	for _, c := range []conditionCase{
		{name: "a backend that is not allowed", kind: v1alpha1.ConditionAccepted, status: no, reason: v1alpha1.ReasonBackendNotAllowed, words: "does not allow backend 127.0.0.1:/",
			change: func(_ *testing.T, _ *nodes, gw *v1alpha1.NFSGateway, _ *v1alpha1.NFSExport) {
				gw.Spec.AllowedBackends = []v1alpha1.AllowedBackend{{Servers: []string{"filer.example"}}}
			}},
		{name: "one export too many", kind: v1alpha1.ConditionAccepted, status: no, reason: v1alpha1.ReasonTooManyExports, words: "serves 1 older exports",
			before: older(v1alpha1.Backend{}), change: func(_ *testing.T, _ *nodes, gw *v1alpha1.NFSGateway, _ *v1alpha1.NFSExport) {
				gw.Spec.Limits.Exports = 1
			}},
		{name: "an identity of handles twice", kind: v1alpha1.ConditionAccepted, status: no, reason: v1alpha1.ReasonHandleIdentityTaken, words: "shared-identity",
			before: func(t *testing.T, ns string) {
				x := newExport(ns, "a", "fast")
				x.Spec.HandleIdentity = "shared-identity"
				must(t, kube.Create(t.Context(), x))
			},
			change: func(_ *testing.T, _ *nodes, _ *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
				x.Spec.HandleIdentity = "shared-identity"
			}},
		{name: "room for the configuration", gateway: true, kind: v1alpha1.ConditionConfigCapacity, status: yes, reason: v1alpha1.ReasonCapacitySufficient, words: "has room"},
		{name: "a claim in use", kind: v1alpha1.ConditionAccepted, status: no, reason: v1alpha1.ReasonClaimInUse, words: `of claim "disk"`, change: onClaim,
			before: older(v1alpha1.Backend{PersistentVolumeClaim: &v1alpha1.Claim{ClaimName: "disk", SubPath: "a"}})},
		{name: "a claim that is lost", kind: v1alpha1.ConditionResolvedRefs, status: no, reason: v1alpha1.ReasonClaimLost, words: `"disk"`, change: onClaim,
			before: func(t *testing.T, ns string) {
				claim := newClaim(ns, "disk")
				must(t, kube.Create(t.Context(), claim))
				claim.Status.Phase = corev1.ClaimLost
				must(t, kube.Status().Update(t.Context(), claim))
			}},
		{name: "no address left", kind: v1alpha1.ConditionAccepted, status: no, reason: v1alpha1.ReasonNoFreeAddress, words: "exposure.virtualIP.pool", change: virtual, before: older(v1alpha1.Backend{})},
		{name: "a port of the pods", kind: v1alpha1.ConditionAccepted, status: no, reason: v1alpha1.ReasonInvalid, words: "address.rdmaPort: 21001",
			change: func(t *testing.T, n *nodes, gw *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
				virtual(t, n, gw, x)
				x.Spec.Address.RDMAPort = 21001
			}},
		{name: "a pool that ends before it begins", gateway: true, kind: v1alpha1.ConditionAccepted, status: no, reason: v1alpha1.ReasonPoolInvalid, words: "want 192.0.2.3-192.0.2.9",
			change: func(t *testing.T, n *nodes, gw *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
				virtual(t, n, gw, x)
				gw.Spec.Exposure.VirtualIP.Pool = []string{"192.0.2.9-192.0.2.3"}
			}},
		{name: "no Secret", gateway: true, kind: v1alpha1.ConditionResolvedRefs, status: no, reason: v1alpha1.ReasonSecretNotFound, words: `Secret "mine"`, change: keys},
		{name: "a Secret without keys", gateway: true, kind: v1alpha1.ConditionResolvedRefs, status: no, reason: v1alpha1.ReasonSecretInvalid, words: `Secret "mine"`, change: keys,
			before: func(t *testing.T, ns string) {
				must(t, kube.Create(t.Context(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "mine"}}))
			}},
		{name: "no provisioner", kind: v1alpha1.ConditionResolvedRefs, status: no, reason: v1alpha1.ReasonNoProvisioner, words: "access[0].from.provisioner",
			change: func(_ *testing.T, _ *nodes, _ *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
				x.Spec.Access[0].From.Provisioner = true
			}},
		{name: "no node with the device", kind: v1alpha1.ConditionProgrammed, status: no, reason: v1alpha1.ReasonNoNodeOffersResource, words: "waits for resource example.com/vf",
			change: func(_ *testing.T, _ *nodes, gw *v1alpha1.NFSGateway, _ *v1alpha1.NFSExport) {
				gw.Spec.RDMA = &v1alpha1.RDMA{Devices: []v1alpha1.Device{{ResourceName: "example.com/vf"}}}
			},
			after: func(t *testing.T, _ *nodes, ns string) {
				podStatus(t, ns, corev1.PodStatus{Phase: corev1.PodPending, Conditions: []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Message: "Insufficient example.com/vf"}}})
			}},
		{name: "a kubelet that is slow", pods: true, kind: v1alpha1.ConditionProgrammed, status: no, reason: v1alpha1.ReasonApplying, words: "has not applied it yet",
			after: func(t *testing.T, n *nodes, ns string) {
				eventually(t, "the export is ready", isReady(newExport(ns, "data", "fast")))
				n.held.Store(true)
				edit(t, ns)
			}},
		{name: "a file that pods refuse", pods: true, kind: v1alpha1.ConditionProgrammed, status: no, reason: v1alpha1.ReasonNotApplied, words: "refuses its configuration",
			after: func(t *testing.T, n *nodes, ns string) {
				eventually(t, "the export is ready", isReady(newExport(ns, "data", "fast")))
				n.spoiled.Store(true)
				edit(t, ns)
			}},
		{name: "nobody has asked", kind: v1alpha1.ConditionBackendReachable, status: unknown, reason: v1alpha1.ReasonUnknown, words: "no pod has asked"},
		{name: "a backend that answers", pods: true, kind: v1alpha1.ConditionBackendReachable, status: yes, reason: v1alpha1.ReasonReachable, words: "127.0.0.1:/ answers "},
		{name: "served", pods: true, kind: v1alpha1.ConditionRDMAReady, status: yes, reason: v1alpha1.ReasonServing, words: "served by "},
		{name: "a client's own address", pods: true, kind: v1alpha1.ConditionClientAddressesVisible, status: yes, reason: v1alpha1.ReasonVisible, words: "addresses other than",
			after: func(t *testing.T, _ *nodes, ns string) {
				eventually(t, "the export is ready", isReady(newExport(ns, "data", "fast")))
				var pods corev1.PodList
				must(t, kube.List(t.Context(), &pods, client.InNamespace(ns)))
				c, err := net.Dial("tcp", net.JoinHostPort(pods.Items[0].Status.PodIP, fmt.Sprint(plan.FirstPort+1)))
				must(t, err)
				t.Cleanup(func() { _ = c.Close() })
			}},
		{name: "a load balancer that gives no address", pods: true, kind: v1alpha1.ConditionReady, status: no, reason: v1alpha1.ReasonAddressPending, words: "has no address yet",
			change: func(_ *testing.T, _ *nodes, gw *v1alpha1.NFSGateway, _ *v1alpha1.NFSExport) {
				gw.Spec.Exposure.Service.Type = corev1.ServiceTypeLoadBalancer
			}},
		{name: "a network without Ethernet", pods: true, kind: v1alpha1.ConditionRDMAReady, status: no, reason: v1alpha1.ReasonNetworkNotLayer2, words: "rdma0 is an ipvlan",
			change: speaking(api.Problem{Reason: api.NetworkNotLayer2, Message: "rdma0 is an ipvlan"})},
		{name: "a full adapter", pods: true, kind: v1alpha1.ConditionRDMAReady, status: no, reason: v1alpha1.ReasonDeviceAddressLimit, words: "its table is full",
			change: speaking(api.Problem{Reason: api.DeviceAddressLimit, Address: "192.0.2.10", Message: "its table is full"})},
		{name: "readable memory", pods: true, kind: v1alpha1.ConditionRDMAReady, status: metav1.ConditionTrue, reason: v1alpha1.ReasonMemoryReadable, words: "has ReadRead",
			change: func(_ *testing.T, _ *nodes, _ *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
				x.Spec.Transport.RFC5666 = []v1alpha1.RFC5666Form{"ReadRead"}
			}},
		{name: "no device in the pod", pods: true, kind: v1alpha1.ConditionRDMAReady, status: no, reason: v1alpha1.ReasonDeviceMissing, words: "pod fast-0: ",
			change: func(t *testing.T, n *nodes, gw *v1alpha1.NFSGateway, x *v1alpha1.NFSExport) {
				virtual(t, n, gw, x)
				gw.Spec.Provider = v1alpha1.Verbs
				gw.Spec.RDMA.Devices = []v1alpha1.Device{{ResourceName: "example.com/vf"}}
			}},
	} {
		t.Run(c.name, c.run)
	}
}

// TestEveryReasonIsMet checks that a test here expects each reason of the API.
func TestEveryReasonIsMet(t *testing.T) {
	elsewhere := map[string]string{
		"ReasonNoFreePort":      "1500 exports take all ports",
		"ReasonDeviceNotUsable": "it takes a device, which test/verbs has",
		"ReasonGIDMissing":      "it takes an address of the pod's own, which internal/operator/report has",
		"ReasonMTUMismatch":     "it takes a connection over RoCE, which internal/operator/report has",

		"ReasonCapacityLow":       "it takes a configuration of 800 KiB, which internal/operator/plan has",
		"ReasonCapacityExhausted": "it takes a configuration of 1 MiB, which internal/operator/plan has",
	}
	tests, err := filepath.Glob("*_test.go")
	must(t, err)
	met := map[string]bool{}
	for _, file := range tests {
		ast.Inspect(parse(t, file), func(n ast.Node) bool {
			if s, ok := n.(*ast.SelectorExpr); ok {
				met[s.Sel.Name] = true
			}
			return true
		})
	}
	reasons := 0
	ast.Inspect(parse(t, apiserver.Path("api/v1alpha1/conditions.go")), func(n ast.Node) bool {
		s, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(s.Names[0].Name, "Reason") {
			return true
		}
		reasons++
		name := s.Names[0].Name
		if why, not := elsewhere[name]; met[name] == not {
			t.Errorf("%s is wanted by a test: %v, and is left out: %q", name, met[name], why)
		}
		return true
	})
	if reasons < 48 {
		t.Errorf("%d reasons found", reasons)
	}
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	must(t, err)
	return f
}
