//go:build operator

package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// trial is a value that a validation of a node refuses with a message, and values at its bound that
// it accepts. TestObjects checks that the values of testdata/objects are accepted.
type trial struct {
	keyword string
	refused any // nil: the field is left out
	message string
	passed  []any
	at      string // field of a required property, below the node
}

// trials returns those of a node's own validations. value is a valid one.
func (n node) trials(field string, value any) []trial {
	var out []trial
	s := n.schema
	below := strings.TrimPrefix(field, "status.") // messages of the status subresource start there
	add := func(keyword string, refused any, message string, passed ...any) {
		out = append(out, trial{keyword: keyword, refused: refused, message: message, passed: passed})
	}
	if s.Enum != nil {
		values := make([]any, len(s.Enum))
		names := make([]string, len(s.Enum))
		for i, raw := range s.Enum {
			_ = json.Unmarshal(raw.Raw, &values[i])
			names[i] = `"` + strings.Trim(string(raw.Raw), `"`) + `"`
		}
		var other any = "Other"
		if s.Type == "integer" {
			other = int64(99)
			for i := range values {
				values[i] = int64(values[i].(float64))
			}
		}
		add("enum", other, fmt.Sprintf("Unsupported value: %s: supported values: %s", quoted(other), strings.Join(names, ", ")), values...)
	}
	if s.Minimum != nil {
		m := int64(*s.Minimum)
		add("minimum", m-1, fmt.Sprintf("Invalid value: %d: %s in body should be greater than or equal to %d", m-1, below, m), m)
	}
	if s.Maximum != nil {
		m := int64(*s.Maximum)
		add("maximum", m+1, fmt.Sprintf("Invalid value: %d: %s in body should be less than or equal to %d", m+1, below, m), m)
	}
	if s.MinLength != nil {
		short := strings.Repeat("a", int(*s.MinLength)-1)
		add("minLength", short, fmt.Sprintf("Invalid value: %q: %s in body should be at least %d chars long", short, below, *s.MinLength), short+"a")
	}
	if s.MaxLength != nil {
		fit := strings.Repeat("a", int(*s.MaxLength))
		add("maxLength", fit+"a", fmt.Sprintf("Too long: may not be more than %d bytes", *s.MaxLength), fit)
	}
	if s.Pattern != "" {
		other := "!"
		if s.MinLength != nil {
			other = strings.Repeat(other, int(*s.MinLength))
		}
		if regexp.MustCompile(s.Pattern).MatchString(other) {
			panic(n.String() + ": the pattern matches " + other)
		}
		add("pattern", other, fmt.Sprintf("Invalid value: %q: %s in body should match '%s'", other, below, s.Pattern), value)
	}
	if s.Format == "date-time" {
		add("format", "noon", fmt.Sprintf("Invalid value: %q: %s in body must be of type date-time: %q", "noon", below, "noon"), value)
	}
	list, _ := value.([]any)
	if s.MinItems != nil {
		fit := times(list[0], int(*s.MinItems))
		add("minItems", fit[1:], fmt.Sprintf("Invalid value: %d: %s in body should have at least %d items", *s.MinItems-1, below, *s.MinItems), fit)
	}
	if s.MaxItems != nil {
		fit := times(list[0], int(*s.MaxItems))
		add("maxItems", append(slices.Clone(fit), list[0]), fmt.Sprintf("Too many: %d: must have at most %d items", *s.MaxItems+1, *s.MaxItems), fit)
	}
	if s.XListType != nil && *s.XListType != "atomic" {
		add("listType", []any{list[0], list[0]}, "Duplicate value: "+n.key(list[0]))
	}
	if s.MaxProperties != nil {
		fit, more := map[string]any{}, map[string]any{}
		for _, v := range value.(map[string]any) {
			for i := range *s.MaxProperties {
				fit[fmt.Sprintf("k%d", i)], more[fmt.Sprintf("k%d", i)] = v, v
			}
			more["k"] = v
		}
		add("maxProperties", more, fmt.Sprintf("Too many: %d: must have at most %d items", *s.MaxProperties+1, *s.MaxProperties), fit)
	}
	for _, name := range s.Required {
		out = append(out, trial{keyword: "required", at: name, message: "Required value"})
	}
	return out
}

