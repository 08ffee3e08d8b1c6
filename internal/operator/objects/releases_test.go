package objects

import (
	"encoding"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	config "sluice.dev/sluice/api/config/v1alpha1"
)

var release = flag.String("release", "", "write the fields of the gateway's configuration as those of this release, such as v0.1.0, to testdata/releases")

// fieldsOf are the fields of a type as JSON, exports[].name and so on.
func fieldsOf(t reflect.Type, at string) (out []string) {
	for _, own := range []reflect.Type{reflect.TypeFor[json.Marshaler](), reflect.TypeFor[encoding.TextMarshaler]()} {
		if t.Implements(own) || reflect.PointerTo(t).Implements(own) {
			return nil
		}
	}
	switch t.Kind() {
	case reflect.Pointer:
		return fieldsOf(t.Elem(), at)
	case reflect.Slice:
		return fieldsOf(t.Elem(), at+"[]")
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			switch {
			case f.Anonymous && name == "":
				out = append(out, fieldsOf(f.Type, at)...)
			case f.IsExported() && name != "-":
				out = append(out, at+"."+name)
				out = append(out, fieldsOf(f.Type, at+"."+name)...)
			}
		}
	}
	return out
}

// fieldsIn are those of a document.
func fieldsIn(v any, at string) (out []string) {
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			out = append(out, at+"."+name)
			out = append(out, fieldsIn(inner, at+"."+name)...)
		}
	case []any:
		for _, inner := range v {
			out = append(out, fieldsIn(inner, at+"[]")...)
		}
	}
	return out
}

// TestOlderGatewaysReadTheFile: an upgrade of the operator leaves the gateways' images alone, and a
// gateway refuses a file with a field that it does not know. So a gateway that asks for nothing new
// gets a file of fields that each release has had.
func TestOlderGatewaysReadTheFile(t *testing.T) {
	now := fieldsOf(reflect.TypeFor[config.GatewayConfig](), "")
	slices.Sort(now)
	if *release != "" {
		if err := os.WriteFile(filepath.Join("testdata/releases", *release+".fields"), []byte(strings.Join(now, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	releases, err := filepath.Glob("testdata/releases/*.fields")
	if err != nil || len(releases) == 0 {
		t.Fatalf("testdata/releases: %d files, %v", len(releases), err)
	}
	for _, file := range releases {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		known := strings.Fields(string(text))
		// none uses fields newer than the first release
		for _, in := range []string{"service", "claim", "options", "verbs", "virtual-ip"} {
			p := read(t, "testdata/"+in+".in.yaml")
			for i := range p.Workloads {
				var document any
				if err := yaml.Unmarshal([]byte(configMapOf(p, &p.Workloads[i], &defaults).Data[GatewayFile]), &document); err != nil {
					t.Fatal(err)
				}
				fields := fieldsIn(document, "")
				if len(fields) < 10 {
					t.Errorf("%s: %d fields", in, len(fields))
				}
				for _, f := range fields {
					if !slices.Contains(known, f) {
						t.Errorf("%s, %s: a gateway of this release refuses the file for its field %s: leave it out where it has its default, or until there is that release write its fields with -release", filepath.Base(file), in, f)
					}
				}
			}
		}
	}
}
