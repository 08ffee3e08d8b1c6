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

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/test/freeport"
	"sluice.dev/sluice/test/kernel/pattern"
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

// TestGanesha runs our client against NFS-Ganesha by version 4.2: sluicectl, and the client package
// at depth.
func TestGanesha(t *testing.T) {
	g := startGanesha(t, 0)
	k := nfsServer{
		scheme: "nfs+tcp", port: g.port, mount: g.mount, export: map[client.Version]string{client.V42: "/vol"}, sluicectl: build(t).sluicectl,
	}.with(t, client.V42)
	for _, f := range pattern.Files() {
		write(t, filepath.Join(g.dir, "files", f.Name()), string(f.Content(0)))
	}
	for _, name := range manyNames() {
		write(t, filepath.Join(g.dir, "many", name), "")
	}
	written := filepath.Join(g.dir, "written")
	err := errors.Join(os.Symlink("many/entry 7", filepath.Join(g.dir, "link")), os.Symlink(strings.Repeat("x", 4000), filepath.Join(g.dir, "long")), os.Mkdir(written, 0o755))
	if err != nil {
		t.Fatal(err)
	}
	t.Run("ls", k.ls)
	t.Run("stat", k.stat)
	t.Run("get-put-cat", k.getPutCat)
	t.Run("bench", k.bench)

	pool := bufpool.New(0)
	conn, err := oncrpc.Dial(t.Context(), fmt.Sprintf("127.0.0.1:%d", g.port), oncrpc.Config{Pool: pool, Bindings: binding.For})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(); conn.Wait() }()
	d := k.depth(t, conn, pool)
	t.Run("read", d.read)
	t.Run("write", func(t *testing.T) {
		if err := d.write(t, "written", 1, nfs3.Guarded); err != nil {
			t.Fatal(err)
		}
		for _, f := range pattern.Files() {
			got, err := os.ReadFile(filepath.Join(written, f.Name()))
			if differ := pattern.Differ(got, f.Content(1)); err != nil || differ != "" {
				t.Errorf("%s: %s (%v)", f.Name(), differ, err)
			}
		}
	})
	t.Run("list", d.list)
	t.Run("names", func(t *testing.T) { d.names(t, "written") })
	if err := d.c.Close(t.Context()); err != nil {
		t.Error(err)
	}
}
