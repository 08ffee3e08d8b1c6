package plan

import (
	"cmp"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
)

// Sizes in the ConfigMap of the shared pods, in bytes.
const (
	// MaxConfig is the limit on the entries of a ConfigMap.
	MaxConfig = 1 << 20
	// framesSize is reserved for both files, without exports, addresses and network sets.
	framesSize = 16 << 10
	// addressSize is the largest size of a virtual address in the speaker's file.
	addressSize = 48
	// smallExportBytes is the largest size of an export that takes precedence.
	smallExportBytes = 4 << 10
)

// defaultReplicas of an NFSGateway without spec.replicas.
const defaultReplicas = 2

// Make plans a gateway.
func Make(in Input) Plan {
	m := &maker{in: &in, exports: inOrder(in.Exports)}
	var poolProblems []string
	if v := in.Gateway.Spec.Exposure.VirtualIP; m.virtual() && v != nil {
		m.pool, poolProblems = parsePool(v.Pool)
	}
	p := Plan{Gateway: in.Gateway, Conditions: gatewayConditions(&in, poolProblems)}
	for _, e := range m.exports {
		p.Exports = append(p.Exports, Export{Source: e, Backend: backendLine(e), Service: ServiceName(in.Gateway, e), Workload: WorkloadName(in.Gateway, e)})
	}
	refused := m.admit()
	m.reserve()
	missing := make([]*refusal, len(p.Exports))
	for i := range p.Exports {
		if refused[i] == nil {
			refused[i], missing[i] = m.serve(&p.Exports[i])
		}
	}
	p.Capacity = m.fit(p.Exports, refused)
	for i := range p.Exports {
		x := &p.Exports[i]
		x.Conditions = exportConditions(in.Gateway, x.Source, refused[i], missing[i])
	}
	p.Workloads = workloads(in.Gateway, in.LogFormat, p.Exports)
	if m.virtual() {
		p.Pool = m.pool.use(p.Exports)
		p.Groups = groups(p.Workloads, p.Exports)
	}
	return p
}

// standing is the precedence of an export in the configuration file.
type standing int

const (
	programmed standing = iota // pods serve this generation; never refused
	changed                    // pods serve an older generation
	fresh                      // no pod serves it
)

func (m *maker) standing(e *v1alpha1.NFSExport) standing {
	c := meta.FindStatusCondition(e.Status.Conditions, v1alpha1.ConditionProgrammed)
	switch {
	case c != nil && c.Status == metav1.ConditionTrue && c.ObservedGeneration == e.Generation:
		return programmed
	case m.busyExports[ConfigName(e)]:
		return changed
	}
	return fresh
}

// fit refuses exports for which the configuration file has no room, and returns the bytes of the
// others. New nodes and changes of other exports never evict a served export. Among the others,
// small exports precede large ones, then older ones younger ones.
func (m *maker) fit(exports []Export, refused []*refusal) Capacity {
	type part struct {
		i, size int
		standing
	}
	var parts []part
	for i := range exports {
		if x := &exports[i]; x.Config != nil && x.Workload == m.in.Gateway.Name {
			p := part{i, exportSize(x), m.standing(x.Source)}
			if x.VIP != "" {
				p.size += addressSize
			}
			parts = append(parts, p)
		}
	}
	slices.SortStableFunc(parts, func(a, b part) int {
		large := func(p part) int { return min(1, max(0, p.size-smallExportBytes)) }
		return cmp.Or(cmp.Compare(a.standing, b.standing), cmp.Compare(large(a), large(b)))
	})
	c := Capacity{Used: framesSize}
	sets := map[*config.NetworkSet]bool{} // in the file
	for _, p := range parts {
		x, size := &exports[p.i], p.size
		var more []*config.NetworkSet
		for _, r := range x.Config.Access {
			for _, s := range r.From.Sets {
				if !sets[s] && !slices.Contains(more, s) {
					more = append(more, s)
					size += m.setSize(s)
				}
			}
		}
		if p.standing != programmed && c.Used+size > MaxConfig {
			c.Refused++
			x.Config, x.Hash = nil, ""
			refused[p.i] = refuse(v1alpha1.ReasonTooManyExports, "the export would grow the configuration of NFSGateway %s/%s beyond 1 MiB, the limit of a ConfigMap: shorten access rules, or create another NFSGateway",
				m.in.Gateway.Namespace, m.in.Gateway.Name)
			continue
		}
		c.Used += size
		for _, s := range more {
			sets[s] = true
		}
	}
	return c
}

