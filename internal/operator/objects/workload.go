package objects

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// Entries of a pod's ConfigMap.
const (
	GatewayFile = "gateway.yaml"
	SpeakerFile = "speaker.yaml"
)

// Workload returns the Deployment of the shared pods, or the StatefulSet of a claim's, and the
// ConfigMap of its pods. Each revision of the pod template has a ConfigMap of its own, so that a
// pod never reads a file written for a newer gateway.
func Workload(p *plan.Plan, w *plan.Workload, d *Defaults) (*corev1.ConfigMap, client.Object) {
	g := p.Gateway
	template := podTemplate(g, w, d)
	config := configMap(p, w, w.Name+"-"+hash(template))
	for i := range template.Spec.Volumes {
		if c := template.Spec.Volumes[i].ConfigMap; c != nil && template.Spec.Volumes[i].Name == ConfigVolume {
			c.Name = config.Name
		}
	}
	om := meta(g, w.Name, workloadLabels(g, w))
	selector := &metav1.LabelSelector{MatchLabels: podsOf(g, w.Name)}
	if w.Claim != nil {
		return config, &appsv1.StatefulSet{TypeMeta: typeMeta("apps/v1", "StatefulSet"), ObjectMeta: om, Spec: appsv1.StatefulSetSpec{
			Replicas: new(w.Replicas), Selector: selector, Template: template, RevisionHistoryLimit: new(int32(2)),
		}}
	}
	return config, &appsv1.Deployment{TypeMeta: typeMeta("apps/v1", "Deployment"), ObjectMeta: om, Spec: appsv1.DeploymentSpec{
		Replicas: new(w.Replicas), Selector: selector, Template: template, RevisionHistoryLimit: new(int32(2)),
		// Spare devices are rare, so a new pod waits until an old one has gone.
		Strategy: appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{
			MaxSurge: new(intstr.FromInt32(0)), MaxUnavailable: new(intstr.FromInt32(1)),
		}},
	}}
}

func configMap(p *plan.Plan, w *plan.Workload, name string) *corev1.ConfigMap {
	data := map[string]string{GatewayFile: document(w.Config.Sparse())}
	if virtual(p.Gateway) {
		data[SpeakerFile] = document(speakerConfig(p, w))
	}
	return &corev1.ConfigMap{TypeMeta: typeMeta("v1", "ConfigMap"), ObjectMeta: meta(p.Gateway, name, workloadLabels(p.Gateway, w)), Data: data}
}

// ConfigHash returns a hash of a ConfigMap's data, for [plan.AnnotationConfig].
func ConfigHash(c *corev1.ConfigMap) string { return hash(c.Data) }

func hash(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain structs and maps
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:5])
}

func document(v any) string {
	b, err := yaml.Marshal(v)
	if err != nil {
		panic(err) // plain structs and maps
	}
	return string(b)
}

// DisruptionBudget returns the budget of a workload with several pods; nil otherwise, because it
// would block node drains.
func DisruptionBudget(g *v1alpha1.NFSGateway, w *plan.Workload) *policyv1.PodDisruptionBudget {
	if w.Replicas < 2 {
		return nil
	}
	return &policyv1.PodDisruptionBudget{TypeMeta: typeMeta("policy/v1", "PodDisruptionBudget"), ObjectMeta: meta(g, w.Name, workloadLabels(g, w)), Spec: policyv1.PodDisruptionBudgetSpec{
		MaxUnavailable: new(intstr.FromInt32(1)), Selector: &metav1.LabelSelector{MatchLabels: podsOf(g, w.Name)},
		// A pod that does not serve must not block a drain.
		UnhealthyPodEvictionPolicy: new(policyv1.AlwaysAllow),
	}}
}
