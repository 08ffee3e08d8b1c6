//go:build kernel

package kernel

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"testing"

	"sluice.dev/sluice/test/prereq"
)

// Requirements beyond the checkout: Debian's packages, the guest, and programs built here.

var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

// Series of Linux that the guest has.
const (
	linux61  = "6.1"
	linux612 = "6.12"
)

var kernel = flag.String("kernel", "", "run each test on this `series` of Linux alone: 6.1, 6.12")

// onKernels runs a test as a subtest on each of some kernels: with -full on all, with -kernel on
// that one.
func onKernels(t *testing.T, some []string, test func(t *testing.T, kernel string)) {
	switch {
	case *kernel != "":
		some = []string{*kernel}
	case *full:
		some = []string{linux61, linux612}
	}
	for _, k := range some {
		t.Run(k, func(t *testing.T) {
			needGuest(t, k)
			test(t, k)
		})
	}
}

// needGuest requires the guest and its packages, which hack/vm/prepare installs.
func needGuest(t *testing.T, kernel string) {
	t.Helper()
	if _, err := exec.LookPath("apt-get"); err != nil || runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		prereq.Missing(t, "the guest is only made on Debian for amd64; this is %s on %s, apt-get: %v", runtime.GOOS, runtime.GOARCH, err)
	}
	cmd := exec.Command(filepath.Join(root, "hack/vm/prepare"), "-k", kernel)
	cmd.Stderr = os.Stderr
	guest, err := cmd.Output()
	if err != nil {
		t.Fatalf("hack/vm/prepare: %v", err)
	}
	t.Logf("the guest is %s", bytes.TrimSpace(guest))
}

// needTool finds a program that make test-kernel installs.
func needTool(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		prereq.Missing(t, "%s is not installed: hack/deps kernel installs it", name)
	}
	return path
}

// programs are those under test, and the guest's probe.
type programs struct{ gateway, sluicectl, operator, probe string }

var buildOnce = sync.OnceValues(func() (*programs, error) {
	dir := filepath.Join(scratch, "bin") + string(filepath.Separator)
	cmd := exec.Command("go", "build", "-o", dir, "./cmd/...", "./test/kernel/probe")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := cmd.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("go build: %w\n%s", err, said)
	}
	return &programs{dir + "gateway", dir + "sluicectl", dir + "operator", dir + "probe"}, nil
})

func build(t *testing.T) *programs {
	t.Helper()
	p, err := buildOnce()
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// scratch holds all files of the tests. It stays after a failure, with its logs and captures.
var scratch string

func TestMain(m *testing.M) {
	var err error
	if scratch, err = os.MkdirTemp("", "sluice-kernel-"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := os.Chmod(scratch, 0o755); err != nil { // tests use it as other users
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	status := m.Run()
	if status == 0 {
		_ = os.RemoveAll(scratch)
	} else {
		fmt.Fprintln(os.Stderr, "logs, captures and files are in", scratch)
	}
	os.Exit(status)
}

func folder(t *testing.T, name string) string {
	t.Helper()
	dir := filepath.Join(scratch, t.Name(), name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}
