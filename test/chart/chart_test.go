//go:build operator

package chart

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"sluice.dev/sluice/internal/operator"
	"sluice.dev/sluice/test/apiserver"
)

func TestLint(t *testing.T) {
	if out, err := helm("lint", "--strict", chart); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestDefaultsAreGolden(t *testing.T) {
	text, err := render(chart, "")
	if err != nil {
		t.Fatal(err)
	}
	// keep names the CRDs. The test of generated files compares them with config/crd, and the role
	// with config/rbac.
	var keep []string
	for _, part := range strings.Split(text, "---\n") {
		if !strings.Contains(part, "kind: CustomResourceDefinition\n") {
			keep = append(keep, part)
		}
	}
	golden(t, "default.yaml", strings.Join(keep, "---\n"))
}

// TestRendered renders the chart for values in pairs: a kube-apiserver accepts every object, pods
// are restricted except for client hosts, the operator knows its flags.
func TestRendered(t *testing.T) {
	for _, file := range valuesFiles(t) {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".yaml"), func(t *testing.T) {
			text, err := render(chart, file)
			if err != nil {
				t.Fatal(err)
			}
			seen := map[string]bool{}
			for _, u := range objects(t, text) {
				id := u.GetKind() + " " + u.GetNamespace() + "/" + u.GetName()
				if seen[id] {
					t.Errorf("%s: rendered twice", id)
				}
				seen[id] = true
				accepted(t, u)
				switch u.GetKind() {
				case "Deployment":
					takesFlags(t, u, "--version") // only prints
				case "Job", "DaemonSet":
					takesFlags(t, u, "--help")
				case "ConfigMap":
					if text, ok, _ := unstructured.NestedString(u.Object, "data", "config.json"); ok {
						if _, err := parsePools(text); err != nil {
							t.Errorf("%s: %v\n%s", id, err, text)
						}
					}
				case "CustomResourceDefinition":
					if u.GetAnnotations()["helm.sh/resource-policy"] != "keep" {
						t.Errorf("%s would be removed with the release, and all its objects with it", id)
					}
				}
			}
			if t.Failed() {
				values, _ := os.ReadFile(file)
				t.Logf("values:\n%s", values)
			}
		})
	}
}

// TestUninstallGoesWhereTheOperatorGoes: the uninstall job can be scheduled on every node where the
// operator can. Otherwise helm uninstall would time out.
func TestUninstallGoesWhereTheOperatorGoes(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	values := "operator: {nodeSelector: {pool: infra}, tolerations: [{key: infra, operator: Exists}], priorityClassName: high, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{matchExpressions: [{key: zone, operator: Exists}]}]}}}}\n"
	if err := os.WriteFile(file, []byte(values), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := render(chart, file)
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]map[string]any{}
	for _, u := range objects(t, text) {
		of[u.GetKind()], _, _ = unstructured.NestedMap(u.Object, "spec", "template", "spec")
	}
	for _, field := range []string{"nodeSelector", "tolerations", "affinity", "priorityClassName"} {
		if want, have := of["Deployment"][field], of["Job"][field]; want == nil || !reflect.DeepEqual(have, want) {
			t.Errorf("%s of the job: %v, want %v", field, have, want)
		}
	}
}

// takesFlags has the operator parse its containers' flags, with a last one that makes it exit.
func takesFlags(t *testing.T, u *unstructured.Unstructured, last string) {
	t.Helper()
	containers, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "containers")
	args, _, _ := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
	var out, errs bytes.Buffer
	if code := operator.Main(append(slices.Clone(args), last), "version", &out, &errs); code != 0 || len(args) == 0 {
		t.Errorf("operator %s: exit code %d: %s", strings.Join(args, " "), code, &errs)
	}
}

var control = regexp.MustCompile(`\{\{-?\s*(if|else|range|with)\b`)

