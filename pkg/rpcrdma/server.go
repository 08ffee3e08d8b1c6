package rpcrdma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"

	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"

	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// errRefused is the cause of a refusal that is not the connection's fault.
var errRefused = errors.New("rpcrdma: the server has as many connections as it may, or shuts down")

// Server accepts connections and answers the calls on them.
type Server struct {
	cfg      *Config
	l        rdma.Listener
	suspects suspects
	sharing  *sharing

	mu       sync.Mutex
	conns    map[*Conn]struct{}
	accepted int // connections, those that are being set up included
	closing  bool
	wg       sync.WaitGroup
}

// NewServer makes a server on a listener, which it takes over.
func NewServer(cfg Config, l rdma.Listener) (*Server, error) {
	full, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if cfg.Domain == nil {
		return nil, errors.New("rpcrdma: a server needs Config.Domain")
	}
	return &Server{cfg: full, l: l, sharing: newSharing(full), conns: map[*Conn]struct{}{}}, nil
}

// Serve accepts connections until Shutdown or Close; then it returns nil.
func (s *Server) Serve() error {
	for {
		in, err := s.l.Accept()
		if err != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.closing && errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("rpcrdma: accept: %w", err)
		}
		s.mu.Lock()
		refuse := s.closing || s.cfg.MaxConnections > 0 && s.accepted >= s.cfg.MaxConnections
		if !refuse {
			s.accepted++
			s.wg.Add(1)
		}
		s.mu.Unlock()
		if refuse {
			s.cfg.Logger.Warn("connection refused", slog.String("peer", in.RemoteAddr().String()), slog.Int("limit", s.cfg.MaxConnections))
			s.cfg.Observer.ConnRefused(addrPort(in.RemoteAddr()), errRefused)
			_ = in.Reject(nil)
			continue
		}
		go s.serve(in)
	}
}

// serve is the life of a connection.
func (s *Server) serve(in rdma.ConnRequest) {
	defer s.wg.Done()
	defer func() {
		s.mu.Lock()
		s.accepted--
		s.mu.Unlock()
	}()
	peer, remote := in.RemoteAddr().String(), addrPort(in.RemoteAddr())
	c, shared, err := s.accept(in)
	defer func() { s.sharing.leave(shared) }()
	if err != nil {
		s.cfg.Observer.ConnRefused(remote, err)
		s.cfg.Logger.Warn("connection failed", slog.String("peer", peer), slog.String("reason", err.Error()))
		return
	}
	s.mu.Lock()
	if s.closing {
		_ = c.ep.Close()
	}
	s.conns[c] = struct{}{}
	s.mu.Unlock()
	s.cfg.Observer.ConnOpened(c)
	c.run()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.cfg.Observer.ConnClosed(c, c.err)
	s.cfg.Logger.Info("connection ended", slog.String("peer", peer), slog.String("reason", c.err.Error()), slog.Uint64("protocol errors", c.faults.Load()))
}

// accept establishes a connection, whose receives may be shared.
func (s *Server) accept(in rdma.ConnRequest) (*Conn, *sharedQueue, error) {
	shared := s.sharing.join(in)
	c, rs, err := s.prepare(shared)
	if err != nil && shared != nil { // it is full
		s.sharing.leave(shared)
		s.sharing.alone()
		shared = nil
		c, rs, err = s.prepare(nil)
	}
	if err != nil {
		_ = in.Reject(nil)
		return nil, shared, err
	}
	o := c.options(rs, s.cfg.Domain)
	if shared != nil {
		o.SRQ = shared.rdma
	}
	ep, err := in.Accept(o)
	if err != nil {
		c.discard()
		return nil, shared, err
	}
	c.establish(ep)
	return c, shared, nil
}

// prepare makes a connection with its first receives.
func (s *Server) prepare(shared *sharedQueue) (c *Conn, rs []rdma.Receive, err error) {
	if shared != nil {
		c = newConn(s.sharing.cfg, true, shared.receiveQueue)
	} else {
		c = newConn(s.cfg, true, nil)
	}
	c.suspects = &s.suspects
	if rs, err = c.receives.prepare(); err != nil {
		c.discard()
	}
	return c, rs, err
}

