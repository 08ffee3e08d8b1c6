package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

var sweepSizes = []int{1 << 10, 4 << 10, 16 << 10, 60 << 10}

// sweep prints small transfers by inline threshold.
func (s *sides) sweep(ctx context.Context) error {
	fmt.Printf("\nInline threshold, both ways: operations per second at depth 16 and median latency in µs at depth 1, CRC on.\n\n%-9s", "threshold")
	for _, n := range sweepSizes {
		fmt.Printf(" | %12s %7s %12s %7s", fmt.Sprintf("READ %dKiB", n>>10), "", fmt.Sprintf("WRITE %dKiB", n>>10), "")
	}
	fmt.Println()
	for _, kib := range []int{1, 2, 4, 8, 16, 32, 64} {
		fmt.Printf("%6d KiB", kib)
		if err := s.sweepOne(ctx, kib); err != nil {
			return fmt.Errorf("threshold %d KiB: %w", kib, err)
		}
		fmt.Println()
	}
	return nil
}

// sweepOne measures one threshold, with a gateway and a directory that it removes afterwards.
func (s *sides) sweepOne(ctx context.Context, kib int) error {
	name := fmt.Sprintf("sweep-%d", kib)
	dir := filepath.Join(s.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	g, err := s.startGateway(ctx, name, volumeBackend(dir), kib)
	if err != nil {
		return err
	}
	defer g.stop()
	for _, n := range sweepSizes {
		for _, kind := range []string{"read", "write"} {
			op := operation{op: kind, size: n}
			deep, err := s.rdma(ctx, g, op, 16, true, kib)
			if err != nil {
				return err
			}
			lone, err := s.rdma(ctx, g, op, 1, true, kib)
			if err != nil {
				return err
			}
			sep := " "
			if kind == "read" {
				sep = " | "
			}
			fmt.Printf("%s%12.0f %7.0f", sep, deep.Rate, lone.P50)
		}
	}
	return nil
}