// TestEveryBranchIsTaken puts a comment into each branch of the templates, and looks for it in the
// chart rendered for values in pairs: each branch is taken for some values, and skipped for others
// where that is possible.
func TestEveryBranchIsTaken(t *testing.T) {
	copied := filepath.Join(t.TempDir(), "sluice")
	if err := os.CopyFS(copied, os.DirFS(chart)); err != nil {
		t.Fatal(err)
	}
	branches := map[string]bool{} // true: can be skipped
	mark := func(file string) error {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(copied, file)
		var out []string
		for i, line := range strings.Split(string(text), "\n") {
			out = append(out, line)
			m := control.FindStringSubmatch(line)
			switch {
			case m == nil:
			case !strings.HasPrefix(strings.TrimSpace(line), "{{- "+m[1]) || !strings.HasSuffix(line, "}}"):
				t.Errorf("%s:%d: want the action alone on its line: %s", name, i+1, line)
			default:
				branch := fmt.Sprintf("branch %s:%d:", name, i+1)
				branches[branch] = m[1] != "range"
				out = append(out, "# "+branch)
			}
		}
		return os.WriteFile(file, []byte(strings.Join(out, "\n")), 0o644)
	}
	err := filepath.WalkDir(filepath.Join(copied, "templates"), func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(file) == ".txt" {
			return err
		}
		return mark(file)
	})
	if err != nil {
		t.Fatal(err)
	}
	taken, runs := map[string]int{}, 0
	for _, file := range valuesFiles(t) {
		text, err := render(copied, file)
		if err != nil {
			t.Fatal(err)
		}
		runs++
		for branch := range branches {
			if strings.Contains(text, branch) {
				taken[branch]++
			}
		}
	}
	for branch, optional := range branches {
		switch n := taken[branch]; {
		case n == 0:
			t.Errorf("%s never taken", branch)
		case n == runs && optional:
			t.Errorf("%s always taken", branch)
		}
	}
	t.Logf("%d branches, %d renderings", len(branches), runs)
}

func TestWrongValuesAreRefused(t *testing.T) {
	tests := []struct{ set, want string }{
		{"images.pullPolicy=Sometimes", "images/pullPolicy"},
		{"operator.replicas=9", "operator/replicas"},
		{"replicas=2", "'replicas' not allowed"},
		{"watchNamespaces={Team}", "watchNamespaces/0"},
		{"sriov.devicePlugin.resources[0].resourceName=a/b", "sriov/devicePlugin/resources/0/resourceName"},
		{"sriov.devicePlugin.resourcePrefix=x.kubernetes.io", "sriov/devicePlugin/resourcePrefix"},
		{"sriov.network.ipam.subnet=192.0.2.0/24", "sriov/network/ipam"},
		{"sriov.network.type=macvlan", "sriov/network/type"},
		{"sriov.network.vlan=4095", "sriov/network/vlan"},
		{"test.protocol=udp", "test/protocol"},
		{"clientHosts.link.type=irdma", "clientHosts/link/type"},
		{"clientHosts.link.interface=an-interface-too-long", "clientHosts/link/interface"},
		{"clientHosts.link.name=0", "clientHosts/link/name"},
		{"crds.install=maybe", "crds/install"},
		{`operator.podLabels.app\.kubernetes\.io/name=other`, "operator/podLabels"},
		{`operator.podLabels.app\.kubernetes\.io/component=other`, "operator/podLabels"},
		{`operator.podAnnotations.kubectl\.kubernetes\.io/default-container=other`, "operator/podAnnotations"},
		{`metrics.labels.app\.kubernetes\.io/name=other`, "metrics/labels"},
		{`dashboard.labels.helm\.sh/chart=other`, "dashboard/labels"},
		{"metrics.collectors=prometheus", "metrics/collectors"},
	}
	for _, tt := range tests {
		t.Run(tt.set, func(t *testing.T) {
			if _, err := render(chart, "", "--set", tt.set); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("have %v, want %q in it", err, tt.want)
			}
		})
	}
}

