package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxColumns is the widest line of prose. A tab counts as tabColumns.
const (
	maxColumns = 100
	tabColumns = 4
)

// riddle is a group of words that stand for a noun and hide it.
type riddle struct {
	name string
	re   *regexp.Regexp
	hint string
}

var riddles = [...]riddle{
	{"what", words(`what`), "name the noun, or the condition"},
	{"tell", words(`tell|tells|told|telling`), "use report, return, announce, set, log or distinguish"},
	{"that-who", words(`that\s+which|those\s+which|those\s+who|he\s+who|one\s+who|the\s+one\s+that`), "name the noun"},
	{"idiom", words(`(?:come|comes|came|coming)\s+to\s+stand|(?:has|have|had|having)\s+it\s+that`), "use a plain verb"},
}

// suspects are words that are riddles often, but not always. They are counted, and are no findings.
var suspects = words(`one\s+that|those\s+that|who|whoever|whatever|the\s+like`)

// words compiles alternatives that match whole words. Parts of identifiers are no words.
func words(alternatives string) *regexp.Regexp {
	return regexp.MustCompile(`(?i)(?:^|[^\w.'-])(` + alternatives + `)(?:[^\w'(-]|$)`)
}

// finding is one place to mend. riddle is an index of riddles, or -1 for a long line.
type finding struct {
	file   string
	line   int
	riddle int
	text   string
}

func (f finding) String() string { return fmt.Sprintf("%s:%d: %s", f.file, f.line, f.text) }

// report is the result of one file.
type report struct {
	file     string
	words    int
	suspects int
	findings []finding
}

var (
	generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)
	directive = regexp.MustCompile(`^//(?:[a-z]+:|nolint|export |line |extern )`)
	marker    = regexp.MustCompile(`^// ?\+[a-z]+`)
	link      = regexp.MustCompile(`[a-z+]+://[^\s)>]+|\]\([^)]*\)`)
	quoted    = regexp.MustCompile("`[^`\n]*`")
	aWord     = regexp.MustCompile(`[A-Za-z][A-Za-z']*`)
)

// checkFile checks a file by the kind that its name or first line shows. It skips other kinds.
func checkFile(name string, data []byte) (*report, error) {
	r := &report{file: name}
	text := string(data)
	base := path.Base(name)
	switch {
	case strings.HasSuffix(base, ".go"):
		return r, r.checkGo(text)
	case strings.HasSuffix(base, ".md"):
		r.checkMarkdown(text)
	case base == "Makefile", strings.HasSuffix(base, ".sh"), strings.HasPrefix(text, "#!"),
		strings.HasSuffix(base, ".yaml") && !strings.Contains(name, "crd"):
		r.checkHashComments(text)
	}
	return r, nil
}

func (r *report) checkGo(text string) error {
	if generated.MatchString(text) {
		return nil
	}
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, r.file, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	lines := strings.Split(text, "\n")
	skip := make(map[any]bool)
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GenDecl:
			for _, s := range n.Specs {
				if i, ok := s.(*ast.ImportSpec); ok {
					skip[i.Path] = true
					if i.Path.Value == `"C"` {
						skip[n.Doc], skip[i.Doc] = true, true // C code
					}
				}
			}
		case *ast.Field:
			skip[n.Tag] = true
		case *ast.BasicLit:
			if n.Kind == token.STRING && !skip[n] && !strings.HasSuffix(r.file, "_test.go") {
				r.checkMessage(fset.Position(n.Pos()).Line, n.Value)
			}
		}
		return true
	})
	for _, g := range file.Comments {
		if !skip[g] {
			r.checkGroup(fset, lines, g)
		}
	}
	return nil
}

// checkMessage checks a string of more than one word. One word is a key or a name.
func (r *report) checkMessage(line int, literal string) {
	s, err := strconv.Unquote(literal)
	if err != nil || !strings.Contains(strings.TrimSpace(s), " ") {
		return
	}
	if !strings.Contains(literal, "\n") {
		s = strings.ReplaceAll(s, "\n", " ")
	}
	r.checkWords(line, s)
}

