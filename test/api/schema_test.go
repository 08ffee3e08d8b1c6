//go:build operator

package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
)

// node is a schema in a CRD. Its path is spec.access[].from for a field of a list's items, and
// spec.podTemplate.labels{} for the values of a map.
type node struct {
	kind, path string
	schema     *apiextensions.JSONSchemaProps
}

func (n node) String() string { return n.kind + " " + n.path }

// nodes returns all nodes of both CRDs, with the root, whose path is empty.
func nodes() []node {
	var out []node
	for _, kind := range slices.Sorted(maps.Keys(crds)) {
		for _, version := range crds[kind].Spec.Versions {
			out = appendNodes(out, node{kind: kind, schema: version.Schema.OpenAPIV3Schema})
		}
	}
	return out
}

func appendNodes(out []node, n node) []node {
	out = append(out, n)
	for _, name := range slices.Sorted(maps.Keys(n.schema.Properties)) {
		if n.path == "" && name != "spec" && name != "status" {
			continue // Kubernetes' own
		}
		p := n.schema.Properties[name]
		out = appendNodes(out, node{n.kind, strings.TrimPrefix(n.path+"."+name, "."), &p})
	}
	if n.schema.Items != nil {
		out = appendNodes(out, node{n.kind, n.path + "[]", n.schema.Items.Schema})
	}
	if n.schema.AdditionalProperties != nil {
		out = appendNodes(out, node{n.kind, n.path + "{}", n.schema.AdditionalProperties.Schema})
	}
	return out
}

// place is a value inside an object that a node describes.
type place struct {
	field string // as the server names it: spec.access[0].from
	value any
	set   func(any)
	unset func() // nil for items of lists
}

// find returns the places in value at a path.
func find(value any, path string) []place {
	at := []place{{value: value}}
	for _, step := range steps(path) {
		var next []place
		for _, p := range at {
			next = append(next, p.step(step)...)
		}
		at = next
	}
	return at
}

// steps splits spec.access[].from into spec, access, [], from.
func steps(path string) []string {
	path = strings.NewReplacer("[]", ".[]", "{}", ".{}").Replace(path)
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' })
}

func (p place) step(step string) []place {
	if step == "[]" {
		list, _ := p.value.([]any)
		out := make([]place, len(list))
		for i := range list {
			out[i] = place{field: fmt.Sprintf("%s[%d]", p.field, i), value: list[i], set: func(v any) { list[i] = v }}
		}
		return out
	}
	object, _ := p.value.(map[string]any)
	keys := []string{step}
	if step == "{}" {
		keys = slices.Sorted(maps.Keys(object))
	}
	var out []place
	for _, key := range keys {
		if v, ok := object[key]; ok {
			out = append(out, place{
				field: strings.TrimPrefix(p.field+"."+key, "."), value: v,
				set:   func(v any) { object[key] = v },
				unset: func() { delete(object, key) },
			})
		}
	}
	return out
}

func TestEveryFieldIsDescribed(t *testing.T) {
	for _, n := range nodes() {
		if n.path == "" || strings.HasSuffix(n.path, "[]") || strings.HasSuffix(n.path, "{}") || n.path == "spec" || n.path == "status" {
			continue
		}
		d := strings.TrimSpace(n.schema.Description)
		sentences, _, _ := strings.Cut(d, " More info: https://") // Kubernetes' own types
		if !strings.HasSuffix(sentences, ".") {
			t.Errorf("%s: want a description of whole sentences, have %q", n, d)
		}
	}
}

func TestEverythingIsBounded(t *testing.T) {
	for _, n := range nodes() {
		s := n.schema
		switch {
		case (s.Type == "string" || s.XIntOrString) && s.MaxLength == nil && s.Enum == nil && s.Format == "":
			t.Errorf("%s: a string without maxLength", n)
		case s.Type == "array" && s.MaxItems == nil:
			t.Errorf("%s: a list without maxItems", n)
		case s.AdditionalProperties != nil && s.MaxProperties == nil:
			t.Errorf("%s: a map without maxProperties", n)
		case s.XPreserveUnknownFields != nil || s.XEmbeddedResource:
			t.Errorf("%s: takes anything", n)
		}
	}
}

// TestOtherKeywords fails for keywords that TestValidations does not try.
func TestOtherKeywords(t *testing.T) {
	for _, n := range nodes() {
		s := n.schema
		anyOf := len(s.AnyOf) > 0 && !s.XIntOrString // an alternative form of the same
		if s.ExclusiveMinimum || s.ExclusiveMaximum || s.MultipleOf != nil || s.UniqueItems || s.MinProperties != nil || len(s.AllOf) > 0 || len(s.OneOf) > 0 || s.Not != nil || anyOf {
			t.Errorf("%s: has keywords that are not tried", n)
		}
		switch s.Format {
		case "", "date-time", "int32", "int64": // the bounds of integers are tried
		default:
			t.Errorf("%s: format %q is not tried", n, s.Format)
		}
	}
}
