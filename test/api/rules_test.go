//go:build operator

package api

import (
	"context"
	"os"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// rule is a case of testdata/rules.yaml, for one of the CRDs' x-kubernetes-validations.
type rule struct {
	// At is the path of the rule's schema; Message is the rule's whole message.
	At      string `json:"at"`
	Message string `json:"message"`
	// Object is one of testdata/objects.
	Object string `json:"object"`
	// From is a merge patch, applied first. The object is created with it, so that immutable fields
	// can be changed afterwards.
	From string `json:"from"`
	// Refuse and Accept are merge patches.
	Refuse []string `json:"refuse"`
	Accept []string `json:"accept"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile("testdata/rules.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var out []rule
	if err := yaml.UnmarshalStrict(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestRules(t *testing.T) {
	type key struct{ node, message string }
	immutable := map[key]bool{}
	missing := map[key]bool{}
	for _, n := range nodes() {
		for _, v := range n.schema.XValidations {
			k := key{n.String(), v.Message}
			if missing[k] {
				t.Errorf("%s: two rules with the same message", n)
			}
			missing[k], immutable[k] = true, strings.Contains(v.Rule, "oldSelf")
		}
	}
	tried := 0
	for _, r := range rules(t) {
		u := merged(t, object(t, r.Object), r.From)
		k := key{u.GetKind() + " " + r.At, r.Message}
		if _, ok := immutable[k]; !ok {
			t.Errorf("%s has no rule %q", k.node, r.Message)
			continue
		}
		if len(r.Refuse) == 0 || len(r.Accept) == 0 {
			t.Errorf("%s: %s: want a refusing and an accepting case", k.node, r.Message)
			continue
		}
		delete(missing, k)
		tried++
		t.Run(u.GetKind()+"/"+r.At+"/"+r.Message, func(t *testing.T) { r.run(t, u, immutable[k]) })
	}
	for k := range missing {
		t.Errorf("%s: no case in testdata/rules.yaml for the rule %q", k.node, k.message)
	}
	t.Logf("%d rules", tried)
}

var index = regexp.MustCompile(`\[\d+\]`)

func (r rule) run(t *testing.T, u *unstructured.Unstructured, immutable bool) {
	ask := create
	if immutable {
		u = keep(t, u)
		ask = func(u *unstructured.Unstructured) error {
			return kube.Update(context.Background(), u.DeepCopy(), client.DryRunAll)
		}
	}
	for _, patch := range r.Refuse {
		said := causes(t, ask(merged(t, u, patch)))
		if len(said) != 1 {
			t.Errorf("%s: want one refusal, have %q", patch, said)
			continue
		}
		field, message, _ := strings.Cut(said[0], ": ")
		if index.ReplaceAllString(field, "[]") != r.At && (r.At != "" || field != "<nil>") {
			t.Errorf("%s: refused at %s, want it at %s", patch, field, r.At)
		}
		if !strings.HasPrefix(message, "Invalid value") || !strings.HasSuffix(message, ": "+r.Message) {
			t.Errorf("%s: %s\nwant %s", patch, message, r.Message)
		}
	}
	for _, patch := range r.Accept {
		if err := ask(merged(t, u, patch)); err != nil {
			t.Errorf("%s: %v", patch, err)
		}
	}
}

func TestObjects(t *testing.T) {
	for _, name := range objects(t) {
		t.Run(name, func(t *testing.T) {
			if err := create(object(t, name)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestImmutable checks that exactly these fields cannot be changed. TestRules checks their refusal.
func TestImmutable(t *testing.T) {
	want := map[string]bool{
		"NFSExport spec.gatewayRef": true, "NFSExport spec.signHandles": true, "NFSExport spec.handleIdentity": true,
		"NFSExport spec":                  true, // because of handleIdentity
		"NFSExport spec.backend":          true, // its kind
		"NFSExport spec.backend.nfs.path": true, "NFSExport spec.backend.rdma.path": true,
		"NFSExport spec.backend.persistentVolumeClaim.claimName": true, "NFSExport spec.backend.persistentVolumeClaim.subPath": true,
		"NFSGateway spec.provider": true, "NFSGateway spec.exposure.type": true,
	}
	for _, n := range nodes() {
		for _, v := range n.schema.XValidations {
			if strings.Contains(v.Rule, "oldSelf") && !want[n.String()] {
				t.Errorf("%s: cannot be changed", n)
			}
			if strings.Contains(v.Rule, "oldSelf") {
				delete(want, n.String())
			}
		}
	}
	for n := range want {
		t.Errorf("%s: can be changed", n)
	}
}
