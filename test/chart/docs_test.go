//go:build operator

package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"sluice.dev/sluice/test/apiserver"
)

// TestDocs applies every manifest of the pages to the server, and every file of values to the
// chart.
func TestDocs(t *testing.T) {
	for _, page := range []string{"docs/kubernetes.md", "docs/quickstart-software.md", "docs/quickstart-roce.md"} {
		text, err := os.ReadFile(apiserver.Path(page))
		if err != nil {
			t.Fatal(err)
		}
		manifests := regexp.MustCompile("(?s)```(?:yaml)\n(apiVersion.*?)```|<<'EOF'\n(.*?)EOF\n").FindAllStringSubmatch(string(text), -1)
		if len(manifests) == 0 {
			t.Errorf("%s: no manifests", page)
		}
		for _, m := range manifests {
			for _, u := range objects(t, m[1]+m[2]) {
				accepted(t, u)
			}
		}
		for _, m := range regexp.MustCompile("(?s)```yaml\n# values.yaml\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
			file := t.TempDir() + "/values.yaml"
			if err := os.WriteFile(file, []byte(m[1]), 0o644); err != nil {
				t.Fatal(err)
			}
			rendered, err := render(chart, file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(rendered, "NetworkAttachmentDefinition") {
				t.Errorf("%s: the values render no network", page)
			}
			for _, u := range objects(t, rendered) {
				accepted(t, u)
			}
		}
	}
}
