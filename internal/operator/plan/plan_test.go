package plan

import (
	"bytes"
	"fmt"
	"math/rand"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
	"sigs.k8s.io/yaml"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// drawInput makes a cluster with conflicts: exports of one and two namespaces that want the same
// claims and addresses, Services of present and deleted exports, some of them equal, and pods that
// still serve others' addresses.
func drawInput(t *rapid.T) Input {
	in := Input{Gateway: gateway(), Namespaces: map[string]map[string]string{"storage": nil, "team": {"nfs": "yes"}}, Claims: map[string]*corev1.PersistentVolumeClaim{"data": claim("data", corev1.ClaimBound)}}
	if rapid.Bool().Draw(t, "virtual") {
		in.Gateway = virtualGateway()
	}
	g := &in.Gateway.Spec
	g.Replicas = new(rapid.Int32Range(0, 4).Draw(t, "replicas"))
	g.Limits.Exports = rapid.Int32Range(1, 12).Draw(t, "limit")
	g.AllowedExports.Namespaces.From = rapid.SampledFrom([]v1alpha1.NamespacesFrom{v1alpha1.NamespacesSame, v1alpha1.NamespacesAll}).Draw(t, "from")
	g.AllowedBackends = []v1alpha1.AllowedBackend{{Servers: []string{"*"}}}
	vip := func(label string) string { return fmt.Sprintf("192.0.2.%d", rapid.IntRange(9, 19).Draw(t, label)) }
	first := func(label string) int32 { return FirstPort + rapid.Int32Range(-1, 12).Draw(t, label) }
	for i := range rapid.IntRange(0, 12).Draw(t, "exports") {
		ns := rapid.SampledFrom([]string{"storage", "team"}).Draw(t, "namespace")
		e := export(ns, fmt.Sprintf("e%d", i), rapid.IntRange(0, 3).Draw(t, "age"))
		if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
			e.Spec.Backend = v1alpha1.Backend{PersistentVolumeClaim: &v1alpha1.Claim{
				ClaimName: rapid.SampledFrom([]string{"data", "none"}).Draw(t, "claim"), SubPath: rapid.SampledFrom([]string{"", "a", "a/b", "c"}).Draw(t, "sub"),
			}}
		}
		if rapid.IntRange(0, 3).Draw(t, "asks") == 0 {
			e.Spec.Address.IP = vip("ip")
		}
		in.Exports = append(in.Exports, e)
	}
	with := slices.Clone(in.Exports)
	for i := range 3 {
		with = append(with, export("storage", fmt.Sprintf("gone%d", i), 0))
	}
	for i := range with {
		e := &with[i]
		if rapid.Bool().Draw(t, "recorded") {
			record := ""
			if in.Gateway.Spec.Exposure.Type == v1alpha1.ExposureVirtualIP {
				record = vip("vip")
			}
			in.Services = append(in.Services, service(e, first("first"), record))
		}
		if rapid.IntRange(0, 2).Draw(t, "busy") == 0 {
			in.LiveListeners = append(in.LiveListeners, LiveListener{Workload: "fast", Export: ConfigName(e), Address: fmt.Sprintf(":%d", first("busy port")+1)}, LiveListener{Export: ConfigName(e), Address: vip("busy vip") + ":20049"})
		}
	}
	in.OtherGateways = map[string]string{vip("elsewhere"): "other/export"}
	return in
}

func TestTheOrderOfTheInputDoesNotMatter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		want := Make(in)
		r := rand.New(rand.NewSource(rapid.Int64().Draw(t, "seed")))
		in.Exports, in.Services, in.LiveListeners = slices.Clone(in.Exports), slices.Clone(in.Services), slices.Clone(in.LiveListeners)
		r.Shuffle(len(in.Exports), func(i, j int) { in.Exports[i], in.Exports[j] = in.Exports[j], in.Exports[i] })
		r.Shuffle(len(in.Services), func(i, j int) { in.Services[i], in.Services[j] = in.Services[j], in.Services[i] })
		r.Shuffle(len(in.LiveListeners), func(i, j int) { in.LiveListeners[i], in.LiveListeners[j] = in.LiveListeners[j], in.LiveListeners[i] })
		if diff := cmp.Diff(want, Make(in), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
	})
}

