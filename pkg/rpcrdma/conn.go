package rpcrdma

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// IDs of work requests: what it was in the upper half, whose it was in the lower.
const (
	idReceive uint64 = iota << 32
	idRead           // an RDMA Read for a call of the peer
	idAnswer         // the Send that answers it
	idRequest        // the Send of our call
	idRevoke         // the invalidation of memory that our call exposed
	idKind    = 0xffffffff_00000000
)

func index(id uint64) uint32 { return uint32(id) }

// Conn is a connection, with both roles on it: requester and responder.
type Conn struct {
	cfg    *Config
	ep     rdma.Endpoint
	server bool // this side accepted the connection: the peer's calls are the forward direction
	peer   wire.PrivateData
	info   oncrpc.Conn
	done   chan struct{}
	err    error // why it ended; set before done is closed

	sendLimit  int  // inline threshold of messages from here
	recvLimit  int  // inline threshold of messages to here
	invalidate bool // replies may revoke the memory of their call

	// loop is held by whoever handles completions or runs the handler: Serve's goroutine, or that of a call which had
	// to wait for memory. It is never taken in Sent.
	loop     sync.Mutex
	receives receives
	work     workQueue
	in       responder
	out      requester

	suspects    *suspects // a server's
	maxGather   int
	faults      atomic.Uint64 // protocol errors, logged or not
	logMu       sync.Mutex
	lastLog     time.Time
	notLogged   int
	closeReason atomic.Pointer[error]
}

// newConn makes a connection without an endpoint; its receives can be prepared.
func newConn(cfg *Config, server bool) *Conn {
	c := &Conn{cfg: cfg, server: server, done: make(chan struct{})}
	size, back := cfg.InlineReply, cfg.BackCredits
	if server {
		size, back = cfg.InlineCall, 0 // receives for reverse replies are posted with the reverse calls
	}
	layout := cfg.layout
	if layout == nil {
		layout = []int{size}
	}
	c.receives = receives{pool: cfg.Pool, layout: layout, credits: 1, peak: 1, extra: reserve + back}
	c.receives.table.Store(new([]*receive))
	c.in.init(c)
	c.out.init(c)
	c.work.init(c, 4*c.receiveQueue())
	return c
}

// privateData is what this side tells the peer (RFC 8797).
func (c *Conn) privateData() wire.PrivateData {
	p := wire.PrivateData{RemoteInvalidation: c.cfg.RemoteInvalidation, SendSize: c.cfg.InlineCall, ReceiveSize: c.cfg.InlineReply}
	if c.server {
		p.SendSize, p.ReceiveSize = c.cfg.InlineReply, c.cfg.InlineCall
	}
	return p
}

// establish takes the endpoint over.
func (c *Conn) establish(ep rdma.Endpoint) {
	a := ep.Attributes()
	own := c.privateData()
	c.ep, c.receives.ep = ep, ep
	c.peer, _ = wire.ParsePrivateData(a.PrivateData)
	c.sendLimit = min(own.SendSize, c.peer.ReceiveSize)
	c.recvLimit = min(own.ReceiveSize, c.peer.SendSize)
	c.invalidate = own.RemoteInvalidation && c.peer.RemoteInvalidation
	c.maxGather = max(2, a.MaxSegments)
	c.info = oncrpc.Conn{
		Network: "rdma", Remote: addrPort(ep.RemoteAddr()), Local: addrPort(ep.LocalAddr()),
		Back: &c.out, Out: ep, Batch: c.cfg.Batch, Done: c.done, Values: map[any]any{},
	}
}

func addrPort(a net.Addr) netip.AddrPort {
	if a == nil {
		return netip.AddrPort{}
	}
	if t, ok := a.(interface{ AddrPort() netip.AddrPort }); ok {
		return t.AddrPort()
	}
	p, _ := netip.ParseAddrPort(a.String())
	return p
}

// run drives the connection until it ends, and frees everything that it had.
func (c *Conn) run() {
	err := c.ep.Serve(c)
	if why := c.closeReason.Load(); why != nil && errors.Is(err, net.ErrClosed) {
		err = *why
	}
	_ = c.ep.Close()
	c.loop.Lock()
	c.receives.close()
	c.work.close()
	var refused *rdma.AccessError
	if errors.As(err, &refused) {
		c.in.accuse(wire.Handle(refused.Handle))
		c.fault(BadMemory, "%v", err)
	}
	c.in.close()
	c.loop.Unlock()
	c.in.orphans.Wait()
	c.out.close(err)
	c.err = err
	close(c.done)
}

// Completed implements rdma.Handler.
func (c *Conn) Completed(batch []rdma.Completion) {
	if b := c.complete(batch); b != nil {
		b.Release()
	}
}

// complete works through a batch. It holds, and returns, where calls are passed on to.
func (c *Conn) complete(batch []rdma.Completion) oncrpc.Gatherer {
	c.loop.Lock()
	defer c.loop.Unlock()
	held := c.info.Batch
	if held != nil {
		held.Hold()
	}
	for i := range batch {
		switch cp := &batch[i]; cp.ID & idKind {
		case idReceive:
			c.received(cp)
		case idRead:
			c.work.done(1)
			c.in.readDone(index(cp.ID))
		case idRevoke:
			c.work.done(1)
			c.out.revoked(index(cp.ID))
		}
	}
	if err := c.receives.fill(); err != nil {
		c.fail(err)
	}
	c.out.settle()
	return held
}

