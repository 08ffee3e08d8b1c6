package objects

import (
	corev1 "k8s.io/api/core/v1"

	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
)

// volumeServer is what a server needs that acts as its callers and opens files by their handles.
var volumeServer = []corev1.Capability{"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "MKNOD", "SETGID", "SETUID"}

// unprivileged tells whether the gateway's container runs as nobody in particular. PodSecurity "restricted" admits a pod of such a container alone.
func unprivileged(g *v1alpha1.NFSGateway, w *plan.Workload) bool {
	return g.Spec.Provider != v1alpha1.Verbs && w.Claim == nil
}

func podSecurity(g *v1alpha1.NFSGateway, w *plan.Workload) *corev1.PodSecurityContext {
	s := &corev1.PodSecurityContext{
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		// Many NFS servers believe only clients with a port below 1024, which this lets a container without privileges have.
		Sysctls: []corev1.Sysctl{{Name: "net.ipv4.ip_unprivileged_port_start", Value: "0"}},
	}
	if unprivileged(g, w) {
		s.FSGroup = new(int64(nonroot)) // for the keys
	}
	return s
}

func gatewaySecurity(g *v1alpha1.NFSGateway, w *plan.Workload) *corev1.SecurityContext {
	if unprivileged(g, w) {
		return confined(nonroot)
	}
	var add []corev1.Capability
	if w.Claim != nil {
		add = append(add, volumeServer...)
	}
	if g.Spec.Provider == v1alpha1.Verbs {
		add = append(add, "IPC_LOCK") // to register memory
	}
	return confined(0, add...)
}

// confined drops every capability but those that are named. They are of use to root alone.
func confined(user int64, add ...corev1.Capability) *corev1.SecurityContext {
	return &corev1.SecurityContext{
		RunAsUser: new(user), RunAsGroup: new(user), RunAsNonRoot: new(user != 0),
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: add},
	}
}
