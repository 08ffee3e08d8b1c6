package objects

import (
	"fmt"
	"net/netip"
	"slices"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/speaker/api"
)

func serviceAccountName(g *v1alpha1.NFSGateway) string { return g.Name + "-speaker" }

// speakerContainer returns a sidecar that carries virtual addresses. It starts before the gateway
// and ends after it.
func speakerContainer(g *v1alpha1.NFSGateway, image, logFormat string) corev1.Container {
	c := corev1.Container{
		Name: SpeakerContainer, Image: image, RestartPolicy: new(corev1.ContainerRestartPolicyAlways),
		Args:            []string{"speaker", "--config", plan.ConfigDir + "/" + SpeakerFile, "--gateway-ready", fmt.Sprintf("http://127.0.0.1:%d/readyz", plan.AdminPort)},
		Env:             []corev1.EnvVar{fieldEnv("POD_NAME", "metadata.name"), fieldEnv("POD_NAMESPACE", "metadata.namespace"), fieldEnv("POD_UID", "metadata.uid")},
		Ports:           []corev1.ContainerPort{{Name: SpeakerContainer, ContainerPort: plan.SpeakerPort, Protocol: corev1.ProtocolTCP}},
		LivenessProbe:   probe("/healthz", plan.SpeakerPort, 10, 6),
		SecurityContext: confined(0, "NET_ADMIN", "NET_RAW"),
		Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("32Mi")},
			Limits:   corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("128Mi")},
		},
		VolumeMounts: []corev1.VolumeMount{
			{Name: ConfigVolume, MountPath: plan.ConfigDir, ReadOnly: true},
			{Name: tokenVolume, MountPath: "/var/run/secrets/kubernetes.io/serviceaccount", ReadOnly: true},
		},
	}
	if v := g.Spec.Exposure.VirtualIP; v != nil && v.LeaseDuration != "" {
		c.Args = append(c.Args, "--lease-duration", string(v.LeaseDuration))
	}
	if logFormat != "" {
		c.Args = append(c.Args, "--log-format", logFormat)
	}
	adminHosts(g, &c)
	return c
}

// token returns the volume of a service account token for the speaker alone.
func token() corev1.Volume {
	return corev1.Volume{Name: tokenVolume, VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
		{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token", ExpirationSeconds: new(int64(3607))}},
		{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "kube-root-ca.crt"}, Items: []corev1.KeyToPath{{Key: "ca.crt", Path: "ca.crt"}}}},
		{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{APIVersion: "v1", FieldPath: "metadata.namespace"}}}}},
	}}}}
}

// speakerConfig returns the configuration of a workload's speakers.
func speakerConfig(p *plan.Plan, w *plan.Workload) *api.Config {
	c := &api.Config{Interface: plan.VirtualInterface(p.Gateway), Groups: []api.Group{}}
	for _, g := range p.Groups {
		if g.Workload != w.Name {
			continue
		}
		group := api.Group{Lease: g.Lease, Addresses: []netip.Addr{}}
		for _, a := range g.Addresses {
			if a, err := netip.ParseAddr(a); err == nil {
				group.Addresses = append(group.Addresses, a)
			}
		}
		c.Groups = append(c.Groups, group)
	}
	return c
}

// ServiceAccount returns the speakers' account.
func ServiceAccount(g *v1alpha1.NFSGateway) *corev1.ServiceAccount {
	return &corev1.ServiceAccount{TypeMeta: typeMeta("v1", "ServiceAccount"), ObjectMeta: meta(g, serviceAccountName(g), labels(g)), AutomountServiceAccountToken: new(false)}
}

// Role permits the speakers to read and write their gateway's Leases. The operator creates them,
// and never changes their spec.
func Role(p *plan.Plan) *rbacv1.Role {
	var names []string
	for _, g := range p.Groups {
		names = append(names, g.Lease)
	}
	slices.Sort(names)
	r := &rbacv1.Role{TypeMeta: typeMeta("rbac.authorization.k8s.io/v1", "Role"), ObjectMeta: meta(p.Gateway, serviceAccountName(p.Gateway), labels(p.Gateway))}
	if len(names) > 0 { // a rule without names permits all Leases
		r.Rules = []rbacv1.PolicyRule{{APIGroups: []string{coordinationv1.GroupName}, Resources: []string{"leases"}, ResourceNames: names, Verbs: []string{"get", "watch", "patch"}}}
	}
	return r
}

// RoleBinding binds the speakers to their Role.
func RoleBinding(g *v1alpha1.NFSGateway) *rbacv1.RoleBinding {
	name := serviceAccountName(g)
	return &rbacv1.RoleBinding{
		TypeMeta: typeMeta("rbac.authorization.k8s.io/v1", "RoleBinding"), ObjectMeta: meta(g, name, labels(g)),
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: g.Namespace}},
	}
}

// Leases returns the Leases of address groups, without a holder.
func Leases(p *plan.Plan) []*coordinationv1.Lease {
	var out []*coordinationv1.Lease
	for _, g := range p.Groups {
		l := labels(p.Gateway)
		l[plan.LabelWorkload] = g.Workload
		out = append(out, &coordinationv1.Lease{TypeMeta: typeMeta("coordination.k8s.io/v1", "Lease"), ObjectMeta: meta(p.Gateway, g.Lease, l)})
	}
	return out
}
