package plan

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/sluice/api/v1alpha1"
)

// env is an input that a case changes before it is planned.
type env struct{ Input }

func (w *env) last() *v1alpha1.NFSExport { return &w.Exports[len(w.Exports)-1] }

// reasons has at least one case for each reason of Accepted and ResolvedRefs, of the last export or
// of the gateway.
var reasons = []struct {
	name, kind, reason, message string
	gateway                     bool
	change                      func(*env)
	served                      bool
}{
	{name: "well", kind: "Accepted", reason: "Accepted", message: "NFSGateway storage/fast serves this export", served: true, change: func(*env) {}},
	{name: "resolved", kind: "ResolvedRefs", reason: "Resolved", message: "all referenced objects exist", served: true, change: func(*env) {}},
	{
		name: "not its own namespace", kind: "Accepted", reason: "NamespaceNotAllowed",
		message: `NFSGateway storage/fast allows only exports of its own namespace: ask its owner to add namespace "team" to spec.allowedExports`,
		change:  func(w *env) { w.last().Namespace = "team" },
	},
	{
		name: "labels", kind: "Accepted", reason: "NamespaceNotAllowed",
		message: `NFSGateway storage/fast allows only exports of namespaces with labels nfs=yes, which namespace "storage" lacks: ask its owner to label the namespace, or to change spec.allowedExports`,
		change: func(w *env) {
			w.Gateway.Spec.AllowedExports.Namespaces = v1alpha1.AllowedNamespaces{From: v1alpha1.NamespacesSelector, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"nfs": "yes"}}}
		},
	},
	{
		name: "labels not known yet", kind: "Accepted", reason: "NamespaceNotAllowed",
		message: `NFSGateway storage/fast allows only exports of namespaces with labels nfs notin (no), which namespace "team" lacks: ask its owner to label the namespace, or to change spec.allowedExports`,
		change: func(w *env) {
			w.Gateway.Spec.AllowedExports.Namespaces = v1alpha1.AllowedNamespaces{From: v1alpha1.NamespacesSelector, Selector: &metav1.LabelSelector{
				MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "nfs", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"no"}}},
			}}
			w.Gateway.Spec.AllowedBackends = []v1alpha1.AllowedBackend{{Servers: []string{"*"}}}
			w.last().Namespace = "team"
			delete(w.Namespaces, "team")
		},
	},
	{
		name: "unknown while refused", kind: "ResolvedRefs", reason: "Unknown",
		message: "references are checked once the export is accepted", change: func(w *env) { w.last().Namespace = "team" },
	},
	{
		name: "backend", kind: "Accepted", reason: "BackendNotAllowed",
		message: "NFSGateway storage/fast does not allow backend filer.example:/vol/last: ask its owner to add {servers: [filer.example], paths: [/vol/last]} to spec.allowedBackends",
		change: func(w *env) {
			w.Gateway.Spec.AllowedBackends = []v1alpha1.AllowedBackend{{Servers: []string{"filer.example"}, Paths: []string{"/vol/la"}}}
		},
	},
	{
		name: "too many", kind: "Accepted", reason: "TooManyExports",
		message: "NFSGateway storage/fast serves 1 older exports, its spec.limits.exports: ask its owner to raise the limit",
		change:  func(w *env) { w.Gateway.Spec.Limits.Exports = 1 },
	},
	{
		name: "claim elsewhere", kind: "Accepted", reason: "ClaimElsewhere",
		message: `claim "data" must be in the gateway's namespace "storage", and the export is in namespace "team": move the export to namespace "storage", or create a gateway in namespace "team"`,
		change: func(w *env) {
			w.Gateway.Spec.AllowedExports.Namespaces.From = v1alpha1.NamespacesAll
			w.Exports[1] = claimExport("last", "data", "", 0)
			w.last().Namespace = "team"
		},
	},
	{
		name: "claim in use", kind: "Accepted", reason: "ClaimInUse",
		message: `NFSExport storage/first serves /a of claim "data", and a directory can have one export: delete one of the exports, or give them separate subPaths`,
		change: func(w *env) {
			w.Exports = []v1alpha1.NFSExport{claimExport("first", "data", "a", 9), claimExport("last", "data", "a/b", 0)}
		},
	},
	{
		name: "claim in use through another gateway", kind: "Accepted", reason: "ClaimInUse",
		message: `NFSExport storage/first serves / of claim "data", and a directory can have one export: delete one of the exports, or give them separate subPaths`,
		change: func(w *env) {
			w.Exports[1] = claimExport("last", "data", "b", 5)
			w.OtherClaims = []v1alpha1.NFSExport{claimExport("other", "lost", "", 9), claimExport("first", "data", "", 9)}
		},
	},
	{
		name: "claim in use through another gateway, later", kind: "Accepted", reason: "Accepted", message: "NFSGateway storage/fast serves this export", served: true,
		change: func(w *env) {
			w.Exports[1] = claimExport("last", "data", "b", 5)
			w.OtherClaims = []v1alpha1.NFSExport{claimExport("first", "data", "", 4)}
		},
	},
	{
		name: "another export's identity", kind: "Accepted", reason: "HandleIdentityTaken",
		message: `handleIdentity: "storage-first-uid" belongs to NFSExport storage/first, and must be unique: re-create this export without handleIdentity`,
		change:  func(w *env) { w.last().Spec.HandleIdentity = "storage-first-uid" },
	},
	{
		name: "an identity of its own", kind: "Accepted", reason: "Accepted", message: "NFSGateway storage/fast serves this export", served: true,
		change: func(w *env) { w.last().Spec.HandleIdentity = "storage-last-2024" },
	},
	{
		name: "no claim", kind: "ResolvedRefs", reason: "ClaimNotFound", message: `PersistentVolumeClaim "none" does not exist in namespace "storage": create it`,
		change: func(w *env) { w.Exports[1] = claimExport("last", "none", "", 0) },
	},
	{
		name: "lost claim", kind: "ResolvedRefs", reason: "ClaimLost",
		message: `the PersistentVolume of claim "lost" in namespace "storage" is lost: restore it, or create another claim and export`,
		change:  func(w *env) { w.Exports[1] = claimExport("last", "lost", "", 0) },
	},
	{
		name: "no nodes", kind: "ResolvedRefs", reason: "NoSuchNodes", message: "access[0].from.nodes: no node has labels role=none: label nodes, or change the rule",
		change: func(w *env) {
			w.last().Spec.Access[0].From = v1alpha1.AccessFrom{Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "none"}}}
		},
	},
	{
		name: "no provisioner", kind: "ResolvedRefs", reason: "NoProvisioner", served: true,
		message: "access[0].from.provisioner: the operator has no provisioner: set provisioner.enabled of its chart, or change the rule",
		change:  func(w *env) { w.last().Spec.Access[0].From.Provisioner = true },
	},
	{
		name: "no nodes, but networks", kind: "ResolvedRefs", reason: "NoSuchNodes", message: "access[0].from.nodes: no node has labels role=none: label nodes, or change the rule", served: true,
		change: func(w *env) {
			w.last().Spec.Access[0].From.Nodes = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "none"}}
		},
	},
	{
		name: "address taken", kind: "Accepted", reason: "AddressTaken", message: "address.ip: 192.0.2.10 belongs to NFSExport storage/first: choose another one, or omit it",
		change: func(w *env) {
			w.virtual()
			w.Exports[0].Spec.Address.IP, w.Exports[1].Spec.Address.IP = "192.0.2.10", "192.0.2.10"
		},
	},
	{
		name: "Service's address taken", kind: "Accepted", reason: "AddressTaken", message: "address.ip: 10.96.0.200 belongs to NFSExport storage/first: choose another one, or omit it",
		change: func(w *env) {
			w.Services = []corev1.Service{service(&w.Exports[0], 21000, "")}
			w.Services[0].Spec.ClusterIP = "10.96.0.200"
			w.last().Spec.Address.IP = "10.96.0.200"
		},
	},
	{
		name: "address still served", kind: "Accepted", reason: "AddressTaken",
		message: "address.ip: a pod still serves 192.0.2.11 for its former NFSExport storage/gone: wait, or choose another one",
		change: func(w *env) {
			w.virtual()
			w.last().Spec.Address.IP = "192.0.2.11"
			w.LiveListeners = []LiveListener{{Export: "storage.gone", Address: "192.0.2.11:20049"}}
		},
	},
	{
		name: "address of another gateway's", kind: "Accepted", reason: "AddressTaken",
		message: "address.ip: 192.0.2.12 belongs to NFSExport team/other of another NFSGateway on the network: choose another one, or omit it",
		change: func(w *env) {
			w.virtual()
			w.last().Spec.Address.IP = "192.0.2.12"
			w.OtherGateways = map[string]string{"192.0.2.12": "team/other"}
		},
	},
	{
		name: "outside the pool", kind: "Accepted", reason: "AddressOutsidePool",
		message: "address.ip: 192.0.2.18 is not in exposure.virtualIP.pool of NFSGateway storage/fast (192.0.2.10-192.0.2.17): choose one of these, or omit it",
		change: func(w *env) {
			w.virtual()
			w.last().Spec.Address.IP = "192.0.2.18"
		},
	},
	{
		name: "no free address", kind: "Accepted", reason: "NoFreeAddress",
		message: "all addresses of exposure.virtualIP.pool of NFSGateway storage/fast are in use: ask its owner to add addresses, or delete exports",
		change: func(w *env) {
			w.virtual()
			w.Gateway.Spec.Exposure.VirtualIP.Pool = []string{"192.0.2.10"}
		},
	},
	{
		name: "no free port", kind: "Accepted", reason: "NoFreePort",
		message: "all ports of the pods of NFSGateway storage/fast, 21000 to 23999, are in use: create another NFSGateway for further exports",
		change: func(w *env) {
			for p := FirstPort; p <= LastPort; p++ {
				w.LiveListeners = append(w.LiveListeners, LiveListener{Workload: "fast", Export: "storage.gone", Address: fmt.Sprintf(":%d", p)})
			}
		},
	},
	{
		name: "refused by the configuration", kind: "Accepted", reason: "Invalid",
		message: `the gateway's configuration is invalid: transport.credits.memory: 64Ki: want at least 512Ki: one connection has 128 receives (min) of 4Ki (inlineThreshold.call)`,
		change: func(w *env) {
			w.last().Spec.Transport.Credits = v1alpha1.Credits{Policy: "Adaptive", Min: new(int32(128)), Max: 128, Memory: "64Ki"}
		},
	},
	{
		name: "a port of the pods", kind: "Accepted", reason: "Invalid",
		message: "address.rdmaPort: 21001: pods use 9180, 9181 and 21000 to 23999 themselves: choose another port",
		change: func(w *env) {
			w.virtual()
			w.last().Spec.Address.RDMAPort = 21001
		},
	},
	{name: "gateway", gateway: true, kind: "Accepted", reason: "Accepted", message: "the operator serves this gateway", served: true, change: func(*env) {}},
	{name: "gateway, resolved", gateway: true, kind: "ResolvedRefs", reason: "Resolved", message: "all referenced objects exist", served: true, change: func(*env) {}},
	{
		name: "pool", gateway: true, kind: "Accepted", reason: "PoolInvalid", served: true,
		message: `exposure.virtualIP.pool[1]: "192.0.2.9-192.0.2.3": ends before it begins: want 192.0.2.3-192.0.2.9; exposure.virtualIP.pool[2]: "127.0.0.1": 127.0.0.1 is no address that clients can reach: want those of the network's subnet`,
		change: func(w *env) {
			w.virtual()
			w.Gateway.Spec.Exposure.VirtualIP.Pool = append(w.Gateway.Spec.Exposure.VirtualIP.Pool, "192.0.2.9-192.0.2.3", "127.0.0.1")
		},
	},
	{
		name: "no secret", gateway: true, kind: "ResolvedRefs", reason: "SecretNotFound", served: true,
		message: `Secret "mine" of handleKeys.secretName does not exist in namespace "storage": create it: openssl rand -base64 32 > keys; kubectl -n storage create secret generic mine --from-file=keys`,
		change:  func(w *env) { w.Gateway.Spec.HandleKeys.SecretName = "mine" },
	},
	{
		name: "bad secret", gateway: true, kind: "ResolvedRefs", reason: "SecretInvalid", served: true,
		message: `the entry "keys" of Secret "mine" in namespace "storage": line 1: the key has 6 bytes, at least 32 are needed: want one key of at least 32 bytes in base64 on each line`,
		change: func(w *env) {
			w.Gateway.Spec.HandleKeys.SecretName = "mine"
			w.Keys = &corev1.Secret{Data: map[string][]byte{"keys": []byte("c2hvcnQh\n")}}
		},
	},
	{
		name: "no network", gateway: true, kind: "ResolvedRefs", reason: "NetworkNotFound", served: true,
		message: "NetworkAttachmentDefinition storage/rdma-net of rdma.networks does not exist: create it, or name another one",
		change: func(w *env) {
			w.virtual()
			w.Networks = nil
		},
	},
}

