//go:build kernel

package kernel

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// transport holds the kernel's counters of one RDMA mount, from /proc/self/mountstats.
type transport struct {
	connects, sends, receives, badXIDs   uint64
	readChunks, writeChunks, replyChunks uint64
	offered, filled                      uint64 // bytes of Write and Reply chunks
	failedMarshal, badReply, longCalls   uint64
	localInvalidations                   uint64 // regions that no reply invalidated
}

// parseMountstats finds the mount at path.
func parseMountstats(text, path string) (tr transport, err error) {
	_, text, ok := strings.Cut(text, " mounted on "+path+" with fstype nfs")
	if !ok || text == "" || text[0] != ' ' && text[0] != '4' {
		return tr, fmt.Errorf("nothing is mounted at %s by NFS", path)
	}
	text, _, _ = strings.Cut(text, "\ndevice ")
	_, line, ok := strings.Cut(text, "\txprt:\t")
	if !ok {
		return tr, fmt.Errorf("the mount at %s has no line of its transport", path)
	}
	line, _, _ = strings.Cut(line, "\n")
	words := strings.Fields(line)
	if words[0] != "rdma" {
		return tr, fmt.Errorf("the mount at %s is by proto %s, must be rdma", path, words[0])
	}
	var n []uint64
	for _, w := range words[1:] {
		v, err := strconv.ParseUint(w, 10, 64)
		if err != nil {
			return tr, fmt.Errorf("transport %q: %w", line, err)
		}
		n = append(n, v)
	}
	if len(n) != 27 {
		return tr, fmt.Errorf("transport %q has %d numbers, must have 27", line, len(n))
	}
	// The order of xprt_rdma_print_stats; the fields common to all transports come first.
	return transport{
		connects: n[2], sends: n[5], receives: n[6], badXIDs: n[7],
		readChunks: n[10], writeChunks: n[11], replyChunks: n[12], offered: n[13], filled: n[14],
		failedMarshal: n[18], badReply: n[19], longCalls: n[20], localInvalidations: n[24],
	}, nil
}

func (tr transport) String() string {
	return fmt.Sprintf("%d calls, %d replies, %d connects; chunks: Read %d, Write %d, Reply %d; long calls %d; local invalidations %d; "+
		"failed_marshal %d; bad_reply %d; bad XIDs %d", tr.sends, tr.receives, tr.connects, tr.readChunks,
		tr.writeChunks, tr.replyChunks, tr.longCalls, tr.localInvalidations, tr.failedMarshal, tr.badReply, tr.badXIDs)
}

// mountstats checks the kernel's counters of every mount. The named mounts have lost connections.
func (g *guest) mountstats(t *testing.T, reconnected ...string) {
	files, err := filepath.Glob(filepath.Join(g.out, "mountstats.*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("the guest left %d files of statistics (%v)", len(files), err)
	}
	trace, err := g.read("trace")
	if err != nil {
		t.Fatal(err)
	}
	said, _ := g.read("dmesg") // absent when the guest did not finish
	losses := misreadCRCs(said)
	var sum transport
	for _, file := range files {
		name := strings.TrimPrefix(filepath.Base(file), "mountstats.")
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tr, err := parseMountstats(string(text), "/mnt")
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		t.Logf("%-12s %v", name, tr)
		sum.readChunks += tr.readChunks
		sum.writeChunks += tr.writeChunks
		sum.replyChunks += tr.replyChunks
		if tr.badReply != 0 || tr.badXIDs != 0 {
			t.Errorf("%s: bad_reply %d, bad XIDs %d, must both be 0", name, tr.badReply, tr.badXIDs)
		}
		sum.failedMarshal += tr.failedMarshal
		if strings.Contains(name, "-tour") && tr.failedMarshal != 0 {
			t.Errorf("%s: failed_marshal %d, must be 0", name, tr.failedMarshal)
		}
		switch lost := int(tr.connects) - 1; {
		case slices.Contains(reconnected, name) == (lost > 0):
		case lost > 0 && lost <= losses:
			losses -= lost
			t.Logf("%s: %d connects: siw read a CRC wrong that had come in two parts", name, tr.connects)
		default:
			t.Errorf("%s: %d connects; the guest's kernel says of its transport:\n%s", name, tr.connects, transportWords(said))
		}
	}
	if sum.readChunks == 0 || sum.writeChunks == 0 || sum.replyChunks == 0 {
		t.Errorf("Read chunks %d, Write chunks %d, Reply chunks %d: all must be used", sum.readChunks, sum.writeChunks, sum.replyChunks)
	}
	t.Logf("together: Read chunks %d, Write chunks %d, Reply chunks %d", sum.readChunks, sum.writeChunks, sum.replyChunks)

	putOff, failed := marshalFailures(trace)
	t.Logf("%d times a call was put off to make more memory regions, which the kernel counts as failed_marshal too; %d calls failed", putOff, failed)
	if failed > 0 || putOff < int(sum.failedMarshal) { // not each mount leaves statistics
		t.Errorf("%d calls could not be encoded, %d were put off, failed_marshal is %d", failed, putOff, sum.failedMarshal)
	}
}

// transportWords picks the kernel's messages about RPC-over-RDMA and siw, for example the CRC error
// that ended a connection.
func transportWords(said string) string {
	var words strings.Builder
	for line := range strings.Lines(said) {
		if strings.Contains(line, "siw") || strings.Contains(line, "rpcrdma") {
			words.WriteString(line)
		}
	}
	return words.String()
}

// marshalFailures counts postponed and failed calls in a trace of the event
// xprtrdma_marshal_failed. Linux begins with 4 memory regions on siw and makes more when it runs
// out: until then calls are postponed (EAGAIN). The counter failed_marshal includes both.
func marshalFailures(trace string) (putOff, failed int) {
	for line := range strings.Lines(trace) {
		if !strings.Contains(line, "xprtrdma_marshal_failed:") {
			continue
		}
		if strings.HasSuffix(strings.TrimSpace(line), "ret=-11") {
			putOff++
		} else {
			failed++
		}
	}
	return putOff, failed
}

func TestParseMountstats(t *testing.T) {
	const text = "device tmpfs mounted on /run with fstype tmpfs\n" +
		"device 10.0.2.2:/ mounted on /mnt with fstype nfs statvers=1.1\n\topts:\trw,vers=3\n" +
		"\txprt:\trdma 0 0 1 2 3 20 21 0 27 0 4 10 5 10485760 10485761 0 0 0 3 6 7 0 0 12 9 10 11\n\tper-op statistics\n" +
		"device 10.0.2.2:/ mounted on /other with fstype nfs statvers=1.1\n\txprt:\ttcp 0 0 1\n"
	got, err := parseMountstats(text, "/mnt")
	want := transport{connects: 1, sends: 20, receives: 21, readChunks: 4, writeChunks: 10, replyChunks: 5, offered: 10485760, filled: 10485761,
		failedMarshal: 3, badReply: 6, longCalls: 7, localInvalidations: 9}
	if err != nil || got != want {
		t.Errorf("got %+v, %v\nwant %+v", got, err, want)
	}
	for _, path := range []string{"/other", "/run", "/none"} {
		if _, err := parseMountstats(text, path); err == nil {
			t.Errorf("%s: no error", path)
		}
	}
}
