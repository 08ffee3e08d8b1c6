package plan

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"sync"
	"time"

	"go.yaml.in/yaml/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
)

// maxNetworks is the limit on networks in a rule of the configuration. Longer rules are split.
const maxNetworks = 1024

func rdmaPort(e *v1alpha1.NFSExport) int32 { return cmp.Or(e.Spec.Address.RDMAPort, 20049) }

// Memory returns a pod's memory for data in flight, in bytes.
func Memory(g *v1alpha1.NFSGateway) int64 { return cmp.Or(g.Spec.Limits.Memory.Bytes(), 2<<30) }

// memoryOf returns an export's share of a pod's memory. A claim's pod has one export. In shared
// pods each export gets an eighth, so that a slow backend leaves enough for others.
func memoryOf(g *v1alpha1.NFSGateway, e *v1alpha1.NFSExport) config.Quantity {
	memory := config.Quantity(Memory(g))
	if e.Spec.Backend.PersistentVolumeClaim != nil {
		return memory
	}
	return max(8<<20, memory/8)
}

// access returns the rules of an export, without those that match no node.
func (m *maker) access(e *v1alpha1.NFSExport) (rules []config.AccessRule, missing *refusal) {
	for i, a := range e.Spec.Access {
		var from config.AccessFrom
		for _, n := range a.From.Networks {
			p, _ := netip.ParsePrefix(n) // validation of the configuration refuses an invalid one
			from.Networks = append(from.Networks, p)
		}
		if a.From.Provisioner {
			for _, ip := range m.in.Provisioner {
				from.Networks = append(from.Networks, netip.PrefixFrom(ip, ip.BitLen()))
			}
			if len(m.in.Provisioner) == 0 && missing == nil {
				missing = refuse(v1alpha1.ReasonNoProvisioner, "access[%d].from.provisioner: the operator has no provisioner: set provisioner.enabled of its chart, or change the rule", i)
			}
		}
		if s := a.From.Nodes; s != nil {
			switch set := m.nodes(s); {
			case len(set.Networks) > 0 && m.in.NoNetworkSets:
				from.Networks = append(from.Networks, set.Networks...)
			case len(set.Networks) > 0:
				from.NetworkSets, from.Sets = []string{set.Name}, []*config.NetworkSet{set}
			case missing == nil:
				missing = refuse(v1alpha1.ReasonNoSuchNodes, "access[%d].from.nodes: no node has labels %s: label nodes, or change the rule", i, metav1.FormatLabelSelector(s))
			}
		}
		r := config.AccessRule{Mode: cmp.Or(config.AccessMode(a.Mode), config.ReadOnly), Squash: cmp.Or(config.Squash(a.Squash), config.SquashRoot)}
		if len(from.Sets) > 0 {
			r.From = from
			rules = append(rules, r)
			continue
		}
		for part := range slices.Chunk(from.Networks, maxNetworks) {
			r.From = config.AccessFrom{Networks: part}
			rules = append(rules, r)
		}
	}
	return rules, missing
}

// nodes returns the networks of the selected nodes, possibly none. Exports with the same selector
// share the set.
func (m *maker) nodes(s *metav1.LabelSelector) *config.NetworkSet {
	text := metav1.FormatLabelSelector(s)
	if set := m.nodeSets[text]; set != nil {
		return set
	}
	var networks []netip.Prefix
	if selector, err := metav1.LabelSelectorAsSelector(s); err == nil {
		for i := range m.in.Nodes {
			if n := &m.in.Nodes[i]; selector.Matches(labels.Set(n.Labels)) {
				for _, ip := range NodeAddresses(n) {
					networks = append(networks, netip.PrefixFrom(ip, ip.BitLen()))
				}
			}
		}
	}
	if m.nodeSets == nil {
		m.nodeSets = map[string]*config.NetworkSet{}
	}
	sum := sha256.Sum256([]byte(text))
	set := config.NewNetworkSet("nodes-"+hex.EncodeToString(sum[:16]), aggregated(networks))
	m.nodeSets[text] = set
	return set
}