// options are those of the connection.
func (c *Conn) options(rs []rdma.Receive, d rdma.Domain) rdma.Options {
	o := rdma.Options{
		Domain: d, PrivateData: c.privateData().Append(nil), Receives: rs, NoRemoteAccess: c.server,
		ORD: c.cfg.ORD, IRD: c.cfg.IRD, ReceiveQueue: c.receiveQueue(), SendQueue: c.work.depth,
	}
	if !c.server {
		o.PrivateDataFunc = func(remoteInvalidation bool) []byte {
			c.revocable = remoteInvalidation
			return c.privateData().Append(nil)
		}
	}
	return o
}

// ownAccount is that of the calls which are received: the server's grants, or what the client asks for.
func (c *Conn) ownAccount() credit.Account {
	if c.in.account != nil {
		return c.in.account
	}
	return c.out.account
}

// receiveQueue is the most receives that can be posted at once.
func (c *Conn) receiveQueue() int {
	own := c.ownAccount()
	n := own.Max() + c.cfg.ReverseCredits + reserve
	if c.cfg.has(MessageContinuation | SendBasedPlacement) { // for replies that are groups
		calls := c.cfg.ReverseCredits
		if !c.server {
			calls = own.Max()
		}
		n += calls * c.cfg.replyTransmissions()
	}
	return n
}

// discard frees a connection that came to nothing.
func (c *Conn) discard() {
	c.receives.close()
	c.in.close() // it has no calls
	c.out.close(net.ErrClosed)
}

// Connections returns how many connections there are.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Addr is the listener's address.
func (s *Server) Addr() net.Addr { return s.l.Addr() }

// Shutdown refuses new connections and new calls, lets the calls in flight finish, and disconnects each client as soon as
// its calls have. When ctx ends first the rest is disconnected at once, and ctx's error returned.
func (s *Server) Shutdown(ctx context.Context) error {
	conns := s.stop()
	ended := make(chan struct{})
	var drains sync.WaitGroup
	for _, c := range conns {
		drains.Add(1)
		go func() {
			defer drains.Done()
			select {
			case <-c.in.drain():
			case <-c.done:
			case <-ctx.Done():
			}
			_ = c.ep.Close()
		}()
	}
	go func() {
		s.wg.Wait()
		drains.Wait()
		close(ended)
	}()
	<-ended
	return ctx.Err()
}

// Close disconnects all clients at once.
func (s *Server) Close() error {
	for _, c := range s.stop() {
		_ = c.ep.Close()
	}
	s.wg.Wait()
	return nil
}

func (s *Server) stop() (conns []*Conn) {
	s.mu.Lock()
	s.closing = true
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	_ = s.l.Close()
	return conns
}

// Negotiated is what was settled for a connection.
type Negotiated struct {
	// Version is that of RPC-over-RDMA, 0 at a server that offers version 2 until the client's first message.
	Version int
	// InlineCall and InlineReply are the inline thresholds, in bytes, from client to server and back.
	InlineCall, InlineReply int
	// Granted is the number of credits that the server granted last, Requested what the client asks for.
	Granted, Requested int
	// RemoteInvalidation: both peers agreed on Send with Invalidate.
	RemoteInvalidation bool
	// Peer is what the peer sent while connecting, wire.DefaultPrivateData if it sent none.
	Peer       wire.PrivateData
	Attributes rdma.Attributes
	// Extensions are those that both peers have, in version 2. With any but TransportProperties, calls and replies may be sent in groups.
	Extensions Extensions
	// MaxCallTransmissions and MaxReplyTransmissions are how many Sends a call and a reply may take, 1 without MessageContinuation.
	MaxCallTransmissions, MaxReplyTransmissions int
	// Own and Remote are the transport properties of this side and of the peer, in version 2.
	Own, Remote Properties
}
