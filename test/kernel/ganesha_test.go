//go:build kernel

package kernel

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice.dev/sluice/test/freeport"
)

// ganesha is NFS-Ganesha on the host, a backend for gateways. It exports its directory as /vol to
// every version of NFS.
type ganesha struct {
	dir         string
	port, mount int
	grace       time.Duration // 0 means no grace period
	state       string
	process     int
}

func startGanesha(t *testing.T, grace time.Duration) *ganesha {
	t.Helper()
	needTool(t, "ganesha.nfsd")
	ports := freeport.Choose(t, 2)
	g := &ganesha{dir: folder(t, "volumes/ganesha"), port: ports[0], mount: ports[1], grace: grace, state: folder(t, "ganesha")}
	t.Cleanup(func() {
		if said, err := g.run("--stop"); err != nil {
			t.Errorf("hack/ganesha/run: %v\n%s", err, said)
		}
	})
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	return g
}

// backend returns the backend of a gateway's configuration for a path below /vol.
func (g *ganesha) backend(path string) string {
	return nfsBackend(g.port, g.mount, filepath.Join("/vol", path))
}

func nfsBackend(port, mount int, path string) string {
	return fmt.Sprintf(`nfs: {server: 127.0.0.1, port: %d, mountPort: %d, path: %q, versions: ["3", "4.0", "4.1", "4.2"]}`, port, mount, path)
}

func (g *ganesha) run(args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.Command(filepath.Join(root, "hack/ganesha/run"), append(args, "--state", g.state)...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	return stdout.String() + stderr.String(), err
}

// start returns when the server answers.
func (g *ganesha) start() error {
	args := []string{"--dir", g.dir, "--port", fmt.Sprint(g.port), "--mount-port", fmt.Sprint(g.mount), "--path", "/vol"}
	if g.grace != 0 {
		args = append(args, "--grace", fmt.Sprint(g.grace.Seconds()))
	}
	said, err := g.run(args...)
	if err != nil {
		return fmt.Errorf("hack/ganesha/run: %w\n%s", err, said)
	}
	g.process, err = strconv.Atoi(strings.TrimSpace(said))
	return err
}

// kill ends it as a crash does.
func (g *ganesha) kill() error {
	if err := syscall.Kill(g.process, syscall.SIGKILL); err != nil {
		return err
	}
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		state, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", g.process))
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		// No parent may have reaped it. While it has other threads, its port still listens.
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", g.process))
		if bytes.Contains(state, []byte(") Z ")) && len(threads) <= 1 {
			return nil
		}
		if time.Since(begun) > patience {
			return fmt.Errorf("process %d is still there after SIGKILL: %s", g.process, state)
		}
	}
}
