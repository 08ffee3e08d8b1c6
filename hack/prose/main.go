// Command prose checks the prose of tracked files: lines over 100 columns, and words that hide a
// noun.
//
//	go run ./hack/prose [-count] [PATH...]
//
// It reads comments and messages of Go files, Markdown, and comments of shell scripts, Makefiles
// and YAML files. Each finding is one line with file and line number; the exit status is 1 if there
// is any. With -count it prints totals by folder and exits with 0.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"os"
	"os/exec"
	"path"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("hack/prose: ")
	count := flag.Bool("count", false, "print totals by folder, for each 1,000 words")
	flag.Parse()
	totals, findings, err := checkTracked(flag.Args())
	if err != nil {
		log.Fatal(err)
	}
	if *count {
		printTotals(os.Stdout, totals)
		return
	}
	for _, f := range findings {
		fmt.Println(f)
	}
	if n := len(findings); n > 0 {
		log.Fatalf("%d findings", n)
	}
}

// checkTracked checks the files that git tracks under the paths, or all of them.
func checkTracked(paths []string) (map[string]*total, []finding, error) {
	out, err := exec.Command("git", append([]string{"ls-files", "-z", "--"}, paths...)...).Output()
	if err != nil {
		return nil, nil, fmt.Errorf("git ls-files: %w", err)
	}
	totals := make(map[string]*total)
	var findings []finding
	for name := range strings.SplitSeq(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if name == "" || strings.Contains(name, "/testdata/") {
			continue
		}
		data, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue // deleted, and not yet committed
		}
		if err != nil {
			return nil, nil, err
		}
		r, err := checkFile(name, data)
		if err != nil {
			return nil, nil, err
		}
		findings = append(findings, r.findings...)
		dir := path.Dir(name)
		if totals[dir] == nil {
			totals[dir] = new(total)
		}
		totals[dir].add(r)
	}
	return totals, findings, nil
}

// total sums up the files of a folder.
type total struct {
	words, long int
	found       [len(riddles)]int
	suspects    int
}

func (t *total) add(r *report) {
	t.words += r.words
	t.suspects += r.suspects
	for _, f := range r.findings {
		if f.riddle < 0 {
			t.long++
		} else {
			t.found[f.riddle]++
		}
	}
}

func (t *total) sum(u *total) {
	t.words += u.words
	t.long += u.long
	t.suspects += u.suspects
	for i, n := range u.found {
		t.found[i] += n
	}
}

func (t *total) print(w io.Writer, name string) {
	rate := func(n int) float64 { return 1000 * float64(n) / float64(max(t.words, 1)) }
	fmt.Fprintf(w, "%-40s %8d %6d", name, t.words, t.long)
	for _, n := range t.found {
		fmt.Fprintf(w, " %8.1f", rate(n))
	}
	fmt.Fprintf(w, " %8.1f\n", rate(t.suspects))
}

// printTotals prints the totals of folders with words, most words first, and their sum.
func printTotals(w io.Writer, totals map[string]*total) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%-40s %8s %6s", "for each 1,000 words, but long lines", "words", "long")
	for _, r := range riddles {
		fmt.Fprintf(&b, " %8s", r.name)
	}
	fmt.Fprintf(&b, " %8s\n", "suspects")
	var all total
	names := slices.SortedFunc(maps.Keys(totals), func(a, b string) int {
		return cmp.Or(cmp.Compare(totals[b].words, totals[a].words), strings.Compare(a, b))
	})
	for _, name := range names {
		all.sum(totals[name])
		if totals[name].words > 0 {
			totals[name].print(&b, name)
		}
	}
	all.print(&b, "all")
	_, _ = b.WriteTo(w)
}
