//go:build kernel

package kernel

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestVolume4 mounts a directory on xfs by version 4 from two clients. Gateway and clients are in
// the guest. testdata/volume4.sh has the checks.
func TestVolume4(t *testing.T) { onKernels(t, []string{linux61}, testVolume4) }

func testVolume4(t *testing.T, kernel string) {
	ways := "4.2-rdma"
	if *full {
		ways = "4.2-rdma 4.2-tcp 4.1-rdma 4.1-tcp"
	}
	g := boot(t, kernel, 20*time.Minute, "volume4.sh", []string{"-e", "GATEWAY=" + build(t).gateway, "-e", "WAYS=" + ways, "-e", "TREE="}, nil)
	g.follow(t)
}

// TestRecovery4 kills the gateway, and cuts a client off, while clients hold locks of a directory
// by version 4. testdata/recovery4.sh has the checks.
func TestRecovery4(t *testing.T) { onKernels(t, []string{linux61}, testRecovery4) }

func testRecovery4(t *testing.T, kernel string) {
	const lease = 10 * time.Second
	ways := "4.2-rdma"
	if *full {
		ways = "4.2-rdma 4.2-tcp 4.1-rdma 4.1-tcp"
	}
	data := &export{name: "data", crc: true, volume: folder(t, "volumes/data")}
	data.backend = fmt.Sprintf("volume: {path: %q, nfs4: {lease: %v}}", data.volume, lease)
	// The same with persistent sessions.
	kept := &export{name: "kept", crc: true, volume: folder(t, "volumes/kept")}
	kept.backend = fmt.Sprintf("volume: {path: %q, nfs4: {lease: %v, sessions: Persistent}}", kept.volume, lease)
	g := newGateway(t, "gateway", data, kept)
	there := fmt.Sprintf("127.0.0.1:%d", data.tcp)
	relay := startRelay(t, there, 0)
	h := newHost(t, g)
	h.boot(t, kernel, 20*time.Minute, "recovery4.sh", func(t *testing.T, words []string) (known bool, err error) {
		switch strings.Join(words, " ") {
		case "restart rdma", "restart tcp":
			path := map[string]string{"rdma": "write_chunk", "tcp": "stream"}[words[1]]
			return true, errors.Join(g.sends("data", path), g.kill(), g.start())
		case "restart names":
			return true, errors.Join(g.changes("kept", 100), g.kill(), g.start())
		case "cut":
			relay.move("127.0.0.1:1") // nobody listens there
			return true, nil
		case "expired":
			return true, g.await(1, "sluice_nfs4_clients", `state="expired"`)
		case "mend":
			relay.move(there)
			return true, nil
		}
		return false, nil
	}, "-e", "WAYS="+ways, "-e", "TREE=", "-e", "KEPT="+kept.spec(), "-e", fmt.Sprintf("FAR=0 %d /", relay.port()))
	h.guest.excused = regexp.MustCompile(`NFS: .*(Lock reclaim failed|lost [0-9]+ locks)`)
	h.guest.follow(t)
	t.Run("gateway", g.endsWell)
}