func (w *env) virtual() {
	w.Gateway = virtualGateway()
	w.Networks = map[string]bool{"storage/rdma-net": true}
}

func TestReasons(t *testing.T) {
	for _, c := range reasons {
		t.Run(c.name, func(t *testing.T) {
			w := &env{Input{
				Gateway: gateway(), Exports: []v1alpha1.NFSExport{export("storage", "first", 9), export("storage", "last", 0)},
				Namespaces: map[string]map[string]string{"storage": nil, "team": nil},
				Claims:     map[string]*corev1.PersistentVolumeClaim{"data": claim("data", corev1.ClaimBound), "lost": claim("lost", corev1.ClaimLost)},
			}}
			c.change(w)
			p := Make(w.Input)
			x := p.Exports[len(p.Exports)-1]
			list, generation := x.Conditions, int64(7)
			if c.gateway {
				list, generation = p.Conditions, 3
			}
			want := c.message
			good := c.reason == "Accepted" || c.reason == "Resolved"
			if !good {
				want += " (sluicectl explain " + c.reason + ")"
			}
			checkCondition(t, list, c.kind, c.reason, want, generation, good)
			if (x.Config != nil) != c.served {
				t.Errorf("served: %v, want %v", x.Config != nil, c.served)
			}
		})
	}
}

