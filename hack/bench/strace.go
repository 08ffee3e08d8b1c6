package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// syscallRow has all system calls of the servers for one call, as strace counts them: a line of the
// table and an entry of bench.json. strace slows a server down, so batches may be longer, and there
// may be fewer reads, writes and wake-ups than without it.
type syscallRow struct {
	Op      string             `json:"op"`
	Depth   int                `json:"depth"`
	Gateway map[string]float64 `json:"gateway"`
	Ganesha map[string]float64 `json:"ganesha"`
}

// tracedCalls is the number of NFS calls that are traced.
const tracedCalls = 4000

// syscalls counts the system calls of operations at depth 16, and prints the most frequent ones.
func (s *sides) syscalls(ctx context.Context, ops []operation, res *results) error {
	fmt.Printf("\nSystem calls of the server for each call at depth 16, by strace.\n\n")
	for _, op := range ops {
		if op.spin {
			continue
		}
		r := &syscallRow{Op: "system calls " + op.name, Depth: 16}
		for _, side := range []struct {
			name  string
			pid   int
			url   string
			calls *map[string]float64
		}{
			{"gateway", s.volume.pid, s.volume.url(true, false), &r.Gateway},
			{"ganesha", s.ganeshaPID, "nfs+tcp://" + s.ganesha, &r.Ganesha},
		} {
			calls, err := s.strace(ctx, side.pid, func() error {
				_, err := s.sluicectl(ctx, op, r.Depth, nil, side.url, "--rpc-version", "1", "--warmup", "0s", "--count", strconv.Itoa(tracedCalls))
				return err
			})
			if err != nil {
				return fmt.Errorf("system calls of %s, %s: %w", op.name, side.name, err)
			}
			*side.calls = calls
			fmt.Printf("%-18s %-8s %s\n", op.name, side.name, mostFrequent(calls))
		}
		if err := res.add(r); err != nil {
			return err
		}
	}
	return nil
}

// strace counts the system calls of a process while run makes tracedCalls NFS calls, for each of
// these.
func (s *sides) strace(ctx context.Context, pid int, run func() error) (map[string]float64, error) {
	summary := filepath.Join(s.dir, "strace")
	c := exec.CommandContext(ctx, "strace", "-f", "-c", "-U", "calls,name", "-o", summary, "-p", strconv.Itoa(pid))
	c.WaitDelay = stopWithin
	messages, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		return nil, err
	}
	lines := bufio.NewScanner(messages)
	if !lines.Scan() || !strings.Contains(lines.Text(), "attached") {
		_ = c.Process.Kill()
		return nil, errors.Join(fmt.Errorf("strace: %s", lines.Text()), c.Wait())
	}
	go func() {
		for lines.Scan() {
		}
		_, _ = io.Copy(io.Discard, messages)
	}()
	time.Sleep(50 * time.Millisecond) // for the rest of the threads
	err = run()
	_ = c.Process.Signal(os.Interrupt)
	_ = c.Wait() // the signal is its exit status
	if err != nil {
		return nil, err
	}
	b, err := os.ReadFile(summary)
	if err != nil {
		return nil, err
	}
	return parseSummary(b, tracedCalls)
}

// parseSummary reads a table of calls and names, and divides the calls by n.
func parseSummary(b []byte, n float64) (map[string]float64, error) {
	calls := map[string]float64{}
	for line := range bytes.Lines(b) {
		f := strings.Fields(string(line))
		if len(f) != 2 || f[1] == "total" {
			continue
		}
		if k, err := strconv.ParseFloat(f[0], 64); err == nil {
			calls[f[1]] += k / n
		}
	}
	if len(calls) == 0 {
		return nil, fmt.Errorf("strace counted no system call: %q", b)
	}
	return calls, nil
}

// mostFrequent lists the sum and the calls that are at least 1 % of the NFS calls.
func mostFrequent(calls map[string]float64) string {
	names := slices.SortedFunc(maps.Keys(calls), func(a, b string) int {
		if calls[a] != calls[b] {
			return int((calls[b] - calls[a]) * 1e6)
		}
		return strings.Compare(a, b)
	})
	sum, out := 0.0, ""
	for _, name := range names {
		if sum += calls[name]; calls[name] >= 0.01 {
			out += fmt.Sprintf(", %s %.2f", name, calls[name])
		}
	}
	return fmt.Sprintf("%.2f%s", sum, out)
}
