package v1alpha1

import (
	"encoding"
	"fmt"
	"net/netip"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"
)

// decoder turns YAML nodes into the types of this package. It is strict: unknown fields, repeated
// fields and values of another type are problems. It finds all problems, and remembers each field's
// line for the rules that are checked later.
type decoder struct {
	problems Problems
	lines    map[string]int
}

type defaulter interface{ setDefaults() }

func (d *decoder) decode(r report, n *yaml.Node, v reflect.Value) {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if _, ok := d.lines[r.path]; !ok {
		d.lines[r.path] = n.Line
	}
	if df, ok := v.Addr().Interface().(defaulter); ok {
		df.setDefaults()
	}
	if n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		return // no value: keep the default
	}
	if p, ok := v.Addr().Interface().(*netip.Prefix); ok {
		d.prefix(r, n, p)
		return
	}
	if tu, ok := v.Addr().Interface().(encoding.TextUnmarshaler); ok {
		if n.Kind != yaml.ScalarNode {
			d.mismatch(r, n, "one value")
		} else if err := tu.UnmarshalText([]byte(n.Value)); err != nil {
			r.refuse(n.Value, "%v", err)
		}
		return
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		d.decode(r, n, v.Elem())
	case reflect.Struct:
		d.fields(r, n, v)
	case reflect.Slice:
		if n.Kind != yaml.SequenceNode {
			d.mismatch(r, n, "a list")
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), len(n.Content), len(n.Content)))
		for i, e := range n.Content {
			d.decode(r.index(i), e, v.Index(i))
		}
	case reflect.String:
		if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
			d.mismatch(r, n, "a string; put it in quotes if it is one")
			return
		}
		v.SetString(n.Value)
	case reflect.Bool:
		var b bool
		if n.Kind != yaml.ScalarNode || n.Tag != "!!bool" || n.Decode(&b) != nil {
			d.mismatch(r, n, "true or false")
			return
		}
		v.SetBool(b)
	case reflect.Int:
		var i int64
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" || n.Decode(&i) != nil {
			d.mismatch(r, n, "a whole number")
			return
		}
		v.SetInt(i)
	case reflect.Float64:
		var f float64
		if n.Kind != yaml.ScalarNode || n.Tag != "!!int" && n.Tag != "!!float" || n.Decode(&f) != nil {
			d.mismatch(r, n, "a number")
			return
		}
		v.SetFloat(f)
	default:
		panic("no decoding for " + v.Type().String())
	}
}

func (d *decoder) fields(r report, n *yaml.Node, v reflect.Value) {
	if n.Kind != yaml.MappingNode {
		d.mismatch(r, n, "a mapping of fields")
		return
	}
	names, fields := fieldNames(v.Type())
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, val := n.Content[i], n.Content[i+1]
		at := r.at(key.Value)
		k := slices.Index(names, key.Value)
		first, known := d.lines[at.path]
		switch {
		case k < 0:
			d.refuseAt(key.Line, at, nil, "unknown field%s; the fields here are %s", meant(key.Value, names), strings.Join(names, ", "))
		case known:
			d.refuseAt(key.Line, at, nil, "duplicate field, first on line %d", first)
		default:
			d.lines[at.path] = key.Line
			d.decode(at, val, v.Field(fields[k]))
		}
	}
}

// fieldNames returns the file names of a struct's fields and their indexes, in order. It omits
// fields tagged "-".
func fieldNames(t reflect.Type) (names []string, index []int) {
	for i := range t.NumField() {
		if name, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ","); name != "-" {
			names, index = append(names, name), append(index, i)
		}
	}
	return names, index
}

func (d *decoder) prefix(r report, n *yaml.Node, p *netip.Prefix) {
	if n.Kind != yaml.ScalarNode {
		d.mismatch(r, n, "a network such as 10.0.0.0/8 or fd00::/8")
		return
	}
	var err error
	if *p, err = netip.ParsePrefix(n.Value); err == nil {
		return
	}
	if a, err := netip.ParseAddr(n.Value); err == nil {
		r.refuse(n.Value, "want a network: the address alone is %s/%d", a, a.BitLen())
		return
	}
	r.refuse(n.Value, "want a network such as 10.0.0.0/8 or fd00::/8")
}

func (d *decoder) mismatch(r report, n *yaml.Node, want string) {
	var is any = n.Value
	switch n.Kind {
	case yaml.MappingNode:
		is = raw("a mapping")
	case yaml.SequenceNode:
		is = raw("a list")
	case yaml.ScalarNode:
		if n.Tag != "!!str" {
			is = raw(shorten(n.Value))
		} else if n.Value == "" {
			is = raw(`""`)
		}
	}
	d.refuseAt(n.Line, r, is, "want %s", want)
}

// refuseAt adds a problem with its own line, which differs from the line of the field.
func (d *decoder) refuseAt(line int, r report, value any, reason string, args ...any) {
	r.refuse(value, reason, args...)
	(*r.problems)[len(*r.problems)-1].Line = line
}

// place sets the missing lines of problems: the line of the field, or of the closest field around
// it.
func (d *decoder) place(ps Problems) {
	for i := range ps {
		if ps[i].Line != 0 {
			continue
		}
		for path := ps[i].Field; ; path = parent(path) {
			if line, ok := d.lines[path]; ok {
				ps[i].Line = line
				break
			}
			if path == "" {
				break
			}
		}
	}
}

// meant returns a question if got resembles one of names.
func meant(got string, names []string) string {
	best, most := "", 3
	for _, n := range names {
		if dist := distance(strings.ToLower(got), strings.ToLower(n)); dist < most && dist < len(n) {
			best, most = n, dist
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf(" (did you mean %s?)", strconv.Quote(best))
}

// distance is the Levenshtein distance between a and b, in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, diagonal+1, row[j]+1)
		}
	}
	return row[len(b)]
}
