package objects

import (
	corev1 "k8s.io/api/core/v1"
)

// confined returns a security context without capabilities, except add, which only root can use.
func confined(user int64, add ...corev1.Capability) *corev1.SecurityContext {
	return &corev1.SecurityContext{
		RunAsUser: new(user), RunAsGroup: new(user), RunAsNonRoot: new(user != 0),
		AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
		Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}, Add: add},
	}
}
