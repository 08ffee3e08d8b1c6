package sluicectl

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
)

const (
	benchOps       = "NULL, GETATTR, READ, WRITE, SETATTR, RENAME, CREATE, REMOVE, OPEN-READ or CREATE-WRITE"
	maxConnections = 16384
)

// benchFile is the file's name when the URL is a directory.
const benchFile = "sluicectl-bench.dat"

func (a *app) benchCommand() *cobra.Command {
	o := benchOptions{size: 64 << 10, fileSize: 64 << 20}
	c := &cobra.Command{
		Use:   "bench URL",
		Short: "Measure one operation on one connection or many",
		Long: "Repeat one operation, --depth calls at a time on each of --connections, and print rates and latencies. " +
			"The URL is the file that is read, written or asked about; in a directory it is " + benchFile + ". It is made, or filled up to --file-size, " +
			"when it is shorter, and stays. Reads and writes go through it from its beginning to its end, again and again. " +
			"For SETATTR, RENAME, CREATE, REMOVE and CREATE-WRITE the URL is a directory: they work on files in a new directory there, which is removed at the end. " +
			"OPEN-READ and CREATE-WRITE, which makes a file of --size, open, transfer and close in one call of version 4.2.",
		Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := o.check(); err != nil {
				return err
			}
			return a.mounted(c.Context(), args[0], "measure", false, func(ctx context.Context, s *session) error { return s.bench(ctx, &o) })
		},
	}
	a.connectionFlags(c)
	c.ValidArgsFunction = a.completeArgs(false)
	f := c.Flags()
	f.StringVar(&o.op, "op", "NULL", "operation to measure: "+benchOps)
	f.Var(&o.size, "size", "bytes read or written by a call, up to 1MiB")
	f.IntVar(&o.depth, "depth", 16, "calls outstanding at once on each connection, 1 to 4096")
	f.IntVar(&o.connections, "connections", 1, "connections to measure, 1 to 16384")
	f.IntVar(&o.idle, "idle-connections", 0, "connections that are opened before these, and stay idle, 0 to 16384")
	f.DurationVar(&o.duration, "duration", 2*time.Second, "how long to measure")
	f.DurationVar(&o.warmup, "warmup", 100*time.Millisecond, "how long to run before that")
	f.Int64Var(&o.count, "count", 0, "measure this many calls instead of --duration")
	f.StringVar(&o.stability, "stability", "unstable", "of WRITEs: unstable, data_sync or file_sync")
	f.Var(&o.fileSize, "file-size", "bytes of the file")
	f.BoolVar(&o.json, "json", false, "print JSON")
	f.IntSliceVar(&o.cpuOf, "cpu-of", nil, "also measure the CPU time of these processes of this host, such as the server, by `PID`")
	f.StringVar(&o.profile, "cpuprofile", "", "write a CPU profile to this file")
	_ = f.MarkHidden("cpuprofile")
	complete(c, "op", strings.Split(strings.ReplaceAll(benchOps, " or ", ", "), ", ")...)
	complete(c, "stability", stabilities...)
	return c
}

func (o *benchOptions) check() (err error) {
	o.op = strings.ToUpper(o.op)
	switch o.op {
	case "NULL", "GETATTR", "SETATTR", "RENAME", "CREATE", "REMOVE":
		o.size = 0
	case "READ", "WRITE", "OPEN-READ", "CREATE-WRITE":
		if o.size < 1 || o.size > nfs3.MaxData {
			return fmt.Errorf("--size is %d, must be 1 to %d", int64(o.size), nfs3.MaxData)
		}
		if o.fileSize < o.size {
			return fmt.Errorf("--file-size is %d, must be at least --size, %d", int64(o.fileSize), int64(o.size))
		}
	default:
		return fmt.Errorf("--op is %q, must be %s", o.op, benchOps)
	}
	if o.connections < 1 || o.connections > maxConnections {
		return fmt.Errorf("--connections is %d, must be 1 to %d", o.connections, maxConnections)
	}
	if o.idle < 0 || o.idle > maxConnections {
		return fmt.Errorf("--idle-connections is %d, must be 0 to %d", o.idle, maxConnections)
	}
	if o.depth < 1 || o.depth > 4096 {
		return fmt.Errorf("--depth is %d, must be 1 to 4096", o.depth)
	}
	if o.count < 0 || o.duration <= 0 || o.warmup < 0 {
		return fmt.Errorf("--count is %d, --duration %v and --warmup %v; none may be negative, and --duration not 0", o.count, o.duration, o.warmup)
	}
	o.stable, err = parseStability(o.stability)
	return err
}

