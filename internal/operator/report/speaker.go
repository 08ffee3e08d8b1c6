package report

import (
	"fmt"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/speaker/contract"
)

// holder names the pod that carries the export's address; empty if none does.
func holder(x *plan.Export, seen *Seen) string {
	for i := range seen.Pods {
		s := seen.Pods[i].Speaker
		if x.VIP == "" || s == nil {
			continue
		}
		for _, g := range s.Groups {
			for _, a := range g.Addresses {
				if a.State == "Carried" && a.Address.String() == x.VIP {
					return seen.Pods[i].Name
				}
			}
		}
	}
	return ""
}

// carrying says why no pod carries a virtual address; nothing if holder does.
func carrying(vip, holder string, w *workload) words {
	if holder != "" {
		return words{}
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
			case contract.NetworkNotLayer2:
				return words{v1alpha1.ReasonNetworkNotLayer2, text}
			case contract.DeviceAddressLimit:
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
