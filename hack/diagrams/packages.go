package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strings"
)

const module = "sluice.dev/sluice/"

// group is a box of the diagram. It holds the packages under its prefixes that no group with a
// longer prefix holds.
type group struct {
	name     string
	prefixes []string
	row      int
	x, w     int
	columns  int

	packages []string
	y, h     int
}

var groups = []*group{
	{name: "gateway", prefixes: []string{"cmd/gateway", "internal/gateway"}, row: 0, x: 20, w: 280, columns: 1},
	{name: "sluicectl", prefixes: []string{"cmd/sluicectl", "internal/sluicectl"}, row: 0, x: 330, w: 210, columns: 1},
	{name: "operator", prefixes: []string{"cmd/operator", "internal/operator"}, row: 0, x: 570, w: 370, columns: 2},
	{name: "api", prefixes: []string{"api"}, row: 1, x: 20, w: 130, columns: 1},
	{name: "speaker", prefixes: []string{"internal/speaker"}, row: 1, x: 680, w: 260, columns: 1},
	{name: "nfs", prefixes: []string{"pkg/nfs"}, row: 2, x: 20, w: 520, columns: 3},
	{name: "shared by programs", prefixes: []string{"internal"}, row: 2, x: 600, w: 340, columns: 2},
	{name: "rpcrdma", prefixes: []string{"pkg/rpcrdma"}, row: 3, x: 20, w: 520, columns: 2},
	{name: "oncrpc", prefixes: []string{"pkg/oncrpc"}, row: 4, x: 20, w: 245, columns: 1},
	{name: "rdma", prefixes: []string{"pkg/rdma"}, row: 4, x: 295, w: 245, columns: 1},
	{name: "base", prefixes: []string{"pkg/xdr", "pkg/bufpool", "pkg/internal"}, row: 5, x: 20, w: 520, columns: 2},
}

const (
	margin     = 20
	rowGap     = 50
	lineHeight = 18
)

func drawPackages() ([]byte, error) {
	imports, err := listImports()
	if err != nil {
		return nil, err
	}
	edges, err := sortIntoGroups(imports)
	if err != nil {
		return nil, err
	}
	height := place()
	var c canvas
	c.open(960, height, "The packages of Sluice and their imports")
	for _, from := range groups {
		for _, to := range groups {
			if edges[from][to] && !implied(edges, from, to) {
				if from.row >= to.row {
					return nil, fmt.Errorf("%s imports %s, which is not below it", from.name, to.name)
				}
				x1, x2 := anchors(from, to)
				c.arrow(x1, from.y+from.h, x2, to.y, "call")
			}
		}
	}
	for _, g := range groups {
		fill := "#ffffff"
		if strings.HasPrefix(g.prefixes[0], "pkg/") {
			fill = shade
		}
		c.box(g.x, g.y, g.w, g.h, fill)
		c.write(g.x+g.w/2, g.y+20, "middle", `font-weight="bold"`, g.name)
		lines := (len(g.packages) + g.columns - 1) / g.columns
		for i, p := range g.packages {
			x := g.x + 14 + i/lines*(g.w-14)/g.columns
			c.write(x, g.y+20+lineHeight*(1+i%lines), "start", `font-size="12"`, p)
		}
	}
	c.write(600, height-60, "start", `font-size="12" font-style="italic"`, "An arrow is an import. An import that other")
	c.write(600, height-42, "start", `font-size="12" font-style="italic"`, "arrows imply is left out. Tests and their")
	c.write(600, height-24, "start", `font-size="12" font-style="italic"`, "helpers (…test) are left out too.")
	return c.close(), nil
}

// listImports returns the module's packages with the packages of the module that they import. Build
// tags hide nothing: packages import no others of the module by them.
func listImports() (map[string][]string, error) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", module+"cmd/...", module+"internal/...", module+"api/...", module+"pkg/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, &stderr)
	}
	imports := make(map[string][]string)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return imports, nil
		} else if err != nil {
			return nil, err
		}
		name := strings.TrimPrefix(p.ImportPath, module)
		if strings.HasSuffix(name, "test") {
			continue
		}
		imports[name] = nil
		for _, i := range p.Imports {
			if target, ok := strings.CutPrefix(i, module); ok {
				imports[name] = append(imports[name], target)
			}
		}
	}
}

// sortIntoGroups gives each group its packages, and returns the imports between groups.
func sortIntoGroups(imports map[string][]string) (map[*group]map[*group]bool, error) {
	edges := make(map[*group]map[*group]bool)
	for _, g := range groups {
		g.packages = nil
		edges[g] = make(map[*group]bool)
	}
	for name, targets := range imports {
		from := groupOf(name)
		if from == nil {
			return nil, fmt.Errorf("package %s is in no group of the diagram", name)
		}
		from.packages = append(from.packages, name)
		for _, target := range targets {
			if to := groupOf(target); to != nil && to != from {
				edges[from][to] = true
			}
		}
	}
	for _, g := range groups {
		slices.Sort(g.packages)
	}
	return edges, nil
}

func groupOf(name string) *group {
	var best *group
	longest := -1
	for _, g := range groups {
		for _, p := range g.prefixes {
			if (name == p || strings.HasPrefix(name, p+"/")) && len(p) > longest {
				best, longest = g, len(p)
			}
		}
	}
	return best
}

// implied reports whether a longer path leads from one group to the other.
func implied(edges map[*group]map[*group]bool, from, to *group) bool {
	seen := make(map[*group]bool)
	var reach func(g *group) bool
	reach = func(g *group) bool {
		for next := range edges[g] {
			if next == to && g != from {
				return true
			}
			if next != to && !seen[next] {
				seen[next] = true
				if reach(next) {
					return true
				}
			}
		}
		return false
	}
	return reach(from)
}

// place sets the boxes' places and returns the height of the diagram.
func place() int {
	y := margin
	for row := 0; ; row++ {
		highest := 0
		for _, g := range groups {
			if g.row == row {
				g.y = y
				g.h = 32 + lineHeight*((len(g.packages)+g.columns-1)/g.columns)
				highest = max(highest, g.h)
			}
		}
		if highest == 0 {
			return y - rowGap + margin
		}
		y += highest + rowGap
	}
}

// anchors returns where an arrow leaves one box and enters the other: above each other if it can.
func anchors(from, to *group) (x1, x2 int) {
	left, right := max(from.x, to.x)+20, min(from.x+from.w, to.x+to.w)-20
	if left <= right {
		return (left + right) / 2, (left + right) / 2
	}
	if from.x < to.x {
		return from.x + from.w - 15, to.x + 15
	}
	return from.x + 15, to.x + to.w - 15
}