func TestNothingIsGivenTwice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		p := Make(in)
		virtual := in.Gateway.Spec.Exposure.Type == v1alpha1.ExposureVirtualIP
		recorded := map[string]corev1.Service{}
		for _, s := range in.Services {
			recorded[s.Labels[LabelExportNamespace]+"."+s.Labels[LabelExport]] = s
		}
		ports, vips, services, names := map[int32]string{}, map[string]string{}, map[string]string{}, map[string]string{}
		for _, x := range p.Exports {
			name := ConfigName(x.Source)
			once(t, services, x.Service, name)
			if x.Config == nil {
				continue
			}
			once(t, names, x.Config.Name, name)
			claim := x.Source.Spec.Backend.PersistentVolumeClaim != nil
			if !claim {
				once(t, ports, x.TCPTarget, name)
				if !virtual {
					once(t, ports, x.RDMATarget, name)
				}
				if x.TCPTarget <= FirstPort || x.TCPTarget > LastPort {
					t.Fatalf("%s listens on %d", name, x.TCPTarget)
				}
			}
			if virtual {
				once(t, vips, x.VIP, name)
			}
			if o := in.OtherGateways[x.VIP]; virtual && o != "" && recorded[name].Annotations[AnnotationAddress] != x.VIP {
				t.Fatalf("%s is given %s, which %s has", name, x.VIP, o)
			}
			s, has := recorded[name]
			keptPort := has && s.Spec.Ports[0].TargetPort.IntVal == x.TCPTarget
			keptVIP := has && s.Annotations[AnnotationAddress] == x.VIP
			for _, b := range in.LiveListeners {
				if b.Export == name {
					continue
				}
				if !claim && !keptPort && (b.Address == fmt.Sprintf(":%d", x.TCPTarget) || b.Address == fmt.Sprintf(":%d", x.TCPTarget-1)) {
					t.Fatalf("%s is given %d, which a pod serves for %s", name, x.TCPTarget, b.Export)
				}
				if virtual && !keptVIP && b.Address == x.VIP+":20049" {
					t.Fatalf("%s is given %s, which a pod serves for %s", name, x.VIP, b.Export)
				}
			}
		}
		for _, w := range p.Workloads {
			b, err := yaml.Marshal(w.Config.Sparse())
			if err != nil {
				t.Fatal(err)
			}
			f, err := config.Parse(b)
			if err != nil || len(f.Refused) > 0 {
				t.Fatalf("%s: %v %+v", w.Name, err, f.Refused)
			}
			for i := range f.Config.Exports {
				if got, want := f.Config.Exports[i].Hash(), w.Config.Exports[i].Hash(); got != want {
					t.Fatalf("%s: as it is read it has another hash", w.Config.Exports[i].Name)
				}
			}
		}
		checkGroups(t, &p)
	})
}

func once[K comparable](t *rapid.T, m map[K]string, key K, name string) {
	if o, taken := m[key]; taken {
		t.Fatalf("%s and %s both have %v", o, name, key)
	}
	m[key] = name
}

// checkGroups: each address is in one group, of the workload that serves it.
func checkGroups(t *rapid.T, p *Plan) {
	want, got := map[string]string{}, map[string]string{}
	replicas := map[string]int32{}
	for _, w := range p.Workloads {
		replicas[w.Name] = w.Replicas
	}
	for _, x := range p.Exports {
		if x.VIP != "" && x.Config != nil && replicas[x.Workload] > 0 {
			want[x.VIP] = x.Workload
		}
	}
	leases := map[string]string{}
	for _, g := range p.Groups {
		once(t, leases, g.Lease, g.Workload)
		replicas[g.Workload]--
		for _, a := range g.Addresses {
			once(t, got, a, g.Workload)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("addresses in groups (-want +got):\n%s", diff)
	}
	for w, n := range replicas {
		if n != 0 && p.Gateway.Spec.Exposure.Type == v1alpha1.ExposureVirtualIP {
			t.Fatalf("%s has %d groups too few", w, n)
		}
	}
}

// TestWhatAServiceRecordsNeverChanges makes Services of a plan, changes the rest of the cluster at
// will, and plans again.
func TestWhatAServiceRecordsNeverChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := drawInput(t)
		in.Services, in.LiveListeners = nil, nil
		for i := range in.Exports {
			in.Exports[i].Spec.Address.IP = ""
		}
		given := map[string]Export{}
		for _, x := range Make(in).Exports {
			if x.Config != nil {
				given[ConfigName(x.Source)] = x
				in.Services = append(in.Services, service(x.Source, x.TCPTarget-1, x.VIP))
			}
		}
		other := drawInput(t)
		in.LiveListeners, in.Gateway.Spec.Limits = other.LiveListeners, other.Gateway.Spec.Limits
		if v := in.Gateway.Spec.Exposure.VirtualIP; v != nil {
			v.Pool = []string{"192.0.2.14-192.0.2.30"}
		}
		kept := in.Exports[:0:0]
		for _, e := range in.Exports {
			if rapid.Bool().Draw(t, "kept") {
				kept = append(kept, e)
			}
		}
		in.Exports = kept
		for i := range rapid.IntRange(0, 3).Draw(t, "new") {
			in.Exports = append(in.Exports, export("storage", fmt.Sprintf("new%d", i), rapid.IntRange(0, 9).Draw(t, "age")))
		}
		for _, x := range Make(in).Exports {
			name := ConfigName(x.Source)
			if x.Config == nil {
				continue
			}
			if old, ok := given[name]; ok && (old.TCPTarget != x.TCPTarget || old.RDMATarget != x.RDMATarget || old.VIP != x.VIP) {
				t.Fatalf("%s had %d, %d and %q, and now has %d, %d and %q", name, old.RDMATarget, old.TCPTarget, old.VIP, x.RDMATarget, x.TCPTarget, x.VIP)
			}
			for o, old := range given {
				if o != name && (x.VIP != "" && x.VIP == old.VIP || x.Workload == "fast" && old.Workload == "fast" && x.TCPTarget == old.TCPTarget) {
					t.Fatalf("%s is given what the Service of %s records", name, o)
				}
			}
		}
	})
}