// TestValuesAreDescribed checks that the schema describes each value.
func TestValuesAreDescribed(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	type schema struct {
		Description string
		Properties  map[string]schema
		Items       *schema
	}
	var check func(s schema, path string)
	check = func(s schema, path string) {
		for name, p := range s.Properties {
			if p.Description == "" {
				t.Errorf("%s/%s has no description", path, name)
			}
			check(p, path+"/"+name)
		}
		if s.Items != nil {
			check(*s.Items, path+"/0")
		}
	}
	var values schema
	if err := json.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	check(values, "")
}

// TestGatewayImagesStay checks that an upgrade of the operator's image alone changes no part of
// gateways' pods.
func TestGatewayImagesStay(t *testing.T) {
	images := func(more ...string) []string {
		text, err := render(chart, "", more...)
		if err != nil {
			t.Fatal(err)
		}
		return regexp.MustCompile(`--(gateway|verbs|operator)-image=\S+`).FindAllString(text, -1)
	}
	before := images("--set", "images.speaker.tag=v0.1.0")
	after := images("--set", "images.speaker.tag=v0.1.0", "--set", "images.operator.tag=v9")
	if len(before) != 3 || !slices.Equal(before, after) {
		t.Errorf("before %q\nafter  %q", before, after)
	}
}

func TestSetImage(t *testing.T) {
	text, err := render(chart, "", "--set", "images.gateway.registry=registry.example,images.gateway.tag=v2,images.operator.tag=v3")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"--gateway-image=registry.example/gateway:v2", "--operator-image=sluice.dev/operator:v3", "image: sluice.dev/operator:v3", "--verbs-image=sluice.dev/gateway-verbs:v0.1.0"} {
		if !strings.Contains(text, want) {
			t.Errorf("lacks %s", want)
		}
	}
}

// TestSetRegistry: one value moves all images to another registry, and one to another tag.
func TestSetRegistry(t *testing.T) {
	text, err := render(chart, "", "--set", "images.registry=registry.example/sluice,images.tag=v7,images.gateway.tag=v8")
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`(?:-image=|image: )(\S+)`).FindAllStringSubmatch(text, -1)
	var images []string
	for _, m := range got {
		images = append(images, m[1])
	}
	slices.Sort(images)
	want := []string{"registry.example/sluice/gateway-verbs:v7", "registry.example/sluice/gateway:v8", "registry.example/sluice/operator:v7"}
	if !slices.Equal(slices.Compact(images), want) {
		t.Errorf("images %q, want %q", images, want)
	}
}

