//go:build kernel

package exhaustion

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/test/freeport"
	"sluice.dev/sluice/test/gatewaytest"
	"sluice.dev/sluice/test/prereq"
)

// binaries has bin/gateway and bin/sluicectl, which "make build" makes.
var binaries = filepath.Join("..", "..", "bin")

// gateway is a gateway's process that exports one directory.
type gateway struct {
	t                testing.TB
	dir              string // the exported directory
	rdma, tcp, admin string // addresses
	handle           []byte // of the file "big"
}

// setUp says how a gateway is set up; everything else has its default.
type setUp struct {
	// rules are networks of clients that may read and write.
	rules string
	// proxied has NFS-Ganesha serve the directory behind the gateway.
	proxied bool
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// start runs a gateway until the test ends.
func start(t testing.TB, s setUp) *gateway {
	t.Helper()
	ports := freeport.Choose(t, 3)
	g := &gateway{
		t: t, dir: t.TempDir(), rdma: fmt.Sprintf("127.0.0.1:%d", ports[0]), tcp: fmt.Sprintf("127.0.0.1:%d", ports[1]),
		admin: fmt.Sprintf("127.0.0.1:%d", ports[2]),
	}
	check(t, os.Chmod(g.dir, 0o777))
	check(t, os.WriteFile(filepath.Join(g.dir, "big"), make([]byte, 64*mib), 0o666))
	backend := fmt.Sprintf("volume: {path: %q}", g.dir)
	if s.proxied {
		backend = g.ganesha()
	}
	gatewaytest.Start(t, filepath.Join(binaries, "gateway"), g.admin, fmt.Sprintf(`apiVersion: config.sluice.dev/v1alpha1
kind: GatewayConfig
admin: {address: %q}
stateDir: %q
exports:
- name: data
  listeners:
  - {network: rdma, provider: iwarp, address: %q}
  - {network: tcp, address: %q}
  backend: {%s}
  access: [{from: {networks: [%s]}, mode: ReadWrite, squash: None}]
`, g.admin, t.TempDir(), g.rdma, g.tcp, backend, s.rules))
	g.handle = g.find("big")
	return g
}

// ganesha starts NFS-Ganesha for the directory, and returns the gateway's backend.
func (g *gateway) ganesha() string {
	g.t.Helper()
	if _, err := exec.LookPath("ganesha.nfsd"); err != nil {
		prereq.Missing(g.t, "NFS-Ganesha is not installed: %v", err)
	}
	script, state, ports := filepath.Join("..", "..", "hack", "ganesha", "run"), g.t.TempDir(), freeport.Choose(g.t, 2)
	g.t.Cleanup(func() {
		if out, err := exec.Command(script, "--stop", "--state", state).CombinedOutput(); err != nil {
			g.t.Errorf("%s: %v\n%s", script, err, out)
		}
	})
	args := []string{"--dir", g.dir, "--port", fmt.Sprint(ports[0]), "--mount-port", fmt.Sprint(ports[1]), "--state", state}
	if out, err := exec.Command(script, args...).CombinedOutput(); err != nil {
		g.t.Fatalf("%s: %v\n%s", script, err, out)
	}
	return fmt.Sprintf("nfs: {server: 127.0.0.1, port: %d, mountPort: %d, path: /}", ports[0], ports[1])
}

// find returns the handle of a file in the export's root.
func (g *gateway) find(name string) []byte {
	g.t.Helper()
	pool := bufpool.New(0)
	conn, err := oncrpc.Dial(g.t.Context(), g.tcp, oncrpc.Config{Pool: pool})
	check(g.t, err)
	cred, err := client.ProcessCred()
	check(g.t, err)
	c := client.New(client.Config{Requester: conn, Pool: pool, Cred: cred})
	root, err := c.Mount(g.t.Context(), "/")
	check(g.t, err)
	object, err := c.Lookup(g.t.Context(), root, name)
	check(g.t, err)
	handle := bytes.Clone(object.Handle)
	_ = conn.Close()
	conn.Wait()
	check(g.t, pool.Close())
	return handle
}

// patience is the limit for everything that the ordinary client does. Without attackers it takes a
// second.
const patience = 1 * time.Minute

// visit is the ordinary client, sluicectl: it lists, writes and reads back over a network. It
// reports whether all of that succeeded; if not, the test has failed.
func (g *gateway) visit(t testing.TB, network string, size int, flags ...string) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	address := g.rdma
	if network == "tcp" {
		address = g.tcp
	}
	url := "nfs+" + network + "://" + address + "/"
	content := make([]byte, size)
	for i := range content {
		content[i] = byte(i>>16 ^ i>>8 ^ i)
	}
	dir := t.TempDir()
	from, to, name := filepath.Join(dir, "from"), filepath.Join(dir, "to"), "visit-"+network
	check(t, os.WriteFile(from, content, 0o600))
	for _, args := range [][]string{{"ls", url}, {"put", from, url + name}, {"get", url + name, to}} {
		began := time.Now()
		cmd := exec.CommandContext(ctx, filepath.Join(binaries, "sluicectl"), slices.Concat(args, []string{"--timeout", "1m"}, flags)...)
		out, err := cmd.CombinedOutput()
		took := time.Since(began)
		if err != nil {
			t.Errorf("over %s: %s: %v after %.1f s\n%s", network, args[0], err, took.Seconds(), out)
			return false
		}
		t.Logf("over %s: %s took %.1f s", network, args[0], took.Seconds())
	}
	back, err := os.ReadFile(to)
	check(t, err)
	if !bytes.Equal(back, content) {
		t.Errorf("over %s: %d bytes were read back that differ from the %d that were written", network, len(back), size)
		return false
	}
	return true
}
