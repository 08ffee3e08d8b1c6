package sluicectl

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestRFC5666 moves files with each form of RFC 5666, to a server that has them all and to one that
// has none.
func TestRFC5666(t *testing.T) {
	e := newEnv(t)
	local := t.TempDir()
	src, dst := filepath.Join(local, "src"), filepath.Join(local, "dst")
	for _, forms := range []string{"Padding", "ReadRead", "Configuration", "Padding,ReadRead,Configuration"} {
		for _, server := range []string{"OLD", "RDMA"} {
			for _, n := range []int{0, 1, 1023, 2001, 5000, 65_537, 16 << 20} {
				data := randomBytes(n)
				must(t, os.WriteFile(src, data, 0o644))
				e.ok("--rfc5666", forms, "put", src, server+"/file")
				e.ok("--rfc5666", forms, "get", server+"/file", dst)
				got, err := os.ReadFile(dst)
				if err != nil || !bytes.Equal(e.read("file"), data) || !bytes.Equal(got, data) {
					t.Errorf("--rfc5666 %s, %s: of %d bytes others were put, or got: %v", forms, server, n, err)
				}
			}
			e.ok("--rfc5666", forms, "ls", server+"/")
		}
	}
	if said := e.ok("--rfc5666", "padding", "--inline", "16384", "ping", "OLD"); !strings.Contains(said, "padding              data of calls at multiples of 1024 bytes") {
		t.Error(said)
	}
	for args, want := range map[string]string{
		"--rfc5666 Speed":                   `--rfc5666: "Speed" is not a form of RFC 5666: want one of Padding, ReadRead, Configuration`,
		"--rfc5666 Padding --rpc-version 2": "--rfc5666 is Padding, which version 2 has not: want --rpc-version 1",
	} {
		if code, _, errs := e.run("", append(strings.Fields(args), "ping", "OLD")...); code == 0 || !strings.Contains(errs, want) {
			t.Errorf("%s: exit %d: %s", args, code, errs)
		}
	}
}
