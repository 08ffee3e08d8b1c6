package plan

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/condition"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// observed sets the generation of conditions.
func observed(generation int64, list ...metav1.Condition) []metav1.Condition {
	for i := range list {
		list[i].ObservedGeneration = generation
	}
	return list
}

func exportConditions(g *v1alpha1.NFSGateway, e *v1alpha1.NFSExport, refused, missing *refusal) []metav1.Condition {
	var accepted, resolved metav1.Condition
	if refused != nil {
		accepted = condition.False(v1alpha1.ConditionAccepted, refused.reason, "%s", refused.message)
	} else {
		accepted = condition.True(v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, "NFSGateway %s/%s serves this export", g.Namespace, g.Name)
	}
	switch {
	case missing != nil:
		resolved = condition.False(v1alpha1.ConditionResolvedRefs, missing.reason, "%s", missing.message)
	case refused != nil:
		resolved = condition.Unknown(v1alpha1.ConditionResolvedRefs, v1alpha1.ReasonUnknown, "references are checked once the export is accepted")
	default:
		resolved = condition.True(v1alpha1.ConditionResolvedRefs, v1alpha1.ReasonResolved, "all referenced objects exist")
	}
	return observed(e.Generation, accepted, resolved)
}

func gatewayConditions(in *Input, poolProblems []string) []metav1.Condition {
	accepted := condition.True(v1alpha1.ConditionAccepted, v1alpha1.ReasonAccepted, "the operator serves this gateway")
	if len(poolProblems) > 0 {
		accepted = condition.False(v1alpha1.ConditionAccepted, v1alpha1.ReasonPoolInvalid, "%s", strings.Join(poolProblems, "; "))
	}
	resolved := condition.True(v1alpha1.ConditionResolvedRefs, v1alpha1.ReasonResolved, "all referenced objects exist")
	if r := gatewayMissing(in); r != nil {
		resolved = condition.False(v1alpha1.ConditionResolvedRefs, r.reason, "%s", r.message)
	}
	return observed(in.Gateway.Generation, accepted, resolved)
}

// gatewayMissing returns the first reference of a gateway to a missing or invalid object; nil if
// there is none.
func gatewayMissing(in *Input) *refusal {
	g := in.Gateway
	if name := g.Spec.HandleKeys.SecretName; name != "" {
		const made = `openssl rand -base64 32 > keys; kubectl -n %s create secret generic %s --from-file=keys`
		if in.Keys == nil {
			return refuse(v1alpha1.ReasonSecretNotFound, "Secret %q of handleKeys.secretName does not exist in namespace %q: create it: "+made, name, g.Namespace, g.Namespace, name)
		}
		if _, err := sign.ParseKeys(in.Keys.Data[KeysEntry]); err != nil {
			return refuse(v1alpha1.ReasonSecretInvalid, "the entry %q of Secret %q in namespace %q: %v: want one key of at least 32 bytes in base64 on each line", KeysEntry, name, g.Namespace, err)
		}
	}
	if g.Spec.RDMA == nil {
		return nil
	}
	for _, n := range g.Spec.RDMA.Networks {
		if key := NetworkKey(g, n); !in.Networks[key] {
			return refuse(v1alpha1.ReasonNetworkNotFound, "NetworkAttachmentDefinition %s of rdma.networks does not exist: create it, or name another one", key)
		}
	}
	return nil
}
