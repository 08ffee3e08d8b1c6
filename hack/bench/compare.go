package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// compareRow compares sides that differ in more than the server: a line of a table and an entry of
// bench.json.
type compareRow struct {
	Op    string     `json:"op"`
	Depth int        `json:"depth,omitempty"`
	Unit  string     `json:"unit"`
	Sides []sideCost `json:"sides"`
}

// sideCost is the median figure of a side, with its bounds, and the medians of the CPU time of
// server and client in microseconds per call.
type sideCost struct {
	Side   string  `json:"side"`
	Figure float64 `json:"figure"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
	Server float64 `json:"server_cpu_us"`
	Client float64 `json:"client_cpu_us"`
	// Ratio is the median of the ratios to the first side within each round. Above 1 this side is
	// better.
	Ratio float64 `json:"ratio"`
}

// comparison is such a row to measure.
type comparison struct {
	name  string
	depth int
	unit  string
	size  int
	sides []compared
}

type compared struct {
	name string
	run  func(ctx context.Context) (*measured, error)
}

func (c *comparison) String() string {
	if c.depth == 0 {
		return c.name
	}
	return fmt.Sprintf("%s depth %d", c.name, c.depth)
}

// selected returns the rows of list that -only selects.
func (o *options) selected(list []comparison) (some []comparison) {
	for _, c := range list {
		if o.only.MatchString(c.String()) {
			some = append(some, c)
		}
	}
	return some
}

// compare measures rows in turn and prints them below a title.
func (s *sides) compare(ctx context.Context, title string, list []comparison, res *results) error {
	if len(list) == 0 {
		return nil
	}
	fmt.Printf("\n%s\n\n%-28s %5s %-15s %10s %-6s %21s %7s | %10s %10s\n", title, "", "depth", "", "median", "", "min-max", "ratio", "server us", "client us")
	for _, c := range list {
		r, err := s.compareOne(ctx, &c)
		if err != nil {
			return fmt.Errorf("%v: %w", &c, err)
		}
		for i, v := range r.Sides {
			name, depth := c.name, fmt.Sprint(c.depth)
			if c.depth == 0 {
				depth = ""
			}
			if i > 0 {
				name, depth = "", ""
			}
			fmt.Printf("%-28s %5s %-15s %10.1f %-6s %21s %7.2f | %10.1f %10.1f\n", name, depth, v.Side, v.Figure, c.unit,
				fmt.Sprintf("%.1f-%.1f", v.Min, v.Max), v.Ratio, v.Server, v.Client)
		}
		if err := res.add(r); err != nil {
			return err
		}
	}
	return nil
}

func (s *sides) compareOne(ctx context.Context, c *comparison) (*compareRow, error) {
	got := samples{}
	for range s.o.rounds {
		for _, side := range c.sides {
			m, err := side.run(ctx)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", side.name, err)
			}
			if len(m.CPU) != 1 {
				return nil, fmt.Errorf("%s: the CPU time of %d processes, want 1", side.name, len(m.CPU))
			}
			got.add(side.name, m.figure(c.unit, c.size))
			got.add(side.name+" server", m.perCall(m.CPU[0]))
			got.add(side.name+" client", m.perCall(m.Client))
		}
	}
	r := &compareRow{Op: c.name, Depth: c.depth, Unit: c.unit}
	for _, side := range c.sides {
		r.Sides = append(r.Sides, sideCost{
			Side: side.name, Figure: got.median(side.name), Min: minimum(got[side.name]), Max: maximum(got[side.name]),
			Server: got.median(side.name + " server"), Client: got.median(side.name + " client"),
			Ratio: got.ratio(side.name, c.sides[0].name, c.unit),
		})
	}
	return r, nil
}

// where is tmpfs or onDisk.
type where func(context.Context) (*place, error)

// pair measures the gateway and Ganesha at a place with the same flags of sluicectl.
func (s *sides) pair(at where, op operation, depth int, flags ...string) []compared {
	return []compared{
		{"NFS-Ganesha", func(ctx context.Context) (*measured, error) {
			p, err := at(ctx)
			if err != nil {
				return nil, err
			}
			return s.sluicectl(ctx, op, depth, []int{p.ganeshaPID}, "nfs+tcp://"+p.ganesha, flags...)
		}},
		{"Sluice", func(ctx context.Context) (*measured, error) {
			p, err := at(ctx)
			if err != nil {
				return nil, err
			}
			return s.sluicectl(ctx, op, depth, []int{p.gateway.pid}, p.gateway.url(true, false), append([]string{"--rpc-version", "1"}, flags...)...)
		}},
	}
}

// connections are the rows of several connections.
func (s *sides) connections() (list []comparison) {
	op := operation{op: "getattr"}
	list = append(list, comparison{name: "GETATTR beside an idle one", depth: 1, unit: "us", sides: s.pair(s.tmpfs, op, 1, "--idle-connections", "1")})
	for _, n := range []int{16, 64, 256, 1024} {
		list = append(list, comparison{
			name: fmt.Sprintf("GETATTR, %d connections", n), depth: 1, unit: "ops/s", sides: s.pair(s.tmpfs, op, 1, "--connections", fmt.Sprint(n)),
		})
	}
	return list
}

// bulkSettles is the time that a bulk load runs before the calls beside it are measured.
const bulkSettles = 100 * time.Millisecond

// fairness are the rows of the slowest hundredth of lone calls, quiet and beside bulk transfers of
// another connection.
func (s *sides) fairness() (list []comparison) {
	op := operation{op: "getattr"}
	list = append(list, comparison{name: "GETATTR, quiet", depth: 1, unit: p99, sides: s.pair(s.tmpfs, op, 1)})
	for _, bulk := range []operation{{name: "READ 1MiB", op: "read", size: 1 << 20}, {name: "WRITE 1MiB", op: "write", size: 1 << 20}} {
		calls, loads := s.pair(s.tmpfs, op, 1), s.pair(s.tmpfs, bulk, 16)
		for i := range calls {
			lone, load := calls[i].run, loads[i].run
			calls[i].run = func(ctx context.Context) (*measured, error) { return under(ctx, load, lone) }
		}
		list = append(list, comparison{name: "GETATTR beside " + bulk.name, depth: 1, unit: p99, sides: calls})
	}
	return list
}

// under measures calls while a load runs. The server's CPU time is that of both, so it is left out.
func under(ctx context.Context, load, calls func(context.Context) (*measured, error)) (*measured, error) {
	loading, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		for {
			if _, err := load(loading); loading.Err() != nil {
				ended <- nil
				return
			} else if err != nil {
				ended <- fmt.Errorf("load: %w", err)
				return
			}
		}
	}()
	time.Sleep(bulkSettles)
	m, err := calls(ctx)
	stop()
	if err = errors.Join(err, <-ended); err != nil {
		return nil, err
	}
	m.CPU = []float64{0}
	return m, nil
}

// withVersion2 starts a gateway with both versions, at its first call.
func (s *sides) withVersion2(ctx context.Context) (_ *gateway, err error) {
	if s.version2 == nil {
		dir := filepath.Join(s.dir, "version2")
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, err
		}
		s.version2, err = s.startGatewayWith(ctx, "version2", volumeBackend(dir),
			"rpcRDMAVersions: [1, 2], extensions: [TransportProperties, MessageContinuation, SendBasedPlacement]", plainInline)
		if err != nil {
			return nil, fmt.Errorf("gateway of version 2: %w", err)
		}
		s.stops = append(s.stops, s.version2.stop)
	}
	return s.version2, nil
}

// versions are the rows of version 2 beside version 1.
func (s *sides) versions() (list []comparison) {
	for _, op := range operations {
		if op.spin || op.op == "null" {
			continue
		}
		for _, depth := range []int{1, 16} {
			c := comparison{name: "version 2: " + op.name, depth: depth, unit: measurement{op, depth, true}.unit(), size: op.size}
			for _, side := range []struct {
				name  string
				flags []string
			}{
				{"version 1", []string{"--rpc-version", "1"}},
				{"2", []string{"--rpc-version", "2", "--ext", "none"}},
				{"2, extensions", []string{"--rpc-version", "2", "--ext", "all"}},
			} {
				flags := slices.Concat(side.flags, []string{"--inline", fmt.Sprint(plainInline << 10)})
				c.sides = append(c.sides, compared{side.name, func(ctx context.Context) (*measured, error) {
					g, err := s.withVersion2(ctx)
					if err != nil {
						return nil, err
					}
					return s.sluicectl(ctx, op, depth, []int{g.pid}, g.url(true, false), flags...)
				}})
			}
			list = append(list, c)
		}
	}
	return list
}

// version4 are the rows of NFS 4.2. OPEN+READ+CLOSE and CREATE+WRITE+CLOSE are one COMPOUND each.
func (s *sides) version4() (list []comparison) {
	for _, op := range []operation{
		{name: "GETATTR", op: "getattr"},
		{name: "OPEN+READ 4KiB+CLOSE", op: "open-read", size: 4 << 10},
		{name: "CREATE+WRITE 4KiB+CLOSE", op: "create-write", size: 4 << 10},
		{name: "READ 64KiB", op: "read", size: 64 << 10},
		{name: "READ 1MiB", op: "read", size: 1 << 20},
		{name: "WRITE 64KiB", op: "write", size: 64 << 10},
		{name: "WRITE 1MiB", op: "write", size: 1 << 20},
	} {
		op.nfs = "4.2"
		for _, depth := range []int{1, 16} {
			unit := measurement{op, depth, true}.unit()
			if depth > 1 && op.size == 4<<10 {
				unit = "ops/s"
			}
			pair := s.pair(s.tmpfs, op, depth)
			tcp := compared{"Sluice, TCP", func(ctx context.Context) (*measured, error) {
				return s.sluicectl(ctx, op, depth, []int{s.volume.pid}, s.volume.tcpURL())
			}}
			list = append(list, comparison{name: "4.2: " + op.name, depth: depth, unit: unit, size: op.size, sides: []compared{pair[0], tcp, pair[1]}})
		}
	}
	return list
}

// removes is the number of REMOVEs, for which sluicectl creates as many files.
const removes = 1500

// files are the rows of metadata, and of a file that is copied and committed.
func (s *sides) files(name string, at where) (list []comparison) {
	for _, op := range []string{"SETATTR", "RENAME", "CREATE", "REMOVE"} {
		flags := []string(nil)
		if op == "REMOVE" {
			flags = []string{"--count", fmt.Sprint(removes)}
		}
		list = append(list, comparison{name: op + " on " + name, depth: 16, unit: "ops/s", sides: s.pair(at, operation{op: strings.ToLower(op)}, 16, flags...)})
	}
	put := comparison{name: "put and COMMIT on " + name, unit: "MB/s", size: int(s.o.fileSize)}
	for _, side := range []string{"NFS-Ganesha", "Sluice"} {
		put.sides = append(put.sides, compared{side, func(ctx context.Context) (*measured, error) {
			p, err := at(ctx)
			if err != nil {
				return nil, err
			}
			if side == "Sluice" {
				return s.put(ctx, p.gateway.pid, p.gateway.url(true, false)+"put.dat")
			}
			return s.put(ctx, p.ganeshaPID, "nfs+tcp://"+strings.Replace(p.ganesha, "/?", "/put.dat?", 1))
		}})
	}
	return append(list, put)
}

// put copies the floor's file by a sluicectl of its own, as a user does. The call is the copy.
func (s *sides) put(ctx context.Context, pid int, url string) (*measured, error) {
	before, err := processCPU(pid)
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, filepath.Join(s.o.bin, "sluicectl"), "put", "--nfs", "3", filepath.Join(s.dir, "export", floorFile), url)
	began := time.Now()
	if out, err := c.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("sluicectl put: %w: %s", err, out)
	}
	seconds := time.Since(began).Seconds()
	after, err := processCPU(pid)
	if err != nil {
		return nil, err
	}
	return &measured{Rate: 1 / seconds, P50: seconds * 1e6, Ops: 1, CPU: []float64{(after - before).Seconds()},
		Client: (c.ProcessState.UserTime() + c.ProcessState.SystemTime()).Seconds()}, nil
}

// processCPU is the CPU time of a process, by its clock (clock_getcpuclockid(3)).
func processCPU(pid int) (time.Duration, error) {
	var t unix.Timespec
	if err := unix.ClockGettime(^int32(pid)<<3|2, &t); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", pid, err)
	}
	return time.Duration(t.Nano()), nil
}

// tables are the comparisons, by title.
func (s *sides) tables() []table {
	return []table{
		{"The slowest hundredth of lone calls. A ratio above 1 is in the gateway's favour.", s.o.selected(s.fairness())},
		{"Several connections. A ratio above 1 is in the gateway's favour.", s.o.selected(s.connections())},
		{"Versions of RPC-over-RDMA at the same gateway, CRC on. A ratio above 1 is in favour of the version.", s.o.selected(s.versions())},
		{"NFS 4.2; small files by one COMPOUND each. NFS-Ganesha by TCP. A ratio above 1 is in the gateway's favour.", s.o.selected(s.version4())},
		{"Metadata, and a file copied by sluicectl put. NFS-Ganesha syncs no metadata.",
			s.o.selected(append(s.files("tmpfs", s.tmpfs), s.files("disk", s.onDisk)...))},
	}
}

type table struct {
	title string
	rows  []comparison
}
