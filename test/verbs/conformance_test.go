//go:build kernel && verbs

package verbs

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// verdict is what a test binary says about a case.
var verdict = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): TestConformance/(\S+)`)

// TestConformance runs the suite of package rdmatest on each device. Its cases are subtests here.
func TestConformance(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "verbs.test")
	build := exec.Command("go", "test", "-c", "-tags", "verbs", "-o", binary, "./pkg/rdma/verbs")
	build.Dir = root
	build.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the test binary: %v\n%s", err, out)
	}
	for _, device := range []string{"rxe", "siw"} {
		t.Run(device, func(t *testing.T) {
			guest := exec.Command(filepath.Join(root, "hack/vm/run"), "-t", "900", filepath.Join(root, "test/verbs/testdata/conformance.sh"), binary, device)
			guest.Stderr = os.Stderr
			said, err := guest.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := guest.Start(); err != nil {
				t.Fatal(err)
			}
			passed := 0
			var words []string // what came before a verdict
			for lines := bufio.NewScanner(said); lines.Scan(); {
				line := strings.TrimRight(lines.Text(), "\r")
				m := verdict.FindStringSubmatch(line)
				if m == nil {
					if !strings.HasPrefix(line, "=== ") {
						words = append(words, line)
					}
					continue
				}
				t.Run(m[2], func(t *testing.T) {
					switch m[1] {
					case "FAIL":
						t.Error("see what the guest said, below")
					case "SKIP":
						t.Skip("skipped in the guest")
					}
				})
				passed++
			}
			err = guest.Wait()
			if err != nil || t.Failed() {
				t.Errorf("the guest: %v\n%s", err, strings.Join(words, "\n"))
			}
			if passed == 0 {
				t.Error("no case was run")
			}
		})
	}
}
