package main

import (
	"os"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"
)

// TestValuesTable: the table has a row for each value of the chart.
func TestValuesTable(t *testing.T) {
	const chart = "../../charts/sluice"
	table, err := valuesTable(chart)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(chart + "/values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		t.Fatal(err)
	}
	rows := 0
	var check func(path string, values map[string]any)
	check = func(path string, values map[string]any) {
		for name, v := range values {
			at := strings.TrimPrefix(path+"."+name, ".")
			if strings.Contains(table, "\n| `"+at+"` |") {
				rows++
				continue
			}
			if inner, ok := v.(map[string]any); ok && strings.Contains(table, "\n| `"+at+".") {
				check(at, inner)
				continue
			}
			t.Errorf("%s is missing", at)
		}
	}
	check("", values)
	if rows < 50 {
		t.Errorf("only %d values were found", rows)
	}
}
