package sluicectl

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestExtensions runs all commands by version 2 of RPC-over-RDMA, with each set of extensions.
func TestExtensions(t *testing.T) {
	e := newEnv(t)
	local := t.TempDir()
	long := strings.Repeat("a rather long name ", 10)
	must(t, os.Mkdir(filepath.Join(e.dir, "many"), 0o755))
	for i := range 100 {
		e.write(fmt.Sprintf("many/%s%02d", long, i), nil, 0o644)
	}
	for _, ext := range []string{
		"none", "TransportProperties", "TransportProperties,MessageContinuation", "TransportProperties,SendBasedPlacement", "all",
	} {
		flags := []string{"--rpc-version", "2", "--ext", ext}
		for _, n := range []int{0, 1, 3900, 4096, 65_537, 1<<20 + 1} {
			data := randomBytes(n)
			src, dst := filepath.Join(local, "src"), filepath.Join(local, "dst")
			must(t, os.WriteFile(src, data, 0o644))
			e.ok(append(flags, "put", src, "TWO/file")...)
			e.ok(append(flags, "get", "TWO/file", dst)...)
			got, err := os.ReadFile(dst)
			if err != nil || !bytes.Equal(e.read("file"), data) || !bytes.Equal(got, data) || e.ok(append(flags, "cat", "TWO/file")...) != string(data) {
				t.Errorf("--ext %s: of %d bytes others were put, or got: %v", ext, n, err)
			}
			if said := e.ok(append(flags, "stat", "TWO/file")...); !strings.Contains(said, fmt.Sprint(n)) {
				t.Errorf("--ext %s: stat of %d bytes says\n%s", ext, n, said)
			}
		}
		if names := strings.Fields(strings.ReplaceAll(e.ok(append(flags, "ls", "TWO/many")...), long, "")); len(names) != 100 {
			t.Errorf("--ext %s: %d names: %.100q", ext, len(names), names)
		}
		for _, op := range []string{"NULL", "GETATTR", "READ", "WRITE"} {
			e.ok(append(flags, "bench", "--json", "--op", op, "--size", "100000", "--file-size", "1M", "--count", "20", "--warmup", "0", "TWO/bench")...)
		}
	}
}