func TestAccessByNodes(t *testing.T) {
	internal := func(a string) corev1.NodeAddress {
		return corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a}
	}
	e := export("storage", "data", 0)
	e.Spec.Access = []v1alpha1.AccessRule{
		{From: v1alpha1.AccessFrom{Networks: []string{"198.51.100.0/24", "10.0.0.2/32"}, Nodes: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "client"}}}, Mode: "ReadWrite", Squash: "None"},
		{From: v1alpha1.AccessFrom{Nodes: &metav1.LabelSelector{}}},
	}
	in := Input{Gateway: gateway(), Exports: []v1alpha1.NFSExport{e}, Nodes: []corev1.Node{
		node("c", "server", internal("10.0.0.3")),
		node("b", "client", internal("10.0.0.2"), corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: "fd00::2"}, corev1.NodeAddress{Type: corev1.NodeHostName, Address: "b"}),
		node("a", "client", internal("10.0.0.1")),
	}}
	in.Nodes[2].Spec.PodCIDRs = []string{"10.244.1.0/24", "fd01::/64"}
	var got []string
	for _, r := range Make(in).Exports[0].Config.Access {
		got = append(got, fmt.Sprintf("%v %s %s", r.From.All(), r.Mode, r.Squash))
	}
	want := []string{
		"[198.51.100.0/24 10.0.0.2/32 10.0.0.1/32 10.0.0.2/32 10.244.1.0/31 fd00::2/128 fd01::/127] ReadWrite None",
		"[10.0.0.1/32 10.0.0.2/31 10.244.1.0/31 fd00::2/128 fd01::/127] ReadOnly Root",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rules (-want +got):\n%s", diff)
	}
	in.Provisioner = []netip.Addr{netip.MustParseAddr("10.244.7.7"), netip.MustParseAddr("fd00::7")}
	in.Exports[0].Spec.Access[0].From.Provisioner = true
	if got := fmt.Sprint(Make(in).Exports[0].Config.Access[0].From.Networks); got != "[198.51.100.0/24 10.0.0.2/32 10.244.7.7/32 fd00::7/128]" {
		t.Errorf("networks with the provisioner: %s", got)
	}
	in.Exports[0].Spec.Access[0].From.Provisioner = false
	for i := range 1500 {
		in.Nodes = append(in.Nodes, node(fmt.Sprint(i), "many", internal(fmt.Sprintf("10.1.%d.%d", i/100, 2*(i%100)))))
	}
	if rules := Make(in).Exports[0].Config.Access; len(rules) != 2 || len(rules[1].From.Sets) != 1 || len(rules[1].From.Sets[0].Networks) != 1505 {
		t.Errorf("%d rules of 1505 networks", len(rules))
	}
	in.NoNetworkSets = true
	rules := Make(in).Exports[0].Config.Access
	if len(rules) != 3 || len(rules[1].From.Networks) != maxNetworks || len(rules[2].From.Networks) != 1505-maxNetworks || len(rules[1].From.NetworkSets) != 0 {
		t.Errorf("%d rules of 1505 networks for gateways without network sets", len(rules))
	}
}