// aggregated returns the fewest networks with the same addresses, sorted. It changes list.
func aggregated(list []netip.Prefix) []netip.Prefix {
	slices.SortFunc(list, netip.Prefix.Compare)
	out := list[:0]
	for _, p := range list {
		if n := len(out); n > 0 && out[n-1].Overlaps(p) {
			continue // contained in the previous one
		}
		out = append(out, p)
		for n := len(out); n > 1; n = len(out) { // merge two halves
			whole := netip.PrefixFrom(out[n-1].Addr(), out[n-1].Bits()-1).Masked()
			if out[n-2].Bits() != out[n-1].Bits() || !whole.Contains(out[n-2].Addr()) {
				break
			}
			out = append(out[:n-2], whole)
		}
	}
	return out
}

// NodeAddresses returns the source addresses of a node's own connections to pods: its internal and
// external addresses, and the first two of its pod networks, which network plugins give to bridges
// and tunnels.
func NodeAddresses(n *corev1.Node) (out []netip.Addr) {
	for _, a := range n.Status.Addresses {
		if ip, ok := parseAddress(a.Address); ok && (a.Type == corev1.NodeInternalIP || a.Type == corev1.NodeExternalIP) {
			out = append(out, ip.WithZone(""))
		}
	}
	for _, c := range n.Spec.PodCIDRs {
		if p, err := netip.ParsePrefix(c); err == nil && !p.IsSingleIP() {
			out = append(out, p.Masked().Addr(), p.Masked().Addr().Next())
		}
	}
	return out
}

// nfs4 applies the settings of a claim.
func nfs4(c *config.NFS4, s *v1alpha1.NFS4) {
	c.Lease = cmp.Or(config.Duration(s.Lease.Duration()), c.Lease)
	c.Delegations, c.IDDomain = int(s.Delegations), s.IDDomain
	c.Sessions = cmp.Or(config.Sessions(s.Sessions), c.Sessions)
	if s.Shared != nil {
		c.Shared = *s.Shared
	}
}

// render returns the configuration of an export.
func (m *maker) render(x *Export, access []config.AccessRule) *config.Export {
	e := x.Source
	c := config.DefaultExport()
	c.Name = ConfigName(e)
	c.Listeners = m.listeners(x)
	c.Access = access
	switch b := &e.Spec.Backend; {
	case b.PersistentVolumeClaim != nil:
		c.Backend.Volume = config.DefaultVolume(VolumeDir)
		c.Backend.Volume.NFS4.RecordsOnVolume = true // the next pod may be on another node
		if s := b.PersistentVolumeClaim.NFS4; s != nil {
			nfs4(&c.Backend.Volume.NFS4, s)
		}
	case b.NFS != nil:
		s := config.DefaultNFSServer()
		s.Server, s.MountPort, s.Path, s.SoftTimeout = b.NFS.Server, int(b.NFS.MountPort), b.NFS.Path, config.Duration(b.NFS.SoftTimeout.Duration())
		s.Port = cmp.Or(int(b.NFS.Port), s.Port)
		s.Within = bound(m.in.Gateway, s.Server, s.Path)
		if len(b.NFS.Versions) > 0 {
			s.Versions = converted[config.NFSVersion](b.NFS.Versions)
		}
		c.Backend.NFS = &s
	case b.RDMA != nil:
		s := config.RDMAServer{Server: b.RDMA.Server, Port: cmp.Or(int(b.RDMA.Port), 20049), Path: cmp.Or(b.RDMA.Path, "/"), Versions: config.DefaultNFSServer().Versions,
			SoftTimeout: config.Duration(b.RDMA.SoftTimeout.Duration())}
		s.Within = bound(m.in.Gateway, s.Server, s.Path)
		if len(b.RDMA.Versions) > 0 {
			s.Versions = converted[config.NFSVersion](b.RDMA.Versions)
		}
		if len(b.RDMA.RFC5666) > 0 {
			s.RFC5666 = converted[config.RFC5666Form](b.RDMA.RFC5666)
		}
		c.Backend.RDMA = &s
	}
	if c.Backend.Volume == nil {
		c.UID, c.SignHandles = HandleIdentity(e), config.SignHandles(e.Spec.SignHandles)
	}
	transport(&c.Transport, &e.Spec.Transport)
	limits(&c.Limits, &m.in.Gateway.Spec.Limits)
	c.Limits.Memory = memoryOf(m.in.Gateway, e)
	c.Complete()
	return &c
}

