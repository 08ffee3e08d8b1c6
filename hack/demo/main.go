// Command demo shows the gateway at work on one machine: it exports a scratch directory on
// loopback, copies files through RPC-over-RDMA in both directions, compares checksums, and prints
// the counters of the wire.
package main

import (
	"bufio"
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
	"strconv"
	"strings"
	"time"
)

const files = 1000 // in the listed directory

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
	what  string
	bytes int64
	took  time.Duration
}

// move copies a file to the server and back, compares the checksums of all three, and lists the
// large directory.
func (d *demo) move(ctx context.Context, export string, size int64) ([]transfer, error) {
	sent := filepath.Join(d.scratch, "sent")
	want, err := randomFile(sent, size)
	if err != nil {
		return nil, err
	}
	url := "nfs+rdma://" + d.rdma
	back := filepath.Join(d.scratch, "back")
	fmt.Println()
	var moves []transfer
	for _, step := range []struct {
		what  string
		bytes int64
		args  []string
	}{
		{"WRITE, by RDMA Read", size, []string{"put", sent, url + "/data"}},
		{"READ, by RDMA Write", size, []string{"get", url + "/data", back}},
		{fmt.Sprintf("list %d files", files), 0, []string{"ls", url + "/many"}},
	} {
		fmt.Println("$ sluicectl", strings.Join(step.args, " "))
		begin := time.Now()
		out := io.Writer(os.Stdout)
		lines := &lineCounter{}
		if step.bytes == 0 {
			out = lines
		}
		if err := d.sluicectl(ctx, out, step.args...); err != nil {
			return nil, err
		}
		moves = append(moves, transfer{step.what, step.bytes, time.Since(begin)})
		if step.bytes == 0 && lines.n != files {
			return nil, fmt.Errorf("ls shows %d names, there are %d files", lines.n, files)
		}
	}
	for _, file := range []string{filepath.Join(export, "data"), back} {
		got, err := checksum(file)
		if err != nil {
			return nil, err
		}
		if got != want {
			return nil, fmt.Errorf("%s has the checksum %x, want %x", file, got, want)
		}
	}
	fmt.Printf("\nsha256 of the data sent, of the file in the directory, and of the data read back: %x, three times\n", want[:8])
	return moves, nil
}

// report prints the gateway's counters.
func (d *demo) report(ctx context.Context, moves []transfer) error {
	m, err := d.metrics(ctx)
	if err != nil {
		return err
	}
	fmt.Printf("\n%-34s %12s %12s\n", "", "time", "rate")
	for _, t := range moves {
		rate := ""
		if t.bytes > 0 {
			rate = fmt.Sprintf("%.0f MB/s", float64(t.bytes)/1e6/t.took.Seconds())
		}
		fmt.Printf("%-34s %12s %12s\n", t.what, t.took.Round(time.Millisecond), rate)
	}
	fmt.Printf("\n%-34s %12s %12s\n", "traffic", "operations", "bytes")
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

type lineCounter struct{ n int }

func (l *lineCounter) Write(p []byte) (int, error) {
	l.n += strings.Count(string(p), "\n")
	return len(p), nil
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
