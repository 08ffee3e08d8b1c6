// Package peer drives a client of RPC-over-RDMA version 1 that shares no code with Sluice:
// testdata/peer.py has its own iWARP, headers and XDR, in Python. Against the gateway's binary it
// sends forms that no Linux client sends, and checks each byte that comes back.
package peer

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/test/freeport"
	"sluice.dev/sluice/test/gatewaytest"
	"sluice.dev/sluice/test/prereq"
)

const config = `apiVersion: config.sluice.dev/v1alpha1
kind: GatewayConfig
admin: {address: %q}
stateDir: %q
exports:
- name: data
  listeners: [{network: rdma, provider: iwarp, address: %q}]
  backend: {volume: {path: %q}}
  access: [{from: {networks: [127.0.0.0/8]}, mode: ReadWrite, squash: None}]
  transport:
    rfc5666: [Padding, ReadRead, Configuration]
    inlineThreshold: {call: 8Ki, reply: 8Ki}
- name: plain
  listeners: [{network: rdma, provider: iwarp, address: %q}]
  backend: {volume: {path: %q}}
  access: [{from: {networks: [127.0.0.0/8]}, mode: ReadWrite, squash: None}]
`

// start builds and starts a gateway, and returns its addresses: with the forms of RFC 5666, and
// without.
func start(t *testing.T) (old, plain string) {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "gateway")
	if said, err := exec.Command("go", "build", "-o", binary, "sluice.dev/sluice/cmd/gateway").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, said)
	}
	var addresses [3]string
	for i, port := range freeport.Choose(t, len(addresses)) {
		addresses[i] = fmt.Sprintf("127.0.0.1:%d", port)
	}
	admin, old, plain := addresses[0], addresses[1], addresses[2]
	gatewaytest.Start(t, binary, admin, fmt.Sprintf(config, admin, t.TempDir(), old, t.TempDir(), plain, t.TempDir()))
	return old, plain
}

// TestPeer runs each case of the peer.
func TestPeer(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		prereq.Missing(t, "python3 is not installed: %v", err)
	}
	old, plain := start(t)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	said, err := exec.CommandContext(ctx, python, "-B", filepath.Join("testdata", "peer.py"), old, plain).CombinedOutput()
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
