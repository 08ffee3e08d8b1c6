package rpcrdma

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"sluice.dev/sluice/pkg/rdma"
)

// errRefused is the cause of a refusal that is not the connection's fault.
var errRefused = errors.New("rpcrdma: the server has as many connections as it may, or shuts down")

// Server accepts connections and answers the calls on them.
type Server struct {
	cfg        *Config
	l          rdma.Listener
	quarantine quarantine
	srqs       *srqSet

	mu       sync.Mutex
	conns    map[*Conn]struct{}
	accepted int // connections, including those that are being set up
	closing  bool
	look     *time.Timer // for idle connections; nil without connections
	wg       sync.WaitGroup
}

// NewServer makes a server on a listener, and takes the listener over.
func NewServer(cfg Config, l rdma.Listener) (*Server, error) {
	full, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	if cfg.Domain == nil {
		return nil, errors.New("rpcrdma: a server needs Config.Domain")
	}
	if full.RFC5666&Configuration != 0 {
		full.Handler = &configurator{full.Handler}
	}
	return &Server{cfg: full, l: l, srqs: newSRQSet(full), conns: map[*Conn]struct{}{}}, nil
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

// serve accepts a connection, and drives it until it ends.
func (s *Server) serve(in rdma.ConnRequest) {
	defer s.wg.Done()
	defer func() {
		s.mu.Lock()
		s.accepted--
		s.mu.Unlock()
	}()
	peer, remote := in.RemoteAddr().String(), addrPort(in.RemoteAddr())
	c, shared, err := s.accept(in)
	defer func() { s.srqs.detach(shared) }()
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
	if s.look == nil {
		s.look = time.AfterFunc(idleLook, s.trimIdle)
	}
	s.mu.Unlock()
	s.cfg.Observer.ConnOpened(c)
	c.run()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.cfg.Observer.ConnClosed(c, c.err)
	s.cfg.Logger.Info("connection ended", slog.String("peer", peer), slog.String("reason", c.err.Error()), slog.Uint64("protocolErrors", c.protocolErrors.Load()))
}

// idleLook is the time between two looks for idle connections. A connection is idle if no message
// has come between two of them.
const idleLook = 10 * time.Second

// trimIdle looks for idle connections, while there are connections.
func (s *Server) trimIdle() {
	s.mu.Lock()
	conns := slices.Collect(maps.Keys(s.conns))
	if len(conns) == 0 {
		s.look = nil
	}
	s.mu.Unlock()
	if len(conns) == 0 {
		return
	}
	for _, c := range conns {
		c.trimIfIdle()
	}
	s.mu.Lock()
	s.look.Reset(idleLook)
	s.mu.Unlock()
}

// accept establishes a connection, whose receives may be shared.
func (s *Server) accept(in rdma.ConnRequest) (*Conn, *srq, error) {
	shared := s.srqs.attach(in)
	c, rs, err := s.prepare(shared)
	if err != nil && shared != nil { // it is full
		s.srqs.detach(shared)
		s.srqs.alone()
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
func (s *Server) prepare(shared *srq) (c *Conn, rs []rdma.Receive, err error) {
	if shared != nil {
		c = newConn(s.srqs.cfg, true, shared.recvQueue)
	} else {
		c = newConn(s.cfg, true, nil)
	}
	c.responder.quarantine = &s.quarantine
	if rs, err = c.receives.prepare(); err != nil {
		c.discard()
	}
	return c, rs, err
}

// Connections returns how many connections there are.
func (s *Server) Connections() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Addr is the listener's address.
func (s *Server) Addr() net.Addr { return s.l.Addr() }

// Shutdown refuses new connections and calls, lets calls in flight finish, and disconnects each
// client after its last call. When ctx ends first it disconnects the rest at once, and returns
// ctx's error.
func (s *Server) Shutdown(ctx context.Context) error {
	conns := s.stop()
	ended := make(chan struct{})
	var drains sync.WaitGroup
	for _, c := range conns {
		drains.Add(1)
		go func() {
			defer drains.Done()
			select {
			case <-c.responder.drain():
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
