// Command generate writes the files derived from the API's types and the controllers' markers: deep
// copies, CRDs, the operator's role, and the chart's copies of the latter two and of the admission
// policy (a chart cannot read files outside of it); the table of values in the chart's README;
// and the version of the file VERSION in the chart and in config.
//
//	go run ./hack/generate [-out DIR]
//
// DIR receives the files at their places in the repository. The default is the repository itself.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"

	"sigs.k8s.io/yaml"
)

const controllerGen = "sigs.k8s.io/controller-tools/cmd/controller-gen@v0.21.0"

func main() {
	log.SetFlags(0)
	log.SetPrefix("hack/generate: ")
	out := flag.String("out", ".", "folder to write to")
	flag.Parse()
	if flag.NArg() > 0 {
		log.Fatalf("unexpected argument %q", flag.Arg(0))
	}
	if err := generate(*out); err != nil {
		log.Fatal(err)
	}
}

func generate(out string) error {
	types := filepath.Join(out, "api/v1alpha1")
	crds := filepath.Join(out, "config/crd")
	roles := filepath.Join(out, "config/rbac")
	for _, dir := range []string{types, crds, roles} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	if err := run("paths=./api/v1alpha1", "object", "crd", "output:object:dir="+types, "output:crd:dir="+crds); err != nil {
		return err
	}
	if err := run("paths=./internal/operator/...", "rbac:roleName=sluice-operator", "output:rbac:dir="+roles); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(crds, "sluice.dev_*.yaml"))
	if err != nil {
		return err
	}
	for _, name := range files {
		if err := bound(name); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if err := copyTo(filepath.Join(out, "charts/sluice/files/crds", filepath.Base(name)), name); err != nil {
			return err
		}
	}
	if err := copyTo(filepath.Join(out, "charts/sluice/files/protection.yaml"), "config/admission/protection.yaml"); err != nil {
		return err
	}
	if err := copyTo(filepath.Join(out, "charts/sluice/files/role.yaml"), filepath.Join(roles, "role.yaml")); err != nil {
		return err
	}
	if err := copyTo(filepath.Join(out, "charts/sluice/files/provisioner.yaml"), "config/rbac/provisioner.yaml"); err != nil {
		return err
	}
	if err := writeReadme(filepath.Join(out, "charts/sluice/README.md"), "charts/sluice"); err != nil {
		return err
	}
	return writeVersion(out)
}

func run(args ...string) error {
	cmd := exec.Command("go", append([]string{"run", controllerGen}, args...)...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("controller-gen: %w", err)
	}
	return nil
}

func copyTo(to, from string) error {
	text, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}

// Bounds for fields without any: the types from Kubernetes (selectors, tolerations, resources), and
// values of maps.
const (
	maxLength = 4096
	maxCount  = 64
)

// bound bounds every string, list and map in the schemas of the CRD in the file, and joins the
// lines of descriptions.
func bound(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var crd map[string]any
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return err
	}
	for _, version := range crd["spec"].(map[string]any)["versions"].([]any) {
		root := version.(map[string]any)["schema"].(map[string]any)["openAPIV3Schema"].(map[string]any)
		properties := root["properties"].(map[string]any)
		joinLines(root)
		boundSchema(properties["spec"].(map[string]any))
		boundSchema(properties["status"].(map[string]any))
	}
	text, err = yaml.Marshal(crd)
	if err != nil {
		return err
	}
	return os.WriteFile(name, append([]byte("---\n"), bytes.TrimLeft(text, "\n")...), 0o644)
}

var lineEnd = regexp.MustCompile(`([^\n])\n([^\n\s-])`)

// joinLines makes each paragraph of the descriptions in a schema one line. kubectl explain wraps
// lines to its own width, and would keep the width of Go comments as well.
func joinLines(s map[string]any) {
	if d, ok := s["description"].(string); ok {
		s["description"] = lineEnd.ReplaceAllString(d, "$1 $2")
	}
	for key, v := range s {
		inner, _ := v.(map[string]any)
		switch {
		case inner == nil:
		case key == "properties":
			for _, p := range inner {
				joinLines(p.(map[string]any))
			}
		case key == "items" || key == "additionalProperties":
			joinLines(inner)
		}
	}
}

func boundSchema(s map[string]any) {
	setDefault := func(key string, v int) {
		if _, ok := s[key]; !ok {
			s[key] = v
		}
	}
	switch {
	case s["x-kubernetes-int-or-string"] == true:
		setDefault("maxLength", maxLength)
	case s["type"] == "string" && s["enum"] == nil && s["format"] == nil:
		setDefault("maxLength", maxLength)
	case s["type"] == "array":
		setDefault("maxItems", maxCount)
	case s["type"] == "object" && s["additionalProperties"] != nil:
		setDefault("maxProperties", maxCount)
	}
	properties, _ := s["properties"].(map[string]any)
	expressions, isSelector := properties["matchExpressions"].(map[string]any)
	if labels, ok := properties["matchLabels"].(map[string]any); ok && isSelector {
		boundSelector(labels, expressions)
	}
	for _, key := range []string{"items", "additionalProperties"} {
		if inner, ok := s[key].(map[string]any); ok {
			boundSchema(inner)
		}
	}
	for _, p := range properties {
		boundSchema(p.(map[string]any))
	}
}

// boundSelector bounds both parts of a label selector as narrowly as Kubernetes does, since CEL's
// cost is estimated from the bounds.
func boundSelector(labels, expressions map[string]any) {
	const maxSelected, maxKey, maxValue = 16, 317, 63
	labels["maxProperties"] = maxSelected
	labels["additionalProperties"].(map[string]any)["maxLength"] = maxValue
	expressions["maxItems"] = maxSelected
	properties := expressions["items"].(map[string]any)["properties"].(map[string]any)
	properties["key"].(map[string]any)["maxLength"] = maxKey
	properties["operator"].(map[string]any)["enum"] = []any{"In", "NotIn", "Exists", "DoesNotExist"}
	properties["values"].(map[string]any)["items"].(map[string]any)["maxLength"] = maxValue
}
