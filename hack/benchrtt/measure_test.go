package benchrtt

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// row is the cost of an operation with one engine over one network.
type row struct {
	Op        string  `json:"op"`
	Engine    string  `json:"engine"`
	RTT       float64 `json:"rtt_us"`
	Bandwidth float64 `json:"gigabits_per_second,omitempty"` // absent: unlimited
	counts
	// Bytes counts all messages and RDMA operations, in both directions.
	Bytes uint64 `json:"bytes"`
	// PinnedClient and PinnedServer are each side's peak of buffer bytes in use: posted receives,
	// messages and data.
	PinnedClient int64   `json:"pinned_client_bytes"`
	PinnedServer int64   `json:"pinned_server_bytes"`
	Time         float64 `json:"time_us"`

	elapsed  time.Duration
	network  network
	extended bool
	slower   bool
}

// counts are those of one call. None of them depends on the network.
type counts struct {
	RoundTrips    float64 `json:"round_trips"`
	Messages      uint64  `json:"messages"`
	Operations    uint64  `json:"rdma_operations"`
	Registrations uint64  `json:"registrations"`
}

// connection is a client, its server, and the network between them.
type connection struct {
	t       *testing.T
	e       *engine
	n       network
	fabric  *rdmatest.Fabric
	pools   [2]*bufpool.Pool // the client's and the server's
	pinned  [2]int64         // peak in use
	looking sync.Mutex       // both ends call look
	server  server
	caller  caller
	opening time.Duration // from Dial to the reply of the first call
	close   func()
}

func (c *connection) must(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatalf("%s, round trip of %v: %v", c.e.name, c.n.rtt, err)
	}
}

// connect makes a connection over the fabric.
func connect(t *testing.T, e *engine, n network) *connection {
	c := newConnection(t, e, n)
	c.fabric = rdmatest.NewFabric(rdmatest.Options{Delay: n.rtt / 2, Bandwidth: n.bandwidth, ScribbleReceives: true, Record: true, Seed: 1})
	c.open(c.fabric, "localhost:0", func(address string) string { return address })
	return c
}

func newConnection(t *testing.T, e *engine, n network) *connection {
	return &connection{t: t, e: e, n: n, pools: [2]*bufpool.Pool{bufpool.New(0), bufpool.New(0)}}
}

// open makes a connection and its first calls, so that credits, thresholds and sizes are settled.
// through maps an address to the one to connect to.
func (c *connection) open(p rdma.Provider, address string, through func(string) string) {
	t, ctx := c.t, c.t.Context()
	cfg := rpcrdma.Config{
		InlineCall: inline, InlineReply: inline, Credits: credit.Static(credits), Bindings: binding.For, RemoteInvalidation: true,
	}
	c.e.set(&cfg)

	here := cfg
	here.Pool, here.Handler = c.pools[1], &c.server
	c.server.answering = c.look
	var err error
	here.Domain, err = p.NewDomain()
	c.must(err)
	c.must(here.Domain.Register(here.Pool))
	l, err := p.Listen(ctx, address)
	c.must(err)
	s, err := rpcrdma.NewServer(here, l)
	c.must(err)
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := s.Serve(); err != nil {
			t.Error(err)
		}
	})

	var cl *rpcrdma.Client
	c.close = sync.OnceFunc(func() {
		if cl != nil {
			c.must(cl.Close())
			<-cl.Done()
		}
		c.must(s.Close())
		serving.Wait()
		c.must(here.Domain.Close())
		for _, p := range c.pools {
			c.must(p.Close())
		}
	})
	t.Cleanup(c.close)

	there := cfg
	there.Pool = c.pools[0]
	began := time.Now()
	cl, err = rpcrdma.Dial(ctx, p, through(l.Addr().String()), there)
	c.must(err)
	cred, err := (&oncrpc.AuthSysParms{Machine: []byte("client"), UID: 1000, GID: 1000, GIDs: []uint32{1000}}).Auth()
	c.must(err)
	rq := &looker{cl, c.look}
	c.caller = caller{client.New(client.Config{Requester: rq, Pool: there.Pool, Cred: cred}), rq, cred}
	_, err = c.caller.GetAttr(ctx, file)
	c.must(err)
	c.opening = time.Since(began)
	_, err = c.caller.FSInfo(ctx, file)
	c.must(err)
	c.must(limited(c.e, cl.Negotiated()))
}

