package rpcrdma

import (
	"context"
	"errors"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/padded"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// The Connection Configuration Protocol (RFC 5666 section 6): an RPC program in which a client
// learns of the server's receives.
//
//	CONF_RDMA(longest inline call wanted, longest inline reply accepted, RDMA Reads possible at once)
//	  -> (longest inline call accepted, alignment of receives or 0, RDMA Reads at once)
//
// The values of private data (RFC 8797) are a floor: they never get smaller.
const (
	configurationProgram = 100417
	configurationVersion = 1
	procConfigure        = 1
)

// configurator answers the protocol at a server, and hands all other calls to next.
type configurator struct{ next oncrpc.Handler }

// ServeRPC implements [oncrpc.Handler].
func (h *configurator) ServeRPC(c *oncrpc.Call) {
	conn, ok := c.Conn.Control.(*Conn)
	if !ok || c.Program != configurationProgram || conn.negotiated.Load().version != wire.Version1 {
		h.next.ServeRPC(c)
		return
	}
	switch {
	case c.Version != configurationVersion:
		c.ReplyMismatch(configurationVersion, configurationVersion)
	case c.Procedure == 0:
		c.ReplyAccept(oncrpc.Success)
	case c.Procedure == procConfigure:
		conn.answerConfigure(c)
	default:
		c.ReplyAccept(oncrpc.ProcUnavail)
	}
}

// answerConfigure sets the client's values, and answers with those of the posted receives. recvMu
// is held.
func (c *Conn) answerConfigure(call *oncrpc.Call) {
	d := call.Args()
	_, longest, reads := d.Uint32(), d.Uint32(), d.Uint32()
	if d.Err() != nil || d.Left() > 0 {
		call.ReplyAccept(oncrpc.GarbageArgs)
		return
	}
	own, t := c.privateData(), *c.negotiated.Load()
	t.recvLimit = max(t.recvLimit, own.ReceiveSize)
	t.sendLimit = max(t.sendLimit, int(min(longest&^3, uint32(own.SendSize))))
	c.negotiated.Store(&t)
	c.rfc5666.configured.Store(true)
	c.rfc5666.noReads = reads == 0
	e, err := call.BeginReply(oncrpc.MinReplyLen + 12)
	if err != nil {
		call.ReplyAccept(oncrpc.SystemErr)
		return
	}
	e.Uint32(uint32(own.ReceiveSize))
	if c.cfg.RFC5666&Padding != 0 {
		e.Uint32(uint32(alignFor(own.ReceiveSize)))
	} else {
		e.Uint32(0)
	}
	e.Uint32(min(reads, uint32(c.ep.Attributes().ORD)))
	call.Respond()
}

// configure asks the server for its values, with the first call of a connection. A server without
// the protocol answers PROG_UNAVAIL; then nothing changes, and no call is padded.
func (c *Conn) configure(ctx context.Context) error {
	if c.cfg.RFC5666&Configuration == 0 || c.negotiated.Load().version != wire.Version1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, controlTime)
	defer cancel()
	own := c.privateData()
	r, e, err := oncrpc.NewRequest(c.cfg.Pool, configurationProgram, configurationVersion, procConfigure, oncrpc.Auth{}, oncrpc.MinCallLen+12)
	if err != nil {
		return err
	}
	defer r.Free()
	e.Uint32(uint32(own.SendSize))
	e.Uint32(uint32(own.ReceiveSize))
	e.Uint32(uint32(c.ep.Attributes().IRD))
	r.Plan.MaxReply = oncrpc.MinReplyLen + oncrpc.MaxAuthLen + 12
	if err := oncrpc.Do(ctx, &c.requester, r); err != nil {
		var lost *LostError
		if errors.As(err, &lost) || ctx.Err() != nil {
			return err
		}
		return nil // the server does not answer such a call
	}
	d, err := r.Results()
	if err != nil {
		return nil //nolint:nilerr // the server has no such program
	}
	longest, align, reads := d.Uint32(), d.Uint32(), d.Uint32()
	if d.Err() != nil {
		return nil
	}
	c.takeConfiguration(longest, align, reads)
	return nil
}

// takeConfiguration sets the server's values.
func (c *Conn) takeConfiguration(longest, align, reads uint32) {
	own, s, out := c.privateData(), c.rfc5666, &c.requester
	c.recvMu.Lock()
	t := *c.negotiated.Load()
	t.sendLimit = max(t.sendLimit, int(min(longest&^3, uint32(own.SendSize))))
	if !c.gotPrivateData { // otherwise the server has stated its longest reply
		t.recvLimit = max(t.recvLimit, own.ReceiveSize)
	}
	c.negotiated.Store(&t)
	c.recvMu.Unlock()
	s.configured.Store(true)
	if c.cfg.RFC5666&Padding != 0 && align&(align-1) == 0 && align <= padded.MaxAlign {
		s.align.Store(int32(align))
	}
	if reads == 0 {
		out.mu.Lock()
		lim := *out.peerLimits.Load()
		lim.ReadChunks = 0
		out.peerLimits.Store(&lim)
		out.mu.Unlock()
	}
}
