package sluicectl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// benchOptions are the flags of bench.
type benchOptions struct {
	op          string
	size        sizeFlag
	depth       int
	connections int
	idle        int
	duration    time.Duration
	warmup      time.Duration
	count       int64
	stability   string
	fileSize    sizeFlag
	json        bool
	profile     string
	cpuOf       []int

	stable nfs3.Stability
}

// benchResult is the JSON of bench.
type benchResult struct {
	URL   string `json:"url"`
	NFS   string `json:"nfs"`
	Op    string `json:"op"`
	Size  int64  `json:"size"`
	Depth int    `json:"depth"`
	// Connections are those measured, Idle those beside them.
	Connections int     `json:"connections"`
	Idle        int     `json:"idle_connections,omitempty"`
	Stability   string  `json:"stability,omitempty"`
	CRC         bool    `json:"crc"`
	Ops         int64   `json:"ops"`
	Seconds     float64 `json:"seconds"`
	OpsPerSec   float64 `json:"ops_per_s"`
	MBPerSec    float64 `json:"mb_per_s"` // 10^6 bytes
	P50         float64 `json:"p50_us"`
	P99         float64 `json:"p99_us"`
	Max         float64 `json:"max_us"`
	// Per operation, at the client.
	Allocs   float64 `json:"allocs_per_op"`
	Syscalls float64 `json:"syscalls_per_op"`
	Messages float64 `json:"messages_per_op"` // sent and received
	RDMAOps  float64 `json:"rdma_ops_per_op"` // RDMA Reads and Writes by the server
	// ClientCPU is the CPU time of this process, CPU those of the processes of --cpu-of in their
	// order, in seconds.
	ClientCPU float64   `json:"client_cpu_s"`
	CPU       []float64 `json:"cpu_s,omitempty"`
}

// load keeps calls in flight. Each reply's handler sends the next call. A run allocates nothing and
// uses only the connections' goroutines.
type load struct {
	sessions []*session
	o        *benchOptions
	slots    []*slot

	deadline time.Time
	left     atomic.Int64 // calls still to be started, when they are counted
	counted  bool
	stop     atomic.Bool
	running  sync.WaitGroup
	once     sync.Once
	err      error
}

// slot is one of the calls in flight. Only the handler of its reply touches it.
type slot struct {
	l    *load
	s    *session
	op   *client.Op
	back *client.Op  // of RENAME: takes turns with op
	file client.File // of READ and WRITE
	buf  *bufpool.Buf
	next func(*client.Op)
	sent time.Time
	lat  *hdrhistogram.Histogram // nanoseconds
	ops  int64

	// READ and WRITE go through the file in blocks.
	block, blocks, stride int64
	size                  int

	// CREATE and REMOVE have a name of their own each time.
	names *nameSource
	name  []byte
}

// slowest is the highest latency of the histogram.
const slowest = time.Minute

// newLoad makes a load of o.depth calls for each session; prepare makes one of them.
func newLoad(sessions []*session, o *benchOptions, prepare func(*slot) error) (*load, error) {
	l := &load{sessions: sessions, o: o}
	n := int64(o.depth * len(sessions))
	for i := range n {
		x := &slot{
			l: l, s: sessions[i%int64(len(sessions))], lat: hdrhistogram.New(1000, slowest.Nanoseconds(), 3),
			block: i, stride: n, size: int(o.size),
		}
		x.next = x.answered
		if o.size > 0 && namesOf[o.op] == nil {
			x.blocks = int64(o.fileSize / o.size)
			x.block %= x.blocks
		}
		if err := prepare(x); err != nil {
			x.close()
			l.close()
			return nil, err
		}
		l.slots = append(l.slots, x)
	}
	return l, nil
}

// prepare makes the call on a file.
func (x *slot) prepare(ctx context.Context, file nfs3.Handle) (err error) {
	switch x.l.o.op {
	case "NULL":
		x.op, err = x.s.NewNull()
	case "GETATTR":
		x.op, err = x.s.NewGetAttr(file)
	case "OPEN-READ":
		if err = x.takeBuf(); err == nil {
			x.op, err = x.s.NewOpenRead(file, x.buf)
		}
	default:
		err = x.prepareData(ctx, file)
	}
	return err
}

