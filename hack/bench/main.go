// Command bench measures the gateway against NFS-Ganesha and against bare loops, interleaved in one run.
//
// Every side is a server process and a client process of its own on loopback, working on one directory. For each row
// the sides run in turn, several rounds; the table shows medians, and ratios are medians of the ratios within a round.
// For NFS the client is `sluicectl bench` on both sides: over RPC-over-RDMA to the gateway, over TCP to Ganesha.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"
)

type operation struct {
	name  string
	op    string // as sluicectl bench calls it
	floor byte
	size  int
}

var operations = []operation{
	{"NULL", "null", floorNull, 0},
	{"GETATTR", "getattr", floorNull, 0},
	{"READ 4KiB", "read", floorRead, 4 << 10},
	{"READ 64KiB", "read", floorRead, 64 << 10},
	{"READ 1MiB", "read", floorRead, 1 << 20},
	{"WRITE 4KiB", "write", floorWrite, 4 << 10},
	{"WRITE 64KiB", "write", floorWrite, 64 << 10},
	{"WRITE 1MiB", "write", floorWrite, 1 << 20},
}

type options struct {
	bin, dir, out, only string
	rounds              int
	duration            time.Duration
	fileSize            int64
	sweep, counters     bool

	// what the processes are told that bench starts of itself
	role, file, floor string
	depth             int
	blocks            uint
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "directory of gateway and sluicectl")
	flag.StringVar(&o.dir, "dir", "", "where to make the exported directory; default /dev/shm, so that no disk is measured")
	flag.StringVar(&o.out, "o", "bench.json", "file for the results")
	flag.StringVar(&o.only, "only", "", "only rows whose name contains this")
	flag.IntVar(&o.rounds, "rounds", 7, "rounds of each row")
	flag.DurationVar(&o.duration, "d", 400*time.Millisecond, "length of one measurement")
	flag.Int64Var(&o.fileSize, "file", 64<<20, "size in bytes of the file read and written")
	flag.BoolVar(&o.sweep, "sweep", true, "sweep the inline threshold from 1 to 64 KiB")
	flag.BoolVar(&o.counters, "counters", true, "count allocations, system calls, messages and RDMA operations per RPC")
	flag.StringVar(&o.role, "role", "", "used by bench itself")
	flag.StringVar(&o.file, "serve", "", "used by bench itself")
	flag.StringVar(&o.floor, "floor", "", "used by bench itself")
	flag.IntVar(&o.depth, "depth", 1, "used by bench itself")
	flag.UintVar(&o.blocks, "blocks", 1, "used by bench itself")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	var err error
	switch o.role {
	case "floor-server":
		err = floorServe(o.file)
	case "floor-client":
		err = floorMeasure(o)
	default:
		err = run(ctx, o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	var todo []row
	var ops []operation
	for _, op := range operations {
		for _, depth := range []int{1, 16} {
			for _, crc := range []bool{true, false} {
				r := row{Op: op.name, Depth: depth, CRC: crc, Unit: "us"}
				if depth > 1 {
					r.Unit = "ops/s"
					if op.size > 0 {
						r.Unit = "MB/s"
					}
				}
				if op.op == "write" {
					r.Stability = "UNSTABLE"
				}
				if strings.Contains(op.name, o.only) {
					todo, ops = append(todo, r), append(ops, op)
				}
			}
		}
	}
	fmt.Printf("%d rows, %d rounds of 4 sides, %v each: about %v\n", len(todo), o.rounds, o.duration,
		(time.Duration(len(todo)*o.rounds*4) * (o.duration + 100*time.Millisecond)).Round(time.Second))
	s, err := startSides(ctx, o)
	if err != nil {
		return err
	}
	defer s.stop()
	var rows []row
	printHead()
	for i, r := range todo {
		got := samples{}
		for range o.rounds {
			if err := s.round(ctx, ops[i], r, got); err != nil {
				return fmt.Errorf("%s depth %d: %w", r.Op, r.Depth, err)
			}
		}
		r = got.row(r)
		rows = append(rows, r)
		printRow(r)
		if err := writeJSON(o.out, rows); err != nil {
			return err
		}
	}
	fmt.Printf("\nA ratio above 1 is in the gateway's favour. WRITEs are UNSTABLE on both sides. Results: %s\n", o.out)
	if o.counters {
		if err := s.counters(ctx); err != nil {
			return err
		}
	}
	if o.sweep {
		return s.sweep(ctx)
	}
	return nil
}

func printHead() {
	fmt.Printf("\n%-12s %5s %-4s %10s %10s %10s %10s %-6s %7s %7s %7s\n",
		"", "depth", "CRC", "sluice", "ganesha", "floor", "raw", "", "/ganesh", "/floor", "/raw")
}

func printRow(r row) {
	crc := "off"
	if r.CRC {
		crc = "on"
	}
	fmt.Printf("%-12s %5d %-4s %10.1f %10.1f %10.1f %10.1f %-6s %7.2f %7.2f %7.2f\n",
		r.Op, r.Depth, crc, r.Sluice, r.Ganesha, r.Floor, r.Raw, r.Unit, r.VsGanesha, r.VsFloor, r.VsRaw)
}
