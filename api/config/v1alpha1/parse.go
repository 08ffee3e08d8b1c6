package v1alpha1

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"go.yaml.in/yaml/v4"
)

// MaxFile is the maximum size of a file, in bytes.
const MaxFile = 8 << 20

// File is a parsed configuration file. Its frame is valid; some exports may be refused.
type File struct {
	// Config has all defaults set, and the valid exports.
	Config GatewayConfig
	// Refused are the exports with problems.
	Refused []Refused
	// Hash identifies the file's bytes: 16 hex digits of their SHA-256.
	Hash string
}

// Refused is an export with problems.
type Refused struct {
	// Index is the export's index in the file's list.
	Index int
	// Name is empty if it is missing or itself a problem.
	Name string
	// Problems has at least one element.
	Problems Problems
}

// Parse reads a YAML configuration file, strictly. An error is of type [Problems] and makes the
// whole file unusable. Problems of a single export refuse only that export.
func Parse(data []byte) (*File, error) {
	root, err := parseYAML(data)
	if err != nil {
		return nil, err
	}
	f := &File{Hash: hash(data)}
	d := &decoder{lines: map[string]int{}}
	top := report{problems: &d.problems}
	c := &f.Config
	d.decode(top, root, reflect.ValueOf(c).Elem())
	for i := range c.Exports {
		c.Exports[i].Complete()
	}
	c.Resolve()
	// Skip the rules of fields that did not decode: those have a problem already.
	undecoded := map[string]bool{}
	for _, p := range d.problems {
		undecoded[p.Field] = true
	}
next:
	for _, p := range c.Validate() {
		for field := p.Field; ; field = parent(field) {
			if undecoded[field] {
				continue next
			}
			if field == "" {
				break
			}
		}
		d.problems = append(d.problems, p)
	}
	d.place(d.problems)

	bad := make([]Problems, len(c.Exports))
	var whole Problems
	for _, p := range d.problems {
		// an unknown field may look like a field of a missing export
		if i, ok := exportOf(p.Field); ok && 0 <= i && i < len(bad) {
			bad[i] = append(bad[i], p)
		} else {
			whole = append(whole, p)
		}
	}
	if err := whole.err(); err != nil {
		return nil, err
	}
	good := []Export{}
	for i, e := range c.Exports {
		if len(bad[i]) == 0 {
			good = append(good, e)
			continue
		}
		r := Refused{Index: i, Name: e.Name, Problems: bad[i]}
		if checkName(e.Name) != "" {
			r.Name = ""
		}
		f.Refused = append(f.Refused, r)
	}
	c.Exports = good
	return f, nil
}

func parent(field string) string { return field[:max(0, strings.LastIndexAny(field, ".["))] }

// exportOf returns the index of the export that a field belongs to.
func exportOf(field string) (i int, ok bool) {
	n, err := fmt.Sscanf(field, "exports[%d]", &i)
	return i, n == 1 && err == nil
}

func parseYAML(data []byte) (*yaml.Node, error) {
	if len(data) > MaxFile {
		return nil, Problems{{Reason: fmt.Sprintf("the file has %d bytes: want %d at most", len(data), MaxFile)}}
	}
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	err := dec.Decode(&doc)
	if errors.Is(err, io.EOF) || err == nil && (len(doc.Content) != 1 || doc.Content[0].Tag == "!!null") {
		return nil, Problems{{Reason: fmt.Sprintf("the file is empty: want apiVersion: %s, kind: %s, and exports", APIVersion, Kind)}}
	}
	if err == nil {
		if err = dec.Decode(&more); errors.Is(err, io.EOF) {
			return doc.Content[0], nil
		} else if err == nil {
			return nil, Problems{{Line: more.Line, Reason: "second document: want one"}}
		}
	}
	return nil, Problems{syntaxProblem(err)}
}

// syntaxProblem extracts the line from an error of the YAML parser.
func syntaxProblem(err error) Problem {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if n, _ := fmt.Sscanf(text, "line %d: ", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	return Problem{Line: line, Reason: "not YAML: " + text}
}

// Hash identifies an export's configuration: 16 hex digits. Equal exports have equal hashes,
// independent of their source.
func (e *Export) Hash() string {
	c := *e
	c.Listeners = append([]Listener(nil), e.Listeners...)
	c.Complete()
	b, err := json.Marshal(c)
	if err != nil {
		panic(err) // a struct of strings and numbers
	}
	for i := range c.Access {
		for _, s := range c.Access[i].From.Sets {
			b = append(b, s.Hash...)
		}
	}
	return hash(b)
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}
