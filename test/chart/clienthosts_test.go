//go:build operator

package chart

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"sluice.dev/sluice/internal/operator"
)

// TestClientHosts checks that the pods of the DaemonSet have exactly the rights on the node that
// docs/kubernetes.md lists, and none in the cluster.
func TestClientHosts(t *testing.T) {
	text, err := render(chart, "", "--set", "clientHosts.enabled=true,clientHosts.link.type=rxe,clientHosts.link.interface=eth1,clientHosts.link.name=rxe7,clientHosts.nodeSelector.pool=clients")
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.DaemonSet
	for _, u := range objects(t, text) {
		if u.GetKind() == "DaemonSet" {
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, &set); err != nil {
				t.Fatal(err)
			}
		}
	}
	spec := set.Spec.Template.Spec
	c := spec.Containers[0]
	if want := []string{"client-host", "--log-format=json", "--link-type=rxe", "--link-name=rxe7", "--interface=eth1"}; !slices.Equal(c.Args, want) {
		t.Errorf("arguments %q, want %q", c.Args, want)
	}
	if spec.NodeSelector["pool"] != "clients" {
		t.Errorf("nodeSelector %v", spec.NodeSelector)
	}
	if spec.ServiceAccountName != "" || *spec.AutomountServiceAccountToken || spec.HostPID || spec.HostIPC || !spec.HostNetwork {
		t.Errorf("the pod has an account's token, or other namespaces of the node than its network: %+v", spec)
	}
	s := c.SecurityContext
	if s.Privileged != nil || *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !slices.Equal(s.Capabilities.Drop, []corev1.Capability{"ALL"}) ||
		!slices.Equal(s.Capabilities.Add, []corev1.Capability{"NET_ADMIN", "SYS_MODULE"}) {
		t.Errorf("security context %+v", s)
	}
	var writable []string
	for i, v := range spec.Volumes {
		if !c.VolumeMounts[i].ReadOnly {
			writable = append(writable, v.HostPath.Path)
		}
	}
	if len(spec.Volumes) != 2 || !slices.Equal(writable, []string{"/run/sluice"}) {
		t.Errorf("the pod may write to %q", writable)
	}
	probe := c.ReadinessProbe.Exec.Command
	var out, errs bytes.Buffer
	if code := operator.Main(append(slices.Clone(probe[1:]), "--state="+t.TempDir()), "version", &out, &errs); code != 1 || !strings.Contains(out.String(), "first look") {
		t.Errorf("%q: exit code %d: %s%s", probe, code, &out, &errs)
	}
}