// setSize returns the bytes of a network set in the file.
func (m *maker) setSize(s *config.NetworkSet) int {
	if m.setSizes == nil {
		m.setSizes = map[*config.NetworkSet]int{}
	}
	if m.setSizes[s] == 0 {
		networks := make([]any, len(s.Networks))
		for i, n := range s.Networks {
			networks[i] = n.String()
		}
		m.setSizes[s] = fileSize(map[string]any{"name": s.Name, "networks": networks})
	}
	return m.setSizes[s]
}

// Export returns the plan of an NFSExport; nil if there is none.
func (p *Plan) Export(e *v1alpha1.NFSExport) *Export {
	i, found := slices.BinarySearchFunc(p.Exports, e, func(x Export, e *v1alpha1.NFSExport) int { return byAge(x.Source, e) })
	if !found {
		return nil
	}
	return &p.Exports[i]
}

// GatewayNotFound returns the conditions of an export without a gateway, or with one in a namespace
// that is not watched.
func GatewayNotFound(e *v1alpha1.NFSExport, watched bool) []metav1.Condition {
	ns, name := GatewayNamespace(e), e.Spec.GatewayRef.Name
	why := refuse(v1alpha1.ReasonGatewayNotFound, "NFSGateway %s/%s does not exist: create it, or re-create the export with another gatewayRef", ns, name)
	if !watched {
		why = refuse(v1alpha1.ReasonGatewayNotFound, "gatewayRef: NFSGateway %s/%s is in namespace %q, which the operator does not watch: add it to --watch-namespaces (watchNamespaces of the chart), "+
			"or re-create the export with another gatewayRef", ns, name, ns)
	}
	return exportConditions(nil, e, why, nil)
}

// maker is the state of Make.
type maker struct {
	in      *Input
	exports []*v1alpha1.NFSExport // oldest first
	pool    pool

	// Owners, by ConfigName, of each first port of a pair and of each address.
	ports     map[int32]string
	addresses map[string]string
	// asked are the addresses that admitted exports request, with the oldest export.
	asked map[string]string
	// busyPorts and busyAddresses are in use by live pods, for these exports.
	busyPorts     map[int32][]string
	busyAddresses map[string][]string
	busyExports   map[string]bool // served by live pods, by ConfigName
	records       map[string]record
	nodeSets      map[string]*config.NetworkSet // by node selector
	setSizes      map[*config.NetworkSet]int
	// nextPorts and nextAddress start the search for free ones. All before are taken.
	nextPorts   int32
	nextAddress cursor
}

func (m *maker) virtual() bool { return m.in.Gateway.Spec.Exposure.Type == v1alpha1.ExposureVirtualIP }

