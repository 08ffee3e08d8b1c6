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
	idControl        // the Send of a message that is about no call
	idKind    = 0xffffffff_00000000
)

func index(id uint64) uint32 { return uint32(id) }

// Conn is a connection, with both roles on it: requester and responder.
type Conn struct {
	cfg    *Config
	ep     rdma.Endpoint
	server bool // this side accepted the connection: the peer's calls are the forward direction
	peer   wire.PrivateData
	told   bool // the peer sent private data
	// revocable: what this side, a client, exposes can be invalidated by the peer.
	revocable bool
	info      oncrpc.Conn
	done      chan struct{}
	err       error // why it ended; set before done is closed

	terms  atomic.Pointer[terms]
	limits wire.Limits   // for headers that come; changed with the loop held
	chosen chan struct{} // at a client: closed when the version is settled

	// loop is held by whoever handles completions or runs the handler: Serve's goroutine, or that of a call which had
	// to wait for memory. It is never taken in Sent.
	loop     sync.Mutex
	receives receives
	work     workQueue
	in       responder
	out      requester
	control  control
	groups   groups
	zeros    *bufpool.Buf   // to pad messages with, until the end
	zero     []byte         // its bytes, for those who still work on an answer then; nothing of that is sent
	bufs     []*bufpool.Buf // for whoever has the loop

	suspects    *suspects // a server's
	maxGather   int
	faults      atomic.Uint64 // protocol errors, logged or not
	logMu       sync.Mutex
	lastLog     time.Time
	notLogged   int
	closeReason atomic.Pointer[error]
}

// errOverrun is why a connection ends whose messages would take receives that others were promised.
var errOverrun = errors.New("rpcrdma: the peer sent more than its credits allow")

// newConn makes a connection without an endpoint; its receives can be prepared. They lie in a queue that is shared, or in one of its own if shared is nil.
func newConn(cfg *Config, server bool, shared *receiveQueue) *Conn {
	c := &Conn{cfg: cfg, server: server, done: make(chan struct{}), chosen: make(chan struct{}), limits: cfg.Limits}
	c.control.init(c)
	c.receives = receives{queue: shared, credits: 1, peak: 1, extra: reserve}
	if shared == nil {
		c.receives.queue = newReceiveQueue(cfg.Pool, c.layout())
	}
	switch {
	case !server:
		c.receives.extra += cfg.ReverseCredits
	case cfg.offers(wire.Version2):
		c.receives.extra = 0 // until the version, and with it the structure of receives, is settled
	} // receives for reverse replies are posted with the reverse calls
	c.in.init(c)
	c.out.init(c)
	own := cfg.ReverseCredits // the calls of this side, as many as it asks credits for
	if !server {
		own = c.out.account.Max()
	}
	c.work.init(c, own+reserve, sendDepth(c.ownAccount().Max(), cfg.has(MessageContinuation)))
	return c
}

// layout are the lengths of the segments of a receive, for each of its buffers. A client has receives for bulk data from the start; a
// server has them once it has told the client of them.
func (c *Conn) layout() [][]int {
	switch {
	case c.cfg.layout != nil:
		return [][]int{c.cfg.layout}
	case c.cfg.has(SendBasedPlacement) && c.limits.Version2 && (!c.server || c.control.told):
		return [][]int{{c.receiveSize()}, {c.cfg.Placement.ReceiveBuffer}}
	}
	return [][]int{{max(c.control.size(), c.control.growing)}}
}

// privateData is what this side tells the peer (RFC 8797).
func (c *Conn) privateData() wire.PrivateData {
	p := wire.PrivateData{RemoteInvalidation: c.cfg.RemoteInvalidation && (c.server || c.revocable), SendSize: c.cfg.InlineCall, ReceiveSize: c.cfg.InlineReply}
	if c.server {
		p.SendSize, p.ReceiveSize = c.cfg.InlineReply, c.cfg.InlineCall
	}
	return p
}

// establish takes the endpoint over.
func (c *Conn) establish(ep rdma.Endpoint) {
	a := ep.Attributes()
	if c.ep = ep; !c.receives.queue.shared {
		c.receives.queue.to = ep
	}
	c.peer, c.told = wire.ParsePrivateData(a.PrivateData)
	if c.cfg.offers(wire.Version2) {
		c.terms.Store(c.terms1(0))
	} else {
		c.terms.Store(c.terms1(wire.Version1))
	}
	c.maxGather = max(2, a.MaxSegments)
	c.info = oncrpc.Conn{
		Network: "rdma", Remote: addrPort(ep.RemoteAddr()), Local: addrPort(ep.LocalAddr()),
		Back: &c.out, Out: ep, Batch: c.cfg.Batch, Done: c.done, Values: map[any]any{},
		Control: c,
	}
	c.in.share = c.cfg.Budget.Share(c.info.Remote.Addr().Unmap(), &c.in)
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
	c.control.close()
	c.groups.close()
	c.loop.Unlock()
	c.in.orphans.Wait()
	c.in.share.Close()
	c.out.close(err)
	c.err = err
	close(c.done)
}

// Completed implements rdma.Handler.
func (c *Conn) Completed(batch []rdma.Completion) {
	if b := c.complete(batch); b != nil {
		b.Uncork()
	}
}

