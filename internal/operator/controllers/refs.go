package controllers

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/objects"
	"sluice.dev/sluice/internal/operator/plan"
)

// byGateway is the index of NFSExports by NAMESPACE/NAME of their NFSGateway.
const byGateway = "gateway"

// gatewayRef returns the name of the NFSGateway of an export.
func gatewayRef(x *v1alpha1.NFSExport) types.NamespacedName {
	return types.NamespacedName{Namespace: plan.GatewayNamespace(x), Name: x.Spec.GatewayRef.Name}
}

// listExports returns the exports of a gateway that are not being deleted.
func listExports(ctx context.Context, c client.Reader, gateway types.NamespacedName) ([]v1alpha1.NFSExport, error) {
	var all v1alpha1.NFSExportList
	if err := c.List(ctx, &all, client.MatchingFields{byGateway: gateway.String()}); err != nil {
		return nil, err
	}
	kept := all.Items[:0]
	for _, x := range all.Items {
		if x.DeletionTimestamp == nil {
			kept = append(kept, x)
		}
	}
	return kept, nil
}

// gatewayOf returns the name of the NFSGateway of a labelled object.
func gatewayOf(o client.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetLabels()[plan.LabelGateway]}
}

// canPoll reports whether a pod is running with an address.
func canPoll(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodRunning && pod.Status.PodIP != ""
}

func hasSpeaker(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Spec.InitContainers, func(c corev1.Container) bool { return c.Name == objects.SpeakerContainer })
}

// configMapOf returns the name of a pod's configuration, or "". Admission may have added other
// ConfigMaps.
func configMapOf(pod *corev1.Pod) string {
	for _, v := range pod.Spec.Volumes {
		if v.Name == objects.ConfigVolume && v.ConfigMap != nil {
			return v.ConfigMap.Name
		}
	}
	return ""
}

type objectKey struct {
	schema.GroupKind
	client.ObjectKey
}

func (r *GatewayReconciler) keyOf(o client.Object) objectKey {
	return objectKey{o.GetObjectKind().GroupVersionKind().GroupKind(), client.ObjectKeyFromObject(o)}
}
