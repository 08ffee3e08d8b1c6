package main

import (
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// measured is one measurement of one side, as its client printed it in JSON: `sluicectl bench
// --json` or the floor's client.
type measured struct {
	Rate     float64   `json:"ops_per_s"`
	P50      float64   `json:"p50_us"`
	P99      float64   `json:"p99_us"`
	Ops      float64   `json:"ops"`
	Allocs   float64   `json:"allocs_per_op"`
	Syscalls float64   `json:"syscalls_per_op"`
	Messages float64   `json:"messages_per_op"`
	RDMAOps  float64   `json:"rdma_ops_per_op"`
	Client   float64   `json:"client_cpu_s"`
	CPU      []float64 `json:"cpu_s"` // of the requested processes
}

// perCall converts seconds of CPU time to microseconds per call.
func (m *measured) perCall(seconds float64) float64 { return seconds / max(m.Ops, 1) * 1e6 }

// p99 is the unit of rows about the slowest hundredth of calls, in microseconds.
const p99 = "us p99"

// figure returns the table's figure: the median latency or the 99th percentile, calls per second or
// megabytes per second.
func (m *measured) figure(unit string, size int) float64 {
	switch unit {
	case "us":
		return m.P50
	case p99:
		return m.P99
	case "MB/s":
		return m.Rate * float64(size) / 1e6
	default:
		return m.Rate
	}
}

// floorRun runs the floor's client in a process of its own, like every other client here.
func (s *sides) floorRun(ctx context.Context, r floorRequest, depth int) (*measured, error) {
	blocks := uint32(1)
	if r.size > 0 {
		blocks = uint32(s.o.fileSize / int64(r.size))
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var h [floorHeader]byte
	r.put(h[:])
	return runClient(ctx, self, "-role", "floor-client", "-serve", s.floor, "-floor", hex.EncodeToString(h[:]), "-depth", strconv.Itoa(depth),
		"-blocks", strconv.Itoa(int(blocks)), "-d", s.o.duration.String())
}

// rdma measures a gateway, and the CPU time of the processes in pids.
func (s *sides) rdma(ctx context.Context, g *gateway, op operation, depth int, crc bool, inlineKiB int, pids ...int) (*measured, error) {
	onoff := "off"
	if crc {
		onoff = "on"
	}
	return s.sluicectl(ctx, op, depth, pids, g.url(crc, op.spin), "--rpc-version", "1", "--crc", onoff, "--inline", strconv.Itoa(inlineKiB<<10))
}

// tcp measures a server: Ganesha itself or the relay to it.
func (s *sides) tcp(ctx context.Context, server string, op operation, depth int, pids ...int) (*measured, error) {
	return s.sluicectl(ctx, op, depth, pids, "nfs+tcp://"+server)
}

func (s *sides) sluicectl(ctx context.Context, op operation, depth int, pids []int, url string, flags ...string) (*measured, error) {
	args := append([]string{"bench", url, "--nfs", cmp.Or(op.nfs, "3"), "--json", "--op", op.op, "--depth", strconv.Itoa(depth), "--duration", s.o.duration.String(),
		"--warmup", "50ms", "--file-size", strconv.FormatInt(s.o.fileSize, 10)}, flags...)
	if op.spin {
		args = append(args, "--spin", spin)
	}
	if op.size > 0 {
		args = append(args, "--size", strconv.Itoa(op.size))
	}
	for _, p := range pids {
		args = append(args, "--cpu-of", strconv.Itoa(p))
	}
	return runClient(ctx, filepath.Join(s.o.bin, "sluicectl"), args...)
}

// runClient runs a client, which prints a measurement as JSON.
func runClient(ctx context.Context, name string, args ...string) (*measured, error) {
	c := exec.CommandContext(ctx, name, args...)
	var stderr strings.Builder
	c.Stderr = &stderr
	out, err := c.Output()
	m := new(measured)
	if err == nil {
		err = json.Unmarshal(out, m)
	}
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return m, nil
}
