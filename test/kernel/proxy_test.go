//go:build kernel

package kernel

import (
	"flag"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/test/freeport"
)

var full = flag.Bool("full", false, "try every version of NFS on every backend")

// versions returns the versions of NFS to test: all with -full, otherwise some.
func versions(some ...string) string {
	if *full {
		some = []string{"3", "4.0", "4.1", "4.2"}
	}
	return strings.Join(some, " ")
}

// backendAway matches a gateway's messages about a backend that does not answer.
var backendAway = regexp.MustCompile(`msg="(backend unreachable|export root not found)`)

// answers matches its message about a backend that answers again.
var answers = regexp.MustCompile(`msg="backend answers"`)

// backendAwayInGuest excuses backendAway before the server in the guest first answers, and after
// the guest's script has ended.
func (h *host) backendAwayInGuest() func(line []byte) bool {
	served := false
	return func(line []byte) bool {
		served = served || answers.Match(line)
		return backendAway.Match(line) && (!served || loggedAt(line).After(h.guest.scriptEnded))
	}
}

// loggedAt is the time of a line of the log, or the zero time.
func loggedAt(line []byte) time.Time {
	word, _, _ := strings.Cut(strings.TrimPrefix(string(line), "time="), " ")
	at, _ := time.Parse(time.RFC3339Nano, word)
	return at
}

// none answers no request of a script.
func none(*testing.T, []string) (known bool, err error) { return false, nil }

// serving calls begin when a script says that the server in the guest may be connected to.
func serving(begin func()) func(*testing.T, []string) (known bool, err error) {
	return func(_ *testing.T, words []string) (known bool, err error) {
		if known = slices.Equal(words, []string{"serving"}); known {
			begin()
		}
		return known, nil
	}
}

// TestProxyGanesha mounts a gateway in front of NFS-Ganesha. testdata/proxy.sh has the checks.
func TestProxyGanesha(t *testing.T) { onKernels(t, []string{linux61}, testProxyGanesha) }

func testProxyGanesha(t *testing.T, kernel string) {
	server := startGanesha(t, 0)
	data := &export{name: "data", crc: true, volume: server.dir, backend: server.backend("")}
	h := newHost(t, newGateway(t, "gateway", data))
	h.boot(t, kernel, 20*time.Minute, "proxy.sh", none, "-e", "VERSIONS="+versions("4.2", "3"))
	h.guest.follow(t)
	if *only != "" {
		return
	}
	t.Run("mountstats", func(t *testing.T) { h.guest.mountstats(t) })
	t.Run("gateway", h.gateway.endsWell)
}

// TestProxyKernel mounts a gateway in front of the kernel's server in the same guest.
// testdata/kernel.sh has the checks. Connections reach the server only once it serves: it answers
// before it exports /data, so that a gateway finds no root for a moment.
func TestProxyKernel(t *testing.T) { onKernels(t, []string{linux61}, testProxyKernel) }

func testProxyKernel(t *testing.T, kernel string) {
	ports := freeport.Choose(t, 2) // of the host; they lead into the guest
	nfs, mount := startRelay(t, "", 0), startRelay(t, "", 0)
	data := &export{name: "data", crc: true, backend: nfsBackend(nfs.port(), mount.port(), "/data")}
	h := newHost(t, newGateway(t, "gateway", data))
	h.gateway.excused = h.backendAwayInGuest()
	begin := func() {
		mount.move(fmt.Sprintf("127.0.0.1:%d", ports[1]))
		nfs.move(fmt.Sprintf("127.0.0.1:%d", ports[0]))
	}
	h.boot(t, kernel, 20*time.Minute, "kernel.sh", serving(begin), "-e", "VERSIONS="+versions("4.1"),
		"-f", fmt.Sprintf("%d:2049", ports[0]), "-f", fmt.Sprintf("%d:20048", ports[1]))
	h.guest.follow(t)
	if *only != "" {
		return
	}
	t.Run("mountstats", func(t *testing.T) { h.guest.mountstats(t) })
	t.Run("recall", func(t *testing.T) { recalled(t, filepath.Join(h.guest.out, "recall.pcapng")) })
	t.Run("gateway", h.gateway.endsWell)
}

// TestProxyLinuxRDMA has RDMA on both sides of the gateway: its backend is the kernel's NFS/RDMA
// server. Version 3 is left out, since that server's MOUNT is on TCP alone. The checks of names and
// users, which TestProxyKernel has, run with -full. Connections reach the server only once it
// serves: siw's listener fails for good when one ends before it is accepted.
func TestProxyLinuxRDMA(t *testing.T) { onKernels(t, []string{linux61}, testProxyLinuxRDMA) }

func testProxyLinuxRDMA(t *testing.T, kernel string) {
	port := freeport.Choose(t, 1)[0]
	backend := startRelay(t, "", 0)
	data := &export{name: "data", crc: true, backend: fmt.Sprintf(`rdma: {server: 127.0.0.1, port: %d, path: /data, versions: ["4.1", "4.2"]}`, backend.port())}
	h := newHost(t, newGateway(t, "gateway", data))
	h.gateway.excused = h.backendAwayInGuest()
	options := []string{"-f", fmt.Sprintf("%d:20049", port), "-e", "VERSIONS=4.2", "-e", "SHORT=1", "-e", "FIO=short.fio", "-e", "TREE="}
	if *full {
		options = []string{"-f", fmt.Sprintf("%d:20049", port), "-e", "VERSIONS=4.1 4.2"}
	}
	begin := func() { backend.move(fmt.Sprintf("127.0.0.1:%d", port)) }
	h.boot(t, kernel, 20*time.Minute, "kernel.sh", serving(begin), options...)
	h.guest.follow(t)
	if *only != "" {
		return
	}
	t.Run("mountstats", func(t *testing.T) { h.guest.mountstats(t) })
	t.Run("recall", func(t *testing.T) { recalled(t, filepath.Join(h.guest.out, "recall.pcapng")) })
	t.Run("gateway", h.gateway.endsWell)
}

// recalled has tshark find the recall of a delegation in a capture of the client's connection: a
// call from the gateway to the client.
func recalled(t *testing.T, file string) {
	const cbRecall, delegReturn = "4", "8"
	var calls, replies, returned int
	for _, line := range tshark(t, file, "-Y", "nfs.cb.operation || nfs.opcode", "-T", "fields",
		"-E", "occurrence=a", "-E", "aggregator=;", "-e", "rpc.msgtyp", "-e", "nfs.cb.operation", "-e", "nfs.opcode") {
		column := strings.Split(line+"\t\t", "\t")
		switch {
		case slices.Contains(strings.Split(column[1], ";"), cbRecall) && column[0] == "0":
			calls++
		case slices.Contains(strings.Split(column[1], ";"), cbRecall):
			replies++
		case slices.Contains(strings.Split(column[2], ";"), delegReturn):
			returned++
		}
	}
	t.Logf("%d CB_RECALLs, %d answers, %d messages with DELEGRETURN", calls, replies, returned)
	if calls == 0 || replies == 0 || returned == 0 {
		t.Error("tshark must find all of them")
	}
}
