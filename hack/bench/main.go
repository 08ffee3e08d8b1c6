// Command bench measures the gateway against NFS-Ganesha and against bare loops, interleaved in one
// run.
//
// Every side is a server process and a client process on loopback, working on one directory. For
// each row the sides run in turn, several rounds. The table shows medians; ratios are medians of
// the ratios within a round. For NFS the client is `sluicectl bench` on both sides: over
// RPC-over-RDMA to the gateway, over TCP to Ganesha.
//
// There are several comparisons: a gateway that serves the directory against Ganesha and the bare
// loops; lone calls beside bulk; many connections; versions 1 and 2 of RPC-over-RDMA; metadata and
// a put, on tmpfs and on a disk; and the path through a gateway to Ganesha against the direct path
// (rows "proxy …"). CPU time is that of a process, per call. Counters of an RPC's cost follow, with
// all system calls as strace counts them, and a sweep of the inline threshold. -draw makes a
// picture of the results.
// -only selects by a regular expression on the names of rows, which are those in the table with
// depth and CRC appended:
//
//	go run ./hack/bench -only proxy                  # the proxy's rows and counters
//	go run ./hack/bench -only '^READ.*depth 16 '     # of the directory, with CRC and without
//	go run ./hack/bench -only sweep                  # the sweep alone
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"time"
)

type operation struct {
	name  string
	op    string // operation's name for sluicectl bench
	floor byte
	size  int
	spin  bool   // client and gateway poll for the next message before they sleep
	nfs   string // version, 3 by default
}

var operations = []operation{
	{name: "NULL", op: "null", floor: floorNull},
	{name: "GETATTR", op: "getattr", floor: floorNull},
	{name: "GETATTR spin", op: "getattr", floor: floorNull, spin: true},
	{name: "READ 4KiB", op: "read", floor: floorRead, size: 4 << 10},
	{name: "READ 64KiB", op: "read", floor: floorRead, size: 64 << 10},
	{name: "READ 1MiB", op: "read", floor: floorRead, size: 1 << 20},
	{name: "WRITE 4KiB", op: "write", floor: floorWrite, size: 4 << 10},
	{name: "WRITE 64KiB", op: "write", floor: floorWrite, size: 64 << 10},
	{name: "WRITE 1MiB", op: "write", floor: floorWrite, size: 1 << 20},
}

// stability is the argument for writes, and empty for other operations.
func (o operation) stability() string {
	if o.op == "write" {
		return "UNSTABLE"
	}
	return ""
}

// proxyOperations are those that the gateway forwards: it answers NULL itself. Neither end spins,
// since three processes share the processors.
func proxyOperations() (ops []operation) {
	for _, op := range operations {
		if op.op != "null" && !op.spin {
			op.name = "proxy " + op.name
			ops = append(ops, op)
		}
	}
	return ops
}

type options struct {
	bin, dir, out   string
	disk, draw      string
	only            *regexp.Regexp
	rounds          int
	duration        time.Duration
	fileSize        int64
	sweep, counters bool

	// arguments for the processes that bench starts of itself
	role, file, floor string
	depth             int
	blocks            uint
}

