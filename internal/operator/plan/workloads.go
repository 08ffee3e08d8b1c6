package plan

import (
	"cmp"
	"encoding/binary"
	"slices"

	"sluice.dev/sluice/api/v1alpha1"
)

// workloads are the shared one and those of claims that are served, by name.
func workloads(g *v1alpha1.NFSGateway, exports []Export) []Workload {
	shared := Workload{Name: g.Name, Replicas: defaultReplicas, Config: frame(g)}
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
			shared.Config.Exports = append(shared.Config.Exports, *x.Config)
			continue
		}
		w := Workload{Name: x.Workload, Claim: claim, Export: x.Source, Replicas: 1, Config: frame(g)}
		w.Config.Exports = append(w.Config.Exports, *x.Config)
		out = append(out, w)
	}
	out = append(out, shared)
	slices.SortFunc(out, func(a, b Workload) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// groups spreads the virtual addresses of each workload over as many groups as it has replicas. An address stays in its group when others come and go.
func groups(workloads []Workload, exports []Export) []Group {
	var out []Group
	for _, w := range workloads {
		first := len(out)
		for i := range int(w.Replicas) {
			out = append(out, Group{Workload: w.Name, Lease: LeaseName(w.Name, i)})
		}
		if w.Replicas == 0 {
			continue
		}
		for _, x := range exports {
			if x.Config == nil || x.VIP == "" || x.Workload != w.Name {
				continue
			}
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
