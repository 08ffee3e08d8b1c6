package iwarp

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/rdma"
)

// The benchmarks run their peer in a process of its own: two ends in one process share a scheduler,
// which halves the time of a ping-pong. The peer is this test binary, in the role that this
// environment variable names.
const benchPeer = "SLUICE_IWARP_BENCH_PEER"

func TestMain(m *testing.M) {
	if kind := os.Getenv(benchPeer); kind != "" {
		if err := runBenchPeer(kind); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	verifyTestMain(m)
}

const (
	benchDepth = 16
	benchBulk  = 1 << 20
)

// startPeer starts the peer and returns its address. It ends with the benchmark, which then reports
// the CPU time of both processes for an operation: on a busy machine that is steadier than the
// time.
func startPeer(b *testing.B, kind string) string {
	b.Helper()
	before := cpuTime()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), benchPeer+"="+kind)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			b.Error(err)
		}
		b.ReportMetric(float64(cpuTime()-before)/float64(b.N), "cpu-ns/op")
	})
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(address)
}

// runBenchPeer is the peer: "echo" returns raw TCP in pieces of 128 bytes, "drain" swallows and
// "source" sends raw TCP, "crc" and "plain" are iWARP.
func runBenchPeer(kind string) error {
	if kind == "crc" || kind == "plain" {
		return runIWARPPeer(kind)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	c, err := l.Accept()
	if err != nil {
		return err
	}
	buf := make([]byte, benchBulk)
	for err == nil { // until the other side ends
		switch kind {
		case "echo":
			var n int
			if n, err = c.Read(buf); err == nil {
				_, err = c.Write(buf[:n])
			}
		case "drain":
			_, err = c.Read(buf)
		case "source":
			_, err = c.Write(buf)
		}
	}
	return nil
}

// cpuTime is the CPU time in nanoseconds of this process and of its ended peers.
func cpuTime() (ns int64) {
	for _, who := range []int{unix.RUSAGE_SELF, unix.RUSAGE_CHILDREN} {
		var u unix.Rusage
		if unix.Getrusage(who, &u) == nil {
			ns += u.Utime.Nano() + u.Stime.Nano()
		}
	}
	return ns
}

func benchConfig(kind string) Config {
	if kind == "plain" {
		return Config{CRC: CRCOff}
	}
	return Config{}
}

// benchPeerHandler answers each message with one of the same length.
type benchPeerHandler struct {
	ep   rdma.Endpoint
	bufs [][][]byte
	wrs  []rdma.WorkRequest
	rcv  []rdma.Receive
}

func (h *benchPeerHandler) Completed(batch []rdma.Completion) {
	h.wrs, h.rcv = h.wrs[:0], h.rcv[:0]
	for _, c := range batch {
		if c.Op != rdma.Recv {
			continue
		}
		h.rcv = append(h.rcv, rdma.Receive{ID: c.ID, Segments: h.bufs[c.ID]})
		h.wrs = append(h.wrs, rdma.WorkRequest{ID: c.ID, Op: rdma.Send, Local: h.bufs[c.ID]})
	}
	if err := errors.Join(h.ep.PostReceives(h.rcv), h.ep.Post(h.wrs)); err != nil {
		panic(err)
	}
}

func (h *benchPeerHandler) Sent([]uint64) {}

func runIWARPPeer(kind string) error {
	p, err := New(benchConfig(kind))
	if err != nil {
		return err
	}
	d, err := p.NewDomain()
	if err != nil {
		return err
	}
	if err := d.Register(testPool); err != nil {
		return err
	}
	l, err := p.Listen(context.Background(), "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	in, err := l.Accept()
	if err != nil {
		return err
	}
	h := &benchPeerHandler{}
	for i := range 2 * benchDepth {
		m := [][]byte{memory(128)}
		h.bufs = append(h.bufs, m)
		h.rcv = append(h.rcv, rdma.Receive{ID: uint64(i), Segments: m})
	}
	// The first answer carries the region: one piece of memory for each operation in progress.
	h.ep, err = in.Accept(rdma.Options{Domain: d, IRD: benchDepth, ORD: benchDepth, Receives: h.rcv})
	if err != nil {
		return err
	}
	first := true
	if err := h.ep.Serve(&firstMessage{benchPeerHandler: h, first: &first}); !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// firstMessage answers the first message with the regions.
type firstMessage struct {
	*benchPeerHandler
	first *bool
}

func (f *firstMessage) Completed(batch []rdma.Completion) {
	if !*f.first {
		f.benchPeerHandler.Completed(batch)
		return
	}
	*f.first = false
	reply := memory(128 * 2)
	n := 0
	for range benchDepth {
		r, err := f.ep.Expose(memory(benchBulk), rdma.RemoteRead|rdma.RemoteWrite)
		if err != nil {
			panic(err)
		}
		binary.BigEndian.PutUint32(reply[n:], r.Handle)
		binary.BigEndian.PutUint64(reply[n+4:], r.Offset)
		n += 12
	}
	if err := f.ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Local: [][]byte{reply}}}); err != nil {
		panic(err)
	}
	if err := f.ep.PostReceives([]rdma.Receive{{ID: batch[0].ID, Segments: f.bufs[batch[0].ID]}}); err != nil {
		panic(err)
	}
}