// inOrder sorts exports by age, then namespace and name.
func inOrder(list []v1alpha1.NFSExport) []*v1alpha1.NFSExport {
	out := make([]*v1alpha1.NFSExport, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	slices.SortFunc(out, byAge)
	return out
}

func byAge(a, b *v1alpha1.NFSExport) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// admit refuses exports by consent, number, identity and claim. Addresses come later.
func (m *maker) admit() []*refusal {
	g := m.in.Gateway
	refused := make([]*refusal, len(m.exports))
	claims := map[string][]*v1alpha1.NFSExport{}
	for i := range m.in.OtherClaims {
		o := &m.in.OtherClaims[i]
		name := o.Spec.Backend.PersistentVolumeClaim.ClaimName
		claims[name] = append(claims[name], o)
	}
	admitted := 0
	identities := map[string]*v1alpha1.NFSExport{}
	m.asked = map[string]string{}
	for i, e := range m.exports {
		if refused[i] = consent(m.in, e); refused[i] != nil {
			continue
		}
		if most := int(g.Spec.Limits.Exports); most > 0 && admitted >= most {
			refused[i] = refuse(v1alpha1.ReasonTooManyExports, "NFSGateway %s/%s serves %d older exports, its spec.limits.exports: ask its owner to raise the limit", g.Namespace, g.Name, most)
			continue
		}
		if HasHandles(e) {
			id := HandleIdentity(e)
			if o := identities[id]; o != nil {
				refused[i] = refuse(v1alpha1.ReasonHandleIdentityTaken,
					"handleIdentity: %q belongs to NFSExport %s, and must be unique: re-create this export without handleIdentity", id, Key(o))
				continue
			}
			identities[id] = e
		} else {
			name := e.Spec.Backend.PersistentVolumeClaim.ClaimName
			if refused[i] = claimFree(claims[name], e); refused[i] != nil {
				continue
			}
			claims[name] = append(claims[name], e)
		}
		admitted++
		if a, ok := parseAddress(e.Spec.Address.IP); ok && m.asked[a.String()] == "" {
			m.asked[a.String()] = ConfigName(e)
		}
	}
	return refused
}

// claimFree refuses a directory of a claim that overlaps with one of an older export.
func claimFree(exports []*v1alpha1.NFSExport, e *v1alpha1.NFSExport) *refusal {
	mine := e.Spec.Backend.PersistentVolumeClaim
	for _, o := range exports {
		other := o.Spec.Backend.PersistentVolumeClaim
		if byAge(o, e) >= 0 {
			continue
		}
		a, b := path.Join("/", other.SubPath), path.Join("/", mine.SubPath)
		if within(a, b) || within(b, a) {
			return refuse(v1alpha1.ReasonClaimInUse, "NFSExport %s serves %s of claim %q, and a directory can have one export: delete one of the exports, or give them separate subPaths", Key(o), a, mine.ClaimName)
		}
	}
	return nil
}

// serve assigns an address, ports and a configuration to an admitted export. missing is a reference
// to a missing object; without refused, the export may be served nevertheless.
func (m *maker) serve(x *Export) (refused, missing *refusal) {
	e := x.Source
	if c := e.Spec.Backend.PersistentVolumeClaim; c != nil {
		if missing = m.claimMissing(c); missing != nil {
			return nil, missing
		}
	}
	access, missing := m.access(e)
	if len(access) == 0 && missing != nil {
		return nil, missing
	}
	if refused = m.address(x); refused != nil {
		return refused, missing
	}
	if refused = m.targets(x); refused != nil {
		return refused, missing
	}
	c := m.render(x, access)
	if problems := c.Validate(); len(problems) > 0 {
		return refuse(v1alpha1.ReasonInvalid, "the gateway's configuration is invalid: %s", condition.Quote(problems.Error())), missing
	}
	x.Config, x.Hash = c, c.Hash()
	return nil, missing
}

func (m *maker) claimMissing(c *v1alpha1.Claim) *refusal {
	ns := m.in.Gateway.Namespace
	pvc := m.in.Claims[c.ClaimName]
	if pvc == nil {
		return refuse(v1alpha1.ReasonClaimNotFound, "PersistentVolumeClaim %q does not exist in namespace %q: create it", c.ClaimName, ns)
	}
	if pvc.Status.Phase == corev1.ClaimLost {
		return refuse(v1alpha1.ReasonClaimLost, "the PersistentVolume of claim %q in namespace %q is lost: restore it, or create another claim and export", c.ClaimName, ns)
	}
	return nil
}

func backendLine(e *v1alpha1.NFSExport) string {
	switch b := &e.Spec.Backend; {
	case b.NFS != nil:
		return "nfs " + b.NFS.Server + ":" + b.NFS.Path
	case b.RDMA != nil:
		return "rdma " + b.RDMA.Server + ":" + b.RDMA.Path
	case b.PersistentVolumeClaim != nil:
		return "claim " + path.Join(b.PersistentVolumeClaim.ClaimName, b.PersistentVolumeClaim.SubPath)
	}
	return ""
}