// Sent implements rdma.Handler.
func (c *Conn) Sent(ids []uint64) {
	for _, id := range ids {
		switch id & idKind {
		case idAnswer:
			c.in.sent(index(id))
		case idRequest:
			c.out.sent(index(id))
		}
	}
}

// received sorts a message: a call for the responder, or a reply for the requester.
func (c *Conn) received(cp *rdma.Completion) {
	ic := c.in.get()
	s := c.receives.get(cp.ID)
	ic.message = s.message(ic.message[:0], cp.Bytes)
	ic.Own(s.buf)
	err := ic.hdr.Parse(ic.message, &c.cfg.Limits)
	if err != nil {
		c.badHeader(ic, s, cp, err.(*wire.ParseError)) //nolint:errorlint // it is documented to be one
		return
	}
	ic.Stream = wire.Payload(ic.Stream[:0], ic.message, ic.hdr.Size)
	switch p := ic.hdr.Procedure; {
	case p == wire.Error:
		c.receives.arrived(s, false)
		c.out.refused(ic, cp)
	case p == wire.Done:
		c.receives.arrived(s, false)
		c.drop(ic, Dropped, "RDMA_DONE is no longer part of version 1")
	case c.isReply(ic):
		c.receives.arrived(s, false)
		c.out.reply(ic, cp)
	default:
		c.receives.arrived(s, true)
		c.in.call(ic)
	}
}

// isReply tells the direction of a message (RFC 8167 section 3): by the RPC message type where it is there to be read, otherwise by the
// chunks, since only a call has a Position Zero Read chunk, and only a reply is in a Reply chunk alone.
func (c *Conn) isReply(ic *inCall) bool {
	if ic.hdr.Procedure == wire.NoMsg {
		return len(ic.hdr.Reads) == 0 && (!c.server || ic.hdr.HasReply && c.out.expects(uint32(ic.hdr.XID)))
	}
	ic.dec.Reset(ic.Stream, nil)
	ic.dec.Uint32()
	t := ic.dec.Uint32()
	if ic.dec.Err() != nil || t > oncrpc.MsgReply {
		return !c.server // neither: an answer is due only to a client
	}
	return t == oncrpc.MsgReply
}

// badHeader handles a message whose header cannot be read. What may be the reply to a call of ours completes that; other
// replies are dropped, and calls are answered (RFC 8166 section 4.5).
func (c *Conn) badHeader(ic *inCall, s *receive, cp *rdma.Completion, err *wire.ParseError) {
	short := err.Field == "length" && err.Code == 0 && err.Offset == 0
	answer := c.server && err.Code != 0 && !c.out.expects(uint32(ic.hdr.XID))
	c.receives.arrived(s, answer)
	switch {
	case short:
		c.drop(ic, ShortMessage, err.Error())
	case answer && err.Code == wire.ErrVers:
		ic.refuse(wire.ErrVers, BadVersion, "%v", err)
	case answer:
		ic.refuse(wire.ErrChunk, BadHeader, "%v", err)
	case !c.out.garbled(ic, cp, err):
		c.drop(ic, BadHeader, err.Error())
	}
}

// drop gives up a message that holds no credit.
func (c *Conn) drop(ic *inCall, f Fault, why string) {
	c.fault(f, "message dropped: %s", why)
	ic.recycle()
}

// fault counts a protocol error, and logs it, once a second at most.
func (c *Conn) fault(f Fault, format string, args ...any) {
	c.cfg.Observer.Erred(f)
	c.faults.Add(1)
	c.logMu.Lock()
	now := c.cfg.Now()
	if !c.lastLog.IsZero() && now.Sub(c.lastLog) < time.Second {
		c.notLogged++
		c.logMu.Unlock()
		return
	}
	c.lastLog = now
	skipped := c.notLogged
	c.notLogged = 0
	c.logMu.Unlock()
	c.cfg.Logger.Warn("RPC-over-RDMA protocol error", slog.String("peer", c.info.Remote.String()), slog.String("error", f.String()),
		slog.String("reason", fmt.Sprintf(format, args...)), slog.Int("not logged before", skipped))
}

// fail ends the connection because of err.
func (c *Conn) fail(err error) {
	if c.closeReason.CompareAndSwap(nil, &err) {
		_ = c.ep.Close()
	}
}

// buffer returns a buffer of at least n bytes: b itself if it is large enough.
func (c *Conn) buffer(b *bufpool.Buf, n int) (*bufpool.Buf, error) {
	if b != nil && cap(b.B) >= n {
		b.B = b.B[:n]
		return b, nil
	}
	nb, err := c.cfg.Pool.Get(n)
	if err != nil {
		return b, err
	}
	if b != nil {
		b.Release()
	}
	return nb, nil
}