// benchClient keeps a number of operations in progress.
type benchClient struct {
	ep      rdma.Endpoint
	regions []rdma.Remote
	ready   chan struct{}
	done    chan struct{}

	op    func(i uint64, wrs []rdma.WorkRequest) []rdma.WorkRequest
	await rdma.Opcode
	left  int // to post
	open  int // in progress
	bufs  [][][]byte
	wrs   []rdma.WorkRequest
	rcv   []rdma.Receive
	last  time.Time
	times []time.Duration // between completions
}

func (h *benchClient) Sent([]uint64) {}

func (h *benchClient) Completed(batch []rdma.Completion) {
	if h.regions == nil {
		b := h.bufs[batch[0].ID][0]
		for i := range benchDepth {
			h.regions = append(h.regions, rdma.Remote{Handle: binary.BigEndian.Uint32(b[12*i:]), Offset: binary.BigEndian.Uint64(b[12*i+4:])})
		}
		close(h.ready)
		return
	}
	now := time.Now()
	h.times = append(h.times, now.Sub(h.last))
	h.last = now
	h.wrs, h.rcv = h.wrs[:0], h.rcv[:0]
	for _, c := range batch {
		if c.Op == rdma.Recv {
			h.rcv = append(h.rcv, rdma.Receive{ID: c.ID, Segments: h.bufs[c.ID]})
		}
		if c.Op != h.await {
			continue
		}
		h.open--
		if h.left > 0 {
			h.left--
			h.open++
			h.wrs = h.op(uint64(h.left), h.wrs)
		}
	}
	if err := errors.Join(h.ep.PostReceives(h.rcv), h.ep.Post(h.wrs)); err != nil {
		panic(err)
	}
	if h.open == 0 {
		close(h.done)
	}
}

// benchIWARP runs b.N operations, depth of them at once.
func benchIWARP(b *testing.B, kind string, depth int, await rdma.Opcode, bytes int64, op func(h *benchClient) func(i uint64, wrs []rdma.WorkRequest) []rdma.WorkRequest) {
	address := startPeer(b, kind)
	p, err := New(benchConfig(kind))
	if err != nil {
		b.Fatal(err)
	}
	d, err := p.NewDomain()
	if err != nil {
		b.Fatal(err)
	}
	if err := d.Register(testPool); err != nil {
		b.Fatal(err)
	}
	h := &benchClient{ready: make(chan struct{}), done: make(chan struct{}), await: await}
	for i := range 2 * benchDepth {
		h.bufs = append(h.bufs, [][]byte{memory(256)})
		h.rcv = append(h.rcv, rdma.Receive{ID: uint64(i), Segments: h.bufs[i]})
	}
	h.ep, err = p.Dial(context.Background(), address, rdma.Options{Domain: d, IRD: benchDepth, ORD: benchDepth, Receives: h.rcv})
	if err != nil {
		b.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- h.ep.Serve(h) }()
	if err := h.ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Local: [][]byte{memory(1)}}}); err != nil {
		b.Fatal(err)
	}
	<-h.ready
	h.op = op(h)
	before := h.ep.Stats()
	h.times = make([]time.Duration, 0, b.N+1)
	b.SetBytes(bytes)
	b.ReportAllocs()
	b.ResetTimer()
	h.last = time.Now()
	start := min(depth, b.N)
	h.open, h.left = start, b.N-start
	var wrs []rdma.WorkRequest
	for i := range start {
		wrs = h.op(uint64(i), wrs)
	}
	if err := h.ep.Post(wrs); err != nil {
		b.Fatal(err)
	}
	<-h.done
	b.StopTimer()
	after := h.ep.Stats()
	b.ReportMetric(float64(after.ReadCalls+after.WriteCalls-before.ReadCalls-before.WriteCalls)/float64(b.N), "syscalls/op")
	if depth == 1 {
		slices.Sort(h.times)
		b.ReportMetric(float64(h.times[len(h.times)/2]), "p50-ns")
	}
	if bytes > 1000 {
		b.ReportMetric(float64(after.CopiedIn-before.CopiedIn)/float64(max(1, after.BytesIn-before.BytesIn)), "copied")
	}
	_ = h.ep.Close()
	if err := <-served; !errors.Is(err, net.ErrClosed) {
		b.Error(err)
	}
}