// manyNodes are nodes as a cloud's: addresses with gaps, and a network of pods each.
func manyNodes(n int) (nodes []corev1.Node) {
	for i := range n {
		x := node(fmt.Sprintf("node-%d", i), "worker", corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.%d.%d.%d", 1+i/10000, i/100%100, 2*(i%100))})
		x.Spec.PodCIDRs = []string{fmt.Sprintf("10.%d.%d.0/24", 100+i/250, i%250)}
		nodes = append(nodes, x)
	}
	return nodes
}

// manyExports are exports for all nodes.
func manyExports(n int) (list []v1alpha1.NFSExport) {
	for i := range n {
		e := export("storage", fmt.Sprintf("export-%04d", i), n-i)
		e.Spec.Access = []v1alpha1.AccessRule{{From: v1alpha1.AccessFrom{Nodes: &metav1.LabelSelector{}}, Mode: "ReadWrite"}}
		list = append(list, e)
	}
	return list
}

// TestNodesPutNoExportOut: a cluster that grows keeps its exports, whose nodes' networks are in the
// file once.
func TestNodesPutNoExportOut(t *testing.T) {
	for _, c := range []struct{ exports, nodes int }{{40, 300}, {200, 50}, {1000, 5000}} {
		in := Input{Gateway: gateway(), Exports: manyExports(c.exports), Nodes: manyNodes(c.nodes)}
		in.Gateway.Spec.Limits.Exports = 1000
		p := Make(in)
		b, err := yaml.Marshal(p.Workloads[0].Config.Sparse())
		if err != nil {
			t.Fatal(err)
		}
		if served := len(p.Workloads[0].Config.Exports); served != c.exports || len(b) > MaxConfig {
			t.Errorf("%d exports and %d nodes: %d exports served, in %d bytes", c.exports, c.nodes, served, len(b))
		}
		if n := bytes.Count(b, []byte("10.1.0.2/32")); n != 1 {
			t.Errorf("%d exports and %d nodes: a node is there %d times", c.exports, c.nodes, n)
		}
		if p.Capacity.Used < len(b) || p.Capacity.Used > len(b)+framesSize {
			t.Errorf("%d bytes, and %d are counted", len(b), p.Capacity.Used)
		}
	}
}

// TestServedExportsKeepTheirPlace: where the file has no room left, exports that are programmed
// stay, and new ones are refused, whatever their age.
func TestServedExportsKeepTheirPlace(t *testing.T) {
	in := Input{Gateway: gateway(), Exports: manyExports(60), Nodes: manyNodes(900), NoNetworkSets: true}
	for i := range in.Exports {
		if i%2 == 0 { // among them the youngest but one, and not the oldest but one
			in.Exports[i].Status.Conditions = []metav1.Condition{{Type: "Programmed", Status: "True", ObservedGeneration: 7}}
		}
	}
	p := Make(in)
	if p.Capacity.Refused == 0 || p.Capacity.Refused > 30 {
		t.Errorf("%d exports are refused", p.Capacity.Refused)
	}
	for i, x := range p.Exports {
		if i%2 == 0 && x.Config == nil {
			t.Errorf("%s is put out: %s", x.Source.Name, x.Conditions[0].Message)
		}
	}
	in.NoNetworkSets = false
	if p := Make(in); p.Capacity.Refused != 0 {
		t.Errorf("%d exports are refused with network sets", p.Capacity.Refused)
	}

	// One whose author gives it more rules than there is room for puts out none but itself.
	in = Input{Gateway: gateway(), Exports: manyExports(40)}
	for i := range in.Exports {
		e := &in.Exports[i]
		e.Status.Conditions = []metav1.Condition{{Type: "Programmed", Status: "True", ObservedGeneration: 7}}
		e.Spec.Access = nil
		for a := range 64 {
			rule := v1alpha1.AccessRule{Mode: "ReadWrite"}
			for n := range 20 {
				rule.From.Networks = append(rule.From.Networks, fmt.Sprintf("10.%d.%d.0/24", a, n))
			}
			e.Spec.Access = append(e.Spec.Access, rule)
		}
	}
	in.Exports[0].Generation = 8
	in.LiveListeners = []LiveListener{{Workload: "fast", Export: ConfigName(&in.Exports[0]), Address: ":21001"}}
	for i, x := range Make(in).Exports {
		if (x.Config != nil) != (i != 0) {
			t.Errorf("%s is served: %v", x.Source.Name, x.Config != nil)
		}
	}
}

func TestAggregated(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"", ""},
		{"10.0.0.1/32 10.0.0.0/32", "10.0.0.0/31"},
		{"10.0.0.1/32 10.0.0.2/32", "10.0.0.1/32 10.0.0.2/32"},
		{"10.0.0.3/32 10.0.0.1/32 10.0.0.2/32 10.0.0.0/32 10.0.0.1/32", "10.0.0.0/30"},
		{"10.0.0.0/8 10.1.0.0/32 11.0.0.0/8", "10.0.0.0/7"},
		{"fd00::1/128 10.0.0.1/32 fd00::/128", "10.0.0.1/32 fd00::/127"},
	} {
		var list []netip.Prefix
		for _, s := range strings.Fields(c.in) {
			list = append(list, netip.MustParsePrefix(s))
		}
		if got := strings.Trim(fmt.Sprint(aggregated(list)), "[]"); got != c.want {
			t.Errorf("%s: %s, want %s", c.in, got, c.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		var list []netip.Prefix
		for range rapid.IntRange(0, 40).Draw(t, "n") {
			list = append(list, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 63).Draw(t, "address"))}), 32))
		}
		out := aggregated(slices.Clone(list))
		for i := range 256 {
			a := netip.AddrFrom4([4]byte{10, 0, 0, byte(i)})
			has := func(l []netip.Prefix) bool {
				return slices.ContainsFunc(l, func(p netip.Prefix) bool { return p.Contains(a) })
			}
			if has(list) != has(out) {
				t.Fatalf("%v of %v: %v in %v", a, list, has(out), out)
			}
		}
	})
}

