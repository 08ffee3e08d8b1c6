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

var full = flag.Bool("full", false, "the gateway on each device, and 1,000 connections one after the other")

// verdict is what a test binary says about a case.
var verdict = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (Test\S+)`)

// build runs go with these words and a folder's name, and returns that.
func build(t *testing.T, words ...string) string {
	t.Helper()
	dir := t.TempDir() + string(filepath.Separator)
	for i, w := range words {
		words[i] = strings.ReplaceAll(w, "FOLDER", dir)
	}
	cmd := exec.Command("go", words...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(words, " "), err, out)
	}
	return dir
}

// root is the checkout.
var root = filepath.Join("..", "..")

// devices are the kernel's software devices.
var devices = []string{"rxe", "siw"}

// TestDevices runs the tests of the provider on each device: the suite of package rdmatest, and what else needs one. They are subtests here.
func TestDevices(t *testing.T) {
	cycles := 10
	if *full {
		cycles = 1000
	}
	programs := build(t, "test", "-c", "-tags", "verbs", "-o", "FOLDER", "./pkg/rdma/verbs", "./test/verbs/calls")
	for _, device := range devices {
		t.Run(device, func(t *testing.T) { inGuest(t, "suite.sh", programs, device, strconv.Itoa(cycles)) })
	}
}

// TestGateway runs the gateway and sluicectl on a device, with the kernel's client and server.
func TestGateway(t *testing.T) {
	programs := build(t, "build", "-tags", "verbs", "-o", "FOLDER", "./cmd/gateway", "./cmd/sluicectl")
	for i, device := range devices {
		if i == 0 || *full {
			t.Run(device, func(t *testing.T) { inGuest(t, "gateway.sh", programs, device) })
		}
	}
}

// TestImage runs the image of the gateway for adapters, with nothing but its own files.
func TestImage(t *testing.T) {
	images := build(t, "run", "./hack/image", "-o", "FOLDER", "-version", "v1", "gateway-verbs")
	inGuest(t, "image.sh", filepath.Join(images, "gateway-verbs.tar"))
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
