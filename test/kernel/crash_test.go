//go:build kernel

package kernel

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestCrash runs the test of that name of pkg/nfs/vfs in a guest, on ext4 and xfs: file systems are
// cut off while changes are made, their logs are recovered, and the result is compared with the
// changes that were acknowledged.
func TestCrash(t *testing.T) { onKernels(t, []string{linux61}, testCrash) }

func testCrash(t *testing.T, kernel string) {
	tests := filepath.Join(folder(t, "crash"), "vfs.test")
	build := exec.Command("go", "test", "-c", "-o", tests, "./pkg/nfs/vfs")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.Command(filepath.Join(root, "hack/vm/run"), "-t", "1200", "-k", kernel, "-e", "TESTS="+tests,
		filepath.Join(root, "test/kernel/testdata/crash.sh")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
}
