//go:build cluster

package cluster

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sluice.dev/sluice/test/prereq"
)

var root = func() string {
	dir, err := filepath.Abs("../..")
	if err != nil {
		panic(err)
	}
	return dir
}()

// cluster is shared by all tests.
type cluster struct {
	dir    string // of hack/cluster/run
	mu     sync.Mutex
	made   []string // images
	loaded []string // those of both nodes
}

// shared is nil if this machine cannot run a cluster, for the reason in absent.
var (
	shared *cluster
	absent string
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) (status int) {
	if os.Getuid() != 0 {
		absent = "must be root: the cluster's nodes are namespaces"
		return m.Run()
	}
	if said, err := exec.Command("unshare", "--net", "--mount", "--pid", "--fork", "true").CombinedOutput(); err != nil {
		absent = fmt.Sprintf("this machine does not let root make namespaces: %v: %s", err, said)
		return m.Run()
	}
	keep, scratch := os.Getenv("SLUICE_CLUSTER"), ""
	shared = &cluster{dir: keep}
	if keep == "" {
		var err error
		if scratch, err = os.MkdirTemp("", "sluice-cluster-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		shared.dir = filepath.Join(scratch, "cluster")
	}
	if _, err := os.Stat(filepath.Join(shared.dir, "run")); err != nil || keep == "" {
		cmd := shared.command("up")
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		if err := cmd.Run(); err != nil {
			fmt.Fprintln(os.Stderr, "hack/cluster/run up:", err)
			return 1
		}
	}
	down := sync.OnceFunc(func() {
		if keep != "" {
			return
		}
		if said, err := shared.command("down").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "hack/cluster/run down: %v\n%s", err, said)
			status = 1
		}
	})
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-interrupted
		down()
		os.Exit(130)
	}()
	status = m.Run()
	down()
	if status != 0 {
		fmt.Fprintln(os.Stderr, "the cluster's logs are in", filepath.Join(shared.dir, "log"))
		return status
	}
	if err := os.RemoveAll(scratch); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// need returns the cluster, with images of this checkout: sluice.dev/NAME:test. It skips the test
// without its prerequisites, and fails it in CI.
func need(t *testing.T, images ...string) *cluster {
	t.Helper()
	if shared == nil {
		prereq.Missing(t, "%s", absent)
	}
	shared.load(t, images)
	return shared
}

// load loads images into the nodes, each once.
func (c *cluster) load(t *testing.T, images []string) {
	t.Helper()
	c.mu.Lock()
	images = slices.DeleteFunc(slices.Clone(images), func(name string) bool { return slices.Contains(c.loaded, name) })
	c.mu.Unlock()
	if len(images) == 0 {
		return
	}
	c.do(t, "load", c.archives(t, images)...)
	c.mu.Lock()
	c.loaded = append(c.loaded, images...)
	c.mu.Unlock()
}

// archives makes images, each once, and returns their files.
func (c *cluster) archives(t *testing.T, images []string) (files []string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	out := filepath.Join(c.dir, "images")
	var missing []string
	for _, name := range images {
		files = append(files, filepath.Join(out, name+".tar"))
		if !slices.Contains(c.made, name) {
			missing = append(missing, name)
		}
	}
	if len(missing) == 0 {
		return files
	}
	maker := exec.Command("go", append([]string{"run", "./hack/image", "-o", out, "-version", "test"}, missing...)...)
	maker.Dir = root
	maker.Env = append(os.Environ(), "CGO_ENABLED=0")
	if said, err := maker.CombinedOutput(); err != nil {
		t.Fatalf("hack/image: %v\n%s", err, said)
	}
	c.made = append(c.made, missing...)
	return files
}

// command is hack/cluster/run.
func (c *cluster) command(verb string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(root, "hack/cluster/run"), append([]string{verb, c.dir}, args...)...)
	cmd.Dir = root
	return cmd
}

// do runs hack/cluster/run.
func (c *cluster) do(t *testing.T, verb string, args ...string) {
	t.Helper()
	if said, err := c.command(verb, args...).CombinedOutput(); err != nil {
		t.Fatalf("hack/cluster/run %s %s: %v\n%s", verb, strings.Join(args, " "), err, said)
	}
}

// kill kills parts of the cluster at once: nodes, or programs of the control plane.
func (c *cluster) kill(t *testing.T, parts ...string) { t.Helper(); c.do(t, "kill", parts...) }

// start starts killed parts.
func (c *cluster) start(t *testing.T, parts ...string) { t.Helper(); c.do(t, "start", parts...) }

// kubectl runs kubectl and returns its standard output.
func (c *cluster) kubectl(stdin string, args ...string) (string, error) {
	cmd := c.command("kubectl", args...)
	var out, trouble bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &trouble
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(trouble.Bytes()))
	}
	return out.String(), nil
}
