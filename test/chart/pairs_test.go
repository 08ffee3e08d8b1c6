//go:build operator

package chart

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// dimension is a value of the chart with the settings to try.
type dimension struct {
	path   string
	values []any
}

// shapes are settings of the values that are neither boolean nor an enum: those that change the
// rendering or its readers' behaviour.
var shapes = map[string][]any{
	"watchNamespaces":                    {[]any{}, []any{"team-a"}, []any{"team-a", "team-b"}},
	"images.pullSecrets":                 {[]any{}, []any{"one", "two"}},
	"images.tag":                         {"", "v7"},
	"images.operator.tag":                {"", "v9"},
	"images.gateway.registry":            {"", "registry.example"},
	"images.speaker.tag":                 {"", "v8"},
	"operator.replicas":                  {0, 2},
	"operator.podLabels":                 {map[string]any{}, map[string]any{"team": "storage"}},
	"operator.podAnnotations":            {map[string]any{}, map[string]any{"example.com/note": "a: b"}},
	"operator.nodeSelector":              {map[string]any{}, map[string]any{"kubernetes.io/os": "linux"}},
	"operator.tolerations":               {[]any{}, []any{map[string]any{"key": "a", "operator": "Exists"}}},
	"operator.affinity":                  {map[string]any{}, map[string]any{"podAntiAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": []any{map[string]any{"topologyKey": "zone"}}}}},
	"operator.topologySpreadConstraints": {[]any{}, []any{map[string]any{"topologyKey": "zone", "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}}},
	"operator.priorityClassName":         {"", "system-cluster-critical"},
	"clientHosts.namespace":              {"", "kube-system"},
	"clientHosts.link.interface":         {"", "eth0"},
	"clientHosts.link.name":              {"", "siw1"},
	"clientHosts.nodeSelector":           {map[string]any{}, map[string]any{"kubernetes.io/os": "linux"}},
	"clientHosts.tolerations":            {[]any{}, []any{map[string]any{"key": "a", "operator": "Exists"}}},
	"clientHosts.affinity":               {map[string]any{}, map[string]any{"nodeAffinity": map[string]any{"requiredDuringSchedulingIgnoredDuringExecution": map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{map[string]any{"key": "rdma", "operator": "Exists"}}}}}}}},
	"clientHosts.priorityClassName":      {"", "system-node-critical"},
	"serviceAccount.name":                {"", "account"},
	"serviceAccount.annotations":         {map[string]any{}, map[string]any{"example.com/role": "x"}},
	"metrics.collectors":                 {[]any{map[string]any{"app": "prometheus"}}, []any{map[string]any{"app": "prometheus", "shard": "1"}, map[string]any{"app": "agent"}}},
	"metrics.labels":                     {map[string]any{}, map[string]any{"release": "prometheus"}},
	"dashboard.namespace":                {"", "monitoring"},
	"dashboard.labels":                   {map[string]any{}, map[string]any{"grafana_dashboard": "1"}},
	"test.address":                       {"", "10.0.0.77", "2001:db8::1"},
	"sriov.devicePlugin.resources":       {[]any{map[string]any{"resourceName": "vf"}}, []any{map[string]any{"resourceName": "a", "vendors": []any{"15b3"}, "pfNames": []any{"ens1f0#0-3"}, "linkTypes": []any{"ether"}}, map[string]any{"resourceName": "b", "devices": []any{"101e"}, "drivers": []any{"mlx5_core"}}}},
	"sriov.network.namespace":            {"", "storage"},
	"sriov.network.vlan":                 {0, 5},
	"sriov.network.ipam":                 {map[string]any{}, map[string]any{"type": "host-local", "subnet": "192.0.2.0/24"}},
}

// dimensions returns the shapes, and every boolean and enum of values.schema.json.
func dimensions(t *testing.T) []dimension {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var root schema
	if err := json.Unmarshal(text, &root); err != nil {
		t.Fatal(err)
	}
	all := maps.Clone(shapes)
	root.walk("", all)
	var out []dimension
	for _, path := range slices.Sorted(maps.Keys(all)) {
		out = append(out, dimension{path, all[path]})
	}
	return out
}

type schema struct {
	Type       string            `json:"type"`
	Enum       []any             `json:"enum"`
	Properties map[string]schema `json:"properties"`
}

func (s schema) walk(path string, out map[string][]any) {
	switch {
	case s.Type == "boolean":
		out[path] = []any{false, true}
	case s.Enum != nil:
		out[path] = s.Enum
	}
	for name, p := range s.Properties {
		p.walk(strings.TrimPrefix(path+"."+name, "."), out)
	}
}

// pairwise returns choices of one value for each dimension, so that any two values of any two
// dimensions appear together in one choice. It is greedy: each step takes the value with the most
// new pairs.
func pairwise(dims []dimension) [][]int {
	type pair struct{ a, i, b, j int } // dimension a's value i with b's value j, a < b
	open := map[pair]bool{}
	for a := range dims {
		for b := a + 1; b < len(dims); b++ {
			for i := range dims[a].values {
				for j := range dims[b].values {
					open[pair{a, i, b, j}] = true
				}
			}
		}
	}
	between := func(a, i, b, j int) pair {
		if a > b {
			a, i, b, j = b, j, a, i
		}
		return pair{a, i, b, j}
	}
	var out [][]int
	for len(open) > 0 {
		// Begin with a pair that is still open, so that each round closes one.
		first := slices.MinFunc(slices.Collect(maps.Keys(open)), func(p, q pair) int { return slices.Compare([]int{p.a, p.i, p.b, p.j}, []int{q.a, q.i, q.b, q.j}) })
		choice := slices.Repeat([]int{-1}, len(dims))
		choice[first.a], choice[first.b] = first.i, first.j
		for d := range dims {
			if choice[d] >= 0 {
				continue
			}
			best := -1
			for v := range dims[d].values {
				n := 0
				for e, w := range choice {
					if w >= 0 && open[between(d, v, e, w)] {
						n++
					}
				}
				if n > best {
					best, choice[d] = n, v
				}
			}
		}
		for a := range dims {
			for b := a + 1; b < len(dims); b++ {
				delete(open, pair{a, choice[a], b, choice[b]})
			}
		}
		out = append(out, choice)
	}
	return out
}

// valuesFiles writes a file of values for each choice of a pairwise cover.
func valuesFiles(t *testing.T) []string {
	t.Helper()
	dims := dimensions(t)
	dir := t.TempDir()
	var files []string
	for n, choice := range pairwise(dims) {
		values := map[string]any{}
		for d, v := range choice {
			set(values, strings.Split(dims[d].path, "."), dims[d].values[v])
		}
		text, err := yaml.Marshal(values)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(dir, "values-"+string(rune('a'+n/26))+string(rune('a'+n%26))+".yaml")
		if err := os.WriteFile(file, text, 0o644); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	t.Logf("%d values in pairs: %d files", len(dims), len(files))
	return files
}

func set(values map[string]any, path []string, v any) {
	for ; len(path) > 1; path = path[1:] {
		inner, ok := values[path[0]].(map[string]any)
		if !ok {
			inner = map[string]any{}
			values[path[0]] = inner
		}
		values = inner
	}
	values[path[0]] = v
}
