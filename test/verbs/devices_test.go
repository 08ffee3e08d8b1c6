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
var verdict = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (Test\S+)`)

// TestDevices runs the tests of the provider on each device: the suite of package rdmatest, and what else needs one. They are subtests here.
func TestDevices(t *testing.T) {
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
			guest := exec.Command(filepath.Join(root, "hack/vm/run"), "-t", "900", filepath.Join(root, "test/verbs/testdata/suite.sh"), binary, device)
			guest.Stderr = os.Stderr
			said, err := guest.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := guest.Start(); err != nil {
				t.Fatal(err)
			}
			told := 0
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
				told++
			}
			err = guest.Wait()
			if err != nil || t.Failed() {
				t.Errorf("the guest: %v\n%s", err, strings.Join(words, "\n"))
			}
			if told == 0 {
				t.Error("no case was run")
			}
		})
	}
}