func checkCondition(t *testing.T, list []metav1.Condition, kind, reason, message string, generation int64, good bool) {
	t.Helper()
	for _, got := range list {
		if got.Type != kind {
			continue
		}
		if got.Reason != reason || got.Message != message {
			t.Errorf("%s:\n got %s: %s\nwant %s: %s", kind, got.Reason, got.Message, reason, message)
		}
		if got.ObservedGeneration != generation || (got.Status == metav1.ConditionTrue) != good {
			t.Errorf("%s is %s of generation %d", kind, got.Status, got.ObservedGeneration)
		}
		return
	}
	t.Errorf("no condition %s", kind)
}

func TestGatewayNotFound(t *testing.T) {
	e := export("team", "lonely", 0)
	checkCondition(t, GatewayNotFound(&e, true), "Accepted", "GatewayNotFound",
		"NFSGateway storage/fast does not exist: create it, or re-create the export with another gatewayRef (sluicectl explain GatewayNotFound)", 7, false)
}

// TestEveryReasonHasARow reads the reasons of Accepted and ResolvedRefs out of the API's source.
func TestEveryReasonHasARow(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "../../../api/v1alpha1/conditions.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]bool{"GatewayNotFound": true}
	for _, c := range reasons {
		rows[c.reason] = true
	}
	seen, ours := 0, false
	for _, d := range file.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		for _, s := range decl.Specs {
			v := s.(*ast.ValueSpec)
			if doc := v.Doc.Text(); doc != "" {
				ours = strings.HasPrefix(doc, "Accepted, of") || strings.HasPrefix(doc, "ResolvedRefs.")
			}
			name, isReason := strings.CutPrefix(v.Names[0].Name, "Reason")
			if !ours || !isReason {
				continue
			}
			seen++
			if !rows[name] {
				t.Errorf("no row for reason %s", name)
			}
		}
	}
	if seen < 18 {
		t.Errorf("%d reasons found, want 18 at least", seen)
	}
}
