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
	"time"
)

var full = flag.Bool("full", false, "1,000 connections one after the other; Linux 6.12")

var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

// build runs go with the arguments, in which FOLDER stands for dir.
func build(t *testing.T, dir string, words ...string) {
	t.Helper()
	for i, w := range words {
		words[i] = strings.ReplaceAll(w, "FOLDER", dir+string(filepath.Separator))
	}
	cmd := exec.Command("go", words...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(words, " "), err, out)
	}
}

// TestDevices runs testdata/device.sh in two guests at once, for the kernel's software RoCE and
// software iWARP. The first guest also tests the gateway's image.
func TestDevices(t *testing.T) {
	needGuest(t)
	cycles, limit := 20, 30*time.Minute
	if *full {
		cycles, limit = 1000, 50*time.Minute
	}
	dir := t.TempDir()
	build(t, dir, "test", "-c", "-tags", "verbs", "-o", "FOLDER", "./pkg/rdma/verbs", "./pkg/bufpool", "./test/verbs/calls")
	build(t, dir, "build", "-tags", "verbs", "-o", "FOLDER", "./cmd/gateway", "./cmd/sluicectl")
	build(t, dir, "run", "./hack/image", "-o", "FOLDER", "-version", "v1", "gateway-verbs")
	for device, image := range map[string]string{"rxe": filepath.Join(dir, "gateway-verbs.tar"), "siw": ""} {
		t.Run(device, func(t *testing.T) {
			t.Parallel()
			inGuest(t, "6.1", limit, "device.sh", dir, device, strconv.Itoa(cycles), image)
		})
	}
}

// TestReused runs testdata/reused.sh on Linux 6.12, whose siw sends from the memory of unsignaled
// requests after their completion. Linux 6.1's does not.
func TestReused(t *testing.T) {
	if !*full {
		t.Skip("only with -full, and in make test-sriov")
	}
	needGuest(t)
	dir := t.TempDir()
	build(t, dir, "test", "-c", "-tags", "verbs", "-o", "FOLDER", "./pkg/rdma/verbs")
	inGuest(t, "6.12", 10*time.Minute, "reused.sh", dir)
}

// verdict matches a guest's result of a case.
var verdict = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): Test(\S+) \((\S+)\)`)

// inGuest runs a script of testdata on a series of Linux. Its cases are subtests.
func inGuest(t *testing.T, series string, limit time.Duration, script string, args ...string) {
	testdata := filepath.Join(root, "test/verbs/testdata")
	guest := exec.Command(filepath.Join(root, "hack/vm/run"), append([]string{"-k", series, "-t", strconv.Itoa(int(limit.Seconds())), "-e", "TESTDATA=" + testdata,
		"-e", "GANESHA=" + filepath.Join(root, "hack/ganesha/run"), filepath.Join(testdata, script)}, args...)...)
	guest.Stderr = os.Stderr
	said, err := guest.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := guest.Start(); err != nil {
		t.Fatal(err)
	}
	listed := 0
	var words []string // output between verdicts
	for lines := bufio.NewScanner(said); lines.Scan(); {
		line := strings.TrimRight(lines.Text(), "\r")
		m := verdict.FindStringSubmatch(line)
		if m == nil {
			if !strings.HasPrefix(line, "=== ") {
				words = append(words, line)
			}
			continue
		}
		listed++
		t.Run(m[2], func(t *testing.T) {
			t.Logf("%s in the guest", m[3])
			switch {
			case m[1] == "FAIL":
				t.Error("see what the guest said, below")
			case m[1] == "SKIP" && strings.Contains(m[2], "/"):
				t.Skip("this device has no use for the case")
			case m[1] == "SKIP":
				t.Error("skipped in the guest, which has all that it needs")
			}
		})
	}
	if err := guest.Wait(); err != nil || t.Failed() {
		t.Errorf("the guest: %v\n%s", err, strings.Join(words, "\n"))
	}
	if listed == 0 {
		t.Error("no case was run")
	}
}
