//go:build kernel && verbs

package verbs

import (
	"bufio"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var cycles = flag.Int("cycles", 60, "how many connections are made one after the other")

// verdict is what a test binary says about a case.
var verdict = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (Test\S+)`)

// build builds the test binary of the provider, and the programs, with the tag. It returns the folder.
func build(t *testing.T) string {
	t.Helper()
	dir := t.TempDir() + string(filepath.Separator)
	for _, args := range [][]string{
		{"test", "-c", "-tags", "verbs", "-o", dir + "verbs.test", "./pkg/rdma/verbs"},
		{"build", "-tags", "verbs", "-o", dir, "./cmd/gateway", "./cmd/sluicectl"},
	} {
		cmd := exec.Command("go", args...)
		cmd.Dir = root
		cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("go %s: %v\n%s", args[0], err, out)
		}
	}
	return dir
}

// root is the checkout.
var root = filepath.Join("..", "..")

// devices are the kernel's software devices.
var devices = []string{"rxe", "siw"}

// TestDevices runs the tests of the provider on each device: the suite of package rdmatest, and what else needs one. They are subtests here.
func TestDevices(t *testing.T) {
	binary := filepath.Join(build(t), "verbs.test")
	for _, device := range devices {
		t.Run(device, func(t *testing.T) { inGuest(t, "suite.sh", binary, device, strconv.Itoa(*cycles)) })
	}
}

// TestGateway runs the gateway and sluicectl on each device, with the kernel's client and server.
func TestGateway(t *testing.T) {
	programs := build(t)
	for _, device := range devices {
		t.Run(device, func(t *testing.T) { inGuest(t, "gateway.sh", programs, device) })
	}
}

// inGuest runs a script of testdata. What it says of cases are subtests.
func inGuest(t *testing.T, script string, args ...string) {
	guest := exec.Command(filepath.Join(root, "hack/vm/run"), append([]string{"-t", "2700", filepath.Join("testdata", script)}, args...)...)
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
}