func TestTransportIsCopied(t *testing.T) {
	e := export("storage", "data", 0)
	e.Spec.SignHandles = "Required"
	e.Spec.Backend = v1alpha1.Backend{RDMA: &v1alpha1.RDMAServer{Server: "other.example", Port: 20050, Path: "/x", Versions: []v1alpha1.NFSVersion{"4.2"}, SoftTimeout: "5s", RFC5666: []v1alpha1.RFC5666Form{"Configuration"}}}
	e.Spec.Transport = v1alpha1.Transport{
		RPCRDMAVersions: []int32{2, 1}, InlineThreshold: v1alpha1.InlineThreshold{Call: "8Ki", Reply: "16Ki"},
		Credits:            v1alpha1.Credits{Policy: "Adaptive", Min: new(int32(4)), Max: 64, Memory: "256Mi"},
		RemoteInvalidation: new(false), Extensions: []v1alpha1.Extension{"TransportProperties", "MessageContinuation", "SendBasedPlacement"},
		Continuation: &v1alpha1.Continuation{MaxCallTransmissions: 3, MaxReplyTransmissions: 5}, RFC5666: []v1alpha1.RFC5666Form{"Padding"}, Version2Dialect: "RoundTrip",
		Placement: &v1alpha1.Placement{ReceiveBuffer: "128Ki", MinLength: "2Ki"}, OnChange: v1alpha1.NextConnection,
	}
	c := Make(Input{Gateway: gateway(), Exports: []v1alpha1.NFSExport{e}}).Exports[0].Config
	if c == nil {
		t.Fatal("not served")
	}
	want := config.Transport{
		RPCRDMAVersions: []int{1, 2}, InlineThreshold: config.InlineThreshold{Call: 8 << 10, Reply: 16 << 10},
		Credits:      config.Credits{Policy: config.Adaptive, Min: 4, Max: 64, Memory: 256 << 20},
		Extensions:   []config.Extension{config.TransportProperties, config.MessageContinuation, config.SendBasedPlacement},
		Continuation: &config.Continuation{MaxCallTransmissions: 3, MaxReplyTransmissions: 5}, RFC5666: []config.RFC5666Form{config.Padding}, Version2Dialect: config.RoundTrip,
		Placement: &config.Placement{ReceiveBuffer: 128 << 10, MinLength: 2 << 10}, OnChange: config.NextConnection,
	}
	if diff := cmp.Diff(want, c.Transport); diff != "" {
		t.Errorf("transport (-want +got):\n%s", diff)
	}
	server := &config.RDMAServer{Server: "other.example", Port: 20050, Path: "/x", Versions: []config.NFSVersion{config.NFSv42}, SoftTimeout: 5e9, RFC5666: []config.RFC5666Form{config.Configuration}}
	if diff := cmp.Diff(server, c.Backend.RDMA); diff != "" {
		t.Errorf("backend (-want +got):\n%s", diff)
	}
	if c.SignHandles != config.SignRequired || c.UID != "storage-data-uid" {
		t.Errorf("signHandles %s, uid %s", c.SignHandles, c.UID)
	}
}