// checkGroup checks adjacent comments. Code blocks and directives count neither as wide nor as
// words.
func (r *report) checkGroup(fset *token.FileSet, lines []string, g *ast.CommentGroup) {
	first := fset.Position(g.Pos()).Line
	output := false // the expected output of an example
	var prose []string
	for _, c := range g.List {
		p := fset.Position(c.Pos())
		for i, text := range strings.Split(c.Text, "\n") {
			for len(prose) < p.Line+i-first {
				prose = append(prose, "")
			}
			if directive.MatchString(text) {
				prose = append(prose, "")
				continue
			}
			isMarker := marker.MatchString(text)
			text = strings.TrimPrefix(text, "//")
			output = output || regexp.MustCompile(`^ (Unordered output|Output):`).MatchString(text)
			code := output || strings.HasPrefix(text, "\t") && !strings.HasPrefix(c.Text, "/*")
			if !isMarker && !code {
				r.checkWidth(p.Line+i, lines[p.Line+i-1])
			}
			if code {
				text = ""
			}
			prose = append(prose, text)
		}
	}
	r.countWords(strings.Join(prose, "\n"))
	r.checkWords(first, strings.Join(prose, "\n"))
}

func (r *report) checkMarkdown(text string) {
	lines := strings.Split(text, "\n")
	fence := ""
	for i, line := range lines {
		trimmed := strings.TrimSpace(line)
		mark := trimmed[:min(3, len(trimmed))]
		switch {
		case fence == "" && (mark == "```" || mark == "~~~"):
			fence, lines[i] = mark, ""
		case fence != "":
			if mark == fence {
				fence = ""
			}
			lines[i] = ""
		case !strings.HasPrefix(trimmed, "|"): // a table's row cannot be wrapped
			r.checkWidth(i+1, line)
		}
	}
	prose := strings.Join(lines, "\n")
	r.countWords(prose)
	r.checkWords(1, prose)
}

var hashComment = regexp.MustCompile(`(?:^|\s)#+(?:$| .*)`)

func (r *report) checkHashComments(text string) {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		at := hashComment.FindStringIndex(line)
		if at == nil {
			lines[i] = ""
			continue
		}
		r.checkWidth(i+1, line)
		lines[i] = strings.TrimLeft(line[at[0]:at[1]], " \t#")
	}
	prose := strings.Join(lines, "\n")
	r.countWords(prose)
	r.checkWords(1, prose)
}

func (r *report) countWords(prose string) { r.words += len(aWord.FindAllString(prose, -1)) }

// checkWidth reports a line of more than maxColumns. Addresses cannot be wrapped and do not count.
func (r *report) checkWidth(line int, text string) {
	if columns(link.ReplaceAllString(text, "")) > maxColumns {
		r.findings = append(r.findings, finding{r.file, line, -1,
			fmt.Sprintf("%d columns: wrap at %d", columns(text), maxColumns)})
	}
}

func columns(s string) int {
	return utf8.RuneCountInString(s) + (tabColumns-1)*strings.Count(s, "\t")
}

// checkWords reports the riddles in prose whose first line has the number given. Quoted code is no
// prose.
func (r *report) checkWords(first int, prose string) {
	prose = quoted.ReplaceAllStringFunc(prose, func(s string) string { return strings.Repeat("_", len(s)) })
	for i, x := range riddles {
		each(x.re, prose, func(at int, match string) {
			text := fmt.Sprintf("%q: %s", strings.Join(strings.Fields(match), " "), x.hint)
			r.findings = append(r.findings, finding{r.file, first + strings.Count(prose[:at], "\n"), i, text})
		})
	}
	each(suspects, prose, func(int, string) { r.suspects++ })
}

// each calls f with each match of the first group of re. Matches may share the letters around them.
func each(re *regexp.Regexp, s string, f func(at int, match string)) {
	for start := 0; ; {
		m := re.FindStringSubmatchIndex(s[start:])
		if m == nil {
			return
		}
		f(start+m[2], s[start+m[2]:start+m[3]])
		start += m[3]
	}
}
