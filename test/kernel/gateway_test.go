//go:build kernel

package kernel

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice.dev/sluice/test/freeport"
	"sluice.dev/sluice/test/prereq"
)

// export is one export of a gateway under test.
type export struct {
	name      string
	rdma, tcp int    // ports
	volume    string // directory that clients see, if it is on this host
	backend   string // this and the next ones as in the configuration
	crc       bool
	maxFPDU   int
	transport string
	access    string // the rule for all clients; empty means read-write without squashing
}

// spec is the export as an argument of a guest's script.
func (e *export) spec() string { return fmt.Sprintf("%d %d /", e.rdma, e.tcp) }

func (e *export) url(path string) string {
	return fmt.Sprintf("nfs+rdma://127.0.0.1:%d/%s", e.rdma, path)
}

// gateway runs the program under test as a process of its own.
type gateway struct {
	exports map[string]*export
	admin   string
	program string
	config  string
	log     *os.File
	cmd     *exec.Cmd
	done    chan error
	// excused reports whether a complaint in the log is expected. It sees every line, in order.
	excused func(line []byte) bool
}

const drainTimeout = 20 * time.Second

// volumes returns three exports of directories: "data" offers both versions of RPC-over-RDMA,
// "plain" differs in every setting of a transport, and "guarded" is read-only and squashes root.
func volumes(t *testing.T) []*export {
	exports := []*export{
		{name: "data", crc: true, transport: "rpcRDMAVersions: [1, 2]"},
		{
			name: "plain", maxFPDU: 1440,
			transport: "inlineThreshold: {call: 16Ki, reply: 8Ki}, credits: {policy: Static, max: 5}, remoteInvalidation: false",
		},
		{name: "guarded", crc: true, access: "mode: ReadOnly, squash: Root"},
	}
	for _, e := range exports {
		e.volume = folder(t, "volumes/"+e.name)
		e.backend = fmt.Sprintf("volume: {path: %q}", e.volume)
	}
	return exports
}

// newGateway starts a gateway for the exports. Gateways of one test need different names; they
// share the key that signs handles.
func newGateway(t *testing.T, name string, exports ...*export) *gateway {
	t.Helper()
	if os.Geteuid() != 0 {
		prereq.Missing(t, "the gateway has to be root to act as other users, and dumpcap to capture")
	}
	ports := freeport.Choose(t, 2*len(exports)+1)
	g := &gateway{program: build(t).gateway, exports: map[string]*export{}, admin: fmt.Sprintf("127.0.0.1:%d", ports[2*len(exports)])}
	var yaml strings.Builder
	fmt.Fprintf(&yaml, "apiVersion: config.sluice.dev/v1alpha1\nkind: GatewayConfig\nadmin: {address: %q}\nstateDir: %q\ndrainTimeout: %v\nexports:\n",
		g.admin, folder(t, "state"), drainTimeout)
	for i, e := range exports {
		e.rdma, e.tcp = ports[2*i], ports[2*i+1]
		g.exports[e.name] = e
		fmt.Fprintf(&yaml, `- name: %s
  listeners:
  - {network: rdma, provider: iwarp, address: "127.0.0.1:%d", options: {crc: %v, maxFPDU: %d}}
  - {network: tcp, address: "127.0.0.1:%d"}
  backend: {%s}
  access: [{from: {networks: ["127.0.0.0/8"]}, %s}]
  transport: {%s}
`, e.name, e.rdma, e.crc, e.maxFPDU, e.tcp, e.backend, cmp.Or(e.access, "mode: ReadWrite, squash: None"), e.transport)
	}
	g.config = filepath.Join(folder(t, "config"), name+".yaml")
	if err := os.WriteFile(g.config, []byte(yaml.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	var err error
	if g.log, err = os.Create(filepath.Join(folder(t, "."), name+".log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if g.cmd != nil {
			_ = g.kill()
		}
		if t.Failed() {
			g.showLog(t)
		}
	})
	if err := g.start(); err != nil {
		t.Fatal(err)
	}
	return g
}

// start returns when the gateway is ready.
func (g *gateway) start() error {
	g.cmd = exec.Command(g.program, "--config", g.config)
	g.cmd.Stdout, g.cmd.Stderr = g.log, g.log
	if err := g.cmd.Start(); err != nil {
		return err
	}
	g.done = make(chan error, 1)
	go func(cmd *exec.Cmd, done chan error) { done <- cmd.Wait() }(g.cmd, g.done)
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		_, err := g.get("/readyz")
		if err == nil {
			return nil
		}
		select {
		case err := <-g.done:
			g.cmd = nil
			return fmt.Errorf("the gateway did not start: %w", err)
		default:
		}
		if time.Since(begun) > patience {
			return fmt.Errorf("the gateway is not ready after %v: %w", patience, err)
		}
	}
}

