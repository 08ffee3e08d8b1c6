//go:build cluster

package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// guest is the Linux guest of hack/vm/run. It runs commands, see testdata/guest.sh.
type guest struct {
	cmd      *exec.Cmd
	out      string // its /run/out
	ended    chan struct{}
	err      error
	commands int
}

// Limits for a guest's boot and for its life.
const (
	bootLimit  = 3 * time.Minute
	guestLimit = 40 * time.Minute
)

// boot starts a guest whose packets leave from a place of the cluster: n1, n2 or control-plane. It
// ends with the test. A complaint of the guest's kernel fails the test.
func boot(t *testing.T, c *cluster, place string) *guest {
	t.Helper()
	return start(t, c.command("enter", place, filepath.Join(root, "hack/vm/run")))
}

// bootNode starts a guest that is the cluster's node n3 until the test ends. With functions, it has
// so many virtual functions of an SR-IOV adapter, otherwise siw0 on eth0.
func bootNode(t *testing.T, c *cluster, functions int) *guest {
	t.Helper()
	var adapter []string
	if functions > 0 {
		adapter = []string{"-s"}
	}
	g := start(t, c.command("join", append(adapter, "-e", fmt.Sprintf("NODE=%d", functions), "-e", "ROOT="+root)...))
	t.Cleanup(func() {
		if _, err := c.kubectl("", "delete", "node", "n3", "--ignore-not-found"); err != nil {
			t.Error(err)
		}
	})
	return g
}

// imports loads images into the guest's node, and waits until the node is ready.
func (g *guest) imports(t *testing.T, c *cluster, archives []string) {
	t.Helper()
	for _, file := range archives {
		g.ctr(t, "images import "+file)
	}
	eventually(t, 3*time.Minute, func() error {
		_, err := c.kubectl("", "wait", "--for=condition=Ready", "node/n3", "--timeout=5s")
		return err
	})
}

// ctr runs a command of the containerd in the guest's node.
func (g *guest) ctr(t *testing.T, command string) {
	t.Helper()
	g.start(t, `ctr --address /proc/$(cat $dir/run/n3.pid)/root/run/containerd/containerd.sock -n k8s.io `+command).wait(t, 5*time.Minute)
}

// start starts a guest. cmd is hack/vm/run without the script.
func start(t *testing.T, cmd *exec.Cmd) *guest {
	t.Helper()
	g := &guest{cmd: cmd, out: t.TempDir(), ended: make(chan struct{})}
	cmd.Args = append(cmd.Args, "-t", fmt.Sprint(int(guestLimit.Seconds())), "-o", g.out, filepath.Join(root, "test/cluster/testdata/guest.sh"))
	var said bytes.Buffer
	g.cmd.Stdout, g.cmd.Stderr = &said, &said
	if err := g.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		g.err = g.cmd.Wait()
		close(g.ended)
	}()
	t.Cleanup(func() { g.end(t, &said) })
	eventually(t, bootLimit, func() error {
		select {
		case <-g.ended:
			t.Fatalf("the guest ended: %v\n%s", g.err, said.String())
		default:
		}
		_, err := os.Stat(filepath.Join(g.out, "ready"))
		return err
	})
	return g
}

var kernelTrouble = regexp.MustCompile(`BUG:|Oops|WARNING:|blocked for more than|Call Trace`)

// end ends the guest's script, and with it the guest.
func (g *guest) end(t *testing.T, said *bytes.Buffer) {
	if err := os.WriteFile(filepath.Join(g.out, "end"), nil, 0o644); err != nil {
		t.Error(err)
	}
	select {
	case <-g.ended:
	case <-time.After(time.Minute): // a mount without its server delays it
		_ = g.cmd.Process.Signal(syscall.SIGTERM)
		<-g.ended
	}
	console, err := os.ReadFile(filepath.Join(g.out, ".vm/console.log"))
	if err != nil {
		t.Error(err)
	}
	for line := range bytes.Lines(console) {
		if kernelTrouble.Match(line) {
			t.Errorf("the guest's kernel says: %s", bytes.TrimSpace(line))
		}
	}
	if t.Failed() {
		node, _ := os.ReadFile(filepath.Join(g.out, "node.log")) // of guests that are nodes
		t.Logf("hack/vm/run: %v\n%s\nconsole:\n%s\nhack/cluster/guest:\n%s", g.err, said.String(), console, node)
	}
}

// process is a command that runs in a guest.
type process struct {
	g      *guest
	script string
	file   string // without suffix
}

// start runs a bash script in the guest.
func (g *guest) start(t *testing.T, script string) *process {
	t.Helper()
	g.commands++
	p := &process{g, script, filepath.Join(g.out, strconv.Itoa(g.commands))}
	if err := errors.Join(os.WriteFile(p.file+".new", []byte(script+"\n"), 0o644), os.Rename(p.file+".new", p.file+".sh")); err != nil {
		t.Fatal(err)
	}
	return p
}

// result waits for the end of the command and returns its output and standard error. err is set if
// its status is not 0.
func (p *process) result(t *testing.T, limit time.Duration) (said string, err error) {
	t.Helper()
	var status []byte
	eventually(t, limit, func() (err error) {
		select {
		case <-p.g.ended:
			t.Fatalf("the guest was lost while it ran %q", p.script)
		default:
		}
		if status, err = os.ReadFile(p.file + ".status"); err != nil {
			out, _ := os.ReadFile(p.file + ".out")
			return fmt.Errorf("%q has not ended; it said: %s", p.script, out)
		}
		return nil
	})
	out, err := os.ReadFile(p.file + ".out")
	if err == nil && string(status) != "0\n" {
		err = fmt.Errorf("in the guest: %q: status %s: %s", p.script, bytes.TrimSpace(status), bytes.TrimSpace(out))
	}
	return strings.TrimSpace(string(out)), err
}

// wait is result for a command that must succeed.
func (p *process) wait(t *testing.T, limit time.Duration) string {
	t.Helper()
	said, err := p.result(t, limit)
	if err != nil {
		t.Fatal(err)
	}
	return said
}

// run runs a bash script in the guest, which must succeed within two minutes, and returns its
// output.
func (g *guest) run(t *testing.T, script string) string {
	t.Helper()
	return g.start(t, script).wait(t, 2*time.Minute)
}
