package v1alpha1

import (
	"fmt"
	"strconv"
	"strings"
)

// Problem is one error in a configuration.
type Problem struct {
	// Line in the file, from 1; 0 without a file.
	Line int `json:"line,omitempty"`
	// Field is the path of the field, such as exports[0].transport.credits.max; empty for the whole
	// file.
	Field string `json:"field,omitempty"`
	// Value is the value in the file; empty if absent.
	Value string `json:"value,omitempty"`
	// Reason describes the expected value.
	Reason string `json:"reason"`
}

func (p Problem) Error() string {
	var b strings.Builder
	if p.Line > 0 {
		fmt.Fprintf(&b, "line %d: ", p.Line)
	}
	if p.Field != "" {
		b.WriteString(p.Field + ": ")
	}
	if p.Value != "" {
		b.WriteString(p.Value + ": ")
	}
	b.WriteString(p.Reason)
	return b.String()
}

// Problems is an error that lists problems, one per line.
type Problems []Problem

func (ps Problems) Error() string {
	s := make([]string, len(ps))
	for i, p := range ps {
		s[i] = p.Error()
	}
	return strings.Join(s, "\n")
}

func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	return ps
}

type report struct {
	path     string
	problems *Problems
}

func (r report) at(field string) report {
	if r.path != "" {
		field = r.path + "." + field
	}
	return report{field, r.problems}
}

func (r report) index(i int) report {
	return report{r.path + "[" + strconv.Itoa(i) + "]", r.problems}
}

// refuse adds a problem with this report's field. It quotes value if that is a string.
func (r report) refuse(value any, reason string, args ...any) {
	v := ""
	switch s := value.(type) {
	case nil:
	case raw:
		v = string(s)
	case string:
		if s != "" {
			v = shorten(strconv.Quote(s))
		}
	default:
		v = shorten(fmt.Sprint(s))
	}
	*r.problems = append(*r.problems, Problem{Field: r.path, Value: v, Reason: fmt.Sprintf(reason, args...)})
}

// raw is a value printed without quotes.
type raw string

func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most-1] + "…"
}
