package report

import (
	"fmt"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// crowded warns if spec.limits.exports exceeds the GID table of a device: after a failover one pod
// may carry all virtual addresses. It is "" if all known tables suffice.
func crowded(p *plan.Plan, seen *Observed) string {
	g := p.Gateway
	if g.Spec.Exposure.Type != v1alpha1.ExposureVirtualIP {
		return ""
	}
	virtual := map[string]bool{}
	for i := range p.Exports {
		virtual[p.Exports[i].VIP] = true
	}
	least, device, pod := 0, "", ""
	for i := range seen.Pods {
		if seen.Pods[i].Status == nil {
			continue
		}
		for j := range seen.Pods[i].Status.Exports {
			for _, l := range seen.Pods[i].Status.Exports[j].Listeners {
				if l.Device == nil || l.Device.Transport != "RoCE" {
					continue
				}
				for _, port := range l.Device.Ports {
					if n, ok := room(port.GIDTable, port.GIDs, virtual); ok && (device == "" || n < least) {
						least, device, pod = n, l.Device.Name, seen.Pods[i].Name
					}
				}
			}
		}
	}
	if device == "" || int(g.Spec.Limits.Exports) <= least {
		return ""
	}
	return fmt.Sprintf("; spec.limits.exports is %d, but the GID table of %s in pod %s has room for %d virtual IPs, and after a failover one pod may carry all: lower the limit, and make another NFSGateway for further exports",
		g.Spec.Limits.Exports, device, pod, least)
}

// room returns the number of virtual addresses that fit in a port's GID table. Each takes one entry
// for each type (RoCE v1, v2), beside the interface's own. ok is false without the table's size.
func room(table int, gids []string, virtual map[string]bool) (int, bool) {
	if table == 0 {
		return 0, false
	}
	own, each := 0, map[string]int{}
	types := 1
	for _, g := range gids {
		if !virtual[g] {
			own++
		}
		each[g]++
		types = max(types, each[g])
	}
	return max(0, table-own) / types, true
}
