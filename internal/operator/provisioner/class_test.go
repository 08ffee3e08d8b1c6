package provisioner

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"sluice.dev/sluice/pkg/nfs/nfs3"
)

func TestClass(t *testing.T) {
	o := options()
	c, err := parseClass(o.StorageClass)
	must(t, err)
	if c.export.String() != "storage/data" || c.parent != "/" || c.transport != "rdma" || c.attrs != (nfs3.SetAttrs{SetMode: true, Mode: 0o777}) || len(c.options) != 0 {
		t.Errorf("defaults: %+v", c)
	}
	for _, bad := range []struct{ key, value, words string }{
		{"export", "", `parameters.export: "": want NAMESPACE/NAME`},
		{"export", "data", `parameters.export: "data": want NAMESPACE/NAME`},
		{"export", "a/b/c", `want NAMESPACE/NAME`},
		{"export", "/data", `want NAMESPACE/NAME`},
		{"export", "Storage/data", `want NAMESPACE/NAME`},
		{"parent", "", `parameters.parent: "": want the absolute path`},
		{"parent", "volumes", `want the absolute path`},
		{"parent", "/volumes/", `want the absolute path`},
		{"parent", "/a/../b", `want the absolute path`},
		{"parent", "/a//b", `want the absolute path`},
		{"parent", "/a\x00", `want the absolute path`},
		{"parent", "/" + strings.Repeat("a", maxParent), `want the absolute path`},
		{"transport", "RDMA", `parameters.transport: "RDMA": want rdma`},
		{"mode", "rwx", `parameters.mode: "rwx": want an octal number`},
		{"mode", "888", `want an octal number`},
		{"mode", "10000", `want an octal number`},
		{"mode", "", `want an octal number`},
		{"uid", "-1", `parameters.uid: "-1": want a number`},
		{"uid", "4294967295", `want a number`},
		{"gid", "users", `parameters.gid: "users": want a number`},
		{"quota", "1Gi", `parameters: "quota" is unknown: want export,`},
	} {
		if _, err := parseClass(options(bad.key, bad.value).StorageClass); err == nil || !strings.Contains(err.Error(), bad.words) {
			t.Errorf("%s: %.40q: error %v, must be %q", bad.key, bad.value, err, bad.words)
		}
	}
	for _, option := range []string{"proto=tcp", "rdma", "nconnect=2,port=1", "vers=3", "nfsvers=4", "addr=192.0.2.1", "mountport=1"} {
		o.StorageClass.MountOptions = []string{"hard", option}
		if _, err := parseClass(o.StorageClass); err == nil || !strings.Contains(err.Error(), "mountOptions: ") || !strings.Contains(err.Error(), "leave it out") {
			t.Errorf("mount option %s: error %v", option, err)
		}
	}
	o = options()
	o.StorageClass.AllowedTopologies = []corev1.TopologySelectorTerm{{}}
	if _, err := parseClass(o.StorageClass); err == nil || !strings.Contains(err.Error(), "allowedTopologies") {
		t.Errorf("allowedTopologies: error %v", err)
	}
}

func TestClaim(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*corev1.PersistentVolumeClaimSpec)
		words  string
	}{
		"access mode": {func(s *corev1.PersistentVolumeClaimSpec) {
			s.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOncePod}
		}, `spec.accessModes: "ReadWriteOncePod": want ReadWriteOnce, ReadOnlyMany or ReadWriteMany`},
		"selector": {func(s *corev1.PersistentVolumeClaimSpec) { s.Selector = &metav1.LabelSelector{} }, "spec.selector"},
		"snapshot": {func(s *corev1.PersistentVolumeClaimSpec) {
			s.DataSource = &corev1.TypedLocalObjectReference{Kind: "VolumeSnapshot", Name: "x"}
		}, `spec.dataSource: VolumeSnapshot "x"`},
		"clone": {func(s *corev1.PersistentVolumeClaimSpec) {
			s.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "x"}
		}, `spec.dataSourceRef: PersistentVolumeClaim "x"`},
		"another class": {func(s *corev1.PersistentVolumeClaimSpec) { s.VolumeAttributesClassName = new("fast") }, `spec.volumeAttributesClassName: "fast"`},
	} {
		o := options()
		must(t, checkClaim(o.PVC))
		c.change(&o.PVC.Spec)
		if err := checkClaim(o.PVC); err == nil || !strings.Contains(err.Error(), c.words) {
			t.Errorf("%s: error %v, must be %q", name, err, c.words)
		}
	}
}
