package rpcrdma

import (
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// The exported methods of a server's Conn. They may be called from any goroutine, also after the
// end.

// Info is the connection as handlers see it.
func (c *Conn) Info() *oncrpc.Conn { return &c.info }

// Stats returns the counters of the connection's endpoint.
func (c *Conn) Stats() rdma.Stats { return c.ep.Stats() }

// Negotiated returns the values agreed with the client, and the last grant of credits.
func (c *Conn) Negotiated() Negotiated {
	c.receives.mu.Lock()
	granted := c.receives.granted
	c.receives.mu.Unlock()
	t, calls := c.negotiated.Load(), 1
	if t.ext&MessageContinuation != 0 {
		calls = c.cfg.callTransmissions()
	}
	return Negotiated{
		Version: t.version, Dialect: t.dialect, InlineCall: t.recvLimit, InlineReply: t.sendLimit, Granted: granted,
		ReadRead: c.exposes() && t.version == wire.Version1, Configured: c.rfc5666.isConfigured(), RemoteInvalidation: t.invalidate, Peer: c.peer, Attributes: c.ep.Attributes(), Own: t.own, Remote: t.peer,
		Extensions: t.ext, MaxCallTransmissions: calls, MaxReplyTransmissions: max(1, t.sendReplies),
	}
}

// Busy implements oncrpc.Controller.
func (c *Conn) Busy() bool {
	if c.InUse() > 0 {
		return true
	}
	c.requester.mu.Lock()
	defer c.requester.mu.Unlock()
	return c.requester.inFlight > 0 || c.requester.first != nil
}

// End implements oncrpc.Controller.
func (c *Conn) End(cause error) { c.fail(cause) }

// InUse is the number of granted credits in use: calls without an answer yet.
func (c *Conn) InUse() int {
	c.receives.mu.Lock()
	defer c.receives.mu.Unlock()
	return c.receives.held
}
