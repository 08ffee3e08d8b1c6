//go:build kernel

package kernel

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestDelegations has the kernel's client cache files by delegations, over RDMA and TCP, until a
// local process writes, or another client reads. testdata/delegations.sh has the checks.
func TestDelegations(t *testing.T) {
	onKernels(t, []string{linux61}, testDelegations)
}

func testDelegations(t *testing.T, kernel string) {
	data := &export{name: "data", volume: folder(t, "volumes/data")}
	data.backend = fmt.Sprintf("volume: {path: %q}", data.volume)
	own := &export{name: "own", volume: folder(t, "volumes/own")}
	own.backend = fmt.Sprintf("volume: {path: %q, nfs4: {shared: false}}", own.volume)
	h := &delegationsHost{newHost(t, newGateway(t, "gateway", data, own))}
	h.boot(t, kernel, 20*time.Minute, "delegations.sh", h.answer, "-e", "TREE=")
	h.guest.follow(t)
	if *only != "" {
		return
	}
	for _, proto := range []string{"rdma", "tcp"} {
		t.Run(proto+"/tshark", func(t *testing.T) { recalled(t, filepath.Join(h.guest.out, proto+".pcapng")) })
	}
	t.Run("gateway", h.gateway.endsWell)
}

// delegationsHost is the host's side of testdata/delegations.sh.
type delegationsHost struct{ *host }

func (h *delegationsHost) answer(t *testing.T, words []string) (known bool, err error) {
	if words[0] == "capture" && words[1] == "start" {
		var ports []int
		for _, e := range h.gateway.exports {
			ports = append(ports, e.rdma, e.tcp)
		}
		h.capture, err = startCapture(t, filepath.Join(h.guest.out, "running.pcapng"), ports...)
		return true, err
	}
	if len(words) != 3 {
		return false, nil
	}
	export, file, _ := strings.Cut(words[1], "/")
	e := h.gateway.exports[export]
	if e == nil {
		return false, nil
	}
	path := filepath.Join(e.volume, file)
	flags := os.O_WRONLY | os.O_CREATE
	switch words[0] {
	case "fetch":
		got, err := exec.Command(build(t).sluicectl, "cat", "--nfs", "3", e.url(file)).Output()
		if err == nil && string(got) != words[2]+"\n" {
			err = fmt.Errorf("another client read %q", got)
		}
		return true, err
	case "write":
	case "append":
		flags |= os.O_APPEND
	default:
		return false, nil
	}
	f, err := os.OpenFile(path, flags, 0o644)
	if err == nil {
		_, err = fmt.Fprintln(f, words[2])
		f.Close()
	}
	return true, err
}