// complete works through a batch. It holds, and returns, where calls are passed on to.
func (c *Conn) complete(batch []rdma.Completion) oncrpc.Corker {
	c.loop.Lock()
	defer c.loop.Unlock()
	c.ep.Cork() // so that receives gather too
	defer c.ep.Uncork()
	held := c.info.Batch
	if held != nil {
		held.Cork()
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
	c.control.pass()
	c.out.settle()
	c.control.settle()
	c.control.grow()
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
		case idControl:
			c.control.sent()
		}
	}
}

// received sorts a message: a call for the responder, a reply for the requester, or neither.
func (c *Conn) received(cp *rdma.Completion) {
	c.in.messages.Add(int64(cp.Bytes))
	ic := c.in.get()
	s := c.receives.queue.get(cp.ID)
	if !c.receives.expected() {
		c.receives.overrun(s)
		ic.recycle()
		c.fail(errOverrun)
		return
	}
	ic.message = s.message(ic.message[:0], cp.Bytes, &ic.Message, c.cfg.Pool)
	err := ic.hdr.Parse(ic.message, &c.limits)
	ic.v2 = ic.hdr.Version == wire.Version2 && c.limits.Version2
	if err != nil {
		c.badHeader(ic, s, cp, err.(*wire.ParseError)) //nolint:errorlint // it is documented to be one
		return
	}
	ic.Stream = wire.Payload(ic.Stream[:0], ic.message, ic.hdr.Size)
	settled := c.terms.Load().version != 0
	if !settled {
		c.pin(&ic.hdr)
	}
	if c.groups.asm != nil && c.groups.add(ic, s, cp) {
		return
	}
	switch p := ic.hdr.Procedure; {
	case p == wire.Error:
		c.arrived(ic, s, false)
		if c.control.refused(ic) {
			return
		}
		c.out.refused(ic, cp)
	case ic.v2 && p != wire.Msg && p != wire.NoMsg:
		c.arrived(ic, s, false)
		c.control.message(ic, cp)
	case p == wire.Done:
		c.arrived(ic, s, false)
		c.drop(ic, Dropped, "RDMA_DONE is no longer part of version 1")
	case c.isReply(ic):
		c.arrived(ic, s, false)
		if !settled && c.control.probed(ic) {
			return
		}
		c.out.reply(ic, cp)
	default:
		c.arrived(ic, s, true)
		c.in.call(ic)
	}
}

// arrived counts a message. With hold it keeps the place of its receive until it is answered.
func (c *Conn) arrived(ic *inCall, s *receive, hold bool) {
	ic.held = 0
	if hold {
		ic.held = 1
	}
	c.receives.arrived(s, hold)
}

// isReply tells the direction of a message. In version 1 (RFC 8167 section 3) that is by the RPC message type where it is there to be read,
// otherwise by the chunks, since only a call has a Position Zero Read chunk, and only a reply is in a Reply chunk alone.
func (c *Conn) isReply(ic *inCall) bool {
	if ic.v2 {
		return ic.hdr.Direction == wire.Reply
	}
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
	answered := c.groups.skip(&ic.hdr)
	reply := ic.hdr.Direction == wire.Reply || (!ic.v2 || !noReply(&ic.hdr)) && c.out.expects(uint32(ic.hdr.XID))
	answer := !answered && (c.server || ic.v2) && err.Code != 0 && !reply
	c.arrived(ic, s, answer && !(ic.v2 && aboutProperties(&ic.hdr)))
	switch {
	case short:
		c.drop(ic, ShortMessage, err.Error())
	case answer && err.Code == wire.ErrVers && ic.hdr.Version == wire.Version2 && ic.hdr.Procedure == wire.ConnProp:
		// A client that has both versions asks for the newer one: no fault, and it goes on with the other.
		ic.state = serving
		ic.sendError(wire.Fault2{Code: wire.ErrVers})
	case answer && err.Code == wire.ErrVers:
		ic.refuse(wire.ErrVers, BadVersion, "%v", err)
	case answer:
		ic.refuseWith(wire.Fault2{Code: err.Code2, Max: err.Max}, BadHeader, "%v", err)
	case answered:
		c.drop(ic, BadHeader, err.Error())
	case !c.out.garbled(ic, cp, err):
		c.drop(ic, BadHeader, err.Error())
	}
}

// aboutProperties reports whether a message of version 2 is about properties, which costs no credit.
func aboutProperties(h *wire.Header) bool {
	switch h.Procedure {
	case wire.ConnProp, wire.ReqProp, wire.RespProp, wire.UpdProp:
		return true
	}
	return false
}

// noReply reports whether a message of version 2 whose header cannot be read is no reply to a call: it says that it is a call itself, ahead of all that
// may be wrong, or it is about properties.
func noReply(h *wire.Header) bool {
	switch h.Procedure {
	case wire.Msg, wire.NoMsg, wire.Optional, wire.ConnProp, wire.ReqProp, wire.RespProp, wire.UpdProp:
		return h.Direction == wire.Call
	}
	return false
}

// drop gives up a message that holds no credit.
func (c *Conn) drop(ic *inCall, f ErrorKind, why string) {
	c.fault(f, "message dropped: %s", why)
	ic.recycle()
}

// fault counts a protocol error, and logs it, once a second at most.
func (c *Conn) fault(f ErrorKind, format string, args ...any) {
	c.cfg.Observer.ProtocolError(f)
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
