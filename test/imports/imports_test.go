// Package imports tests the import rules: imports run downward only,
// cmd → internal → nfs → rpcrdma → rdma, oncrpc → xdr, bufpool.
package imports

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "sluice.dev/sluice/"

// allowed lists the packages of the module that packages under a prefix may import. The longest
// prefix counts. Imports of test files are free.
var allowed = []struct {
	prefix  string
	imports []string
}{
	{"pkg/xdr", nil},
	{"pkg/bufpool", nil},
	{"pkg/internal", nil},
	{"pkg/oncrpc", []string{"pkg/oncrpc", "pkg/xdr", "pkg/bufpool", "pkg/internal"}},
	{"pkg/rdma", []string{"pkg/rdma", "pkg/bufpool", "pkg/internal"}},
	{"pkg/rpcrdma", []string{"pkg/rpcrdma", "pkg/rdma", "pkg/oncrpc", "pkg/xdr", "pkg/bufpool"}},
	{"pkg/nfs", []string{"pkg/nfs", "pkg/rpcrdma", "pkg/rdma", "pkg/oncrpc", "pkg/xdr", "pkg/bufpool"}},
	{"api", []string{"api"}},
	{"docs", nil},
	{"internal", []string{"internal", "api", "pkg", "docs"}},
	{"cmd", []string{"internal", "api", "pkg"}},
	{"hack", []string{"internal", "api", "pkg", "hack/internal"}},
	{"hack/screenshots", []string{"internal", "api", "pkg", "hack/screenshots"}},
	{"test", []string{"internal", "api", "pkg", "test"}},
}

// forbidden lists packages that packages under a prefix must not import.
var forbidden = []struct {
	prefix, target string
}{
	{"pkg/rpcrdma", module + "pkg/rdma/iwarp"},
	{"pkg/rpcrdma", module + "pkg/rdma/verbs"},
	{"pkg/rpcrdma", "C"},
	{"pkg/rpcrdma", "syscall"},
	{"pkg/rpcrdma", "golang.org/x/sys"},
	{"pkg/xdr", "C"},
	{"pkg/oncrpc", "C"},
	{"pkg/nfs", "C"},
	{"pkg/rdma/iwarp", "C"},
	{"pkg", "k8s.io"},
	{"pkg", "sigs.k8s.io"},
	{"internal/gateway", "k8s.io"},
	{"internal/gateway", "sigs.k8s.io"},
	{"internal/sluicectl", "k8s.io"},
	{"internal/sluicectl", "sigs.k8s.io"},
}

type pkg struct {
	ImportPath string
	Imports    []string
}

func TestImportsRunDownward(t *testing.T) {
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports", module+"...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	seen := 0
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		path := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range p.Imports {
			check(t, path, imp)
		}
	}
	if seen < 5 {
		t.Fatalf("go list named %d packages of %s", seen, module)
	}
}

func check(t *testing.T, path, imp string) {
	for _, f := range forbidden {
		if within(path, f.prefix) && within(imp, f.target) {
			t.Errorf("%s imports %s, which is forbidden under %s", path, imp, f.prefix)
		}
	}
	target, ours := strings.CutPrefix(imp, module)
	if !ours {
		return
	}
	best := -1
	for i, rule := range allowed {
		if within(path, rule.prefix) && (best < 0 || len(rule.prefix) > len(allowed[best].prefix)) {
			best = i
		}
	}
	if best < 0 {
		t.Errorf("%s has no import rule: add it to the table", path)
		return
	}
	for _, prefix := range allowed[best].imports {
		if within(target, prefix) {
			return
		}
	}
	t.Errorf("%s imports %s: imports run downward only", path, target)
}

// TestGatewayHasNoKubernetes checks that the data plane does not even link Kubernetes packages: it
// runs without a cluster.
func TestGatewayHasNoKubernetes(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", module+"cmd/gateway").Output()
	if err != nil {
		t.Fatalf("go list -deps: %v", err)
	}
	for _, p := range strings.Fields(string(out)) {
		if within(p, "k8s.io") || within(p, "sigs.k8s.io/controller-runtime") {
			t.Errorf("cmd/gateway links %s", p)
		}
	}
}

func within(path, prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }
