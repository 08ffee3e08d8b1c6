package plan

import (
	"cmp"
	"encoding/binary"
	"slices"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
)

// workloads returns the shared workload and those of served claims, by name.
func workloads(g *v1alpha1.NFSGateway, logFormat string, exports []Export) []Workload {
	shared := Workload{Name: g.Name, Replicas: defaultReplicas, Config: frame(g, logFormat)}
	if g.Spec.Replicas != nil {
		shared.Replicas = *g.Spec.Replicas
	}
	var out []Workload
	for i := range exports {
		x := &exports[i]
		if x.Config == nil {
			continue
		}
		claim := x.Source.Spec.Backend.PersistentVolumeClaim
		if claim == nil {
			add(&shared.Config, x.Config)
			continue
		}
		w := Workload{Name: x.Workload, Claim: claim, Export: x.Source, Replicas: 1, Config: frame(g, logFormat)}
		add(&w.Config, x.Config)
		out = append(out, w)
	}
	out = append(out, shared)
	for i := range out {
		c := &out[i].Config
		slices.SortFunc(c.NetworkSets, func(a, b config.NetworkSet) int { return cmp.Compare(a.Name, b.Name) })
		c.NetworkSets = slices.CompactFunc(c.NetworkSets, func(a, b config.NetworkSet) bool { return a.Name == b.Name })
	}
	slices.SortFunc(out, func(a, b Workload) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// add adds an export and its network sets to a configuration.
func add(c *config.GatewayConfig, x *config.Export) {
	c.Exports = append(c.Exports, *x)
	for _, r := range x.Access {
		for _, s := range r.From.Sets {
			c.NetworkSets = append(c.NetworkSets, *s)
		}
	}
}

// groups distributes the virtual addresses of a workload over one group for each replica. An
// address never changes its group when others come and go.
func groups(workloads []Workload, exports []Export) []Group {
	var out []Group
	carried := map[string][]*Export{} // by workload
	for i := range exports {
		if x := &exports[i]; x.Config != nil && x.VIP != "" {
			carried[x.Workload] = append(carried[x.Workload], x)
		}
	}
	for _, w := range workloads {
		first := len(out)
		for i := range int(w.Replicas) {
			out = append(out, Group{Workload: w.Name, Lease: LeaseName(w.Name, i)})
		}
		if w.Replicas == 0 {
			continue
		}
		for _, x := range carried[w.Name] {
			a, _ := parseAddress(x.VIP)
			b := a.As16()
			g := &out[first+int(binary.BigEndian.Uint32(b[12:])%uint32(w.Replicas))]
			g.Addresses = append(g.Addresses, x.VIP)
		}
	}
	for i := range out {
		slices.Sort(out[i].Addresses)
	}
	return out
}
