package rpcrdma

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

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

// Dial connects to a server at address ("host:port"). Without cfg.Domain the connection gets a protection domain of its
// own, which is safer (RFC 8166 section 8.1).
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
	cl.requester = &cl.conn.out
	return cl, nil
}

// connect makes the connection, and settles its version. A server whose connection ends upon the
// first message of version 2, or which does not answer it, is dialed once more with version 1. For
// a while it is dialed with version 1 at once then; see oldPeers.
func (cl *Client) connect(ctx context.Context, p rdma.Provider, address string, cfg *Config, d rdma.Domain) error {
	auto := cfg.offers(wire.Version1) && cfg.offers(wire.Version2)
	old := *cfg
	old.Versions = []int{wire.Version1}
	old.Limits.Version2 = false
	if auto && onlyOld.has(p, address) {
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
			err = c.control.choose(ctx)
		}
		if err == nil {
			switch {
			case auto && !cfg.offers(wire.Version2):
				onlyOld.add(p, address)
			case auto:
				onlyOld.remove(p, address)
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
		cfg = &old // the peer may not bear what it does not know
	}
}

// onlyOld are the servers that did not bear a first message of version 2.
var onlyOld oldPeers

// oldPeers is a set of servers. It is bounded: the oldest is forgotten. A server may have been
// restarted just then, or have been slow, so none is in it for good: after 5 s the next dial tries
// version 2 again. When that fails too the time doubles, up to 10 minutes.
type oldPeers struct {
	mu   sync.Mutex
	list []oldPeer
}

type oldPeer struct {
	provider rdma.Provider
	address  string
	wait     time.Duration // how long version 2 is not tried
	until    time.Time
}

const (
	maxOldPeers  = 64
	firstOldWait = 5 * time.Second
	maxOldWait   = 10 * time.Minute
)

// has reports whether a server is not to be asked for version 2 now.
func (o *oldPeers) has(p rdma.Provider, address string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := o.find(p, address)
	return i >= 0 && time.Now().Before(o.list[i].until)
}

// add notes that a server did not bear version 2.
func (o *oldPeers) add(p rdma.Provider, address string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	now, e := time.Now(), oldPeer{provider: p, address: address, wait: firstOldWait}
	switch i := o.find(p, address); {
	case i >= 0 && now.Before(o.list[i].until): // several dials have tried at once
		return
	case i >= 0:
		e.wait = min(2*o.list[i].wait, maxOldWait)
		o.list = slices.Delete(o.list, i, i+1)
	case len(o.list) == maxOldPeers:
		o.list = slices.Delete(o.list, 0, 1)
	}
	e.until = now.Add(e.wait)
	o.list = append(o.list, e)
}

// remove notes that a server has answered a message of version 2.
func (o *oldPeers) remove(p rdma.Provider, address string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if i := o.find(p, address); i >= 0 {
		o.list = slices.Delete(o.list, i, i+1)
	}
}

// find returns the index of a server, -1 if it is not there. The lock is held.
func (o *oldPeers) find(p rdma.Provider, address string) int {
	return slices.IndexFunc(o.list, func(e oldPeer) bool { return e.provider == p && e.address == address })
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

// run is the life of a connection. It is the client's if good says so.
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

// Done is closed when the connection is gone and has freed what it had.
func (cl *Client) Done() <-chan struct{} { return cl.gone }

// Err says why the connection ended, after Done.
func (cl *Client) Err() error { return cl.conn.err }

// Conn describes the connection.
func (cl *Client) Conn() *oncrpc.Conn { return &cl.conn.info }

// RemoteAddr is the server's address.
func (cl *Client) RemoteAddr() netip.AddrPort { return cl.conn.info.Remote }

// Stats counts what the connection did.
func (cl *Client) Stats() rdma.Stats { return cl.conn.ep.Stats() }

// Negotiated tells what was settled. Credits are known after the first reply.
func (cl *Client) Negotiated() Negotiated {
	c := cl.conn
	out := &c.out
	out.mu.Lock()
	defer out.mu.Unlock()
	t := c.terms.Load()
	return Negotiated{
		Version: t.version, InlineCall: t.sendLimit, InlineReply: t.recvLimit,
		Granted: out.offered, Requested: out.asked(),
		RemoteInvalidation: t.invalidate, Peer: c.peer, Attributes: c.ep.Attributes(), Own: t.own, Remote: t.peer,
		Extensions: t.ext, MaxCallTransmissions: max(1, t.callLimit), MaxReplyTransmissions: max(1, t.replyLimit),
	}
}
