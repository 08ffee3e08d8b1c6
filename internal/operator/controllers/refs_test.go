package controllers

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// A service mesh puts ConfigMaps of its own into pods, before the others.
func TestMounted(t *testing.T) {
	volume := func(name, configMap string) corev1.Volume {
		return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: configMap}}}}
	}
	pod := podNamed("fast-0", "1")
	if got := configMapOf(&pod); got != "" {
		t.Errorf("a pod without volumes reads %q", got)
	}
	pod.Spec.Volumes = []corev1.Volume{{Name: "token"}, volume("mesh-ca", "mesh-ca-root"), volume("config", "fast-0123456789")}
	if got := configMapOf(&pod); got != "fast-0123456789" {
		t.Errorf("the pod reads %q", got)
	}
}
