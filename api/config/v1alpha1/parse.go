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

// MaxFile is the most bytes that a file may have.
const MaxFile = 8 << 20

// File is what was read from a configuration file whose frame is right: all but the exports that are not.
type File struct {
	// Config has every default filled in. Its exports are those without a problem.
	Config GatewayConfig
	// Refused are the other ones.
	Refused []Refused
	// Hash identifies the file's bytes: 16 hex digits of their SHA-256.
	Hash string
}

// Refused is an export with problems.
type Refused struct {
	// Index is its place in the file's list.
	Index int
	// Name is its name, empty if that is missing or is itself a problem.
	Name string
	// Problems has at least one.
	Problems Problems
}

// Parse reads a configuration file in YAML, strictly. An error, which is of type [Problems], means that nothing of the file can be used; problems of a
// single export only refuse that export.
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
	// A field that did not decode has a problem already: its rules would only say so again.
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
		if i, ok := exportOf(p.Field); ok && 0 <= i && i < len(bad) { // an unknown field may look like one of an export that is not there
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

// parent is the path of the list or mapping that a field is in, empty for a field of the file.
func parent(field string) string { return field[:max(0, strings.LastIndexAny(field, ".["))] }

// exportOf tells which export a field belongs to.
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

// syntaxProblem takes the line out of an error of the YAML parser.
func syntaxProblem(err error) Problem {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	var line int
	if n, _ := fmt.Sscanf(text, "line %d: ", &line); n == 1 {
		_, text, _ = strings.Cut(text, ": ")
	}
	return Problem{Line: line, Reason: "not YAML: " + text}
}

// Hash identifies what an export is configured as: 16 hex digits. Equal exports have equal hashes, wherever they come from.
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