func benchKinds(b *testing.B, run func(b *testing.B, kind string)) {
	for _, kind := range []string{"crc", "plain"} {
		b.Run(kind, func(b *testing.B) { run(b, kind) })
	}
}

func benchSend(b *testing.B, depth int) {
	benchKinds(b, func(b *testing.B, kind string) {
		benchIWARP(b, kind, depth, rdma.Recv, 0, func(*benchClient) func(uint64, []rdma.WorkRequest) []rdma.WorkRequest {
			m := [][]byte{memory(128)}
			return func(_ uint64, wrs []rdma.WorkRequest) []rdma.WorkRequest {
				return append(wrs, rdma.WorkRequest{Op: rdma.Send, Local: m})
			}
		})
	})
}

// BenchmarkPingPong: messages of 128 bytes, one at a time.
func BenchmarkPingPong(b *testing.B) { benchSend(b, 1) }

// BenchmarkSends: messages of 128 bytes and their answers, 16 at a time.
func BenchmarkSends(b *testing.B) { benchSend(b, benchDepth) }

// BenchmarkWrite: 1 MiB and a message after it, which is answered, 16 at a time.
func BenchmarkWrite(b *testing.B) { benchWrite(b, benchBulk, benchDepth) }

// BenchmarkWrite64K: the same with 64 KiB.
func BenchmarkWrite64K(b *testing.B) { benchWrite(b, 64<<10, benchDepth) }

func benchWrite(b *testing.B, size, depth int) {
	benchKinds(b, func(b *testing.B, kind string) {
		benchIWARP(b, kind, depth, rdma.Recv, int64(size), func(h *benchClient) func(uint64, []rdma.WorkRequest) []rdma.WorkRequest {
			m := [][]byte{memory(128)}
			var data [][][]byte
			for range 2 {
				data = append(data, [][]byte{memory(size)})
			}
			return func(i uint64, wrs []rdma.WorkRequest) []rdma.WorkRequest {
				return append(wrs, rdma.WorkRequest{Op: rdma.Write, Local: data[i%2], Remote: h.regions[i%2]},
					rdma.WorkRequest{Op: rdma.Send, Local: m})
			}
		})
	})
}

// BenchmarkRead: 1 MiB, 16 at a time.
func BenchmarkRead(b *testing.B) { benchRead(b, benchBulk, benchDepth) }

// BenchmarkRead64K: the same with 64 KiB.
func BenchmarkRead64K(b *testing.B) { benchRead(b, 64<<10, benchDepth) }

func benchRead(b *testing.B, size, depth int) {
	benchKinds(b, func(b *testing.B, kind string) {
		benchIWARP(b, kind, depth, rdma.Read, int64(size), func(h *benchClient) func(uint64, []rdma.WorkRequest) []rdma.WorkRequest {
			var data [][][]byte
			for range 2 {
				data = append(data, [][]byte{memory(size)})
			}
			return func(i uint64, wrs []rdma.WorkRequest) []rdma.WorkRequest {
				return append(wrs, rdma.WorkRequest{Op: rdma.Read, Local: data[i%2], Remote: h.regions[i%2]})
			}
		})
	})
}

// BenchmarkTCP has the floors: bare sockets.
func BenchmarkTCP(b *testing.B) {
	dial := func(b *testing.B, kind string) net.Conn {
		c, err := net.Dial("tcp", startPeer(b, kind))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		return c
	}
	b.Run("PingPong", func(b *testing.B) {
		c := dial(b, "echo")
		buf := make([]byte, 128)
		times := make([]time.Duration, b.N)
		b.ResetTimer()
		for i := range times {
			start := time.Now()
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Fatal(err)
			}
			times[i] = time.Since(start)
		}
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2]), "p50-ns")
	})
	b.Run("Sends", func(b *testing.B) { // 16 messages in one write and, mostly, one read
		c := dial(b, "echo")
		buf := make([]byte, 152*benchDepth)
		b.ResetTimer()
		for n := 0; n < b.N; n += benchDepth {
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Write", func(b *testing.B) {
		c := dial(b, "drain")
		buf := make([]byte, benchBulk)
		b.SetBytes(benchBulk)
		b.ResetTimer()
		for range b.N {
			if _, err := c.Write(buf); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("Read", func(b *testing.B) {
		c := dial(b, "source")
		buf := make([]byte, benchBulk)
		b.SetBytes(benchBulk)
		b.ResetTimer()
		for range b.N {
			if _, err := io.ReadFull(c, buf); err != nil {
				b.Fatal(err)
			}
		}
	})
}
