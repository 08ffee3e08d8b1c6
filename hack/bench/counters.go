package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
)

// counterRow is the cost of one RPC at both ends, in counts, which do not depend on the machine: a
// line of the table and an entry of bench.json. Client is counted by sluicectl. Gateway comes from
// the gateway's metrics and covers the side of its clients, but for allocations: those are the
// whole process's, from its heap profile.
type counterRow struct {
	Op      string       `json:"op"`
	Depth   int          `json:"depth"`
	CRC     bool         `json:"crc"`
	Client  countsPerRPC `json:"client"`
	Gateway countsPerRPC `json:"gateway"`
	Copied  float64      `json:"gateway_copied_bytes"` // of payload, on its way in
}

type countsPerRPC struct {
	Allocs   float64 `json:"allocs"`
	Syscalls float64 `json:"syscalls"`
	Messages float64 `json:"messages"`
	RDMAOps  float64 `json:"rdma_ops"`
}

// The gateway's cost is the difference between a long run and a short one, which cancels the cost
// of connecting and of reading the metrics. Another short run goes first, for the gateway's initial
// costs.
const (
	shortCount = 500 * time.Millisecond
	longCount  = 2 * time.Second
)

// counters measures RPCs at depth 16, on both gateways.
func (s *sides) counters(ctx context.Context, volume, proxy []operation, res *results) error {
	fmt.Printf("\nPer RPC at depth 16, CRC on. Client: as sluicectl counts. Gateway: from its metrics, towards its clients; allocations are all of the process'.\n\n")
	fmt.Printf("%-18s | %8s %8s %8s %8s | %8s %8s %8s %8s %8s\n", "", "client", "", "", "", "gateway", "", "", "", "")
	fmt.Printf("%-18s | %8s %8s %8s %8s | %8s %8s %8s %8s %8s\n", "",
		"allocs", "syscalls", "messages", "rdma ops", "allocs", "syscalls", "messages", "rdma ops", "copied B")
	for _, part := range []struct {
		g   *gateway
		ops []operation
	}{{s.volume, volume}, {s.proxy, proxy}} {
		for _, op := range part.ops {
			r, err := s.count(ctx, part.g, op)
			if err != nil {
				return fmt.Errorf("counters of %s: %w", op.name, err)
			}
			fmt.Printf("%-18s | %8.3f %8.3f %8.2f %8.2f | %8.3f %8.3f %8.2f %8.2f %8.1f\n", op.name,
				r.Client.Allocs, r.Client.Syscalls, r.Client.Messages, r.Client.RDMAOps,
				r.Gateway.Allocs, r.Gateway.Syscalls, r.Gateway.Messages, r.Gateway.RDMAOps, r.Copied)
			if err := res.add(r); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *sides) count(ctx context.Context, g *gateway, op operation) (*counterRow, error) {
	r := &counterRow{Op: "counters " + op.name, Depth: 16, CRC: true}
	one := *s
	var allocs float64
	more := map[string]float64{} // long run less short run, like allocs
	for _, run := range []struct {
		d    time.Duration
		sign float64
	}{{shortCount, 0}, {shortCount, -1}, {longCount, 1}} {
		one.o.duration = run.d
		before, err := g.scrape(ctx)
		if err != nil {
			return nil, err
		}
		allocated, err := g.mallocs(ctx)
		if err != nil {
			return nil, err
		}
		m, err := one.rdma(ctx, g, op, r.Depth, r.CRC, plainInline)
		if err != nil {
			return nil, err
		}
		r.Client = countsPerRPC{m.Allocs, m.Syscalls, m.Messages, m.RDMAOps}
		time.Sleep(50 * time.Millisecond) // a connection's figures are added up when it has ended
		now, err := g.mallocs(ctx)
		if err != nil {
			return nil, err
		}
		after, err := g.scrape(ctx)
		if err != nil {
			return nil, err
		}
		allocs += run.sign * (now - allocated)
		for name, v := range after {
			more[name] += run.sign * (v - before[name])
		}
	}
	rpcs := more["sluice_rpcs_total"]
	if rpcs <= 0 {
		return nil, fmt.Errorf("the gateway counted %.0f calls more in %v than in %v", rpcs, longCount, shortCount)
	}
	r.Gateway = countsPerRPC{
		Allocs:   allocs / rpcs,
		Syscalls: more["sluice_transport_syscalls_total"] / rpcs,
		Messages: more["sluice_transport_messages_total"] / rpcs,
		RDMAOps:  (more["sluice_rdma_operations_total.write"] + more["sluice_rdma_operations_total.read"]) / rpcs,
	}
	r.Copied = more["sluice_rdma_copied_bytes_total"] / rpcs
	return r, nil
}

// mallocs returns the number of objects that the gateway has allocated so far, from its heap
// profile. The metric of the same meaning lags by the contents of the Go runtime's caches.
func (g *gateway) mallocs(ctx context.Context) (float64, error) {
	body, err := g.get(ctx, "/debug/pprof/heap?debug=1")
	if err != nil {
		return 0, err
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		return 0, err
	}
	_, n, ok := strings.Cut(string(text), "\n# Mallocs = ")
	if !ok {
		return 0, errors.New("the heap profile has no Mallocs")
	}
	n, _, _ = strings.Cut(n, "\n")
	return strconv.ParseFloat(n, 64)
}

// scrape reads the gateway's metrics, adding up all labels. RDMA operations are also kept by kind.
func (g *gateway) scrape(ctx context.Context) (map[string]float64, error) {
	body, err := g.get(ctx, "/metrics")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	sums := map[string]float64{}
	lines := bufio.NewScanner(body)
	for lines.Scan() {
		name, rest, ok := strings.Cut(lines.Text(), " ")
		if strings.HasPrefix(name, "#") || !ok {
			continue
		}
		v, err := strconv.ParseFloat(rest, 64)
		if err != nil {
			continue
		}
		base, labels, _ := strings.Cut(name, "{")
		sums[base] += v
		if _, kind, ok := strings.Cut(labels, `operation="`); ok {
			kind, _, _ = strings.Cut(kind, `"`)
			sums[base+"."+kind] += v
		}
	}
	return sums, lines.Err()
}
