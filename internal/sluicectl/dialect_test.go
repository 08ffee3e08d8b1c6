package sluicectl

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDialect moves files in the working group's dialect of version 2. With servers that lack it
// version 1 does that.
func TestDialect(t *testing.T) {
	e := newEnv(t)
	local := t.TempDir()
	src, dst := filepath.Join(local, "src"), filepath.Join(local, "dst")
	for _, server := range []string{"GROUP", "BOTH"} {
		for _, n := range []int{0, 1, 5000, 65_537, 16 << 20} {
			data := randomBytes(n)
			must(t, os.WriteFile(src, data, 0o644))
			e.ok("--dialect", "WorkingGroup", "put", src, server+"/file")
			e.ok("--dialect", "WorkingGroup", "get", server+"/file", dst)
			got, err := os.ReadFile(dst)
			if err != nil || !bytes.Equal(e.read("file"), data) || !bytes.Equal(got, data) {
				t.Errorf("%s: of %d bytes others were put, or got: %v", server, n, err)
			}
		}
		e.ok("--dialect", "WorkingGroup", "ls", server+"/")
	}
	for args, want := range map[string]string{
		"--dialect WorkingGroup ping GROUP":                 "draft-ietf-nfsv4-rpcrdma-version-two (WorkingGroup)",
		"--dialect workinggroup --rpc-version 2 ping GROUP": "version 2",
		"--dialect WorkingGroup ping BOTH":                  "RPC-over-RDMA version 1",
		"ping GROUP":                                        "RPC-over-RDMA version 1",
	} {
		if got := e.ok(strings.Fields(args)...); !strings.Contains(got, want) {
			t.Errorf("%s: %s", args, got)
		}
	}
	if code, _, errs := e.run("", "--dialect", "Dutch", "ping", "GROUP"); code == 0 || !strings.Contains(errs, `--dialect: "Dutch" is not a dialect of version 2`) {
		t.Errorf("exit %d: %s", code, errs)
	}
}
