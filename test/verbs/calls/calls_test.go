//go:build verbs

// Package calls checks limits on the cost of a call of RPC-over-RDMA on rdma-core.
package calls

import (
	"errors"
	"flag"
	"math"
	"runtime"
	"sync/atomic"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/verbs"
	"sluice.dev/sluice/pkg/rpcrdma"
)

var address = flag.String("address", "", "where an RDMA device is: `host:port`")

const (
	depth  = 16
	calls  = 3000
	warmUp = 1000
)

// handler answers every call, on the receive loop or on goroutines of its own.
type handler struct{ queue chan *oncrpc.Call }

func (h *handler) ServeRPC(c *oncrpc.Call) {
	if h.queue != nil {
		h.queue <- c
		return
	}
	c.ReplyAccept(oncrpc.Success)
}

func (h *handler) work() {
	for c := range h.queue {
		c.ReplyAccept(oncrpc.Success)
	}
}

// observer receives the server's connection.
type observer struct {
	rpcrdma.NoObserver
	opened chan *rpcrdma.Conn
}

func (o observer) ConnOpened(c *rpcrdma.Conn) { o.opened <- c }

// TestCalls: with 16 calls outstanding the responder enters C at most once in two calls, whether
// its receive loop answers or workers do. Neither end allocates.
func TestCalls(t *testing.T) {
	if *address == "" {
		t.Skip("no -address: the test runs in the guest, by make test-verbs")
	}
	p, err := verbs.New(verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for name, workers := range map[string]int{"loop": 0, "workers": 4} {
		t.Run(name, func(t *testing.T) { testCalls(t, p, workers) })
	}
	t.Run("invalidate", func(t *testing.T) { testInvalidate(t, p) })
}

// connect starts a server on the device and connects a client, whose provider is dials. It returns
// both ends; they are closed when the test ends.
func connect(t *testing.T, p, dials rdma.Provider, pool *bufpool.Pool, server, client rpcrdma.Config) (*rpcrdma.Client, *rpcrdma.Conn) {
	t.Helper()
	orderly := func(what func() error) {
		t.Helper()
		t.Cleanup(func() {
			if err := what(); err != nil {
				t.Error(err)
			}
		})
	}
	d, err := p.NewDomain()
	if err != nil {
		t.Fatal(err)
	}
	orderly(d.Close)
	if err := d.Register(pool); err != nil {
		t.Fatal(err)
	}
	l, err := p.Listen(t.Context(), *address)
	if err != nil {
		t.Fatal(err)
	}
	o := observer{opened: make(chan *rpcrdma.Conn, 1)}
	server.Pool, server.Domain, server.Observer, client.Pool = pool, d, o, pool
	s, err := rpcrdma.NewServer(server, l)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	orderly(func() error { return errors.Join(s.Close(), <-served) })
	cl, err := rpcrdma.Dial(t.Context(), dials, s.Addr().String(), client)
	if err != nil {
		t.Fatal(err)
	}
	orderly(cl.Close)
	return cl, <-o.opened
}

// Limits for one call: the responder's entries into C, and allocations. The runtime has some
// allocations of its own.
const most, allocated = 0.5, 0.05

func testCalls(t *testing.T, p rdma.Provider, workers int) {
	pool := bufpool.New(0)
	h := &handler{}
	if workers > 0 {
		h.queue = make(chan *oncrpc.Call, depth)
		defer close(h.queue)
	}
	for range workers {
		go h.work()
	}
	cl, server := connect(t, p, p, pool, rpcrdma.Config{Handler: h}, rpcrdma.Config{})
	r := newRun(t, cl, pool, 64)
	defer r.free()
	r.make(t, warmUp)
	crossings, allocations := math.Inf(1), math.Inf(1)
	for range 5 { // other work of the machine can only increase the counts
		c, a := r.count(t, server)
		crossings, allocations = min(crossings, c), min(allocations, a)
		if crossings <= most && allocations < allocated {
			return
		}
	}
	t.Errorf("the responder crosses into C %.3f times for a call, want at most %v; there are %.4f allocations for a call, want none", crossings, most, allocations)
}

// count makes calls, and returns the server's entries into C and the allocations, each per call.
func (r *run) count(t *testing.T, server *rpcrdma.Conn) (crossings, allocations float64) {
	var before, after runtime.MemStats
	first := server.Stats()
	runtime.ReadMemStats(&before)
	r.make(t, calls)
	runtime.ReadMemStats(&after)
	last := server.Stats()
	reads := float64(last.ReadCalls-first.ReadCalls) / calls
	writes := float64(last.WriteCalls-first.WriteCalls) / calls
	allocations = float64(after.Mallocs-before.Mallocs) / calls
	t.Logf("for a call: %.3f crossings that post requests, %.3f others, %.4f allocations", writes, reads, allocations)
	return reads + writes, allocations
}

// run makes calls: each reply is followed by the next call.
type run struct {
	cl     *rpcrdma.Client
	all    []*oncrpc.Request
	left   atomic.Int64
	failed atomic.Int64
	done   chan struct{}
}

func newRun(t *testing.T, cl *rpcrdma.Client, pool *bufpool.Pool, maxReply int) *run {
	r := &run{cl: cl, done: make(chan struct{}, depth)}
	for range depth {
		q, _, err := oncrpc.NewRequest(pool, 400100, 1, 0, oncrpc.Auth{}, 64)
		if err != nil {
			t.Fatal(err)
		}
		q.Plan.MaxReply = maxReply
		if err := q.Seal(); err != nil {
			t.Fatal(err)
		}
		q.Done = r.next
		r.all = append(r.all, q)
	}
	return r
}

func (r *run) next(q *oncrpc.Request) {
	if q.Err != nil {
		r.failed.Add(1)
	} else {
		q.Reply.Release()
	}
	if q.Err != nil || r.left.Add(-1) < 0 {
		r.done <- struct{}{}
		return
	}
	oncrpc.Submit(r.cl, q)
}

func (r *run) make(t *testing.T, n int) {
	t.Helper()
	r.left.Store(int64(n - depth))
	for _, q := range r.all {
		oncrpc.Submit(r.cl, q)
	}
	for range r.all {
		<-r.done
	}
	if n := r.failed.Load(); n > 0 {
		t.Fatalf("%d calls failed", n)
	}
}

func (r *run) free() {
	for _, q := range r.all {
		q.Free()
	}
}