// listeners returns the listeners of an export. With exposure Service both listen on all addresses.
// With VirtualIP, RDMA listens on the export's address, and so does TCP, besides its Service:
// clients mount version 3 by TCP's port of the same address.
func (m *maker) listeners(x *Export) []config.Listener {
	rdma := config.Listener{Network: config.RDMA, Provider: config.IWARP, Address: ":" + strconv.Itoa(int(x.RDMATarget))}
	if m.in.Gateway.Spec.Provider == v1alpha1.Verbs {
		rdma.Provider = config.Verbs
		if r := m.in.Gateway.Spec.RDMA; r != nil && r.Verbs != nil {
			rdma.Verbs = verbs(r.Verbs)
		}
	}
	all := []config.Listener{rdma, {Network: config.TCP, Address: fmt.Sprintf(":%d", x.TCPTarget)}}
	if x.VIP != "" {
		// The address comes and goes while the pod runs, so the gateway binds the wildcard.
		at := func(port int32) string { return net.JoinHostPort(x.VIP, strconv.Itoa(int(port))) }
		all[0].Address, all[0].Bind = at(x.RDMATarget), config.Wildcard
		all = append(all, config.Listener{Network: config.TCP, Address: at(cmp.Or(x.Source.Spec.Address.TCPPort, 2049)), Bind: config.Wildcard})
	}
	return all
}

// verbs converts the options of provider Verbs; nil if all are defaults.
func verbs(v *v1alpha1.VerbsOptions) *config.VerbsOptions {
	c := &config.VerbsOptions{
		KeepAlive: config.Duration(v.KeepAlive.Duration()), AckTimeout: config.Duration(v.AckTimeout.Duration()),
		ModerationCount: int(v.ModerationCount), ModerationPeriod: config.Duration(v.ModerationPeriod.Duration()),
		Inline: int(v.Inline), Spin: int(v.Spin), StrictOrdering: v.StrictOrdering,
	}
	for _, n := range v.CompletionVectors {
		c.CompletionVectors = append(c.CompletionVectors, int(n))
	}
	if reflect.ValueOf(*c).IsZero() {
		return nil
	}
	return c
}

// transport overrides defaults with the fields of an export.
func transport(c *config.Transport, t *v1alpha1.Transport) {
	if len(t.RPCRDMAVersions) > 0 {
		c.RPCRDMAVersions = nil
		for _, v := range t.RPCRDMAVersions {
			c.RPCRDMAVersions = append(c.RPCRDMAVersions, int(v))
		}
		slices.Sort(c.RPCRDMAVersions)
	}
	if t.Extensions != nil {
		c.Extensions = converted[config.Extension](t.Extensions)
	}
	c.Version2Dialect = cmp.Or(config.Version2Dialect(t.Version2Dialect), c.Version2Dialect)
	if t.RFC5666 != nil {
		c.RFC5666 = converted[config.RFC5666Form](t.RFC5666)
	}
	if t.Continuation != nil {
		c.Continuation = &config.Continuation{MaxCallTransmissions: int(t.Continuation.MaxCallTransmissions), MaxReplyTransmissions: int(t.Continuation.MaxReplyTransmissions)}
	}
	if p := t.Placement; p != nil {
		c.Placement = &config.Placement{ReceiveBuffer: size(p.ReceiveBuffer, 0), MinLength: size(p.MinLength, 0)}
	}
	c.InlineThreshold.Call = size(t.InlineThreshold.Call, c.InlineThreshold.Call)
	c.InlineThreshold.Reply = size(t.InlineThreshold.Reply, c.InlineThreshold.Reply)
	c.Credits.Policy = cmp.Or(config.CreditPolicy(t.Credits.Policy), c.Credits.Policy)
	c.Credits.Max = cmp.Or(int(t.Credits.Max), c.Credits.Max)
	if t.Credits.Min != nil {
		c.Credits.Min = int(*t.Credits.Min)
	}
	c.Credits.Memory = size(t.Credits.Memory, 0)
	if t.RemoteInvalidation != nil {
		c.RemoteInvalidation = *t.RemoteInvalidation
	}
	c.OnChange = cmp.Or(config.OnChange(t.OnChange), c.OnChange)
}

