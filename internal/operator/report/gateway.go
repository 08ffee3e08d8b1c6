package report

import (
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
	"sluice.dev/sluice/internal/operator/plan"
)

// Gateway returns the status of the plan's gateway.
func Gateway(p *plan.Plan, seen *Observed) v1alpha1.NFSGatewayStatus {
	seen = seen.prepared(p)
	shared := plan.WorkloadName(p.Gateway, nil)
	s := v1alpha1.NFSGatewayStatus{
		Conditions:       slices.Clone(p.Conditions),
		Selector:         labels.Set{plan.LabelGateway: p.Gateway.Name, plan.LabelWorkload: shared}.String(),
		HandleKeysSecret: plan.KeysName(p.Gateway),
	}
	var exported []*plan.Export
	inShared := false
	for i := range p.Exports {
		if x := &p.Exports[i]; x.Config != nil {
			exported = append(exported, x)
			inShared = inShared || x.Workload == shared
		}
	}
	s.Exports = int32(len(exported))
	for i := range seen.Pods {
		pod := &seen.Pods[i]
		if pod.Labels[plan.LabelWorkload] == shared && pod.DeletionTimestamp == nil && pod.Pod.Status.Phase != "Failed" {
			s.Replicas++
		}
		if pod.Status == nil {
			continue
		}
		for j := range pod.Status.Exports {
			x := &pod.Status.Exports[j]
			s.Clients += int32(len(x.Clients) + x.ClientsOmitted)
		}
	}

	var wanted, serving int
	var troubles []words
	if o := seen.Blocked[""]; o != nil {
		troubles = append(troubles, o.words())
	}
	looked := map[string]workload{}
	for i := range p.Workloads {
		w := seen.of(p, p.Workloads[i].Name)
		looked[p.Workloads[i].Name] = w
		wanted, serving = wanted+int(w.plan.Replicas), serving+len(w.serving)
		if n, behind := seen.Updated[w.plan.Name]; behind {
			troubles = append(troubles, words{v1alpha1.ReasonApplying, fmt.Sprintf("pods of %s are being replaced: %d of %d done", w.plan.Name, n, w.plan.Replicas)})
		}
		if w.plan.Replicas > 0 || inShared || len(exported) == 0 {
			troubles = append(troubles, w.trouble...)
		}
	}
	s.Pods = fmt.Sprintf("%d/%d", serving, wanted)

	programmed := condition.True(v1alpha1.ConditionProgrammed, v1alpha1.ReasonProgrammed, "all of %s run", plural(wanted, "pod"))
	if len(troubles) > 0 {
		programmed = sentence(v1alpha1.ConditionProgrammed, gravest(troubles))
	}
	rdma := gatewayRDMA(p, exported, looked, seen)
	s.Conditions = append(s.Conditions, programmed, capacity(&p.Capacity), rdma)
	s.Conditions = append(s.Conditions, gatewayReady(p, exported, looked, &programmed, &rdma))
	return s
}

// capacity reports whether the configuration of the shared pods has room. The message has no number
// that each export would change.
func capacity(c *plan.Capacity) metav1.Condition {
	const kind = v1alpha1.ConditionConfigCapacity
	switch {
	case c.Refused > 0 || c.Used > plan.MaxConfig:
		return condition.False(kind, v1alpha1.ReasonCapacityExhausted, "the configuration of the pods fills its ConfigMap: create another NFSGateway for new exports, or shorten access rules")
	case c.Used > plan.MaxConfig/5*4:
		return condition.False(kind, v1alpha1.ReasonCapacityLow, "the configuration of the pods takes more than 80 %% of the 1 MiB of a ConfigMap: create another NFSGateway for further exports, or shorten access rules")
	}
	return condition.True(kind, v1alpha1.ReasonCapacitySufficient, "the ConfigMap of the pods has room for more exports")
}

// gatewayRDMA reports whether RPC-over-RDMA is served for every served export.
func gatewayRDMA(p *plan.Plan, exported []*plan.Export, looked map[string]workload, seen *Observed) metav1.Condition {
	const kind = v1alpha1.ConditionRDMAReady
	if len(exported) == 0 {
		return condition.Unknown(kind, v1alpha1.ReasonUnknown, "%s", idle(p))
	}
	well, reason, hint := 0, v1alpha1.ReasonServing, ""
	for _, x := range exported {
		w := looked[x.Workload]
		at := at(x, &w)
		if len(at) == 0 {
			continue
		}
		c := rdmaReady(x, at, seen.holder(x), &w)
		if c.Status == metav1.ConditionFalse {
			c.Message = "export " + plan.Key(x.Source) + ": " + c.Message
			return c
		}
		if c.Status == metav1.ConditionTrue && c.Reason != v1alpha1.ReasonServing && hint == "" {
			reason, hint = c.Reason, "; export "+plan.Key(x.Source)+": "+c.Message
		}
		well++
	}
	if well == 0 {
		return condition.Unknown(kind, v1alpha1.ReasonUnknown, "no export is served yet")
	}
	return condition.True(kind, reason, "%s served%s%s", plural(well, "export"), hint, crowded(p, seen))
}

// gatewayReady reports whether each workload has a pod that accepts clients.
func gatewayReady(p *plan.Plan, exported []*plan.Export, looked map[string]workload, programmed, rdma *metav1.Condition) metav1.Condition {
	if f := failing(p.Conditions); f != nil {
		return as(f)
	}
	for i := range p.Workloads {
		if w := &p.Workloads[i]; len(looked[w.Name].serving) == 0 && programmed.Status != metav1.ConditionTrue {
			return as(programmed)
		}
	}
	if rdma.Status == metav1.ConditionFalse {
		return as(rdma)
	}
	if len(exported) == 0 {
		return condition.True(v1alpha1.ConditionReady, v1alpha1.ReasonReady, "%s", idle(p))
	}
	return condition.True(v1alpha1.ConditionReady, v1alpha1.ReasonReady, "exports can be mounted")
}

// idle returns why a gateway serves no export.
func idle(p *plan.Plan) string {
	if n := len(p.Exports); n > 0 {
		return fmt.Sprintf("none of its %d NFSExports can be served: check their conditions", n)
	}
	return "no NFSExport refers to it yet"
}
