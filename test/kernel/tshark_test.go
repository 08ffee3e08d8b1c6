//go:build kernel

package kernel

import (
	"bufio"
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// capture is a running dumpcap on the loopback interface.
type capture struct {
	cmd  *exec.Cmd
	file string
	said *bytes.Buffer
	done chan struct{}
}

// dumpcapSummary matches its last line: packets received and dropped.
var dumpcapSummary = regexp.MustCompile(`Packets received/dropped on interface .*: (\d+)/(\d+) `)

// startCapture captures the ports' TCP segments. It returns when packets are seen.
func startCapture(t *testing.T, file string, ports ...int) (*capture, error) {
	t.Helper()
	var filter []string
	for _, p := range ports {
		filter = append(filter, fmt.Sprintf("tcp port %d", p))
	}
	c := &capture{file: file, said: new(bytes.Buffer), done: make(chan struct{})}
	c.cmd = exec.Command(needTool(t, "dumpcap"), "-q", "-i", "lo", "-B", "64", "-f", strings.Join(filter, " or "), "-w", file)
	stderr, err := c.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	ready := make(chan bool, 1)
	go func() {
		defer close(c.done)
		for s := bufio.NewScanner(stderr); s.Scan(); {
			fmt.Fprintln(c.said, s.Text())
			if strings.HasPrefix(s.Text(), "File: ") { // printed when the capture has begun
				ready <- true
			}
		}
		close(ready)
	}()
	t.Cleanup(func() { _ = c.stop() })
	if !<-ready {
		return nil, fmt.Errorf("dumpcap: %w\n%s", c.cmd.Wait(), c.said)
	}
	return c, nil
}

// stop ends the capture when its packets are in the file. The kernel delivers them 250 ms late;
// packets still undelivered at the end are lost.
func (c *capture) stop() error {
	if c.cmd.ProcessState != nil {
		return nil
	}
	for size := int64(-1); ; time.Sleep(time.Second) {
		info, err := os.Stat(c.file)
		if err == nil && info.Size() == size {
			break
		} else if err == nil {
			size = info.Size()
		}
	}
	if err := c.cmd.Process.Signal(syscall.SIGINT); err != nil {
		return err
	}
	<-c.done
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("dumpcap: %w\n%s", err, c.said)
	}
	if m := dumpcapSummary.FindStringSubmatch(c.said.String()); m == nil || m[1] == "0" || m[2] != "0" {
		return fmt.Errorf("dumpcap lost packets:\n%s", c.said)
	}
	return nil
}

// knownComplaints are tshark's complaints about two Linux kernels, see the file.
//
//go:embed testdata/complaints.txt
var knownComplaints string

// seen are required in a capture: a field of tshark's and its value ("" is any).
var seen = []struct{ what, field, value string }{
	{"MPA requests", "iwarp_mpa.key.req", ""},
	{"MPA replies", "iwarp_mpa.key.rep", ""},
	{"RDMA Writes", "iwarp_rdma.opcode", "0x00"},
	{"RDMA Read Requests", "iwarp_rdma.opcode", "0x01"},
	{"RDMA Read Responses", "iwarp_rdma.opcode", "0x02"},
	{"Sends", "iwarp_rdma.opcode", "0x03"},
	{"Sends with Invalidate", "iwarp_rdma.opcode", "0x04"},
	{"RDMA_MSG", "rpcordma.msg_type", "0"},
	{"RDMA_NOMSG", "rpcordma.msg_type", "1"},
	{"Read lists", "rpcordma.reads_count", "1"},
	{"Write lists", "rpcordma.writes_count", "1"},
	{"Reply chunks", "rpcordma.reply_count", "1"},
}

// operations are required too, by the version of NFS: the field, and GETATTR, READ, WRITE and
// READDIR (READDIRPLUS in version 3).
var operations = map[string][5]string{
	"3":   {"nfs.procedure_v3", "1", "6", "7", "17"},
	"4.1": {"nfs.opcode", "9", "25", "38", "26"},
	"4.2": {"nfs.opcode", "9", "25", "38", "26"},
}

