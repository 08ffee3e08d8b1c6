package objects

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// labels returns the labels of a gateway's objects.
func labels(g *v1alpha1.NFSGateway) map[string]string {
	return map[string]string{plan.LabelManaged: plan.ManagedBy, "app.kubernetes.io/name": "sluice", "app.kubernetes.io/component": "gateway", plan.LabelGateway: g.Name}
}

// workloadLabels returns the labels of a workload's objects.
func workloadLabels(g *v1alpha1.NFSGateway, w *plan.Workload) map[string]string {
	l := labels(g)
	l[plan.LabelWorkload] = w.Name
	if w.Export != nil {
		maps.Copy(l, exportLabels(w.Export))
	}
	return l
}

func exportLabels(e *v1alpha1.NFSExport) map[string]string {
	return map[string]string{plan.LabelExportNamespace: e.Namespace, plan.LabelExport: e.Name}
}

// podsOf returns a selector of a workload's pods.
func podsOf(g *v1alpha1.NFSGateway, workload string) map[string]string {
	return map[string]string{plan.LabelGateway: g.Name, plan.LabelWorkload: workload}
}

// meta returns the metadata of a gateway's object.
func meta(g *v1alpha1.NFSGateway, name string, labels map[string]string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: g.Namespace, Labels: labels, OwnerReferences: []metav1.OwnerReference{owner(g, "NFSGateway")}}
}

// owner returns a reference to an owner, without blockOwnerDeletion, which would need permission on
// finalizers.
func owner(o metav1.Object, kind string) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Name: o.GetName(), UID: o.GetUID(), Controller: &yes}
}

func typeMeta(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

func virtual(g *v1alpha1.NFSGateway) bool {
	return g.Spec.Exposure.Type == v1alpha1.ExposureVirtualIP
}
