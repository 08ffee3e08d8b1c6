package rpcrdma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// Client is a connection made by this side. It is an oncrpc.Requester and an oncrpc.Canceler.
type Client struct {
	*requester
	conn   *Conn
	domain rdma.Domain // its own
	gone   chan struct{}
}

var (
	_ oncrpc.Requester = (*Client)(nil)
	_ oncrpc.Canceler  = (*Client)(nil)
	_ oncrpc.Canceler  = (*requester)(nil)
)

// Dial connects to a server at address ("host:port"). Without cfg.Domain the connection gets a
// protection domain of its own, which is safer (RFC 8166 section 8.1).
func Dial(ctx context.Context, p rdma.Provider, address string, cfg Config) (*Client, error) {
	full, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	cl := &Client{gone: make(chan struct{})}
	d := cfg.Domain
	if d == nil {
		if d, err = p.NewDomain(); err != nil {
			return nil, fmt.Errorf("rpcrdma: protection domain: %w", err)
		}
		cl.domain = d
		if err := d.Register(full.Pool); err != nil {
			_ = d.Close()
			return nil, fmt.Errorf("rpcrdma: register memory: %w", err)
		}
	}
	if err = cl.connect(ctx, p, address, full, d); err != nil {
		if cl.domain != nil {
			_ = cl.domain.Close()
		}
		return nil, err
	}
	cl.requester = &cl.conn.requester
	return cl, nil
}

// connect makes the connection, and settles its version. A server that ends the connection upon the
// first message of version 2, or does not answer it, is dialed once more with version 1. For a
// while it is dialed with version 1 at once; see v1OnlyServers.
func (cl *Client) connect(ctx context.Context, p rdma.Provider, address string, cfg *Config, d rdma.Domain) error {
	auto := cfg.offers(wire.Version1) && cfg.offers(wire.Version2)
	old := *cfg
	old.Versions = []int{wire.Version1}
	old.Limits.Version2 = false
	if auto && v1Only.has(p, address) {
		cfg, auto = &old, false
	}
	for {
		c, err := dial(ctx, p, address, cfg, d)
		if err != nil {
			return err
		}
		good := make(chan bool, 1)
		go cl.run(c, good)
		if cfg.offers(wire.Version2) {
			err = c.negotiator.choose(ctx)
		}
		if err == nil {
			err = c.configure(ctx)
		}
		if err == nil {
			switch {
			case auto && !cfg.offers(wire.Version2):
				v1Only.add(p, address)
			case auto:
				v1Only.remove(p, address)
			}
			cl.conn = c
			good <- true
			return nil
		}
		good <- false
		c.fail(err)
		<-c.done
		var refused *RemoteError
		if !auto || !cfg.offers(wire.Version2) || ctx.Err() != nil || errors.As(err, &refused) {
			return fmt.Errorf("rpcrdma: connect to %s: %w", address, err)
		}
		cfg = &old // the peer may not bear an unknown version
	}
}

func dial(ctx context.Context, p rdma.Provider, address string, cfg *Config, d rdma.Domain) (*Conn, error) {
	c := newConn(cfg, false, nil)
	rs, err := c.receives.prepare()
	if err != nil {
		c.discard()
		return nil, err
	}
	ep, err := p.Dial(ctx, address, c.options(rs, d))
	if err != nil {
		c.discard()
		var rejected *rdma.RejectedError
		if errors.As(err, &rejected) {
			return nil, fmt.Errorf("rpcrdma: %s refuses the connection: %w", address, err)
		}
		return nil, fmt.Errorf("rpcrdma: connect to %s: %w", address, err)
	}
	c.establish(ep)
	return c, nil
}

// run drives a connection until it ends. good gets true if it is the client's.
func (cl *Client) run(c *Conn, good <-chan bool) {
	c.run()
	if !<-good {
		return
	}
	if cl.domain != nil {
		_ = cl.domain.Close()
	}
	close(cl.gone)
}

// Done is closed when the connection has ended and freed its memory.
func (cl *Client) Done() <-chan struct{} { return cl.gone }

// Err returns why the connection ended, after Done.
func (cl *Client) Err() error { return cl.conn.err }

// Conn describes the connection.
func (cl *Client) Conn() *oncrpc.Conn { return &cl.conn.info }

// RemoteAddr is the server's address.
func (cl *Client) RemoteAddr() netip.AddrPort { return cl.conn.info.Remote }

// Stats returns the connection's counters.
func (cl *Client) Stats() rdma.Stats { return cl.conn.ep.Stats() }

// Negotiated returns the agreed values. Credits are known after the first reply.
func (cl *Client) Negotiated() Negotiated {
	c := cl.conn
	out := &c.requester
	out.mu.Lock()
	defer out.mu.Unlock()
	t, granted := c.negotiated.Load(), out.offered
	if t.dialect == wire.V2WorkingGroup { // its credits count messages
		granted = out.granted
	}
	return Negotiated{
		Version: t.version, Dialect: t.dialect, InlineCall: t.sendLimit, InlineReply: t.recvLimit, Padding: c.rfc5666.padding(t), ReadRead: c.rfc5666.reads(), Configured: c.rfc5666.isConfigured(),
		Granted: granted, Requested: out.asked(),
		RemoteInvalidation: t.invalidate, Peer: c.peer, Attributes: c.ep.Attributes(), Own: t.own, Remote: t.peer,
		Extensions: t.ext, MaxCallTransmissions: max(1, t.callLimit), MaxReplyTransmissions: max(1, t.replyLimit),
	}
}
