// Command demo shows the gateway at work on one machine: it exports a scratch directory on
// loopback, copies a file by cp, dd, RPC-over-RDMA and TCP, compares checksums, and prints times
// and the counters of the wire.
package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const (
	files  = 1000 // in the listed directory
	rounds = 3    // of each step; the best counts
)

func main() {
	bin := flag.String("bin", "bin", "directory of gateway and sluicectl")
	mib := flag.Int64("mib", 256, "MiB to move each way")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, *bin, *mib<<20)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

// demo is a scratch directory, the gateway that exports it, and its addresses.
type demo struct {
	ctl              string
	scratch          string
	rdma, tcp, admin string
}

func run(ctx context.Context, bin string, size int64) (err error) {
	scratch, err := os.MkdirTemp("", "sluice-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	d := &demo{ctl: filepath.Join(bin, "sluicectl"), scratch: scratch}
	export := filepath.Join(scratch, "export")
	if err := d.prepare(export); err != nil {
		return err
	}
	stop, err := d.serve(ctx, filepath.Join(bin, "gateway"), export)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()

	fmt.Printf("A directory is exported on loopback: RPC-over-RDMA (iWARP in user space) on %s, TCP on %s.\n\n$ sluicectl ping nfs+rdma://%s/\n", d.rdma, d.tcp, d.rdma)
	if err := d.sluicectl(ctx, os.Stdout, "ping", "nfs+rdma://"+d.rdma+"/"); err != nil {
		return err
	}
	moves, err := d.move(ctx, export, size)
	if err != nil {
		return err
	}
	if err := d.report(ctx, moves); err != nil {
		return err
	}
	fmt.Printf(`
The same from a Linux client, with its kernel's own NFS over RDMA (as root, on a kernel that has the siw driver):

  modprobe siw && rdma link add siw0 type siw netdev eth0
  mount -t nfs -o vers=4.2,proto=rdma,port=20049 HOST:/ /mnt

for a gateway that was started with --rdma :20049 --tcp :2049 --allow NETWORK.
`)
	return nil
}

// prepare makes the exported directory, with many files to list.
func (d *demo) prepare(export string) error {
	many := filepath.Join(export, "many")
	if err := os.MkdirAll(many, 0o755); err != nil {
		return err
	}
	for i := range files {
		if err := os.WriteFile(filepath.Join(many, fmt.Sprintf("file-%04d", i)), nil, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// serve starts the gateway and waits until it is ready. stop ends it.
func (d *demo) serve(ctx context.Context, gateway, export string) (stop func() error, err error) {
	for _, a := range []*string{&d.rdma, &d.tcp, &d.admin} {
		if *a, err = freeAddress(); err != nil {
			return nil, err
		}
	}
	log := filepath.Join(d.scratch, "log")
	w, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer w.Close()
	c := exec.Command(gateway, "--volume", export, "--rdma", d.rdma, "--tcp", d.tcp, "--admin", d.admin, "--state-dir", filepath.Join(d.scratch, "state"))
	c.Stdout, c.Stderr = w, w
	if err := c.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		_ = c.Process.Signal(os.Interrupt)
		if err := c.Wait(); err != nil {
			return fmt.Errorf("the gateway did not end well: %w", err)
		}
		return nil
	}
	for range 100 {
		if resp, err := http.Get("http://" + d.admin + "/readyz"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return stop, nil
			}
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), stop())
		case <-time.After(50 * time.Millisecond):
		}
	}
	text, _ := os.ReadFile(log)
	return nil, errors.Join(fmt.Errorf("the gateway is not ready after 5 s:\n%s", text), stop())
}

// transfer is one line of the report.
type transfer struct {
	name   string
	bytes  int64
	took   time.Duration
	commit time.Duration // the part for COMMIT
}

// step is a command to measure.
type step struct {
	name  string
	bytes int64
	args  []string
}

func (x step) String() string {
	return strings.Join(append([]string{filepath.Base(x.args[0])}, x.args[1:]...), " ")
}

// move copies a file on the disk itself, to the server and back by RDMA and by TCP, compares the
// checksums of all copies, and lists the large directory.
func (d *demo) move(ctx context.Context, export string, size int64) ([]transfer, error) {
	sent := filepath.Join(d.scratch, "sent")
	want, err := randomFile(sent, size)
	if err != nil {
		return nil, err
	}
	rdma, tcp, ctl := "nfs+rdma://"+d.rdma, "nfs+tcp://"+d.tcp, d.ctl
	in := func(name string) string { return filepath.Join(d.scratch, name) }
	at := func(name string) string { return filepath.Join(export, name) }
	fmt.Printf("\nEach command runs %d times, after a sync of the disk. The fastest counts.\n\n", rounds)
	var moves []transfer
	for _, x := range []step{
		{"cp, into the page cache", size, []string{"cp", sent, at("cp")}},
		{"dd conv=fsync, to the disk", size, []string{"dd", "if=" + sent, "of=" + at("dd"), "bs=1M", "conv=fsync", "status=none"}},
		{"put by RPC-over-RDMA", size, []string{ctl, "put", sent, rdma + "/data"}},
		{"put by TCP", size, []string{ctl, "put", sent, tcp + "/data-tcp"}},
		{"get by RPC-over-RDMA", size, []string{ctl, "get", rdma + "/data", in("back")}},
		{"get by TCP", size, []string{ctl, "get", tcp + "/data", in("back-tcp")}},
		{fmt.Sprintf("list %d files", files), 0, []string{ctl, "ls", rdma + "/many"}},
	} {
		fmt.Println("$", x)
		var best transfer
		for range rounds {
			t, err := d.measure(ctx, x)
			if err != nil {
				return nil, err
			}
			if best.took == 0 || t.took < best.took {
				best = t
			}
		}
		moves = append(moves, best)
	}
	copies := []string{at("cp"), at("dd"), at("data"), at("data-tcp"), in("back"), in("back-tcp")}
	for _, file := range copies {
		got, err := checksum(file)
		if err != nil {
			return nil, err
		}
		if got != want {
			return nil, fmt.Errorf("%s has the checksum %x, want %x", file, got, want)
		}
	}
	fmt.Printf("\nsha256 of the file and of its %d copies: %x\n", len(copies), want[:8])
	return moves, nil
}

