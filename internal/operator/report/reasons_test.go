package report

import (
	"go/ast"
	"go/parser"
	"go/token"
	"strconv"
	"strings"
	"testing"
)

// TestEveryReasonHasARow: each reason reported here has a row with its message in the tables of
// report_test.go. Those of Accepted and ResolvedRefs have theirs in package plan.
func TestEveryReasonHasARow(t *testing.T) {
	files := token.NewFileSet()
	rows := map[string]bool{}
	tables, err := parser.ParseFile(files, "report_test.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(tables, func(n ast.Node) bool {
		row, ok := n.(*ast.CompositeLit)
		if !ok {
			return true
		}
		fields := map[string]string{}
		for _, e := range row.Elts {
			pair, ok := e.(*ast.KeyValueExpr)
			if !ok {
				continue
			}
			key, ok := pair.Key.(*ast.Ident)
			text, literal := pair.Value.(*ast.BasicLit)
			if ok && literal {
				fields[key.Name], _ = strconv.Unquote(text.Value)
			}
		}
		if fields["message"] != "" {
			rows[fields["reason"]] = true
		}
		return true
	})

	api, err := parser.ParseFile(files, "../../../api/v1alpha1/conditions.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	reasons, planned := 0, false
	ast.Inspect(api, func(n ast.Node) bool {
		v, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if doc := v.Doc.Text(); doc != "" {
			planned = strings.HasPrefix(doc, "Accepted, of") || strings.HasPrefix(doc, "ResolvedRefs.")
		}
		name, is := strings.CutPrefix(v.Names[0].Name, "Reason")
		if !is || planned || name == "Accepted" || name == "Resolved" {
			return true
		}
		reasons++
		if !rows[name] {
			t.Errorf("no row for reason %s", name)
		}
		return true
	})
	if reasons < 28 {
		t.Errorf("%d reasons found, want 28 at least", reasons)
	}
}