// TestHandlesSurviveARestore: an export that is made again from a backup has another UID, and takes
// the handles that its clients hold.
func TestHandlesSurviveARestore(t *testing.T) {
	signer := func(e v1alpha1.NFSExport) *sign.Signer {
		t.Helper()
		c := Make(Input{Gateway: gateway(), Exports: []v1alpha1.NFSExport{e}}).Exports[0].Config
		if c == nil {
			t.Fatal("not served")
		}
		s, err := sign.New([][]byte{make([]byte, sign.MinKey)}, c.Identity(), sign.Required)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	e := export("storage", "data", 0)
	held := signer(e).Append(nil, []byte("handle"), sign.Max3)
	e.Spec.HandleIdentity = string(e.UID) // as the operator sets it
	if got := signer(e).Append(nil, []byte("handle"), sign.Max3); !bytes.Equal(got, held) {
		t.Errorf("%x, before handleIdentity was set %x", got, held)
	}
	e.UID = "restored-uid"
	if got, ok := signer(e).Verify(held, sign.Max3); !ok || string(got) != "handle" {
		t.Errorf("after a restore: %q, %v", got, ok)
	}
	e.Spec.HandleIdentity = ""
	if _, ok := signer(e).Verify(held, sign.Max3); ok {
		t.Error("the handle is taken without the identity")
	}
}

func TestMemory(t *testing.T) {
	for memory, want := range map[v1alpha1.Size][3]config.Quantity{
		"2Gi": {2 << 30, 256 << 20, 2 << 30}, "64Mi": {64 << 20, 8 << 20, 64 << 20}, "": {2 << 30, 256 << 20, 2 << 30},
	} {
		in := Input{Gateway: gateway(), Claims: map[string]*corev1.PersistentVolumeClaim{"data": claim("data", corev1.ClaimPending)}}
		in.Gateway.Spec.Limits.Memory = memory
		in.Exports = []v1alpha1.NFSExport{export("storage", "a", 9), claimExport("b", "data", "", 8)}
		p := Make(in)
		got := [3]config.Quantity{p.Workloads[0].Config.Limits.Memory, p.Exports[0].Config.Limits.Memory, p.Exports[1].Config.Limits.Memory}
		if got != want {
			t.Errorf("%s: pod, shared export, claim: %v, want %v", memory, got, want)
		}
	}
}

// TestLimits: a gateway's limits become those of each of its exports.
func TestLimits(t *testing.T) {
	in := Input{Gateway: gateway(), Exports: []v1alpha1.NFSExport{export("storage", "a", 9)}}
	made := func() config.Limits { return Make(in).Exports[0].Config.Limits }
	want := config.DefaultExport().Limits
	want.Connections, want.MemoryPerClient = 1000, 64<<20
	if diff := cmp.Diff(want, made()); diff != "" {
		t.Errorf("defaults (-want +got):\n%s", diff)
	}
	in.Gateway.Spec.Limits = v1alpha1.GatewayLimits{
		Connections: 5, ConnectionsPerClient: 4, Memory: "1Gi", MemoryPerClient: "3Mi", MemoryPerConnection: "1Mi", MinProgress: "0",
		IdleTimeout: v1alpha1.IdleTimeout{BeforeFirstCall: "0s", AfterCall: "2h"},
	}
	want = config.Limits{
		Connections: 5, ConnectionsPerClient: 4, Memory: 128 << 20, MemoryPerClient: 3 << 20, MemoryPerConnection: 1 << 20,
		IdleTimeout: config.IdleTimeout{AfterCall: config.Duration(7200e9)},
	}
	if diff := cmp.Diff(want, made()); diff != "" {
		t.Errorf("set (-want +got):\n%s", diff)
	}
	if got := Make(in).Workloads[0].Config.Limits.ReceiveMemory; got != 1<<30 {
		t.Errorf("limits.receiveMemory of the pod: %s, want 1Gi", got)
	}
}

func TestNames(t *testing.T) {
	g := gateway()
	long := strings.Repeat("n", 63)
	short, foreign, local := export("storage", "data", 0), export("team", "data", 0), export("storage", long, 0)
	for _, c := range []struct{ got, want string }{
		{ServiceName(g, &short), "sluice-data"},
		{ServiceName(g, &foreign), "sluicex-data-" + shortHash("team/data")},
		{ServiceName(g, &local), "sluicex-" + long[:46] + "-" + shortHash("storage/"+long)},
		{WorkloadName(g, &short), "fast"},
		{ConfigName(&foreign), "team.data"},
	} {
		if c.got != c.want || len(c.got) > maxName {
			t.Errorf("%q, want %q", c.got, c.want)
		}
	}
	g.Name = strings.Repeat("g", 40)
	local.Spec.Backend = v1alpha1.Backend{PersistentVolumeClaim: &v1alpha1.Claim{ClaimName: "data"}}
	if n := WorkloadName(g, &local); len(n) != maxStatefulSet {
		t.Errorf("%q has %d characters", n, len(n))
	}
}

func TestPool(t *testing.T) {
	for _, c := range []struct {
		entry, want string
	}{
		{"192.0.2.10", "192.0.2.10-192.0.2.10"}, {"192.0.2.10-192.0.2.12", "192.0.2.10-192.0.2.12"},
		{"192.0.2.64/30", "192.0.2.65-192.0.2.66"}, {"192.0.2.64/31", "192.0.2.64-192.0.2.65"}, {"192.0.2.64/32", "192.0.2.64-192.0.2.64"},
		{"192.0.2.64/24", "192.0.2.1-192.0.2.254"}, {"fd00::/126", "fd00::1-fd00::2"}, {"fd00::5-fd00::7", "fd00::5-fd00::7"},
		{"fd00::5-192.0.2.1", "begins and ends in two families: want one"},
		{"10.0.0.300", "want an address, a range such as 192.0.2.10-192.0.2.40, or a network such as 192.0.2.64/26"},
		{"10.0.0.0/33", "want an address, a range such as 192.0.2.10-192.0.2.40, or a network such as 192.0.2.64/26"},
		{"224.0.0.0/4", "224.0.0.1 is no address that clients can reach: want those of the network's subnet"},
		{"fe80::1", "fe80::1 is no address that clients can reach: want those of the network's subnet"},
	} {
		r, err := parseRange(c.entry)
		got := fmt.Sprintf("%s-%s", r.first, r.last)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.entry, got, c.want)
		}
	}
}

func FuzzPool(f *testing.F) {
	for _, s := range []string{"192.0.2.10", "192.0.2.10-192.0.2.12", "192.0.2.64/26", "fd00::/64", "::ffff:192.0.2.1-192.0.2.3", "fe80::1%eth0", "-", "/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		r, err := parseRange(s)
		if err != nil {
			return
		}
		p := pool{r}
		a, ok := p.free(new(cursor), func(netip.Addr) bool { return false }, func(netip.Addr) bool { return false })
		if !ok || a != r.first || !p.contains(r.first) || !p.contains(r.last) {
			t.Errorf("%q: first free %v of %v", s, a, r)
		}
	})
}