// dissect has tshark read a capture of a version of NFS. Every entry of seen is found except those
// in expected, every CRC is right, and only known kinds of complaints appear.
func dissect(t *testing.T, file, version string, expected map[string]bool) {
	seen := slices.Clone(seen)
	o := operations[version]
	for i, name := range []string{"GETATTRs", "READs", "WRITEs", "READDIRs"} {
		seen = append(seen, struct{ what, field, value string }{name, o[0], o[i+1]})
	}
	found := func(what string, n int) {
		t.Logf("%6d %s", n, what)
		if want, said := expected[what]; (want || !said) != (n > 0) {
			t.Errorf("tshark finds %d %s; expected any: %v", n, what, want || !said)
		}
	}
	fields := []string{"_ws.malformed", "rpcordma.writes_count"}
	for _, s := range seen {
		if !slices.Contains(fields, s.field) {
			fields = append(fields, s.field)
		}
	}
	count := map[string]map[string]int{} // by field and value
	args := []string{"-T", "fields", "-E", "occurrence=a", "-E", "aggregator=;"}
	for _, f := range fields {
		count[f] = map[string]int{}
		args = append(args, "-e", f)
	}
	for _, line := range tshark(t, file, args...) {
		columns := strings.Split(line, "\t")
		for i, column := range columns {
			for value := range strings.SplitSeq(column, ";") {
				if value != "" {
					count[fields[i]][value]++
					count[fields[i]][""]++
				}
			}
		}
		// Only tshark's reassembly of a reply with data in a Write chunk may look malformed.
		if columns[0] != "" && !strings.HasPrefix(columns[1], "1") {
			t.Errorf("tshark finds a frame malformed that has no Write chunk: %q", line)
		}
	}
	for _, s := range seen {
		found(s.what, count[s.field][s.value])
	}
	kinds := complaints(tshark(t, file, "-q", "-z", "expert"))
	if len(kinds) == 0 {
		t.Error("tshark has nothing to complain of, but it does not know the MPA frames of RFC 6581: has the form of its table changed?")
	}
	for kind, times := range kinds {
		t.Logf("%6d complaints: %s", times, kind)
		if !slices.Contains(strings.Split(knownComplaints, "\n"), kind) {
			t.Errorf("tshark complains of a kind that it does not about two Linux kernels: %s", kind)
		}
	}
	good := 0
	for _, line := range tshark(t, file, "-O", "iwarp_mpa", "-Y", "iwarp_mpa.fpdu") {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "CRC check:") {
			continue
		}
		if good++; !strings.HasSuffix(line, "(Good CRC32)") {
			t.Errorf("tshark finds a wrong CRC: %s", line)
		}
	}
	found("CRC", good)
	if t.Failed() { // a capture that lacks segments explains much
		for _, line := range tshark(t, file, "-Y", "tcp.analysis.flags || _ws.malformed") {
			t.Log(line)
		}
	}
}

// complaints counts the kinds in tshark's table of expert information, leaving out TCP's, which is
// not ours.
func complaints(table []string) map[string]int {
	kinds := map[string]int{}
	severity := ""
	for _, line := range table {
		words := strings.Fields(line)
		if len(words) == 2 && strings.HasPrefix(words[1], "(") {
			severity = words[0]
		}
		var times int
		if len(words) < 4 {
			continue
		}
		if _, err := fmt.Sscan(words[0], &times); err == nil && words[2] != "TCP" {
			kinds[strings.Join(append([]string{severity}, words[1:]...), " ")] += times
		}
	}
	return kinds
}

func tshark(t *testing.T, file string, args ...string) []string {
	t.Helper()
	// The loopback interface reorders the segments of a sender that moves to another processor.
	options := []string{"-n", "-o", "tcp.reassemble_out_of_order:TRUE", "-r", file}
	cmd := exec.Command(needTool(t, "tshark"), append(options, args...)...)
	cmd.Env = append(os.Environ(), "HOME="+t.TempDir()) // no preferences
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("tshark %q: %v\n%s", args, err, stderr.Bytes())
	}
	return strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
}
