package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// counters prints what does not depend on the machine: what one RPC costs at depth 16, at both ends.
func (s *sides) counters(ctx context.Context) error {
	fmt.Printf("\nPer RPC at depth 16, CRC on. Client: as sluicectl counts. Gateway: from its metrics, over the same calls.\n\n")
	fmt.Printf("%-12s | %8s %8s %8s %8s | %8s %8s %8s %8s %8s\n", "", "client", "", "", "", "gateway", "", "", "", "")
	fmt.Printf("%-12s | %8s %8s %8s %8s | %8s %8s %8s %8s %8s\n", "",
		"allocs", "syscalls", "messages", "rdma ops", "allocs", "syscalls", "messages", "rdma ops", "copied B")
	one := *s
	one.o.duration = max(one.o.duration, 2*time.Second) // so that what a connection costs once does not count
	for _, op := range operations {
		before, err := s.scrape(ctx)
		if err != nil {
			return err
		}
		m := one.rdma(ctx, op, 16, true, 4)
		if m.err != nil {
			return m.err
		}
		time.Sleep(50 * time.Millisecond) // a connection's figures are added up when it has ended
		after, err := s.scrape(ctx)
		if err != nil {
			return err
		}
		rpcs := after["sluice_rpcs_total"] - before["sluice_rpcs_total"]
		per := func(name string) float64 { return (after[name] - before[name]) / rpcs }
		fmt.Printf("%-12s | %8.3f %8.3f %8.2f %8.2f | %8.3f %8.3f %8.2f %8.2f %8.1f\n", op.name,
			m.Allocs, m.Syscalls, m.Messages, m.RDMAOps,
			per("sluice_runtime_allocations_total"), per("sluice_transport_syscalls_total"), per("sluice_transport_messages_total"),
			per("sluice_rdma_operations_total.write")+per("sluice_rdma_operations_total.read"), per("sluice_rdma_copied_bytes_total"))
	}
	return nil
}

// scrape reads the gateway's metrics, adding up all labels; RDMA operations are also kept by kind.
func (s *sides) scrape(ctx context.Context) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.admin+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	sums := map[string]float64{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
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
	return sums, nil
}

// sweep prints how the inline threshold changes small transfers. Each threshold has a gateway of its own.
func (s *sides) sweep(ctx context.Context) error {
	sizes := []int{1 << 10, 4 << 10, 16 << 10, 60 << 10}
	fmt.Printf("\nInline threshold, both ways: operations per second at depth 16 and median latency in µs at depth 1, CRC on.\n\n%-9s", "threshold")
	for _, n := range sizes {
		fmt.Printf(" | %12s %7s %12s %7s", fmt.Sprintf("READ %dKiB", n>>10), "", fmt.Sprintf("WRITE %dKiB", n>>10), "")
	}
	fmt.Println()
	export := filepath.Join(s.dir, "sweep") // one directory is served by one gateway
	if err := os.Mkdir(export, 0o755); err != nil {
		return err
	}
	for _, kib := range []int{1, 2, 4, 8, 16, 32, 64} {
		var stops []func()
		one := &sides{o: s.o, dir: s.dir, gateway: map[bool]string{}}
		if err := one.startGateway(ctx, export, kib, &stops); err != nil {
			return err
		}
		fmt.Printf("%6d KiB", kib)
		for _, n := range sizes {
			for _, kind := range []string{"read", "write"} {
				deep := one.rdma(ctx, operation{op: kind, size: n}, 16, true, kib)
				lone := one.rdma(ctx, operation{op: kind, size: n}, 1, true, kib)
				if deep.err != nil || lone.err != nil {
					return fmt.Errorf("threshold %d KiB: %v %v", kib, deep.err, lone.err)
				}
				sep := " "
				if kind == "read" {
					sep = " | "
				}
				fmt.Printf("%s%12.0f %7.0f", sep, deep.Rate, lone.P50)
			}
		}
		fmt.Println()
		for _, f := range stops {
			f()
		}
	}
	return nil
}