func (s *session) bench(ctx context.Context, o *benchOptions) error {
	sessions, closeAll, err := s.more(ctx, o)
	if err != nil {
		return err
	}
	defer closeAll()
	if namesOf[o.op] != nil {
		return s.benchNames(ctx, sessions, o)
	}
	file, err := s.benchTarget(ctx, o)
	if err != nil {
		return err
	}
	b, err := newLoad(sessions, o, func(x *slot) error { return x.prepare(ctx, file) })
	if err != nil {
		return err
	}
	defer b.close()
	return s.measure(ctx, b, o)
}

// more opens the further connections. It returns those to measure, s among them.
func (s *session) more(ctx context.Context, o *benchOptions) (measured []*session, closeAll func(), err error) {
	var others []*session
	closeAll = func() {
		for _, x := range others {
			x.close()
		}
	}
	measured = []*session{s}
	for i := range o.idle + o.connections - 1 {
		x, err := s.app.dialWith(ctx, s.target, false, s.pool)
		if err != nil {
			closeAll()
			return nil, nil, fmt.Errorf("connection %d of %d: %w", i+2, o.idle+o.connections, err)
		}
		x.useNFS(s.nfs)
		others = append(others, x)
	}
	// the first ones that were opened are idle
	measured = append(measured, others...)[o.idle:]
	return measured, closeAll, nil
}

// benchTarget finds or makes the file.
func (s *session) benchTarget(ctx context.Context, o *benchOptions) (nfs3.Handle, error) {
	if o.op == "NULL" {
		return s.root, nil
	}
	where := s.target.path
	found, err := s.walk(ctx, where, true)
	if err == nil && found.Attr.Attr.Type == nfs3.Dir {
		where = path.Join(where, benchFile)
		found, err = s.walk(ctx, where, true)
	}
	switch {
	case errors.Is(err, fs.ErrNotExist):
		short, cancel := s.patience(ctx)
		defer cancel()
		dir, name, err := s.WalkParent(short, s.root, where)
		if err != nil {
			return nil, err
		}
		if found, err = s.Create(short, dir.Handle, name, nfs3.Unchecked, nfs3.SetAttrs{SetMode: true, Mode: 0o644}, nfs3.Verifier{}); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, err
	case found.Attr.Attr.Type != nfs3.Reg:
		return nil, fmt.Errorf("%s is a %s, not a regular file", where, typeName(found.Attr.Attr.Type))
	}
	var size uint64
	if found.Attr.Present {
		size = found.Attr.Attr.Size
	}
	if size >= uint64(o.fileSize) {
		return found.Handle, nil
	}
	p := s.app.newProgress(path.Base(where), int64(uint64(o.fileSize)-size))
	defer p.clear()
	err = s.Upload(ctx, found.Handle, pattern{}, size, uint64(o.fileSize)-size, client.UploadOptions{Progress: p.add})
	return found.Handle, err
}

func (r *benchResult) print(w io.Writer) {
	what := r.Op
	if r.Size > 0 {
		what += " " + byteSize(r.Size)
	}
	if r.Stability != "" {
		what += " " + r.Stability
	}
	each := ""
	if r.Connections > 1 {
		each = fmt.Sprintf(" on each of %d connections", r.Connections)
	}
	fmt.Fprintf(w, "%s, %d at once%s: %d calls in %.2f s\n", what, r.Depth, each, r.Ops, r.Seconds)
	fmt.Fprintf(w, "  rate      %.0f calls/s", r.OpsPerSec)
	if r.Size > 0 {
		fmt.Fprintf(w, ", %.1f MB/s", r.MBPerSec)
	}
	fmt.Fprintf(w, "\n  latency   %.1f µs median, %.1f µs p99, %.1f µs at most\n", r.P50, r.P99, r.Max)
	fmt.Fprintf(w, "  per call  %.3f allocations, %.2f system calls, %.2f messages, %.2f RDMA operations\n", r.Allocs, r.Syscalls, r.Messages, r.RDMAOps)
}
