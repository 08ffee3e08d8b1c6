package gateway

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// What transports and handlers tell, turned into the figures of an export.

// epoch is the zero of the clock that calls are timed by.
var epoch = time.Now()

// observed is a handler whose calls are counted and timed.
type observed struct {
	e    *export
	next oncrpc.Handler
}

// ServeRPC implements oncrpc.Handler.
func (h observed) ServeRPC(c *oncrpc.Call) {
	c.Began = int64(time.Since(epoch))
	c.Observe(h.e)
	h.next.ServeRPC(c)
}

// Answered implements oncrpc.CallObserver.
func (e *export) Answered(c *oncrpc.Call) {
	d := time.Since(epoch) - time.Duration(c.Began)
	e.stats.answered(c, d)
	if c.Status.OK() {
		e.credits.Latency(kind(c), d)
	}
}

// Dropped implements oncrpc.CallObserver.
func (e *export) Dropped(c *oncrpc.Call) { e.stats.dropped(c) }

// rdmaObserver is told what an export's RPC-over-RDMA connections do.
type rdmaObserver struct {
	rpcrdma.NoObserver
	e    *export
	left func(client netip.Addr) // a connection that was given to the server is gone
}

func (o rdmaObserver) Transferred(p rpcrdma.Path, bytes int) { o.e.stats.moved[p].Add(uint64(bytes)) }
func (o rdmaObserver) ProtocolError(f rpcrdma.ErrorKind)     { o.e.stats.faults[f].Add(1) }
func (o rdmaObserver) SRQPosted(n int)                       { o.e.stats.shared.Add(int64(n)) }

func (o rdmaObserver) ConnOpened(c *rpcrdma.Conn) {
	o.e.clients.open(onRDMA, c.Info(), c)
	o.e.log.Info("a client has connected", "network", "rdma", "peer", c.Info().Remote.String())
}

func (o rdmaObserver) ConnClosed(c *rpcrdma.Conn, cause error) {
	o.e.clients.close(onRDMA, c.Info(), cause)
	o.left(clientOf(c.Info().Remote.Addr()))
	// The server logs it.
}

func (o rdmaObserver) ConnRefused(remote netip.AddrPort, cause error) {
	client := clientOf(remote.Addr())
	o.e.clients.refuse(o.e.log, onRDMA, client, bySetup, cause.Error())
	o.left(client)
}

// tcpObserver is told what an export's TCP connections do.
type tcpObserver struct {
	oncrpc.NoObserver
	e    *export
	left func(client netip.Addr) // as with rdmaObserver
}

func (o tcpObserver) ConnOpened(c *oncrpc.Conn) {
	o.e.clients.open(onTCP, c, nil)
	o.e.log.Info("a client has connected", "network", "tcp", "peer", c.Remote.String())
}

func (o tcpObserver) ConnClosed(c *oncrpc.Conn, cause error) {
	o.e.clients.close(onTCP, c, cause)
	o.left(clientOf(c.Remote.Addr()))
	switch {
	case errors.Is(cause, io.EOF), errors.Is(cause, oncrpc.ErrShutdown), errors.Is(cause, net.ErrClosed),
		errors.Is(cause, syscall.ECONNRESET), errors.Is(cause, syscall.EPIPE), errors.Is(cause, errNoFirstCall), errors.Is(cause, errNoCall):
		o.e.log.Info("connection ended", "network", "tcp", "peer", c.Remote.String(), "reason", cause.Error())
	default:
		o.e.log.Warn("connection ended", "network", "tcp", "peer", c.Remote.String(), "reason", cause.Error())
	}
}

func (o tcpObserver) ConnRefused(remote netip.AddrPort, cause error) {
	client := clientOf(remote.Addr())
	o.e.clients.refuse(o.e.log, onTCP, client, bySetup, cause.Error())
	o.left(client)
}

func (o tcpObserver) CallReceived(_ *oncrpc.Call, b oncrpc.Bytes) {
	o.e.stats.tcpIn.Add(uint64(b.Inline))
}

func (o tcpObserver) ReplySent(_ *oncrpc.Call, b oncrpc.Bytes, _ time.Duration) {
	o.e.stats.tcpOut.Add(uint64(b.Inline))
}

func (o tcpObserver) BadMessage(c *oncrpc.Conn, cause error) {
	o.e.stats.badRecords.Add(1)
	o.e.log.Warn("RPC protocol error", "network", "tcp", "peer", c.Remote.String(), "reason", cause.Error())
}

// tcpServers are the TCP servers of an export: those of its ports, and those that drain.
type tcpServers struct {
	mu   sync.Mutex
	live map[*oncrpc.Server]struct{}
	gone oncrpc.Stats // what servers did that have ended
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
	addTCPStats(&t.gone, s.Stats())
}

// totals returns what all servers did.
func (t *tcpServers) totals() oncrpc.Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	sum := t.gone
	for s := range t.live {
		addTCPStats(&sum, s.Stats())
	}
	return sum
}

func addTCPStats(a *oncrpc.Stats, b oncrpc.Stats) {
	a.ReadCalls += b.ReadCalls
	a.WriteCalls += b.WriteCalls
	a.BytesIn += b.BytesIn
	a.BytesOut += b.BytesOut
	a.RecordsIn += b.RecordsIn
	a.RecordsOut += b.RecordsOut
	a.Orphans += b.Orphans
}

// transportStats are the figures that transports tell.
type transportStats struct {
	moved         [rpcrdma.Paths]atomic.Uint64
	faults        [rpcrdma.ErrorKinds]atomic.Uint64
	tcpIn, tcpOut atomic.Uint64
	badRecords    atomic.Uint64
	shared        atomic.Int64 // receives that are posted in shared queues
}

// bytes returns how many bytes of RPC messages came and went.
func (s *transportStats) bytes() (in, out uint64) {
	in, out = s.tcpIn.Load(), s.tcpOut.Load()
	for p := range s.moved {
		n := s.moved[p].Load()
		if inbound(rpcrdma.Path(p)) {
			in += n
		} else {
			out += n
		}
	}
	return in, out
}

func inbound(p rpcrdma.Path) bool {
	return p == rpcrdma.InlineCall || p == rpcrdma.ReadChunk || p == rpcrdma.LongCall || p == rpcrdma.PlacedCall
}