// prepareData makes a READ or WRITE.
func (x *slot) prepareData(ctx context.Context, file nfs3.Handle) (err error) {
	o, access := x.l.o, uint32(client.ShareRead)
	if o.op == "WRITE" {
		access = client.ShareWrite
	}
	ctx, cancel := x.s.patience(ctx)
	defer cancel()
	if x.file, err = x.s.Open(ctx, file, access); err != nil {
		return err
	}
	if err = x.takeBuf(); err != nil {
		return err
	}
	if o.op == "WRITE" {
		x.op, err = x.file.NewWrite(x.buf, o.stable)
	} else {
		x.op, err = x.file.NewRead(x.buf)
	}
	return err
}

// takeBuf takes the memory of the slot's data.
func (x *slot) takeBuf() (err error) {
	if x.buf, err = x.s.pool.Get(x.size); err == nil {
		_, _ = pattern{}.ReadAt(x.buf.B, x.block*int64(x.size))
	}
	return err
}

func (l *load) close() {
	for _, x := range l.slots {
		x.close()
	}
}

func (x *slot) close() {
	for _, o := range []*client.Op{x.op, x.back} {
		if o != nil {
			o.Free()
		}
	}
	if x.buf != nil {
		x.buf.Release()
	}
	if x.file != nil {
		ctx, cancel := x.s.patience(context.Background())
		_ = x.file.Close(ctx)
		cancel()
	}
}

// run keeps all slots busy for d, or until count calls were made if count is not 0.
func (l *load) run(ctx context.Context, d time.Duration, count int64) (*benchResult, error) {
	for _, x := range l.slots {
		x.lat.Reset()
		x.ops = 0
	}
	l.counted = count > 0
	l.left.Store(count)
	before := l.counters()
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	began := time.Now()
	if l.deadline = began.Add(d); l.counted {
		l.deadline = began.Add(1000 * time.Hour)
	}
	finished := make(chan struct{})
	for _, x := range l.slots {
		if !l.counted || l.left.Add(-1) >= 0 {
			l.running.Add(1)
			x.send(time.Now())
		}
	}
	go func() {
		l.running.Wait()
		close(finished)
	}()
	l.wait(ctx, finished, d)
	took := time.Since(began)
	runtime.ReadMemStats(&m1)
	if l.err != nil {
		return nil, l.err
	}
	return l.result(took, before, l.counters(), m1.Mallocs-m0.Mallocs), nil
}

// wait waits for the end of a run, and shows the time of a long one on a terminal.
func (l *load) wait(ctx context.Context, finished chan struct{}, d time.Duration) {
	p := l.sessions[0].app.newCounter(l.o.op, "seconds", -1)
	if !l.counted {
		p.all = int64(d.Seconds())
	}
	p.quiet = p.width == 0
	defer p.clear()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			p.count(1)
		case <-finished:
			return
		case <-ctx.Done():
			l.fail(ctx.Err())
			for _, s := range l.sessions {
				_ = s.requester().Close()
			}
			<-finished
			return
		}
	}
}

func (x *slot) send(now time.Time) {
	if x.blocks > 0 {
		x.op.SetRange(uint64(x.block)*uint64(x.size), x.size)
		x.block = (x.block + x.stride) % x.blocks
	}
	if x.names != nil {
		x.name = x.names.next(x.name)
		x.op.SetName(x.name)
	}
	x.sent = now
	x.op.Submit(x.next)
}

// answered handles a reply.
func (x *slot) answered(op *client.Op) {
	l := x.l
	now := time.Now()
	if err := x.check(op); err != nil {
		l.fail(err)
	}
	_ = x.lat.RecordValue(min(now.Sub(x.sent), slowest).Nanoseconds())
	x.ops++
	if x.back != nil {
		x.op, x.back = x.back, x.op
	}
	if l.stop.Load() || now.After(l.deadline) || l.counted && l.left.Add(-1) < 0 {
		l.running.Done()
		return
	}
	x.send(now)
}

var errShort = errors.New("the server moved fewer bytes than it was asked to")

// check checks the server's reply.
func (x *slot) check(op *client.Op) error {
	res, err := op.Result()
	if err == nil && x.buf != nil && res.Count != x.size {
		err = fmt.Errorf("%s: %w: %d of %d", x.l.o.op, errShort, res.Count, x.size)
	}
	return err
}