// limits overrides defaults with the fields of a gateway.
func limits(c *config.Limits, l *v1alpha1.GatewayLimits) {
	c.Connections = int(cmp.Or(l.Connections, 1000))
	c.ConnectionsPerClient = cmp.Or(int(l.ConnectionsPerClient), c.ConnectionsPerClient)
	c.MemoryPerClient = size(l.MemoryPerClient, 0)
	c.MemoryPerConnection = size(l.MemoryPerConnection, c.MemoryPerConnection)
	if l.MinProgress != "" {
		c.MinProgress = config.Quantity(l.MinProgress.Bytes())
	}
	idle := func(c *config.Duration, d v1alpha1.Duration) {
		if d != "" {
			*c = config.Duration(d.Duration())
		}
	}
	idle(&c.IdleTimeout.BeforeFirstCall, l.IdleTimeout.BeforeFirstCall)
	idle(&c.IdleTimeout.AfterCall, l.IdleTimeout.AfterCall)
}

func size(s v1alpha1.Size, or config.Quantity) config.Quantity {
	if s == "" {
		return or
	}
	return config.Quantity(s.Bytes())
}

func converted[To, From ~string](list []From) []To {
	out := make([]To, len(list))
	for i, v := range list {
		out[i] = To(v)
	}
	return out
}

// fileSize returns the bytes that an export, or a network set, takes in the configuration file. The
// tree of a value goes to the YAML encoder as it is: a detour by JSON, as sigs.k8s.io/yaml makes
// it, costs most of the time of a plan.
func fileSize(entry map[string]any) int {
	b, err := yaml.Marshal([]any{integers(entry)})
	if err != nil {
		panic(err) // strings and numbers
	}
	return len(b)
}

// exportSizes caches fileSize of exports by Export.Hash, over all plans: most exports are the same
// in the next one.
var exportSizes = struct {
	sync.Mutex
	bytes map[string]int
}{bytes: map[string]int{}}

// maxExportSizes is the limit on exportSizes, which is emptied then.
const maxExportSizes = 1 << 14

// exportSize returns the bytes that an export with a Hash takes in the configuration file.
func exportSize(x *Export) int {
	exportSizes.Lock()
	n, ok := exportSizes.bytes[x.Hash]
	exportSizes.Unlock()
	if ok {
		return n
	}
	n = fileSize(x.Config.Sparse())
	exportSizes.Lock()
	defer exportSizes.Unlock()
	if len(exportSizes.bytes) >= maxExportSizes {
		clear(exportSizes.bytes)
	}
	exportSizes.bytes[x.Hash] = n
	return n
}

// integers returns a JSON tree with its whole numbers as integers, which YAML writes in full.
func integers(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := make(map[string]any, len(v))
		for k, e := range v {
			m[k] = integers(e)
		}
		return m
	case []any:
		l := make([]any, len(v))
		for i, e := range v {
			l[i] = integers(e)
		}
		return l
	case float64:
		if i := int64(v); float64(i) == v {
			return i
		}
	}
	return v
}

// frame is a configuration without exports.
func frame(g *v1alpha1.NFSGateway, logFormat string) config.GatewayConfig {
	c := config.Default()
	c.APIVersion, c.Kind = config.APIVersion, config.Kind
	c.Admin.Address = fmt.Sprintf(":%d", AdminPort)
	c.StateDir = StateDir
	c.HandleKeys.File = KeysDir + "/" + KeysEntry
	c.Log.Format = cmp.Or(logFormat, "json")
	c.Limits.Memory = config.Quantity(Memory(g))
	c.Limits.ReceiveMemory = config.Quantity(Memory(g))
	if t := g.Spec.Tracing; t != nil {
		c.Tracing.Endpoint = t.Endpoint
		c.Tracing.Ratio, _ = strconv.ParseFloat(t.Ratio, 64) // the schema has a pattern for it
	}
	c.Memory.HugePages = g.Spec.Memory.HugePages
	if g.Spec.DrainTimeout != "" {
		c.DrainTimeout = config.Duration(DrainTimeout(g))
	}
	c.Exports = []config.Export{}
	return c
}

// DrainTimeout is how long calls in flight may take.
func DrainTimeout(g *v1alpha1.NFSGateway) time.Duration {
	if g.Spec.DrainTimeout == "" {
		return 20 * time.Second
	}
	return g.Spec.DrainTimeout.Duration()
}
