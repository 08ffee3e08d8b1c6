//go:build operator

package chart

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/sluice/test/apiserver"
)

func kustomize(t *testing.T, dir string) []*unstructured.Unstructured {
	t.Helper()
	text, err := output("kubectl", "/dev/null", "kustomize", apiserver.Path(dir))
	if err != nil {
		t.Fatal(err)
	}
	return objects(t, text)
}

func TestConfig(t *testing.T) {
	kinds := map[string]int{}
	for _, u := range kustomize(t, "config") {
		accepted(t, u)
		kinds[u.GetKind()]++
		if u.GetKind() == "Deployment" {
			takesFlags(t, u, "--version")
		}
	}
	want := map[string]int{"Namespace": 1, "CustomResourceDefinition": 2, "ServiceAccount": 1, "ClusterRole": 3, "ClusterRoleBinding": 1, "Role": 1, "RoleBinding": 1, "Lease": 1, "Deployment": 1, "ValidatingAdmissionPolicy": 1, "ValidatingAdmissionPolicyBinding": 1}
	if diff := cmp.Diff(want, kinds); diff != "" {
		t.Error(diff)
	}
}

func TestSamples(t *testing.T) {
	samples := kustomize(t, "config/samples")
	if len(samples) != 7 {
		t.Errorf("have %d samples, want 7", len(samples))
	}
	for _, u := range samples {
		accepted(t, u)
	}
}

// TestConfigIsTheChart checks that both ways to install the operator give the same pods, rights and
// owners.
func TestConfigIsTheChart(t *testing.T) {
	text, err := render(chart, "")
	if err != nil {
		t.Fatal(err)
	}
	rendered := map[string]*unstructured.Unstructured{}
	for _, u := range objects(t, text) {
		rendered[u.GetKind()+" "+u.GetName()] = u
	}
	names := map[string]string{ // the differences
		"ClusterRole sluice-operator":                             "ClusterRole sluice-system-sluice-operator",
		"ClusterRoleBinding sluice-operator":                      "ClusterRoleBinding sluice-system-sluice-operator",
		"ClusterRole sluice-view":                                 "ClusterRole sluice-system-sluice-view",
		"ClusterRole sluice-edit":                                 "ClusterRole sluice-system-sluice-edit",
		"ValidatingAdmissionPolicy sluice-gateways-in-use":        "ValidatingAdmissionPolicy sluice-system-sluice-gateways-in-use",
		"ValidatingAdmissionPolicyBinding sluice-gateways-in-use": "ValidatingAdmissionPolicyBinding sluice-system-sluice-gateways-in-use",
	}
	for _, u := range kustomize(t, "config") {
		if u.GetKind() == "Namespace" {
			continue // helm --create-namespace makes it
		}
		id := u.GetKind() + " " + u.GetName()
		if other, ok := names[id]; ok {
			id = other
		}
		c := rendered[id]
		if c == nil {
			t.Errorf("the chart has no %s", id)
			continue
		}
		if diff := cmp.Diff(same(c), same(u)); diff != "" {
			t.Errorf("%s: chart (-), config (+)\n%s", id, diff)
		}
	}
}

var defaults = regexp.MustCompile(`^--(operator-labels|collector-labels|log-level)=`)

// same drops the parts that may differ: names, labels that identify releases, and flags with
// default values.
func same(u *unstructured.Unstructured) map[string]any {
	u = u.DeepCopy()
	delete(u.Object, "metadata")
	unstructured.RemoveNestedField(u.Object, "roleRef", "name")
	unstructured.RemoveNestedField(u.Object, "spec", "policyName")
	for _, path := range [][]string{{"spec", "selector", "matchLabels"}, {"spec", "template", "metadata", "labels"}} {
		if labels, ok, _ := unstructured.NestedMap(u.Object, path...); ok {
			delete(labels, "app.kubernetes.io/instance")
			_ = unstructured.SetNestedMap(u.Object, labels, path...)
		}
	}
	containers, ok, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	if !ok {
		return u.Object
	}
	container := containers[0].(map[string]any)
	var args []any
	for _, arg := range container["args"].([]any) {
		if !defaults.MatchString(arg.(string)) {
			args = append(args, arg)
		}
	}
	container["args"] = args
	_ = unstructured.SetNestedSlice(u.Object, containers, "spec", "template", "spec", "containers")
	return u.Object
}