// commitTime finds the time for COMMIT in the last line of put.
var commitTime = regexp.MustCompile(`, of it (\S+) for COMMIT, `)

// measure runs a command. The disk has nothing to write before.
func (d *demo) measure(ctx context.Context, x step) (transfer, error) {
	unix.Sync()
	c := exec.CommandContext(ctx, x.args[0], x.args[1:]...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, io.MultiWriter(os.Stderr, &errs)
	begin := time.Now()
	err := c.Run()
	t := transfer{name: x.name, bytes: x.bytes, took: time.Since(begin)}
	if err != nil {
		return t, fmt.Errorf("%s: %w", x, err)
	}
	if m := commitTime.FindSubmatch(errs.Bytes()); m != nil {
		if t.commit, err = time.ParseDuration(string(m[1])); err != nil {
			return t, err
		}
	}
	if n := bytes.Count(out.Bytes(), []byte("\n")); x.bytes == 0 && n != files {
		return t, fmt.Errorf("ls shows %d names, there are %d files", n, files)
	}
	return t, nil
}

// report prints the gateway's counters.
func (d *demo) report(ctx context.Context, moves []transfer) error {
	m, err := d.metrics(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\n%-34s %12s %12s %12s\n", "fastest run", "time", "of it COMMIT", "rate")
	took := map[string]time.Duration{}
	for _, t := range moves {
		rate, commit := "", ""
		if t.bytes > 0 {
			rate = fmt.Sprintf("%.0f MiB/s", float64(t.bytes)/(1<<20)/t.took.Seconds())
		}
		if t.commit > 0 {
			commit = t.commit.String()
		}
		took[t.name] = t.took
		fmt.Printf("%-34s %12s %12s %12s\n", t.name, t.took.Round(time.Millisecond), commit, rate)
	}
	fmt.Printf(`
A put ends when all is on the disk, as dd does with conv=fsync; cp leaves the data in memory. RDMA
is software here: iWARP on top of TCP, with framing and a checksum of all data. A put by it
took %.1f times as long as by TCP, a get %.1f times. An RDMA adapter does that work itself.
`, ratio(took, "put"), ratio(took, "get"))
	fmt.Printf("\n%-34s %12s %12s\n", "traffic, all rounds", "operations", "bytes")
	line := func(what, operations, path string) {
		fmt.Printf("%-34s %12s %12s\n", what, operations, number(path, m))
	}
	line("messages from the client, inline", number("transport_messages_total/in", m), "bytes_total/in/inline")
	line("messages to the client, inline", number("transport_messages_total/out", m), "bytes_total/out/inline")
	line("Read chunks (WRITE data)", number("rdma_operations_total/read", m)+" Reads", "bytes_total/in/read_chunk")
	line("Write chunks (READ data)", number("rdma_operations_total/write", m)+" Writes", "bytes_total/out/write_chunk")
	line("Reply chunks (the long listing)", "", "bytes_total/out/reply_chunk")
	return nil
}

// ratio compares the times by RDMA and by TCP.
func ratio(took map[string]time.Duration, verb string) float64 {
	return took[verb+" by RPC-over-RDMA"].Seconds() / took[verb+" by TCP"].Seconds()
}

func number(name string, m map[string]float64) string {
	return strconv.FormatFloat(m[name], 'f', 0, 64)
}

// metrics reads the gateway's figures for RDMA, keyed by name and the values of the labels
// direction, operation and path.
func (d *demo) metrics(ctx context.Context) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	m := map[string]float64{}
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		series, value, ok := strings.Cut(lines.Text(), " ")
		name, labels, labelled := strings.Cut(strings.TrimPrefix(series, "sluice_"), "{")
		if !ok || !labelled || strings.Contains(labels, `network="tcp"`) {
			continue
		}
		for _, l := range []string{"direction", "operation", "path"} {
			if _, rest, ok := strings.Cut(labels, l+`="`); ok {
				v, _, _ := strings.Cut(rest, `"`)
				name += "/" + v
			}
		}
		if m[name], err = strconv.ParseFloat(value, 64); err != nil {
			return nil, err
		}
	}
	return m, lines.Err()
}

func (d *demo) sluicectl(ctx context.Context, out io.Writer, args ...string) error {
	c := exec.CommandContext(ctx, d.ctl, args...)
	c.Stdout, c.Stderr = out, os.Stderr
	if err := c.Run(); err != nil {
		return fmt.Errorf("sluicectl %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// randomFile writes size random bytes and returns their checksum.
func randomFile(name string, size int64) (sum [sha256.Size]byte, err error) {
	f, err := os.Create(name)
	if err != nil {
		return sum, err
	}
	h := sha256.New()
	var seed [32]byte
	copy(seed[:], name)
	_, err = io.CopyN(io.MultiWriter(f, h), rand.NewChaCha8(seed), size)
	return [sha256.Size]byte(h.Sum(nil)), errors.Join(err, f.Close())
}

func checksum(name string) (sum [sha256.Size]byte, err error) {
	f, err := os.Open(name)
	if err != nil {
		return sum, err
	}
	defer f.Close()
	h := sha256.New()
	_, err = io.Copy(h, f)
	return [sha256.Size]byte(h.Sum(nil)), err
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