// TestSpread: a constraint without a selector counts the operator's pods, another one is left as it
// is.
func TestSpread(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	values := `operator: {topologySpreadConstraints: [
  {topologyKey: zone, maxSkew: 1, whenUnsatisfiable: DoNotSchedule},
  {topologyKey: host, maxSkew: 1, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchExpressions: [{key: team, operator: Exists}]}}]}
`
	if err := os.WriteFile(file, []byte(values), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := render(chart, file)
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range objects(t, text) {
		if u.GetKind() != "Deployment" {
			continue
		}
		own, _, _ := unstructured.NestedMap(u.Object, "spec", "selector")
		spread, _, _ := unstructured.NestedSlice(u.Object, "spec", "template", "spec", "topologySpreadConstraints")
		others := map[string]any{"matchExpressions": []any{map[string]any{"key": "team", "operator": "Exists"}}}
		for i, want := range []map[string]any{own, others} {
			if have := spread[i].(map[string]any)["labelSelector"]; !reflect.DeepEqual(have, want) {
				t.Errorf("selector %d: %v, want %v", i, have, want)
			}
		}
	}
}

// TestWatchedNamespaces checks that the operator then has no right beyond them and its own
// namespace.
func TestWatchedNamespaces(t *testing.T) {
	text, err := render(chart, "", "--set", "watchNamespaces={team-a,team-b}")
	if err != nil {
		t.Fatal(err)
	}
	account := map[string]string{}
	for _, u := range objects(t, text) {
		subjects, _, _ := unstructured.NestedSlice(u.Object, "subjects")
		if len(subjects) > 0 && subjects[0].(map[string]any)["name"] == "sluice-operator" {
			account[u.GetNamespace()+"/"+u.GetName()] = u.GetKind()
		}
	}
	want := map[string]string{
		"team-a/sluice-system-sluice-operator": "RoleBinding", "team-b/sluice-system-sluice-operator": "RoleBinding",
		namespace + "/sluice-operator-leader": "RoleBinding",
	}
	if fmt.Sprint(account) != fmt.Sprint(want) {
		t.Errorf("have %v, want %v", account, want)
	}
}

func TestKubernetesVersion(t *testing.T) {
	if _, err := helm("template", release, chart, "--kube-version", "1.30.9"); err == nil || !strings.Contains(err.Error(), ">= 1.31") {
		t.Errorf("Kubernetes 1.30: %v", err)
	}
	if _, err := helm("template", release, chart, "--kube-version", "1.31.0"); err != nil {
		t.Error(err)
	}
}

// TestDashboard checks that every metric on it is one of docs/gateway.md or docs/kubernetes.md.
func TestDashboard(t *testing.T) {
	board, err := os.ReadFile(filepath.Join(chart, "dashboards/sluice.json"))
	if err != nil {
		t.Fatal(err)
	}
	var docs []byte
	for _, page := range []string{"docs/gateway.md", "docs/kubernetes.md"} {
		b, err := os.ReadFile(apiserver.Path(page))
		if err != nil {
			t.Fatal(err)
		}
		docs = append(docs, b...)
	}
	metrics := regexp.MustCompile(`\bsluice_[a-z_]+`).FindAllString(string(board), -1)
	slices.Sort(metrics)
	metrics = slices.Compact(metrics)
	if len(metrics) < 10 {
		t.Errorf("only %d metrics", len(metrics))
	}
	for _, m := range metrics {
		if !strings.Contains(string(docs), "`"+strings.TrimSuffix(m, "_bucket")+"`") {
			t.Errorf("the pages know no %s", m)
		}
	}
}

// TestCollectorsAreReplaced: a user's collectors replace the chart's, where helm would merge a map;
// labels of ServiceMonitors reach the operator too.
func TestCollectorsAreReplaced(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	values := "metrics: {collectors: [{app: agent}, {app: prometheus, shard: '1'}], labels: {release: prometheus}, serviceMonitor: {enabled: true}}\n"
	if err := os.WriteFile(file, []byte(values), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := render(chart, file)
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`--(collector|monitoring)-labels=\S+`).FindAllString(text, -1)
	if want := []string{"--collector-labels=app=agent", "--collector-labels=app=prometheus,shard=1", "--monitoring-labels=release=prometheus"}; !slices.Equal(got, want) {
		t.Errorf("flags %q, want %q", got, want)
	}
	for _, u := range objects(t, text) {
		if u.GetKind() == "ServiceMonitor" && u.GetLabels()["release"] != "prometheus" {
			t.Errorf("the ServiceMonitor has the labels %v", u.GetLabels())
		}
	}
}

// TestServiceMonitorHasItsService: a ServiceMonitor collects from a Service, so one is rendered for
// it, whatever metrics.service says.
func TestServiceMonitorHasItsService(t *testing.T) {
	file := filepath.Join(t.TempDir(), "values.yaml")
	if err := os.WriteFile(file, []byte("metrics: {service: false, serviceMonitor: {enabled: true}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	text, err := render(chart, file)
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, u := range objects(t, text) {
		if u.GetKind() == "Service" || u.GetKind() == "ServiceMonitor" {
			kinds = append(kinds, u.GetKind())
		}
	}
	if !slices.Equal(kinds, []string{"Service", "ServiceMonitor"}) {
		t.Errorf("rendered %v, want a Service and its ServiceMonitor", kinds)
	}
}
