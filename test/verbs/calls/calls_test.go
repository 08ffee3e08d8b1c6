//go:build verbs

// Package calls holds RPC-over-RDMA on rdma-core to what a call may cost.
package calls

import (
	"flag"
	"net/netip"
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

// observer is told of the server's connection.
type observer struct{ opened chan *rpcrdma.Conn }

func (observer) Moved(rpcrdma.Path, int)               {}
func (observer) Erred(rpcrdma.Fault)                   {}
func (observer) Credits(int, int)                      {}
func (o observer) ConnOpened(c *rpcrdma.Conn)          { o.opened <- c }
func (observer) ConnClosed(*rpcrdma.Conn, error)       {}
func (observer) ConnRefused(a netip.AddrPort, _ error) {}

// TestCalls: with 16 calls under way the responder crosses into C at most every other call where its receive loop answers, and at most once for a call where
// workers do; neither end allocates.
func TestCalls(t *testing.T) {
	if *address == "" {
		t.Skip("no -address: the test runs in the guest, by make test-verbs")
	}
	p, err := verbs.New(verbs.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name    string
		workers int
		most    float64 // crossings of the responder, for a call
	}{{"loop", 0, 0.5}, {"workers", 4, 1}} {
		t.Run(c.name, func(t *testing.T) { testCalls(t, p, c.workers, c.most) })
	}
	t.Run("invalidate", func(t *testing.T) { testInvalidate(t, p) })
}

func testCalls(t *testing.T, p rdma.Provider, workers int, most float64) {
	pool := bufpool.New(0)
	h := &handler{}
	if workers > 0 {
		h.queue = make(chan *oncrpc.Call, depth)
		defer close(h.queue)
	}
	for range workers {
		go h.work()
	}
	d, err := p.NewDomain()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Attach(pool); err != nil {
		t.Fatal(err)
	}
	l, err := p.Listen(t.Context(), *address)
	if err != nil {
		t.Fatal(err)
	}
	o := observer{make(chan *rpcrdma.Conn, 1)}
	s, err := rpcrdma.NewServer(rpcrdma.Config{Pool: pool, Domain: d, Handler: h, Observer: o}, l)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	cl, err := rpcrdma.Dial(t.Context(), p, s.Addr().String(), rpcrdma.Config{Pool: pool})
	if err != nil {
		t.Fatal(err)
	}
	server := <-o.opened
	r := newRun(t, cl, pool, 64)
	r.make(t, warmUp)
	var before, after runtime.MemStats
	first := server.Stats()
	runtime.ReadMemStats(&before)
	r.make(t, calls)
	runtime.ReadMemStats(&after)
	last := server.Stats()
	reads := float64(last.ReadCalls-first.ReadCalls) / calls
	writes := float64(last.WriteCalls-first.WriteCalls) / calls
	allocated := float64(after.Mallocs-before.Mallocs) / calls
	t.Logf("for a call: %.3f crossings that post requests, %.3f others, %.4f allocations", writes, reads, allocated)
	if reads+writes > most {
		t.Errorf("the responder crosses into C %.3f times for a call, want at most %v", reads+writes, most)
	}
	if allocated >= 0.05 { // the runtime has allocations of its own
		t.Errorf("%.4f allocations for a call, want none", allocated)
	}
	r.free()
	if err := cl.Close(); err != nil {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
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

// make makes n calls.
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
