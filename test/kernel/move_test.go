//go:build kernel

package kernel

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// grace is the backend's grace period and lease time. A client that is refused twice returns after
// 15 s.
const grace = 30 * time.Second

// TestProxyRestart kills the gateway, and then NFS-Ganesha behind it, while a client works.
// testdata/restart.sh has the checks.
func TestProxyRestart(t *testing.T) { onKernels(t, []string{linux61}, testProxyRestart) }

func testProxyRestart(t *testing.T, kernel string) {
	server := startGanesha(t, grace)
	data := &export{name: "data", crc: true, volume: server.dir, backend: server.backend("")}
	h := newHost(t, newGateway(t, "gateway", data))
	h.boot(t, kernel, 20*time.Minute, "restart.sh", func(_ *testing.T, words []string) (known bool, err error) {
		switch strings.Join(words, " ") {
		case "restart gateway":
			return true, restart(h.gateway, h.gateway)
		case "restart backend":
			return true, restart(h.gateway, server)
		}
		return false, nil
	}, "-e", "VERSIONS="+versions("4.2"), "-e", fmt.Sprintf("FOREIGN=%d /vol", server.port))
	h.guest.follow(t)
	if *only == "" {
		t.Run("mountstats", func(t *testing.T) {
			var lost []string
			for v := range strings.FieldsSeq(versions("4.2")) {
				lost = append(lost, v+"-restart")
			}
			h.guest.mountstats(t, lost...)
		})
		h.gateway.excused = backendAway.Match // the test restarts it
		t.Run("gateway", h.gateway.endsWell)
	}
}

// restart kills and restarts a server while a client of the gateway reads.
func restart(g *gateway, it interface {
	kill() error
	start() error
}) error {
	if err := g.busy("data"); err != nil {
		return err
	}
	if err := it.kill(); err != nil {
		return err
	}
	return it.start()
}

// TestProxyExports mounts two exports of one backend, through two ports. testdata/exports.sh has
// the checks.
func TestProxyExports(t *testing.T) { onKernels(t, []string{linux61}, testProxyExports) }

func testProxyExports(t *testing.T, kernel string) {
	server := startGanesha(t, 0)
	var exports []*export
	for _, name := range []string{"one", "two"} {
		dir := filepath.Join(server.dir, name)
		write(t, filepath.Join(dir, "which"), name+"\n")
		write(t, filepath.Join(dir, "only-"+name), string(make([]byte, 100_000)))
		exports = append(exports, &export{name: name, crc: true, volume: dir, backend: server.backend(name)})
	}
	h := newHost(t, newGateway(t, "gateway", exports...))
	h.boot(t, kernel, 20*time.Minute, "exports.sh", none, "-e", "VERSIONS=4.2 4.1 4.0 3")
	h.guest.follow(t)
	t.Run("gateway", h.gateway.endsWell)
}

// TestProxyMove puts two gateways in front of one backend, and moves a client to the other and
// back. testdata/move.sh has the checks.
func TestProxyMove(t *testing.T) { onKernels(t, []string{linux61}, testProxyMove) }

func testProxyMove(t *testing.T, kernel string) {
	server := startGanesha(t, 0)
	var gateways []*gateway
	for i := range 2 {
		data := &export{name: "data", crc: true, volume: server.dir, backend: server.backend("")}
		gateways = append(gateways, newGateway(t, fmt.Sprintf("gateway%d", i), data))
	}
	address := func(g *gateway) string { return fmt.Sprintf("127.0.0.1:%d", g.exports["data"].rdma) }
	relay := startRelay(t, address(gateways[0]), 0)
	h := newHost(t, gateways[0])
	at := 0
	h.boot(t, kernel, 20*time.Minute, "move.sh", func(t *testing.T, words []string) (known bool, err error) {
		if len(words) != 1 || words[0] != "move" {
			return false, nil
		}
		if err := gateways[at].busy("data"); err != nil {
			return true, err
		}
		at = 1 - at
		n := relay.move(address(gateways[at]))
		if n == 0 {
			err = fmt.Errorf("there was no connection to move to gateway%d", at)
		}
		t.Logf("%s: connections moved to gateway%d: %d", time.Now().Format(time.TimeOnly), at, n)
		return true, err
	}, "-e", "VERS=4.2", "-e", fmt.Sprintf("DATA=%d %d /", relay.port(), gateways[0].exports["data"].tcp))
	h.guest.follow(t)
	if *only != "" {
		return
	}
	t.Run("mountstats", func(t *testing.T) { h.guest.mountstats(t, "4.2-moved") })
	for i, g := range gateways {
		t.Run(fmt.Sprintf("gateway%d", i), g.endsWell)
	}
}