// limited checks that a connection has the limits of the table.
func limited(e *engine, n rpcrdma.Negotiated) error {
	if n.InlineCall != inline || n.InlineReply != inline || n.Granted != credits {
		return fmt.Errorf("inline thresholds are %d and %d, credits %d", n.InlineCall, n.InlineReply, n.Granted)
	}
	if !e.extended {
		return nil
	}
	for _, p := range []rpcrdma.Properties{n.Own, n.Remote} {
		if p.ReceiveSize != receiveHead+receiveData || p.Targets != receiveData {
			return fmt.Errorf("receives have %d bytes, %d of them targetable", p.ReceiveSize, p.Targets)
		}
	}
	if n.Remote.RequestLimit != transmissions || n.Remote.ResponseLimit != transmissions {
		return fmt.Errorf("the server takes %d transmissions, and sends %d", n.Remote.RequestLimit, n.Remote.ResponseLimit)
	}
	return nil
}

// look updates the peak of memory in use.
func (c *connection) look() {
	c.looking.Lock()
	defer c.looking.Unlock()
	for i, p := range c.pools {
		c.pinned[i] = max(c.pinned[i], p.Stats().InUse)
	}
}

// looker is a requester that calls look when a call has its reply.
type looker struct {
	*rpcrdma.Client
	look func()
}

func (l *looker) Submit(r *oncrpc.Request) {
	done := r.Done
	r.Done = func(r *oncrpc.Request) {
		l.look()
		done(r)
	}
	l.Client.Submit(r)
}

// measure makes one call, and waits until all that it caused has happened.
func (c *connection) measure(op operation) row {
	c.settle()
	clear(c.pinned[:])
	c.server.calls = 0
	before, seen, began := c.fabric.Counters(), len(c.fabric.Events()), time.Now()
	err := op.do(context.Background(), &c.caller)
	elapsed := time.Since(began)
	if err != nil {
		c.t.Fatalf("%s, %s: %v", c.e.name, op.name, err)
	}
	events := c.fabric.Events()[seen:]
	c.settle()
	n := c.fabric.Counters().Sub(before)
	if c.server.calls != 1 {
		c.t.Fatalf("%s, %s: executed %d times", c.e.name, op.name, c.server.calls)
	}
	return row{
		Op: op.name, Engine: c.e.name, RTT: micros(c.n.rtt), Bandwidth: float64(c.n.bandwidth) * 8 / 1e9,
		counts:       counts{roundTrips(events), n.Messages, n.Writes + n.Reads, n.Exposed},
		Bytes:        n.MessageBytes + n.WriteBytes + n.ReadBytes,
		PinnedClient: c.pinned[0], PinnedServer: c.pinned[1], Time: micros(elapsed),
		elapsed: elapsed, network: c.n, extended: c.e.extended, slower: c.e.slower,
	}
}

// settle waits for the end of everything in progress.
func (c *connection) settle() {
	time.Sleep(10*c.n.rtt + time.Millisecond)
	synctest.Wait()
}

func micros(d time.Duration) float64 { return math.Round(float64(d)) / 1e3 }

// roundTrips counts the waits for the other side in a transcript of one call. A flight is
// everything that one side sends until the other one does; the data of RDMA Reads are one more, in
// the other direction. Two flights are a round trip. The count does not depend on time, so it holds
// at any bandwidth, and can be compared with the time at unlimited bandwidth.
func roundTrips(events []rdmatest.Event) float64 {
	flights := 0
	from, reading := rdmatest.EitherSide, false
	for _, e := range events {
		reads := e.What == "RDMA Read"
		if !reads && e.What != "RDMA Write" && e.What != "Send" && e.What != "Send with Invalidate" {
			continue
		}
		if e.From != from || reading && !reads {
			flights++
			from, reading = e.From, false
		}
		if reads && !reading {
			flights++
			reading = true
		}
	}
	return float64(flights) / 2
}