func TestBackendsByServerAndPath(t *testing.T) {
	for _, c := range []struct {
		servers, paths []string
		server, path   string
		want           bool
	}{
		{[]string{"filer.example"}, nil, "filer.example", "/any", true},
		{[]string{"FILER.example"}, []string{"/vol/"}, "filer.example", "/vol", true},
		{[]string{"filer.example"}, []string{"/vol/"}, "filer.example", "/vol/data", true},
		{[]string{"filer.example"}, []string{"/vol"}, "filer.example", "/volume", false},
		{[]string{"filer.example"}, []string{"/vol"}, "filer.example", "/vol/../etc", false},
		{[]string{"filer.example"}, []string{"/"}, "filer.example", "/etc", true},
		{[]string{"filer.example"}, []string{"/a", "/b"}, "filer.example", "/b/c", true},
		{[]string{"filer"}, nil, "filer.example", "/", false},
		{[]string{"*"}, []string{"/vol"}, "other", "/vol", true},
		{[]string{"fd00:0::1"}, nil, "fd00::1", "/", true},
		{nil, nil, "filer.example", "/", false},
	} {
		g := &v1alpha1.NFSGateway{Spec: v1alpha1.NFSGatewaySpec{AllowedBackends: []v1alpha1.AllowedBackend{{Servers: c.servers, Paths: c.paths}}}}
		if _, got := allowedDir(g, c.server, c.path); got != c.want {
			t.Errorf("%v %v allows %s:%s: %v", c.servers, c.paths, c.server, c.path, got)
		}
	}
}

// TestBound: an export's path may not leave the longest of the paths that allow it by a symbolic
// link.
func TestBound(t *testing.T) {
	g := gateway()
	g.Spec.AllowedBackends = []v1alpha1.AllowedBackend{
		{Servers: []string{"filer"}, Paths: []string{"/vol/", "/vol/team", "/other"}},
		{Servers: []string{"filer", "open"}, Paths: []string{"/vol/team/sub", "/vol/teams"}},
		{Servers: []string{"open"}}, {Servers: []string{"rooted"}, Paths: []string{"/", "/vol"}},
	}
	for _, c := range []struct{ server, path, want string }{
		{"filer", "/vol/a", "/vol"},
		{"filer", "/vol/team/a", "/vol/team"},
		{"FILER", "/vol/team/sub/a", "/vol/team/sub"},
		{"filer", "/vol/team", ""}, // it is allowed itself
		{"filer", "/vol", ""},
		{"open", "/vol/team/sub/a", ""}, // all are
		{"rooted", "/vol/a", ""},
		// of the gateway's own namespace, where nothing is allowed for others
		{"another", "/vol/a", ""},
	} {
		if got := bound(g, c.server, c.path); got != c.want {
			t.Errorf("%s:%s may not leave %q, want %q", c.server, c.path, got, c.want)
		}
	}
	x := export("storage", "data", 0)
	x.Spec.Backend = v1alpha1.Backend{NFS: &v1alpha1.NFSServer{Server: "filer", Path: "/vol/team/a"}}
	m := maker{in: &Input{Gateway: g}}
	if got := m.render(&Export{Source: &x}, nil).Backend.NFS; got.Within != "/vol/team" {
		t.Errorf("the configuration has %+v", got)
	}
	x.Spec.Backend = v1alpha1.Backend{RDMA: &v1alpha1.RDMAServer{Server: "filer", Path: "/vol/team/a"}}
	if got := m.render(&Export{Source: &x}, nil).Backend.RDMA; got.Within != "/vol/team" {
		t.Errorf("the configuration has %+v", got)
	}
}

// TestTheFileFitsAConfigMap: exports that would make it too large are refused, the youngest first;
// and the bound of an export's part is one.
func TestTheFileFitsAConfigMap(t *testing.T) {
	in := Input{Gateway: gateway()}
	in.Gateway.Spec.Limits.Exports, in.Gateway.Spec.Limits.Memory = 1000, "1Ti"
	for i := range 40 {
		e := export("storage", fmt.Sprintf("e%02d", i), 100-i)
		e.Spec.Access = nil
		for a := range 64 {
			rule := v1alpha1.AccessRule{Mode: "ReadWrite"}
			for n := range 20 {
				rule.From.Networks = append(rule.From.Networks, fmt.Sprintf("10.%d.%d.0/24", a, n))
			}
			e.Spec.Access = append(e.Spec.Access, rule)
		}
		in.Exports = append(in.Exports, e)
	}
	p := Make(in)
	b, err := yaml.Marshal(p.Workloads[0].Config.Sparse())
	if err != nil {
		t.Fatal(err)
	}
	served := len(p.Workloads[0].Config.Exports)
	if served < 15 || served == 40 || len(b) > MaxConfig || len(b) > p.Capacity.Used || p.Capacity.Refused != 40-served {
		t.Errorf("%d exports in %d bytes", served, len(b))
	}
	for i, x := range p.Exports {
		if (x.Config != nil) != (i < served) {
			t.Errorf("%s is served: %v", x.Source.Name, x.Config != nil)
		}
	}
	checkCondition(t, p.Exports[39].Conditions, "Accepted", "TooManyExports", "the export would grow the configuration of NFSGateway storage/fast beyond 1 MiB, the limit of a ConfigMap: "+
		"shorten access rules, or create another NFSGateway (sluicectl explain TooManyExports)", 7, false)
	w := p.Workloads[0].Config
	last := w.Exports[served-1]
	w.Exports = w.Exports[:served-1]
	rest, err := yaml.Marshal(w.Sparse())
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fileSize(last.Sparse()), len(b)-len(rest); got != want {
		t.Errorf("size of an export: %d bytes, want %d", got, want)
	}
}

