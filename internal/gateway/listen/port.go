// Package listen keeps the addresses of exports: it listens, retries, shares ports between exports,
// registers addresses with rpcbind, and hands connections to servers that can be replaced.
//
//	Port ── listener ── Source: a socket of its own, or an addrListener of SharedSockets
//	  │        └─ registrar: rpcbind
//	  └─ Server ── ChanListener
package listen

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/oncrpc/rpcbind"
)

// Port is an address of an export with the server behind it.
type Port interface {
	Spec() config.Listener
	State() status.Listener
	// AwaitFirstTry waits for the first attempt to listen, and reports whether the address is in
	// use.
	AwaitFirstTry() (inUse bool)
	// Retry makes the next attempt to listen due now.
	Retry()
	// ReplaceServer starts a new server for new connections. With Reconnect, clients of all former
	// servers have to reconnect when their calls have finished. With NextConnection they may stay.
	ReplaceServer(config.OnChange) error
	// Register sets the versions of NFS, in order, that rpcbind knows at the address; none removes
	// it.
	Register(versions []config.NFSVersion)
	// Close stops listening, and disconnects clients when their calls have finished.
	Close()
}

// PortConfig describes ports with connections of type T.
type PortConfig[T any] struct {
	Bind      func(context.Context) (Source[T], error)
	NewServer func(*ChanListener[T]) (*Server[T], error)
	// ClientOf returns the client of a connection.
	ClientOf func(T) netip.Addr
	// Admit reports whether one more connection of a client is allowed. Release gives it back.
	Admit   func(netip.Addr) bool
	Release func(netip.Addr)
	// Refuse closes a connection that is not served.
	Refuse func(T)
	// Device describes the RDMA device; nil without one.
	Device func() *status.Device
	// Drain calls shutdown in the background when wait has returned.
	Drain func(wait func(), shutdown func(context.Context) error)
}

// Server is a server with its listener.
type Server[T any] struct {
	Listener *ChanListener[T]
	// Serve returns at Shutdown, which lets calls in flight finish until ctx ends, and returns when
	// the server has given everything back.
	Serve    func() error
	Shutdown func(ctx context.Context) error
}

// port implements Port.
type port[T any] struct {
	cfg  PortConfig[T]
	log  *slog.Logger
	l    *listener[T]
	rpcb *registrar

	mu     sync.Mutex
	server *Server[T] // nil after Close
	// reconnect is closed when former servers have to end, although they have clients.
	reconnect chan struct{}
}

// OpenPort starts a server, and listens for it on an address. services are the addresses of
// rpcbind.
func OpenPort[T any](spec config.Listener, log *slog.Logger, services []rpcbind.Address, cfg PortConfig[T]) (Port, error) {
	p := &port[T]{cfg: cfg, reconnect: make(chan struct{}), log: log.With("network", spec.Network, "address", spec.Address)}
	if err := p.ReplaceServer(config.Reconnect); err != nil {
		return nil, err
	}
	p.rpcb = startRegistrar(p.log, spec.Network, services)
	p.l = startListener(spec, p.log, cfg.Bind, p.deliver, p.rpcb.setAddress)
	return p, nil
}

func (p *port[T]) ReplaceServer(how config.OnChange) error {
	s, err := p.cfg.NewServer(newChanListener[T](p.cfg.Release))
	if err != nil {
		return err
	}
	go func() {
		if err := s.Serve(); err != nil && !errors.Is(err, net.ErrClosed) {
			p.log.Error("server failed", "error", err)
		}
	}()
	p.swap(s, how)
	return nil
}

// swap makes s the server of new connections. The former server ends at once with Reconnect,
// otherwise after its last client.
func (p *port[T]) swap(s *Server[T], how config.OnChange) {
	p.mu.Lock()
	old, reconnect := p.server, p.reconnect
	p.server = s
	if how == config.Reconnect {
		close(p.reconnect)
		p.reconnect = make(chan struct{})
	}
	p.mu.Unlock()
	if old == nil {
		return
	}
	_ = old.Listener.Close()
	p.cfg.Drain(func() {
		select {
		case <-reconnect:
		case <-old.Listener.idle():
		}
	}, old.Shutdown)
}

// deliver hands a connection to the server.
func (p *port[T]) deliver(c T) {
	client := p.cfg.ClientOf(c)
	if !p.cfg.Admit(client) {
		p.cfg.Refuse(c)
		return
	}
	for {
		p.mu.Lock()
		s := p.server
		if s != nil {
			s.Listener.open.Add(1) // before swap can wait for the listener to be idle
		}
		p.mu.Unlock()
		if s == nil {
			p.cfg.Release(client)
			p.cfg.Refuse(c)
			return
		}
		if s.Listener.send(c) {
			return // the server's observer calls ConnEnded
		}
		s.Listener.open.Done()
	}
}

func (p *port[T]) Close() {
	// The server goes first: otherwise a connection could wait for it for ever.
	p.swap(nil, config.Reconnect)
	p.l.close()
	p.cfg.Drain(func() {}, func(context.Context) error {
		p.rpcb.close()
		return nil
	})
}

func (p *port[T]) AwaitFirstTry() bool                   { return p.l.awaitFirstTry() }
func (p *port[T]) Retry()                                { p.l.retry() }
func (p *port[T]) Spec() config.Listener                 { return p.l.spec }
func (p *port[T]) Register(versions []config.NFSVersion) { p.rpcb.setVersions(versions) }

func (p *port[T]) State() status.Listener {
	s := p.l.state()
	s.RPCBind = p.rpcb.status()
	if p.cfg.Device != nil {
		s.Device = p.cfg.Device()
	}
	return s
}
