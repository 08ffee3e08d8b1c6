//go:build kernel

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"sluice.dev/sluice/test/kernel/pattern"
)

// TestLoopback captures sluicectl and the gateway on the loopback interface. Both ends are ours, so
// tshark has to understand every byte. It uses version 1 alone, the only one that tshark knows.
func TestLoopback(t *testing.T) {
	g := newGateway(t, "gateway", volumes(t)...)
	for _, c := range []struct {
		export   string
		nfs      string
		flags    []string
		expected map[string]bool
	}{
		{"data", "3", nil, nil},
		{"data", "4.2", nil, nil},
		{"plain", "3", []string{"--crc", "off", "--fpdu", "segment"}, map[string]bool{"CRC": false, "Sends with Invalidate": false}},
	} {
		t.Run(c.export+"-"+c.nfs, func(t *testing.T) {
			e, dir := g.exports[c.export], folder(t, "files")
			for i := range 300 {
				if err := os.WriteFile(filepath.Join(e.volume, fmt.Sprintf("a-file-with-a-rather-long-name-%03d", i)), nil, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			capture, err := startCapture(t, filepath.Join(dir, "loopback.pcapng"), e.rdma)
			if err != nil {
				t.Fatal(err)
			}
			ctl := func(args ...string) string {
				t.Helper()
				said, err := exec.Command(build(t).sluicectl, append(append(c.flags, "--rpc-version", "1", "--nfs", c.nfs), args...)...).CombinedOutput()
				if err != nil {
					t.Fatalf("sluicectl %q: %v\n%s", args, err, said)
				}
				return string(said)
			}
			t.Log(ctl("ping", e.url("")))
			for _, f := range []pattern.File{{Length: 3}, {Length: 3990}, {Length: 4097}, {Length: 300_003}} {
				local := filepath.Join(dir, f.Name())
				if err := os.WriteFile(local, f.Data(0), 0o644); err != nil {
					t.Fatal(err)
				}
				ctl("put", local, e.url(f.Name()))
				ctl("get", e.url(f.Name()), local+".back")
				for _, name := range []string{local + ".back", filepath.Join(e.volume, f.Name())} {
					if got, err := os.ReadFile(name); err != nil || pattern.Differ(got, f.Data(0)) != "" {
						t.Errorf("%s %s (%v)", name, pattern.Differ(got, f.Data(0)), err)
					}
				}
			}
			if n := len(strings.Fields(ctl("ls", e.url("")))); n != 304 {
				t.Errorf("ls tells %d names, must be 304", n)
			}
			if err := capture.stop(); err != nil {
				t.Fatal(err)
			}
			dissect(t, capture.file, c.nfs, c.expected)
		})
	}
	g.checkLog(t)
}
