//go:build kernel && verbs

package verbs

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"

	"sluice.dev/sluice/test/prereq"
)

// needGuest requires the guest. Without its prerequisites it skips the test, and fails it in
// CI.
func needGuest(t *testing.T) {
	t.Helper()
	if _, err := exec.LookPath("apt-get"); err != nil || runtime.GOOS != "linux" || runtime.GOARCH != "amd64" {
		prereq.Missing(t, "the guest is only made on Debian for amd64; this is %s on %s, apt-get: %v", runtime.GOOS, runtime.GOARCH, err)
	}
	if said, err := exec.Command(filepath.Join(root, "hack/vm/prepare")).CombinedOutput(); err != nil {
		t.Fatalf("hack/vm/prepare: %v\n%s", err, said)
	}
}