// TestNobodySpreadsHimselfOut: exports put out none that says little, which may be another's, by
// rules that they are given later.
func TestNobodySpreadsHimselfOut(t *testing.T) {
	in := Input{Gateway: gateway()}
	for i := range 60 {
		e := export("storage", fmt.Sprintf("e%02d", i), 100-i)
		rules := 64
		if i >= 5 {
			rules = 2
		}
		for a := range rules {
			r := v1alpha1.AccessRule{Mode: "ReadWrite"}
			for n := range 64 {
				r.From.Networks = append(r.From.Networks, fmt.Sprintf("2001:db8:1111:2222:3333:4444:%x:%x/128", 0x1000+a, 0x1000+n))
			}
			if i < 50 {
				e.Spec.Access = append(e.Spec.Access, r)
			}
		}
		in.Exports = append(in.Exports, e)
	}
	p := Make(in)
	for i, x := range p.Exports {
		if little := i >= 50; little && x.Config == nil || i == 49 && x.Config != nil {
			t.Errorf("%s is served: %v", x.Source.Name, x.Config != nil)
		}
	}
}

// TestVerbsOptions: the RDMA listener of each export has the gateway's settings of adapters.
func TestVerbsOptions(t *testing.T) {
	in := Input{Gateway: virtualGateway(), Exports: []v1alpha1.NFSExport{export("storage", "data", 0)}}
	listeners := func() []config.Listener {
		t.Helper()
		c := Make(in).Exports[0].Config
		if c == nil {
			t.Fatalf("no configuration: %+v", Make(in).Exports[0].Conditions)
		}
		return c.Listeners
	}
	in.Gateway.Spec.Provider = v1alpha1.Verbs
	for _, v := range []*v1alpha1.VerbsOptions{nil, {}} {
		if in.Gateway.Spec.RDMA.Verbs = v; listeners()[0].Verbs != nil {
			t.Errorf("%+v: %+v, want no settings", v, listeners()[0].Verbs)
		}
	}
	in.Gateway.Spec.RDMA.Verbs = &v1alpha1.VerbsOptions{
		KeepAlive: "30s", AckTimeout: "67ms", CompletionVectors: []int32{0, 2}, ModerationCount: 8, ModerationPeriod: "16us", Inline: 124, Spin: 64, StrictOrdering: true,
	}
	want := &config.VerbsOptions{
		KeepAlive: config.Duration(30 * time.Second), AckTimeout: config.Duration(67 * time.Millisecond), CompletionVectors: []int{0, 2},
		ModerationCount: 8, ModerationPeriod: config.Duration(16 * time.Microsecond), Inline: 124, Spin: 64, StrictOrdering: true,
	}
	if got := listeners(); !cmp.Equal(got[0].Verbs, want) || got[1].Verbs != nil {
		t.Errorf("%+v and %+v, want %+v for RDMA alone", got[0].Verbs, got[1].Verbs, want)
	}
	in.Gateway.Spec.Provider = v1alpha1.SoftwareIWARP
	if got := listeners()[0].Verbs; got != nil {
		t.Errorf("software has %+v", got)
	}
}

// The settings of a claim for version 4 become those of its gateway. Others are the defaults.
func TestClaimNFS4(t *testing.T) {
	in := Input{Gateway: gateway(), Claims: map[string]*corev1.PersistentVolumeClaim{"data": claim("data", corev1.ClaimBound)}}
	shared := false
	for _, c := range []struct {
		set  *v1alpha1.NFS4
		want config.NFS4
	}{
		{nil, config.NFS4{Lease: config.Duration(90 * time.Second), Grace: config.Duration(90 * time.Second), Clients: 1024, Shared: true, Sessions: config.SessionsVolatile}},
		{&v1alpha1.NFS4{}, config.NFS4{Lease: config.Duration(90 * time.Second), Grace: config.Duration(90 * time.Second), Clients: 1024, Shared: true, Sessions: config.SessionsVolatile}},
		{
			&v1alpha1.NFS4{Lease: "1m", Delegations: -1, Shared: &shared, Sessions: "Persistent", IDDomain: "example.com"},
			config.NFS4{Lease: config.Duration(time.Minute), Grace: config.Duration(time.Minute), Clients: 1024, Delegations: -1, Sessions: config.SessionsPersistent, IDDomain: "example.com"},
		},
	} {
		e := claimExport("e", "data", "", 0)
		e.Spec.Backend.PersistentVolumeClaim.NFS4 = c.set
		in.Exports = []v1alpha1.NFSExport{e}
		c.want.RecordsOnVolume = true
		got := Make(in).Exports[0].Config
		if got == nil {
			t.Fatal("the export has no configuration")
		}
		if diff := cmp.Diff(c.want, got.Backend.Volume.NFS4); diff != "" {
			t.Error(diff)
		}
	}
}
