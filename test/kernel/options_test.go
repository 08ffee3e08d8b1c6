//go:build kernel

package kernel

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	status "sluice.dev/sluice/api/status/v1alpha1"
)

// TestMountOptions mounts a directory and NFS-Ganesha by unusual sizes, with several connections,
// with inline thresholds of up to 64 KiB, and with TLS (RFC 9289), which is refused.
// testdata/options.sh has the checks.
func TestMountOptions(t *testing.T) {
	onKernels(t, []string{linux612}, testMountOptions)
}

func testMountOptions(t *testing.T, kernel string) {
	server := startGanesha(t, 0)
	const transport = "inlineThreshold: {call: 64Ki, reply: 64Ki}"
	volume := &export{name: "volume", crc: true, volume: folder(t, "volumes/volume"), transport: transport}
	volume.backend = fmt.Sprintf("volume: {path: %q}", volume.volume)
	proxy := &export{name: "proxy", crc: true, volume: server.dir, backend: server.backend(""), transport: transport}
	h := &optionsHost{newHost(t, newGateway(t, "gateway", volume, proxy))}
	for _, e := range []*export{volume, proxy} {
		for i := range 300 {
			write(t, filepath.Join(e.volume, "many", fmt.Sprintf("a-file-with-a-rather-long-name-%03d", i)), "123456\n")
		}
	}
	tls := ""
	if kernel != linux61 { // which has no TLS
		tls = "1"
	}
	h.boot(t, kernel, 20*time.Minute, "options.sh", h.answer, "-e", "TREE=", "-e", "FIO=short.fio", "-e", "TLS="+tls)
	h.guest.follow(t)
	if *only != "" {
		return
	}
	t.Run("mountstats", func(t *testing.T) { h.guest.mountstats(t) })
	t.Run("gateway", h.gateway.endsWell)
}

// optionsHost is the host's side of testdata/options.sh.
type optionsHost struct{ *host }

func (h *optionsHost) answer(_ *testing.T, words []string) (known bool, err error) {
	var export string
	var n int
	switch words[0] {
	case "export":
		h.data = h.gateway.exports[words[1]]
		return true, nil
	case "connections", "thresholds":
		if _, err := fmt.Sscan(words[1]+" "+words[2], &export, &n); err != nil {
			return true, err
		}
	default:
		return false, nil
	}
	clients, err := h.gateway.rdmaClients(export)
	if err != nil {
		return true, err
	}
	if words[0] == "connections" {
		if len(clients) != n {
			err = fmt.Errorf("%s has %d connections, must have %d", export, len(clients), n)
		}
		return true, err
	}
	for _, c := range clients {
		if got := c.InlineThreshold; got.Call != n || got.Reply != n {
			err = errors.Join(err, fmt.Errorf("the inline thresholds of %s are %+v, both must be %d", export, got, n))
		}
	}
	if len(clients) == 0 {
		err = fmt.Errorf("%s has no client", export)
	}
	return true, err
}

// rdmaClients returns the connections of an export's clients.
func (g *gateway) rdmaClients(export string) (clients []*status.RDMA, err error) {
	var s status.Status
	page, err := g.get("/status")
	if err := errors.Join(err, json.Unmarshal([]byte(page), &s)); err != nil {
		return nil, err
	}
	for _, e := range s.Exports {
		for _, c := range e.Clients {
			if e.Name == export && c.RDMA != nil {
				clients = append(clients, c.RDMA)
			}
		}
	}
	return clients, nil
}
