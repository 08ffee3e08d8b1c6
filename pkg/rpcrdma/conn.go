package rpcrdma

import (
	"errors"
	"net"
	"net/netip"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Conn is a connection, with both roles on it.
type Conn struct {
	link
	responder  responder
	requester  requester
	negotiator negotiator
	groups     groupReceiver
	continued  continuation

	// Of the server's looks for idle connections: the bytes of messages then, and whether the
	// connection was trimmed since.
	seen    int64
	trimmed bool
}

// newConn makes a connection without an endpoint. Its receives can be prepared. They lie in shared,
// or in a queue of its own if shared is nil.
func newConn(cfg *Config, server bool, shared *recvQueue) *Conn {
	c := &Conn{link: link{cfg: cfg, server: server, done: make(chan struct{}), headerLimits: cfg.Limits, rfc5666: newRFC5666(cfg, server)}}
	c.headerLimits.Extensions = knownExtensions()
	c.negotiator.init(&c.link, &c.requester, c.groups.ready)
	c.receives = recvCredits{queue: shared, credits: 1, extra: spareReceives}
	if shared == nil {
		c.receives.queue = newRecvQueue(cfg.Pool, c.negotiator.receiveSegments())
	}
	switch {
	case !server:
		c.receives.extra += cfg.ReverseCredits
	case cfg.offers(wire.Version2):
		c.receives.extra = 0 // until the version, and with it the structure of receives, is known
	} // receives for reverse replies are posted with the reverse calls
	if c.exposes() {
		c.responder.exposed = new(exposedReplies)
		c.receives.extra += mostExposed
	}
	c.responder.init(&c.link)
	c.requester.init(&c.link)
	c.groups.init(&c.link, &c.responder, &c.requester, &c.negotiator)
	c.continued = continuation{link: &c.link, in: &c.responder, out: &c.requester}
	if c.workingGroup() {
		c.gate = newSendGate(&c.work, &c.receives, server)
	}
	own := cfg.ReverseCredits // the calls of this side: as many as it asks credits for
	if !server {
		own = c.requester.account.Max()
	}
	c.work.init(&c.receives, c.fail, own+spareReceives, sendDepth(c.ownAccount().Max(), cfg.has(MessageContinuation)))
	return c
}

func (c *Conn) establish(ep rdma.Endpoint) {
	a := ep.Attributes()
	c.ep, c.work.ep = ep, ep
	if !c.receives.queue.shared {
		c.receives.queue.to = ep
	}
	c.peer, c.gotPrivateData = wire.ParsePrivateData(a.PrivateData)
	if c.cfg.offers(wire.Version2) {
		c.negotiated.Store(c.negotiator.negotiatedV1(0))
	} else {
		c.negotiated.Store(c.negotiator.negotiatedV1(wire.Version1))
	}
	c.maxGather = max(2, a.MaxSegments)
	c.near = a.RoundTrip > 0 && a.RoundTrip <= c.cfg.Placement.Near
	c.info = oncrpc.Conn{
		Network: "rdma", Remote: addrPort(ep.RemoteAddr()), Local: addrPort(ep.LocalAddr()),
		Back: &c.requester, Out: ep, Batch: c.cfg.Batch, Done: c.done, Values: map[any]any{},
		Control: c,
	}
	c.responder.share = c.cfg.Budget.Share(c.info.Remote.Addr().Unmap(), &c.responder)
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

// run drives the connection until it ends, and frees all memory.
func (c *Conn) run() {
	err := c.ep.Serve(c)
	if why := c.closeReason.Load(); why != nil && errors.Is(err, net.ErrClosed) {
		err = *why
	}
	_ = c.ep.Close()
	c.recvMu.Lock()
	c.receives.close()
	c.work.close()
	var refused *rdma.AccessError
	if errors.As(err, &refused) {
		c.responder.blame(wire.Handle(refused.Handle))
		c.protocolError(BadMemory, "%v", err)
	}
	c.responder.close()
	c.negotiator.close()
	c.groups.close()
	c.continued.close()
	if c.gate != nil {
		c.gate.close()
	}
	c.recvMu.Unlock()
	c.responder.orphans.Wait()
	c.responder.share.Close()
	c.requester.close(err)
	c.err = err
	close(c.done)
}

// trimIfIdle frees the memory that only a busy connection needs, if no message has come since the
// last call. Calls that are under way keep theirs.
func (c *Conn) trimIfIdle() {
	if n := c.responder.messages.Load(); n != c.seen {
		c.seen, c.trimmed = n, false
		return
	}
	if c.trimmed || !c.recvMu.TryLock() {
		return
	}
	defer c.recvMu.Unlock()
	c.trimmed = true
	c.responder.trim()
	c.receives.queue.trim()
	if t, ok := c.ep.(rdma.Trimmer); ok {
		t.Trim()
	}
}

func (c *Conn) options(rs []rdma.Receive, d rdma.Domain) rdma.Options {
	o := rdma.Options{
		Domain: d, PrivateData: c.privateData().Append(nil), Receives: rs, ReuseReceives: true, NoRemoteAccess: c.server && !c.exposes(),
		ORD: c.cfg.ORD, IRD: c.cfg.IRD, ReceiveQueue: c.receiveDepth(), SendQueue: c.work.depth,
	}
	if !c.server {
		o.PrivateDataFunc = func(remoteInvalidation bool) []byte {
			c.remotelyInvalidatable = remoteInvalidation
			return c.privateData().Append(nil)
		}
	}
	return o
}

// ownAccount is the account of the calls from client to server: the server's grants, or the
// client's requests.
func (c *Conn) ownAccount() credit.Account {
	if c.responder.account != nil {
		return c.responder.account
	}
	return c.requester.account
}

// receiveDepth is the most receives that can be posted at once.
func (c *Conn) receiveDepth() int {
	own := c.ownAccount()
	n := own.Max() + c.cfg.ReverseCredits + spareReceives
	if c.exposes() {
		n += mostExposed
	}
	if c.cfg.has(MessageContinuation | SendBasedPlacement) { // for replies that are groups
		calls := c.cfg.ReverseCredits
		if !c.server {
			calls = own.Max()
		}
		n += calls * c.cfg.replyTransmissions()
	}
	return n
}

// discard frees a connection that failed before it was established.
func (c *Conn) discard() {
	c.receives.close()
	c.responder.close() // it has no calls
	c.requester.close(net.ErrClosed)
}