// key is the server's name of an item of a list of type set or map.
func (n node) key(item any) string {
	if object, ok := item.(map[string]any); ok {
		keys := map[string]any{}
		for _, k := range n.schema.XListMapKeys {
			keys[k] = object[k]
		}
		item = keys
	}
	return quoted(item)
}

func quoted(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

func times(item any, n int) []any {
	out := make([]any, n)
	for i := range out {
		out[i] = item
	}
	return out
}

// subject is an object in which values are tried, by its creation or by an update of its status.
type subject struct {
	object *unstructured.Unstructured
	ask    func(*unstructured.Unstructured) error
}

func TestValidations(t *testing.T) {
	subjects := map[string][]subject{} // by kind and "spec" or "status"
	for _, name := range objects(t) {
		u := object(t, name)
		if u.Object["status"] != nil {
			made := keep(t, u)
			made.Object["status"] = u.Object["status"]
			subjects[u.GetKind()+" status"] = append(subjects[u.GetKind()+" status"], subject{made, func(u *unstructured.Unstructured) error {
				return kube.Status().Update(context.Background(), u.DeepCopy(), client.DryRunAll)
			}})
		}
		u = u.DeepCopy()
		u.SetName("trial-" + u.GetName())
		subjects[u.GetKind()+" spec"] = append(subjects[u.GetKind()+" spec"], subject{u, create})
	}
	count := 0
	for _, n := range nodes() {
		part, _, _ := strings.Cut(cmp.Or(n.path, "spec"), ".")
		s, i, p := where(subjects[n.kind+" "+part], n.path)
		if s == nil {
			t.Errorf("%s: no object of testdata/objects has it", n)
			continue
		}
		for _, c := range n.trials(p.field, p.value) {
			count++
			t.Run(n.kind+"/"+n.path+"/"+c.keyword+c.at, func(t *testing.T) { c.run(t, n, *s, i) })
		}
	}
	t.Logf("%d validations", count)
}

// where returns the first subject that has a value at the path, and the index of the value's place
// in it.
func where(subjects []subject, path string) (*subject, int, place) {
	for _, s := range subjects {
		for i, p := range find(s.object.Object, path) {
			if list, ok := p.value.([]any); ok && len(list) == 0 {
				continue
			}
			return &s, i, p
		}
	}
	return nil, 0, place{}
}

func (c trial) run(t *testing.T, n node, s subject, place int) {
	// with returns the server's reply when that place of the node has the value.
	with := func(value any) (field string, said []string) {
		u := s.object.DeepCopy()
		p := find(u.Object, n.path)[place]
		switch {
		case c.at != "":
			p = p.step(c.at)[0]
			p.unset()
		default:
			p.set(value)
		}
		return p.field, causes(t, s.ask(u))
	}
	field, said := with(c.refused)
	want := field + ": " + c.message
	if c.keyword == "listType" {
		want = field + "[1]: " + c.message
	}
	if !slices.Contains(said, want) {
		t.Errorf("have %q\nwant %q", said, want)
	}
	for _, v := range c.passed {
		_, said := with(v)
		for _, other := range said {
			if strings.HasPrefix(other, field+": ") && strings.Contains(other, words[c.keyword]) {
				t.Errorf("%.80v: %s", v, other)
			}
		}
	}
}

// words identify the message of each keyword.
var words = map[string]string{
	"enum": "Unsupported value", "minimum": "greater than or equal", "maximum": "less than or equal", "minLength": "chars long", "maxLength": "Too long",
	"pattern": "should match", "format": "must be of type", "minItems": "should have at least", "maxItems": "Too many", "maxProperties": "Too many",
}
