package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"go.yaml.in/yaml/v4"
)

// The table of values in the README lies between these lines.
const (
	tableBegin = "<!-- values: made by go run ./hack/generate -->\n"
	tableEnd   = "<!-- end of values -->\n"
)

// writeReadme writes the README of a chart with the table of its values anew.
func writeReadme(to, chart string) error {
	readme := filepath.Join(chart, "README.md")
	text, err := os.ReadFile(readme)
	if err != nil {
		return err
	}
	before, rest, begins := strings.Cut(string(text), tableBegin)
	_, after, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return fmt.Errorf("%s: no lines %q and %q", readme, tableBegin, tableEnd)
	}
	table, err := valuesTable(chart)
	if err != nil {
		return fmt.Errorf("%s: %w", chart, err)
	}
	return os.WriteFile(to, []byte(before+tableBegin+table+tableEnd+after), 0o644)
}

// valuesTable makes the table from values.schema.json, with the defaults of values.yaml.
func valuesTable(chart string) (string, error) {
	text, err := os.ReadFile(filepath.Join(chart, "values.schema.json"))
	if err != nil {
		return "", err
	}
	var root property
	// JSON is YAML, whose reader keeps the order.
	if err := yaml.Unmarshal(text, &root); err != nil {
		return "", fmt.Errorf("values.schema.json: %w", err)
	}
	if text, err = os.ReadFile(filepath.Join(chart, "values.yaml")); err != nil {
		return "", err
	}
	var values map[string]any
	if err := yaml.Unmarshal(text, &values); err != nil {
		return "", fmt.Errorf("values.yaml: %w", err)
	}
	t := &table{}
	t.b.WriteString("| value | default | meaning |\n|---|---|---|\n")
	if err := t.rows("", &root, values); err != nil {
		return "", err
	}
	return t.b.String(), nil
}

// property is a schema's part that the table shows.
type property struct {
	Description string    `yaml:"description"`
	Enum        []string  `yaml:"enum"`
	Not         any       `yaml:"not"`
	Properties  yaml.Node `yaml:"properties"`
	Items       *property `yaml:"items"`
}

type table struct{ b strings.Builder }

// rows writes a row for each value below a path. Of a map with names that users choose, the schema
// lists only forbidden ones, which are "not" anything.
func (t *table) rows(path string, p *property, value any) error {
	values, _ := value.(map[string]any)
	fields := p.Properties.Content
	shown := false
	for i := 0; i+1 < len(fields); i += 2 {
		var field property
		if err := fields[i+1].Decode(&field); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if forbidden, ok := field.Not.(map[string]any); ok && len(forbidden) == 0 {
			continue
		}
		shown = true
		name := fields[i].Value
		if err := t.rows(strings.TrimPrefix(path+"."+name, "."), &field, values[name]); err != nil {
			return err
		}
	}
	if shown {
		return nil
	}
	initial := ""
	if value != nil {
		b, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		initial = "`" + string(b) + "`"
	}
	meaning := p.Description
	if len(p.Enum) > 0 {
		var all []string
		for _, v := range p.Enum {
			all = append(all, fmt.Sprintf("`%q`", v))
		}
		meaning += " One of " + strings.Join(all, ", ") + "."
	}
	fmt.Fprintf(&t.b, "| `%s` | %s | %s |\n", path, initial, strings.ReplaceAll(meaning, "|", `\|`))
	if p.Items != nil && p.Items.Properties.Content != nil {
		return t.rows(path+"[]", p.Items, nil)
	}
	return nil
}
