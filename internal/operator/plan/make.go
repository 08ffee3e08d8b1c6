package plan

import (
	"cmp"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
)

// maxExports is how many bytes the exports of a configuration file may have. A ConfigMap has 1 MiB, of which the rest of the file and the speaker's need some.
const maxExports = 1<<20 - 96<<10

// littleExport is how many bytes an export of little to say has there at most. Those come first, so that none of them is put out when another is given more rules.
const littleExport = 4 << 10

// defaultReplicas are those of an NFSGateway that says nothing.
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
	m.fit(p.Exports, refused)
	for i := range p.Exports {
		x := &p.Exports[i]
		x.Conditions = exportConditions(in.Gateway, x.Source, refused[i], missing[i])
	}
	p.Workloads = workloads(in.Gateway, p.Exports)
	if m.virtual() {
		p.Groups = groups(p.Workloads, p.Exports)
	}
	return p
}

// fit refuses those that the configuration file of the shared pods has no room for.
func (m *maker) fit(exports []Export, refused []*refusal) {
	g, room := m.in.Gateway, maxExports
	for _, little := range []bool{true, false} {
		for i := range exports {
			x := &exports[i]
			if x.Config == nil || x.Workload != g.Name {
				continue
			}
			switch size := fileSize(x.Config); {
			case (size <= littleExport) != little:
			case size <= room:
				room -= size
			default:
				x.Config, x.Hash = nil, ""
				refused[i] = refuse(v1alpha1.ReasonTooManyExports, "with it, the configuration of the pods of NFSGateway %s/%s would be larger than the 1 MiB that a ConfigMap has room for: say less in access rules, or make another NFSGateway", g.Namespace, g.Name)
			}
		}
	}
}

// GatewayNotFound returns the conditions of an export whose gateway is not there, or in a namespace that is not watched.
func GatewayNotFound(e *v1alpha1.NFSExport, watched bool) []metav1.Condition {
	ns, name := GatewayNamespace(e), e.Spec.GatewayRef.Name
	why := refuse(v1alpha1.ReasonGatewayNotFound, "there is no NFSGateway %s/%s: make one, or make an export with another gatewayRef", ns, name)
	if !watched {
		why = refuse(v1alpha1.ReasonGatewayNotFound, "gatewayRef: NFSGateway %s/%s is not looked for, since the operator does not watch namespace %q: add that to its --watch-namespaces (watchNamespaces of the chart), "+
			"or make an export with another gatewayRef", ns, name, ns)
	}
	return exportConditions(nil, e, why, nil)
}

// maker is what is known while a plan is made.
type maker struct {
	in      *Input
	exports []*v1alpha1.NFSExport // the oldest first
	pool    pool

	// Of each port pair's first port and each address, the ConfigName of the export that has it, from Services and as the plan is made.
	ports     map[int32]string
	addresses map[string]string
	// asked are the addresses that admitted exports ask for, and the oldest of those.
	asked map[string]string
	// busyPorts and busyAddresses are those that live pods serve, and for which exports.
	busyPorts     map[int32][]string
	busyAddresses map[string][]string
	records       map[string]record
}

func (m *maker) virtual() bool { return m.in.Gateway.Spec.Exposure.Type == v1alpha1.ExposureVirtualIP }

// inOrder sorts exports: the oldest first, then by namespace and name.
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

// admit says of each export whether the gateway may serve it, as far as that does not hang on addresses: consent, number, and claims that others have.
func (m *maker) admit() []*refusal {
	g := m.in.Gateway
	refused := make([]*refusal, len(m.exports))
	var claims []*v1alpha1.NFSExport
	admitted := 0
	identities := map[string]*v1alpha1.NFSExport{}
	m.asked = map[string]string{}
	for i, e := range m.exports {
		if refused[i] = consent(m.in, e); refused[i] != nil {
			continue
		}
		if most := int(g.Spec.Limits.Exports); most > 0 && admitted >= most {
			refused[i] = refuse(v1alpha1.ReasonTooManyExports, "NFSGateway %s/%s serves %d exports, which is its spec.limits.exports, and they are older than this one: its owner can raise that", g.Namespace, g.Name, most)
			continue
		}
		if HasHandles(e) {
			id := HandleIdentity(e)
			if o := identities[id]; o != nil {
				refused[i] = refuse(v1alpha1.ReasonHandleIdentityTaken,
					"handleIdentity: %q is that of NFSExport %s, and two exports must not take each other's handles: make this export anew without handleIdentity", id, Key(o))
				continue
			}
			identities[id] = e
		} else {
			if refused[i] = claimFree(append(m.olderElsewhere(e), claims...), e); refused[i] != nil {
				continue
			}
			claims = append(claims, e)
		}
		admitted++
		if a, ok := parseAddress(e.Spec.Address.IP); ok && m.asked[a.String()] == "" {
			m.asked[a.String()] = ConfigName(e)
		}
	}
	return refused
}

// olderElsewhere are the exports of claims that are older than e and refer to other gateways.
func (m *maker) olderElsewhere(e *v1alpha1.NFSExport) (out []*v1alpha1.NFSExport) {
	for i := range m.in.Claiming {
		if o := &m.in.Claiming[i]; byAge(o, e) < 0 {
			out = append(out, o)
		}
	}
	return out
}

// claimFree refuses a directory of a claim that an older export has, or part of it.
func claimFree(older []*v1alpha1.NFSExport, e *v1alpha1.NFSExport) *refusal {
	mine := e.Spec.Backend.PersistentVolumeClaim
	for _, o := range older {
		other := o.Spec.Backend.PersistentVolumeClaim
		if other.ClaimName != mine.ClaimName {
			continue
		}
		a, b := path.Join("/", other.SubPath), path.Join("/", mine.SubPath)
		if within(a, b) || within(b, a) {
			return refuse(v1alpha1.ReasonClaimInUse, "NFSExport %s serves %s of the claim %q, and a directory has one server: leave that export or this one, or let them have subPaths beside each other", Key(o), a, mine.ClaimName)
		}
	}
	return nil
}

// serve gives an admitted export its address, ports and configuration. missing is what it refers to that is not there; without a refusal the export
// may be served nevertheless.
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
		return refuse(v1alpha1.ReasonInvalid, "the gateway's configuration refuses it: %s", condition.Quote(problems.Error())), missing
	}
	x.Config, x.Hash = c, c.Hash()
	return nil, missing
}

func (m *maker) claimMissing(c *v1alpha1.Claim) *refusal {
	ns := m.in.Gateway.Namespace
	pvc := m.in.Claims[c.ClaimName]
	if pvc == nil {
		return refuse(v1alpha1.ReasonClaimNotFound, "there is no PersistentVolumeClaim %q in namespace %q: make it", c.ClaimName, ns)
	}
	if pvc.Status.Phase == corev1.ClaimLost {
		return refuse(v1alpha1.ReasonClaimLost, "the PersistentVolume of the claim %q in namespace %q is gone: bring it back, or make another claim and an export of it", c.ClaimName, ns)
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
