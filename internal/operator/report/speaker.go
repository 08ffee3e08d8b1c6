package report

import (
	"fmt"
	"slices"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/speaker/api"
)

// holders returns the first pod that carries each virtual address.
func holders(pods []Pod) map[string]string {
	m := map[string]string{}
	for i := range pods {
		if pods[i].Speaker == nil {
			continue
		}
		for _, g := range pods[i].Speaker.Groups {
			for _, a := range g.Addresses {
				if vip := a.Address.String(); a.State == "Carried" && m[vip] == "" {
					m[vip] = pods[i].Name
				}
			}
		}
	}
	return m
}

// holder returns the pod that carries the export's address; "" if none does.
func (s *Observed) holder(x *plan.Export) string { return s.shared.holders[x.VIP] }

// carrying returns why no pod carries a virtual address, or why RDMA cannot use it.
func carrying(vip, holder string, w *workload) words {
	if holder != "" {
		return unusable(vip, holder, w)
	}
	silent := ""
	for _, p := range w.serving {
		if p.Speaker == nil {
			silent = p.Name
			continue
		}
		for _, problem := range p.Speaker.Problems {
			if problem.Address != "" && problem.Address != vip {
				continue
			}
			text := fmt.Sprintf("pod %s cannot carry %s: %s", p.Name, vip, condition.Quote(problem.Message))
			switch problem.Reason {
			case api.NetworkNotLayer2:
				return words{v1alpha1.ReasonNetworkNotLayer2, text}
			case api.DeviceAddressLimit:
				return words{v1alpha1.ReasonDeviceAddressLimit, text}
			default:
				return words{v1alpha1.ReasonAddressNotHeld, text}
			}
		}
	}
	if silent != "" {
		return words{v1alpha1.ReasonAddressNotHeld, fmt.Sprintf("no pod is known to carry %s: the speaker of pod %s does not answer on port %d", vip, silent, plan.SpeakerPort)}
	}
	return words{v1alpha1.ReasonAddressNotHeld, fmt.Sprintf("no pod carries %s now", vip)}
}

// unusable returns why RDMA cannot use a carried address. Software iWARP uses the kernel's TCP, so
// it always can.
func unusable(vip, holder string, w *workload) words {
	i := slices.IndexFunc(w.serving, func(p *Pod) bool { return p.Name == holder })
	if i < 0 || w.provider != v1alpha1.Verbs || w.serving[i].Speaker == nil {
		return words{}
	}
	for _, problem := range w.serving[i].Speaker.Problems {
		if problem.Reason == api.DeviceAddressLimit && problem.Address == vip {
			return words{v1alpha1.ReasonDeviceAddressLimit, fmt.Sprintf("pod %s carries %s, but RDMA does not come by it: %s", holder, vip, condition.Quote(problem.Message))}
		}
	}
	return words{}
}