func main() {
	var o options
	flag.StringVar(&o.bin, "bin", "bin", "directory of gateway and sluicectl")
	flag.StringVar(&o.dir, "dir", "", "where to make the exported directory; default /dev/shm, so that no disk is measured")
	flag.StringVar(&o.disk, "disk", "/var/tmp", "where to make the directory on a disk")
	flag.StringVar(&o.draw, "draw", "", "draw the results of -o as SVG into this file, and measure nothing")
	flag.StringVar(&o.out, "o", "bench.json", "file for the results")
	o.only = new(regexp.Regexp)
	flag.TextVar(o.only, "only", regexp.MustCompile(""), "only rows, counters and sweep whose name, such as \"proxy READ 64KiB depth 16 CRC on\" or \"sweep\", matches `REGEXP`")
	flag.IntVar(&o.rounds, "rounds", 7, "rounds of each row")
	flag.DurationVar(&o.duration, "d", 350*time.Millisecond, "length of one measurement")
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
	var err error
	switch o.role {
	case "floor-server":
		err = floorServe(o.file)
	case "relay":
		err = relayServe(o.file)
	case "floor-client":
		err = floorMeasure(o)
	default:
		if o.draw != "" {
			err = drawFile(o.out, o.draw)
			break
		}
		err = run(ctx, o)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	volume, proxy := o.plan(operations, true, false), o.plan(proxyOperations(), true)
	runs := 0
	sweep := o.sweep && o.only.MatchString("sweep")
	compared := 0
	for _, t := range (&sides{o: o}).tables() {
		compared += len(t.rows)
		for _, c := range t.rows {
			runs += o.rounds * len(c.sides)
		}
	}
	if len(volume)+len(proxy)+compared == 0 && !sweep {
		return fmt.Errorf("-only %q: nothing that is measured has such a name, want a part of one such as \"proxy READ 64KiB depth 16 CRC on\"", o.only)
	}
	runs += o.rounds * 4 * len(volume)
	for _, m := range proxy {
		runs += o.rounds * 3
		if m.depth == 1 {
			runs += o.rounds
		}
	}
	fmt.Printf("%d rows, %d rounds of each, %v for each side: about %v\n", len(volume)+len(proxy)+compared, o.rounds, o.duration,
		(time.Duration(runs) * (o.duration + 100*time.Millisecond)).Round(time.Second))
	s, err := startSides(ctx, o)
	if err != nil {
		return err
	}
	defer s.stop()
	res := &results{path: o.out}
	if err := res.add(thisMachine()); err != nil {
		return err
	}
	if len(volume) > 0 {
		if err := s.volumes(ctx, volume, res); err != nil {
			return err
		}
		fmt.Println("\nA ratio above 1 is in the gateway's favour. WRITEs are UNSTABLE on both sides.")
	}
	for _, t := range s.tables() {
		if err := s.compare(ctx, t.title, t.rows, res); err != nil {
			return err
		}
	}
	if len(proxy) > 0 {
		if err := s.proxied(ctx, proxy, res); err != nil {
			return err
		}
		fmt.Println("\nShare: of the direct rate, or of the speed at depth 1. Added: latency in ping-pongs of two bare processes. Relay: the same by a process" +
			"\nthat only passes bytes on between the client's TCP and NFS-Ganesha.")
	}
	if a, b := o.counted(operations), o.counted(proxyOperations()); o.counters && len(a)+len(b) > 0 {
		if err := s.counters(ctx, a, b, res); err != nil {
			return err
		}
		if err := s.syscalls(ctx, a, res); err != nil {
			return err
		}
	}
	if len(res.rows) > 1 {
		fmt.Printf("\nResults: %s\n", o.out)
	}
	if sweep {
		return s.sweep(ctx)
	}
	return nil
}

// measurement is one row.
type measurement struct {
	op    operation
	depth int
	crc   bool
}

// String is the name matched by -only.
func (m measurement) String() string {
	return fmt.Sprintf("%s depth %d CRC %s", m.op.name, m.depth, onOff(m.crc))
}

// unit is the unit of the row's figures.
func (m measurement) unit() string {
	switch {
	case m.depth == 1:
		return "us"
	case m.op.size > 0:
		return "MB/s"
	default:
		return "ops/s"
	}
}

// plan returns the rows of some operations, with each of the given CRC settings.
func (o *options) plan(ops []operation, crc ...bool) (todo []measurement) {
	for _, op := range ops {
		for _, depth := range []int{1, 16} {
			for _, on := range crc {
				if !on && op.size == 0 {
					continue // the sum of so few bytes costs nothing
				}
				if m := (measurement{op, depth, on}); o.only.MatchString(m.String()) {
					todo = append(todo, m)
				}
			}
		}
	}
	return todo
}

// counted returns the operations whose row at depth 16 with CRC is selected: their counters are,
// too.
func (o *options) counted(ops []operation) (some []operation) {
	for _, op := range ops {
		if o.only.MatchString(measurement{op, 16, true}.String()) {
			some = append(some, op)
		}
	}
	return some
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}
