// Package peer drives a client of RPC-over-RDMA version 1 that shares no code with Sluice:
// testdata/peer.py has its own iWARP, headers and XDR, in Python. Against the gateway's binary it
// sends forms that no Linux client sends, and checks each byte that comes back.
package peer

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice.dev/sluice/test/freeport"
	"sluice.dev/sluice/test/prereq"
)

const config = `apiVersion: config.sluice.dev/v1alpha1
kind: GatewayConfig
admin: {address: ""}
stateDir: %q
exports:
- name: data
  listeners: [{network: rdma, provider: iwarp, address: %q}]
  backend: {volume: {path: %q}}
  access: [{from: {networks: [127.0.0.0/8]}, mode: ReadWrite, squash: None}]
  transport:
    rfc5666: [Padding, ReadRead, Configuration]
    inlineThreshold: {call: 8Ki, reply: 8Ki}
`

// start builds and starts a gateway, and returns its address.
func start(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		prereq.Missing(t, "the gateway has to be root to open files by handle")
	}
	dir := t.TempDir()
	binary, file := filepath.Join(dir, "gateway"), filepath.Join(dir, "gateway.yaml")
	if said, err := exec.Command("go", "build", "-o", binary, "sluice.dev/sluice/cmd/gateway").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, said)
	}
	address := fmt.Sprintf("127.0.0.1:%d", freeport.Choose(t, 1)[0])
	if err := os.WriteFile(file, fmt.Appendf(nil, config, filepath.Join(dir, "state"), address, t.TempDir()), 0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	cmd := exec.Command(binary, "--config", file)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("the gateway ended with %v", err)
			}
		case <-time.After(time.Minute):
			_ = cmd.Process.Kill()
			t.Errorf("the gateway did not end within a minute: %v", <-ended)
		}
		if t.Failed() {
			t.Logf("the gateway's log:\n%s", log.String())
		}
	})
	for begin := time.Now(); ; time.Sleep(20 * time.Millisecond) {
		if c, err := net.Dial("tcp", address); err == nil {
			_ = c.Close()
			return address
		}
		if time.Since(begin) > time.Minute {
			t.Fatal("the gateway does not listen")
		}
	}
}

// TestPeer runs each case of the peer.
func TestPeer(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		prereq.Missing(t, "python3 is not installed: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	said, err := exec.CommandContext(ctx, python, "-B", filepath.Join("testdata", "peer.py"), start(t)).CombinedOutput()
	cases := 0
	for line := range strings.Lines(string(said)) {
		if name, ok := strings.CutPrefix(line, "ok "); ok {
			cases++
			t.Run(strings.TrimSpace(name), func(*testing.T) {})
		}
		if what, ok := strings.CutPrefix(line, "failed "); ok {
			cases++
			name, reason, _ := strings.Cut(what, ": ")
			t.Run(name, func(t *testing.T) { t.Error(reason) })
		}
	}
	if err != nil || cases == 0 {
		t.Errorf("%d cases, %v:\n%s", cases, err, said)
	}
}