// kill ends it as a crash does.
func (g *gateway) kill() error {
	err := g.cmd.Process.Kill()
	if ended := <-g.done; err == nil && ended == nil {
		err = errors.New("the gateway exited with status 0 before the kill")
	}
	g.cmd = nil
	return err
}

// drain ends it in order: calls in flight are answered.
func (g *gateway) drain() error {
	if err := g.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-g.done:
		g.cmd = nil
		if err != nil {
			return fmt.Errorf("after SIGTERM the gateway ended with %w", err)
		}
		return nil
	case <-time.After(drainTimeout + time.Minute):
		return fmt.Errorf("SIGTERM did not end the gateway: drainTimeout is %v", drainTimeout)
	}
}

// get requests a path of the admin page.
func (g *gateway) get(path string) (string, error) {
	res, err := http.Get("http://" + g.admin + path)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, res.Status, bytes.TrimSpace(b))
	}
	return string(b), err
}

// metric sums the samples of a metric whose lines have all the given words.
func (g *gateway) metric(name string, words ...string) (sum float64, err error) {
	page, err := g.get("/metrics")
	if err != nil {
		return 0, err
	}
	found := false
next:
	for line := range strings.Lines(page) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "} ")
		if !ok || !strings.HasPrefix(key, name+"{") {
			continue
		}
		for _, w := range words {
			if !strings.Contains(key, w) {
				continue next
			}
		}
		var v float64
		if _, err := fmt.Sscan(value, &v); err != nil {
			return 0, fmt.Errorf("metric %q: %w", line, err)
		}
		sum, found = sum+v, true
	}
	if !found {
		return 0, errors.New("no metric " + name + " with " + strings.Join(words, ", "))
	}
	return sum, nil
}

// await waits until the samples of a metric, as in metric, sum up to want.
func (g *gateway) await(want float64, name string, words ...string) error {
	for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
		got, err := g.metric(name, words...)
		if err != nil || got == want {
			return err
		}
		if time.Since(begun) > patience {
			return fmt.Errorf("after %v %s with %s is %g, must be %g", patience, name, strings.Join(words, ", "), got, want)
		}
	}
}

// busy waits until an export sends data by Write chunks.
func (g *gateway) busy(export string) error { return g.sends(export, "write_chunk") }

// sends waits until an export sends data by a path of sluice_bytes_total.
func (g *gateway) sends(export, path string) error {
	var before float64
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		n, err := g.metric("sluice_bytes_total", `export="`+export+`"`, `direction="out"`, `path="`+path+`"`)
		if err != nil {
			return err
		}
		if before == 0 {
			before = n + 1
		} else if n > before+1<<20 {
			return nil
		}
		if time.Since(begun) > patience {
			return fmt.Errorf("after %v nobody reads", patience)
		}
	}
}

// changes waits until an export has removed n names by version 4.
func (g *gateway) changes(export string, n float64) error {
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		got, err := g.metric("sluice_nfs4_operations_total", `export="`+export+`"`, `operation="REMOVE"`)
		if err == nil && got >= n {
			return nil
		}
		if time.Since(begun) > patience {
			return fmt.Errorf("after %v %g names are removed, want %g: %w", patience, got, n, err)
		}
	}
}

// endsWell is a subtest: the gateway drains and its log has no unexpected complaints.
func (g *gateway) endsWell(t *testing.T) {
	if err := g.drain(); err != nil {
		t.Error(err)
	}
	g.checkLog(t)
}

var gatewayTrouble = regexp.MustCompile(`panic|^goroutine |level=(ERROR|WARN)|protocolErrors=[1-9]`)

// checkLog fails the test on an unexpected complaint of the gateway.
func (g *gateway) checkLog(t *testing.T) {
	t.Helper()
	log, err := os.ReadFile(g.log.Name())
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(log) {
		if excused := g.excused != nil && g.excused(line); gatewayTrouble.Match(line) && !excused {
			t.Errorf("the gateway says: %s", bytes.TrimSpace(line))
		}
	}
}

func (g *gateway) showLog(t *testing.T) {
	t.Helper()
	if b, err := os.ReadFile(g.log.Name()); err == nil {
		lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
		t.Logf("the gateway's last words:\n%s", bytes.Join(lines[max(0, len(lines)-40):], []byte("\n")))
	}
}