// fail ends the run with err, if it is the first.
func (l *load) fail(err error) {
	l.once.Do(func() { l.err = err })
	l.stop.Store(true)
}

func (l *load) result(took time.Duration, before, after counters, mallocs uint64) *benchResult {
	o := l.o
	all := hdrhistogram.New(1000, slowest.Nanoseconds(), 3)
	var ops int64
	for _, x := range l.slots {
		all.Merge(x.lat)
		ops += x.ops
	}
	per := func(n uint64) float64 { return float64(n) / float64(max(ops, 1)) }
	us := func(ns int64) float64 { return float64(ns) / 1e3 }
	r := &benchResult{
		URL: l.sessions[0].target.url, NFS: l.sessions[0].nfs.String(), Op: o.op, Size: int64(o.size), Depth: o.depth, Connections: len(l.sessions), Idle: o.idle,
		CRC: l.sessions[0].negotiated().CRC,
		Ops: ops, Seconds: took.Seconds(), OpsPerSec: float64(ops) / took.Seconds(),
		MBPerSec: float64(ops) * float64(o.size) / took.Seconds() / 1e6,
		P50:      us(all.ValueAtQuantile(50)), P99: us(all.ValueAtQuantile(99)), Max: us(all.Max()),
		Allocs: per(mallocs), Syscalls: per(after.syscalls - before.syscalls),
		Messages: per(after.messages - before.messages), RDMAOps: per(after.rdma - before.rdma),
	}
	if strings.HasSuffix(o.op, "WRITE") {
		r.Stability = o.stable.String()
	}
	return r
}

// counters are the connections' totals, for any transport.
type counters struct{ syscalls, messages, rdma uint64 }

func (l *load) counters() (sum counters) {
	for _, s := range l.sessions {
		c := s.counters()
		sum.syscalls += c.syscalls
		sum.messages += c.messages
		sum.rdma += c.rdma
	}
	return sum
}

func (s *session) counters() counters {
	if c, ok := s.conn.(*rpcrdma.Client); ok {
		n := c.Stats()
		return counters{n.ReadCalls + n.WriteCalls, n.Sends + n.Receives, n.RemoteReads + n.RemoteWrites + n.Reads + n.Writes}
	}
	n := s.conn.(*oncrpc.Client).Stats()
	return counters{n.ReadCalls + n.WriteCalls, n.RecordsIn + n.RecordsOut, 0}
}

// measure warms up, measures and prints.
func (s *session) measure(ctx context.Context, b *load, o *benchOptions) error {
	if o.warmup > 0 {
		if _, err := b.run(ctx, o.warmup, 0); err != nil {
			return err
		}
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	before, err := cpuSeconds(o.cpuOf)
	if err != nil {
		return err
	}
	own := ownCPU()
	r, err := b.run(ctx, o.duration, o.count)
	if err != nil {
		return err
	}
	r.ClientCPU = (ownCPU() - own).Seconds()
	if r.CPU, err = cpuSeconds(o.cpuOf); err != nil {
		return err
	}
	for i := range r.CPU {
		r.CPU[i] -= before[i]
	}
	if o.json {
		return json.NewEncoder(s.app.Out).Encode(r)
	}
	r.print(s.app.Out)
	for i, pid := range o.cpuOf {
		fmt.Fprintf(s.app.Out, "  process %-9d %.2f s of CPU time\n", pid, r.CPU[i])
	}
	return nil
}

// nameBase is the lowest name of a nameSource.
const nameBase = 1_000_000_000

// nameSource counts names up. They are of one length.
type nameSource struct{ last atomic.Int64 }

// next returns the next name, in b if that has room.
func (s *nameSource) next(b []byte) []byte {
	return strconv.AppendInt(b[:0], nameBase+s.last.Add(1), 10)
}

// pattern is an endless source of bytes without repetitions.
type pattern struct{}

func (pattern) ReadAt(p []byte, off int64) (int, error) {
	for i := range p {
		at := uint64(off) + uint64(i)
		p[i] = byte(at ^ at>>8 ^ at>>16)
	}
	return len(p), nil
}
