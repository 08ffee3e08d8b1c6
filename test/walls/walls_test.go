// Package walls holds the rule that imports run downward only:
// cmd → internal → nfs → rpcrdma → rdma, oncrpc → xdr, bufpool.
package walls

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

// walls says, for the packages under each prefix, which of the module's packages they may import. The longest prefix counts.
var walls = []struct {
	room string
	may  []string
}{
	{"pkg/xdr", nil},
	{"pkg/bufpool", nil},
	{"pkg/internal", nil},
	{"pkg/oncrpc", []string{"pkg/oncrpc", "pkg/xdr", "pkg/bufpool", "pkg/internal/blocking"}},
	{"pkg/rdma", []string{"pkg/rdma", "pkg/bufpool", "pkg/internal/blocking"}},
	{"pkg/rpcrdma", []string{"pkg/rpcrdma", "pkg/rdma", "pkg/oncrpc", "pkg/xdr", "pkg/bufpool"}},
	{"pkg/nfs", []string{"pkg/nfs", "pkg/rpcrdma", "pkg/rdma", "pkg/oncrpc", "pkg/xdr", "pkg/bufpool"}},
	{"api", []string{"api"}},
	{"internal", []string{"internal", "api", "pkg"}},
	{"cmd", []string{"internal", "api", "pkg"}},
	{"hack", []string{"internal", "api", "pkg"}},
	{"test", []string{"internal", "api", "pkg", "test"}},
}

// forbidden are packages from outside that a room does not import.
var forbidden = []struct {
	room, outside string
}{
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
		room := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range p.Imports {
			check(t, room, imp)
		}
	}
	if seen < 5 {
		t.Fatalf("go list named %d packages: the walls were not looked at", seen)
	}
}

func check(t *testing.T, room, imp string) {
	for _, f := range forbidden {
		if within(room, f.room) && within(imp, f.outside) {
			t.Errorf("%s imports %s, which is not for anything under %s", room, imp, f.room)
		}
	}
	target, ours := strings.CutPrefix(imp, module)
	if !ours {
		return
	}
	best, known := -1, false
	for i, w := range walls {
		if within(room, w.room) && (best < 0 || len(w.room) > len(walls[best].room)) {
			best, known = i, true
		}
	}
	if !known {
		t.Errorf("%s is in no room of the house: add it to the walls", room)
		return
	}
	for _, may := range walls[best].may {
		if within(target, may) {
			return
		}
	}
	t.Errorf("%s imports %s: imports run downward only", room, target)
}

// The data plane runs without a cluster, so nothing of Kubernetes is even linked into it.
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
