package objects

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	psa "k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/api/v1alpha1"
	"sluice.dev/sluice/internal/operator/plan"
	"sluice.dev/sluice/internal/speaker/api"
	"sluice.dev/sluice/pkg/nfs/sign"
)

var update = flag.Bool("update", false, "write the objects that are made to testdata")

var defaults = Defaults{
	GatewayImage: "sluice.dev/gateway:v1", VerbsImage: "sluice.dev/gateway-verbs:v1", SpeakerImage: "sluice.dev/operator:v1",
	OperatorNamespace: "sluice-system", OperatorLabels: map[string]string{"app.kubernetes.io/component": "operator"},
}

// read makes the plan of a scenario.
func read(t *testing.T, file string) *plan.Plan {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	in := plan.Input{Claims: map[string]*corev1.PersistentVolumeClaim{}, Networks: map[string]bool{"storage/rdma-net": true, "fabric/rdma-net": true}}
	decode := func(doc []byte, into any) {
		if err := yaml.UnmarshalStrict(doc, into); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
	}
	for doc := range bytes.SplitSeq(b, []byte("\n---\n")) {
		var kind metav1.TypeMeta
		if err := yaml.Unmarshal(doc, &kind); err != nil {
			t.Fatal(err)
		}
		switch kind.Kind {
		case "NFSGateway":
			in.Gateway = new(v1alpha1.NFSGateway)
			decode(doc, in.Gateway)
		case "NFSExport":
			var e v1alpha1.NFSExport
			decode(doc, &e)
			in.Exports = append(in.Exports, e)
		default:
			c := new(corev1.PersistentVolumeClaim)
			decode(doc, c)
			in.Claims[c.Name] = c
		}
	}
	p := plan.Make(in)
	for _, x := range p.Exports {
		if x.Config == nil {
			t.Fatalf("%s: %s is not served: %+v", file, plan.Key(x.Source), x.Conditions)
		}
	}
	return &p
}

// written returns the applied object in YAML, without the empty status of Go's types.
func written(t *testing.T, list []client.Object) string {
	t.Helper()
	var out []string
	for _, o := range list {
		u, err := runtime.DefaultUnstructuredConverter.ToUnstructured(o)
		if err != nil {
			t.Fatal(err)
		}
		delete(u, "status")
		b, err := yaml.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, string(b))
	}
	return strings.Join(out, "---\n")
}

func scenarios(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("testdata/*.in.yaml")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d scenarios, %v", len(files), err)
	}
	return files
}

func TestGolden(t *testing.T) {
	for _, in := range scenarios(t) {
		golden := strings.TrimSuffix(in, ".in.yaml") + ".yaml"
		got := written(t, Build(read(t, in), &defaults))
		if *update {
			if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		want, err := os.ReadFile(golden)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s (-want +got; -update writes it anew):\n%s", golden, diff)
		}
	}
}

// TestFilesAreUnderstood: the readers of the files accept them.
func TestFilesAreUnderstood(t *testing.T) {
	speakers := 0
	for _, in := range scenarios(t) {
		p := read(t, in)
		for i := range p.Workloads {
			data := configMapOf(p, &p.Workloads[i], &defaults).Data
			f, err := config.Parse([]byte(data[GatewayFile]))
			if err != nil || len(f.Refused) > 0 {
				t.Errorf("%s: %s: %v %v", in, p.Workloads[i].Name, err, f)
			}
			if text, ok := data[SpeakerFile]; ok {
				speakers++
				if _, err := api.Parse([]byte(text)); err != nil {
					t.Errorf("%s: %s: %v", in, p.Workloads[i].Name, err)
				}
			}
		}
	}
	if speakers < 3 {
		t.Errorf("%d files for speakers", speakers)
	}
}

func template(t *testing.T, o client.Object) *corev1.PodTemplateSpec {
	t.Helper()
	switch w := o.(type) {
	case *appsv1.Deployment:
		return &w.Spec.Template
	case *appsv1.StatefulSet:
		return &w.Spec.Template
	}
	t.Fatalf("%T is no workload", o)
	return nil
}

// TestPodSecurity evaluates the pods with Kubernetes' own rules.
func TestPodSecurity(t *testing.T) {
	rules, err := policy.NewEvaluator(policy.DefaultChecks(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string][]string{
		"service":    nil,
		"options":    nil,
		"claim":      {"unrestricted capabilities", "runAsNonRoot != true", "runAsUser=0"},
		"virtual-ip": {"unrestricted capabilities", "runAsNonRoot != true", "runAsUser=0"},
		"verbs":      {"unrestricted capabilities", "runAsNonRoot != true", "runAsUser=0"},
	} {
		p := read(t, "testdata/"+name+".in.yaml")
		for i := range p.Workloads {
			w := &p.Workloads[i]
			if name == "claim" && w.Claim == nil {
				continue
			}
			pod := template(t, workloadOf(p, w, &defaults))
			got := policy.AggregateCheckResults(rules.EvaluatePod(psa.LevelVersion{Level: psa.LevelRestricted, Version: psa.LatestVersion()}, &pod.ObjectMeta, &pod.Spec)).ForbiddenReasons
			if !slices.Equal(got, want) {
				t.Errorf("%s: %s: %q, want %q", name, w.Name, got, want)
			}
		}
	}
}

// TestExportsDoNotRestartPods: the pod template and the name of its ConfigMap do not depend on the
// exports or the number of pods.
func TestExportsDoNotRestartPods(t *testing.T) {
	p := read(t, "testdata/virtual-ip.in.yaml")
	shared := func() *plan.Workload {
		return &p.Workloads[slices.IndexFunc(p.Workloads, func(w plan.Workload) bool { return w.Claim == nil })]
	}
	before, name := template(t, workloadOf(p, shared(), &defaults)).DeepCopy(), configMapOf(p, shared(), &defaults).Name
	hash := ConfigHash(configMapOf(p, shared(), &defaults))
	p.Exports, p.Groups, shared().Config.Exports, shared().Replicas = nil, nil, nil, 7
	if diff := cmp.Diff(before, template(t, workloadOf(p, shared(), &defaults))); diff != "" {
		t.Errorf("without exports (-want +got):\n%s", diff)
	}
	if got := configMapOf(p, shared(), &defaults); got.Name != name || ConfigHash(got) == hash {
		t.Errorf("the ConfigMap is %s with hash %s, was %s with %s", got.Name, ConfigHash(got), name, hash)
	}
	other := defaults
	other.GatewayImage = "sluice.dev/gateway:v2"
	if got := configMapOf(p, shared(), &other); got.Name == name {
		t.Error("another image has the same ConfigMap")
	}
}

func TestServicesOutliveGateways(t *testing.T) {
	for _, in := range scenarios(t) {
		p := read(t, in)
		for i := range p.Exports {
			x := &p.Exports[i]
			owners := Service(p.Gateway, x).OwnerReferences
			switch {
			case x.Source.Namespace != p.Gateway.Namespace && len(owners) == 0:
			case x.Source.Namespace == p.Gateway.Namespace && len(owners) == 1 && owners[0].UID == x.Source.UID && owners[0].Kind == "NFSExport":
			default:
				t.Errorf("%s: the Service of %s is owned by %v", in, plan.Key(x.Source), owners)
			}
		}
	}
}

// TestAPlanFollowsItsOwnServices: Services record their plan.
func TestAPlanFollowsItsOwnServices(t *testing.T) {
	for _, in := range scenarios(t) {
		p := read(t, in)
		again := plan.Input{Gateway: p.Gateway, Networks: map[string]bool{"storage/rdma-net": true}, Claims: map[string]*corev1.PersistentVolumeClaim{}}
		for i := range p.Exports {
			x := &p.Exports[i]
			again.Exports = append(again.Exports, *x.Source)
			again.Services = append(again.Services, *Service(p.Gateway, x))
			if c := x.Source.Spec.Backend.PersistentVolumeClaim; c != nil {
				again.Claims[c.ClaimName] = new(corev1.PersistentVolumeClaim)
			}
			// a younger one that would be first
			if p.Gateway.Spec.Exposure.Type == v1alpha1.ExposureVirtualIP {
				young := *x.Source.DeepCopy()
				young.Name, young.Spec.Address.IP, young.Spec.Backend = "0"+young.Name, "", v1alpha1.Backend{NFS: &v1alpha1.NFSServer{Server: "filer.example", Path: "/"}}
				young.CreationTimestamp, young.UID, young.Spec.HandleIdentity = metav1.Time{}, "young-"+young.UID, ""
				again.Exports = append(again.Exports, young)
			}
		}
		for _, x := range plan.Make(again).Exports {
			for _, old := range p.Exports {
				if plan.Key(x.Source) == plan.Key(old.Source) && (x.Hash != old.Hash || x.VIP != old.VIP || x.TCPTarget != old.TCPTarget) {
					t.Errorf("%s: %s: %d %s %s, was %d %s %s", in, plan.Key(x.Source), x.TCPTarget, x.VIP, x.Hash, old.TCPTarget, old.VIP, old.Hash)
				}
			}
		}
	}
}

func TestKeys(t *testing.T) {
	a, err := NewKeys(bytes.NewReader(bytes.Repeat([]byte{1}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	keys, err := sign.ParseKeys(a)
	if err != nil || len(keys) != 1 || !bytes.Equal(keys[0], bytes.Repeat([]byte{1}, 32)) {
		t.Errorf("%q: %v, %v", a, keys, err)
	}
	if _, err := NewKeys(bytes.NewReader([]byte("short"))); err == nil {
		t.Error("a key of 5 bytes")
	}
	g := &v1alpha1.NFSGateway{ObjectMeta: metav1.ObjectMeta{Name: "fast", Namespace: "storage"}}
	s := KeysSecret(g, a)
	if s.Name != "fast-handle-keys" || s.Namespace != "storage" || len(s.OwnerReferences) != 0 || !bytes.Equal(s.Data["keys"], a) {
		t.Errorf("%+v", s)
	}
}

// Objects of the Prometheus operator have the labels that a Prometheus selects by: the operator's,
// the gateway's over these, and ours over all. Each entry of the collectors' labels is a peer of
// its own.
// TestPullSecrets: the operator's are for gateways that name none.
func TestPullSecrets(t *testing.T) {
	d := defaults
	d.PullSecrets = []string{"one", "two"}
	for scenario, want := range map[string][]corev1.LocalObjectReference{"service": {{Name: "one"}, {Name: "two"}}, "options": {{Name: "pull"}}} {
		for _, o := range Build(read(t, "testdata/"+scenario+".in.yaml"), &d) {
			if s, ok := o.(*appsv1.Deployment); ok {
				if diff := cmp.Diff(want, s.Spec.Template.Spec.ImagePullSecrets); diff != "" {
					t.Errorf("%s: %s", scenario, diff)
				}
			}
		}
	}
}

// TestMonitoring checks that a gateway with virtual IPs has its speakers' metrics collected, with
// alerts on documented metrics of this gateway alone.
func TestMonitoring(t *testing.T) {
	docs := ""
	for _, page := range []string{"gateway.md", "kubernetes.md"} {
		b, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		docs += string(b)
	}
	for scenario, want := range map[string]struct{ ports, alerts []string }{
		"options": {
			[]string{"admin"},
			[]string{"SluiceExportNotServed", "SluiceBackendUnreachable", "SluiceListenerDown", "SluicePodConfigRefused", "SluicePodDown"},
		},
		"virtual-ip": {
			[]string{"admin", "speaker"},
			[]string{
				"SluiceExportNotServed", "SluiceBackendUnreachable", "SluiceListenerDown", "SluicePodConfigRefused", "SluicePodDown",
				"SluiceVirtualIPsNotCarried", "SluiceLeaseExpired", "SluiceVirtualIPConflict", "SluiceSpeakerProblem", "SluicePoolAlmostUsed",
			},
		},
	} {
		g := read(t, "testdata/"+scenario+".in.yaml").Gateway
		var ports, endpoints, alerts []string
		for _, p := range AdminService(g).Spec.Ports {
			ports = append(ports, p.Name)
		}
		list, _, _ := unstructured.NestedSlice(asJSON(t, ServiceMonitor(g, &defaults)), "spec", "endpoints")
		for _, e := range list {
			endpoints = append(endpoints, e.(map[string]any)["port"].(string))
		}
		groups, _, _ := unstructured.NestedSlice(asJSON(t, PrometheusRule(g, &defaults)), "spec", "groups")
		for _, r := range groups[0].(map[string]any)["rules"].([]any) {
			rule := r.(map[string]any)
			name, expr := rule["alert"].(string), rule["expr"].(string)
			alerts = append(alerts, name)
			if !strings.Contains(docs, "`"+name+"`") {
				t.Errorf("docs/kubernetes.md has no %s", name)
			}
			for _, m := range regexp.MustCompile(`(\w+)\{([^}]*)\}`).FindAllStringSubmatch(expr, -1) {
				if m[1] != "up" && !strings.Contains(docs, "`"+m[1]+"`") {
					t.Errorf("%s: the pages know no %s", name, m[1])
				}
				if !strings.Contains(m[2], `namespace="`+g.Namespace+`"`) || !strings.Contains(m[2], `"`+g.Name) {
					t.Errorf("%s is not about the gateway alone: %s", name, expr)
				}
			}
			if strings.Count(expr, "(") != strings.Count(expr, ")") {
				t.Errorf("%s: %s", name, expr)
			}
		}
		if !cmp.Equal(ports, want.ports) || !cmp.Equal(endpoints, want.ports) || !cmp.Equal(alerts, want.alerts) {
			t.Errorf("%s: ports %v, endpoints %v, alerts %v", scenario, ports, endpoints, alerts)
		}
	}
}

// asJSON returns an object as it is after JSON.
func asJSON(t *testing.T, u *unstructured.Unstructured) map[string]any {
	t.Helper()
	b, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	var out map[string]any
	if err := json.Unmarshal(b, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestMonitoringLabels(t *testing.T) {
	d := defaults
	d.MonitoringLabels = map[string]string{"release": "all", "team": "storage", plan.LabelGateway: "other"}
	d.CollectorLabels = []map[string]string{{"app": "prometheus"}, {"app": "agent", "shard": "1"}}
	g := read(t, "testdata/options.in.yaml").Gateway
	for _, u := range []client.Object{ServiceMonitor(g, &d), PrometheusRule(g, &d)} {
		l := u.GetLabels()
		if l["release"] != "prometheus" || l["team"] != "storage" || l[plan.LabelGateway] != "fast" || l[plan.LabelManaged] != plan.ManagedBy {
			t.Errorf("%T has the labels %v", u, l)
		}
	}
	var got []map[string]string
	for _, from := range NetworkPolicy(g, &d).Spec.Ingress[1].From {
		got = append(got, from.PodSelector.MatchLabels)
	}
	if want := append([]map[string]string{d.OperatorLabels}, d.CollectorLabels...); !cmp.Equal(got, want) {
		t.Errorf("the admin ports are open to %v, want %v", got, want)
	}
}

func configMapOf(p *plan.Plan, w *plan.Workload, d *Defaults) *corev1.ConfigMap {
	c, _ := Workload(p, w, d)
	return c
}

func workloadOf(p *plan.Plan, w *plan.Workload, d *Defaults) client.Object {
	_, o := Workload(p, w, d)
	return o
}
