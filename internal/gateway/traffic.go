package gateway

import (
	"context"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"sluice.dev/sluice/internal/gateway/conns"
	"sluice.dev/sluice/internal/gateway/metric"
	"sluice.dev/sluice/internal/gateway/rpcstats"
	"sluice.dev/sluice/internal/gateway/tracing"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// traffic observes the connections and calls of an export. It outlasts the export's backends and
// servers.
type traffic struct {
	name    string // of the export
	log     *slog.Logger
	tracer  *tracing.Tracer
	stats   rpcstats.Stats
	conns   *conns.Table
	servers tcpServers
	credits *credits
}

func newTraffic(name string, log *slog.Logger, res *resources) *traffic {
	return &traffic{name: name, log: log, tracer: res.tracer, conns: conns.New(log, &res.connections), credits: newCredits(&res.receiveMemory)}
}

// epoch is the zero of the clock of calls.
var epoch = time.Now()

// observe returns a handler that counts and times calls.
func (t *traffic) observe(next oncrpc.Handler) oncrpc.Handler { return observed{t, next} }

type observed struct {
	t    *traffic
	next oncrpc.Handler
}

// received starts the trace of a call, if it is sampled.
func (t *traffic) received(c *oncrpc.Call) {
	if x := t.tracer.Start(); x != nil {
		c.Trace = x
	}
}

// traced adds an answered call to its trace, and the trace to its latency.
func (t *traffic) traced(c *oncrpc.Call, x *tracing.Call, d time.Duration) {
	program, procedure := rpcstats.Names(c)
	traceID, spanID := x.Answered(tracing.Answer{
		Export: t.name, Program: program, Procedure: procedure, Number: c.Procedure, Version: c.Version,
		Network: c.Conn.Network, Client: c.Conn.Remote,
		In: rpcstats.MessageSize(&c.Message), Out: rpcstats.MessageSize(&c.Reply), Failure: rpcstats.Failure(c),
	})
	t.stats.Trace(c, d, traceID, spanID)
}

// ServeRPC implements oncrpc.Handler.
func (h observed) ServeRPC(c *oncrpc.Call) {
	c.Began = int64(time.Since(epoch))
	o := h.t.observerOf(c.Conn)
	o.calls.Received(c)
	c.Observe(o)
	h.next.ServeRPC(c)
}

// connObserver observes the calls of one connection.
type connObserver struct {
	t     *traffic
	calls *rpcstats.Calls
}

// connObserverKey is the key of a *connObserver in Values of a connection.
type connObserverKey struct{}

// observerOf returns the observer of a connection's calls. Only ServeRPC may call it.
func (t *traffic) observerOf(c *oncrpc.Conn) *connObserver {
	o, ok := c.Values[connObserverKey{}].(*connObserver)
	if !ok {
		o = &connObserver{t, t.conns.Calls(c)}
		c.Values[connObserverKey{}] = o
	}
	return o
}

// Answered implements oncrpc.CallObserver.
func (o *connObserver) Answered(c *oncrpc.Call) {
	d := time.Since(epoch) - time.Duration(c.Began)
	ok := o.t.stats.Answered(c, d)
	o.calls.Answered(c, d, ok)
	if x, traced := c.Trace.(*tracing.Call); traced {
		o.t.traced(c, x, d)
	}
	if c.Status.OK() {
		o.t.credits.Latency(rpcstats.Kind(c), d)
	}
}

// Dropped implements oncrpc.CallObserver.
func (o *connObserver) Dropped(c *oncrpc.Call) {
	o.t.stats.Dropped(c)
	o.calls.Dropped()
}

// rdmaObserver observes an RPC-over-RDMA server.
type rdmaObserver struct {
	rpcrdma.NoObserver
	t     *traffic
	ended func(client netip.Addr) // called at the end of each connection
}

func (o rdmaObserver) CallReceived(c *oncrpc.Call)           { o.t.received(c) }
func (o rdmaObserver) Transferred(p rpcrdma.Path, bytes int) { o.t.stats.Transferred(p, bytes) }
func (o rdmaObserver) ProtocolError(f rpcrdma.ErrorKind)     { o.t.stats.ProtocolError(f) }
func (o rdmaObserver) SRQPosted(n int)                       { o.t.credits.shared.Add(int64(n)) }

func (o rdmaObserver) ConnOpened(c *rpcrdma.Conn) {
	o.t.conns.Open(conns.RDMA, c.Info(), c)
	o.t.log.Info("client connected", "network", "rdma", "peer", c.Info().Remote.String())
}

// ConnClosed does not log: the server does.
func (o rdmaObserver) ConnClosed(c *rpcrdma.Conn, cause error) {
	o.t.conns.Close(conns.RDMA, c.Info(), cause)
	o.ended(conns.ClientOf(c.Info().Remote.Addr()))
}

func (o rdmaObserver) ConnRefused(remote netip.AddrPort, cause error) {
	client := conns.ClientOf(remote.Addr())
	o.t.conns.Refuse(conns.RDMA, client, conns.BySetup, cause.Error())
	o.ended(client)
}

// tcpObserver observes an RPC server on TCP.
type tcpObserver struct {
	oncrpc.NoObserver
	t     *traffic
	ended func(client netip.Addr) // called at the end of each connection
}

func (o tcpObserver) ConnOpened(c *oncrpc.Conn) {
	o.t.conns.Open(conns.TCP, c, nil)
	o.t.log.Info("client connected", "network", "tcp", "peer", c.Remote.String())
}

func (o tcpObserver) ConnClosed(c *oncrpc.Conn, cause error) {
	o.t.conns.Close(conns.TCP, c, cause)
	o.ended(conns.ClientOf(c.Remote.Addr()))
	level := slog.LevelWarn
	switch conns.EndingOf(cause) {
	case conns.ByPeer, conns.ByShutdown, conns.BeforeFirstCall, conns.AfterCall:
		level = slog.LevelInfo
	}
	o.t.log.Log(context.Background(), level, "connection ended", "network", "tcp", "peer", c.Remote.String(), "reason", cause.Error())
}

func (o tcpObserver) ConnRefused(remote netip.AddrPort, cause error) {
	client := conns.ClientOf(remote.Addr())
	o.t.conns.Refuse(conns.TCP, client, conns.BySetup, cause.Error())
	o.ended(client)
}

func (o tcpObserver) CallReceived(c *oncrpc.Call, b oncrpc.Bytes) {
	o.t.stats.Received(b)
	o.t.received(c)
}

func (o tcpObserver) ReplySent(_ *oncrpc.Call, b oncrpc.Bytes, _ time.Duration) { o.t.stats.Sent(b) }

func (o tcpObserver) BadMessage(c *oncrpc.Conn, cause error) {
	o.t.stats.BadRecord()
	o.t.log.Warn("RPC protocol error", "network", "tcp", "peer", c.Remote.String(), "reason", cause.Error())
}

func (t *traffic) collect(s metric.Sink) {
	t.stats.Collect(s)
	t.conns.Collect(s)
	t.credits.collect(s)
	tcp := t.servers.totals()
	s.Transport("tcp", metric.Transport{
		ReadCalls: tcp.ReadCalls, WriteCalls: tcp.WriteCalls, MessagesIn: tcp.RecordsIn, MessagesOut: tcp.RecordsOut, BytesIn: tcp.BytesIn, BytesOut: tcp.BytesOut,
	})
}

// tcpServers are the TCP servers of an export, draining ones included.
type tcpServers struct {
	mu    sync.Mutex
	live  map[*oncrpc.Server]struct{}
	ended oncrpc.Stats // sum of removed servers
}

func (t *tcpServers) add(s *oncrpc.Server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.live == nil {
		t.live = map[*oncrpc.Server]struct{}{}
	}
	t.live[s] = struct{}{}
}

func (t *tcpServers) remove(s *oncrpc.Server) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.live, s)
	t.ended.Add(s.Stats())
}

func (t *tcpServers) totals() oncrpc.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.ended
	for s := range t.live {
		sum.Add(s.Stats())
	}
	return sum
}
