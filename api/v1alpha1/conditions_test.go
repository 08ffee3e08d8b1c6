package v1alpha1

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestReasonsAreExplained shows that docs/troubleshooting.md has one heading for each reason, whose
// anchor messages print, and for no other.
func TestReasonsAreExplained(t *testing.T) {
	text, err := os.ReadFile("../../docs/troubleshooting.md")
	if err != nil {
		t.Fatal(err)
	}
	headings := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		headings[strings.ToLower(m[1])]++ // as GitHub makes anchors
	}
	explained := regexp.MustCompile(`(?m)^### (.*)$`).FindAllStringSubmatch(string(text), -1)

	file, err := parser.ParseFile(token.NewFileSet(), "conditions.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	reasons := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || !strings.HasPrefix(spec.Names[0].Name, "Reason") {
			return true
		}
		reason, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
		if err != nil || "Reason"+reason != spec.Names[0].Name {
			t.Errorf("%s = %q, %v: want the name to say the reason", spec.Names[0].Name, reason, err)
		}
		reasons[reason] = true
		if n := headings[strings.ToLower(reason)]; n != 1 {
			t.Errorf("docs/troubleshooting.md: %d headings with the anchor #%s, want one", n, strings.ToLower(reason))
		}
		return true
	})
	if len(reasons) == 0 {
		t.Error("no reasons in conditions.go")
	}
	for _, m := range explained {
		if !reasons[m[1]] {
			t.Errorf("docs/troubleshooting.md explains %q, which is no reason", m[1])
		}
	}
}
