package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
)

// port is an address of an export with the server behind it.
type port interface {
	spec() config.Listener
	state() status.Listener
	// settled waits until listening has been tried once, and tells whether the address is in use.
	settled() (inUse bool)
	// retry has an address that could not be had tried again at once.
	retry()
	// renew puts a new server in the place of the present one. With Reconnect the clients of that, and of those before it, have to connect
	// again when their calls have finished; with NextConnection they stay as long as they like.
	renew(config.OnChange) error
	// register says whether the address is to be known to rpcbind.
	register(wanted bool)
	// close ends listening, and has the clients disconnected when their calls have finished.
	close()
}

// portKind is what ports with connections of type T have in common.
type portKind[T any] struct {
	// bind takes the address.
	bind func(context.Context) (source[T], error)
	// make makes a server whose listener is r.
	make func(r *relay[T]) (*serving[T], error)
	// from names the client of a connection. admit reports whether one more of that client may be taken; leave takes that back. refuse turns
	// one away.
	from   func(T) netip.Addr
	admit  func(netip.Addr) bool
	leave  func(netip.Addr)
	refuse func(T)
	// device tells of the RDMA device; nil where there is none.
	device func() *status.Device
	// drain is given what ends a server that is no longer needed, and what returns when it is time for that. It does not block.
	drain func(wait func(), shutdown func(context.Context) error)
}

// serving is a server with its listener.
type serving[T any] struct {
	relay *relay[T]
	// serve serves until shutdown, which lets calls in flight finish until ctx ends, and returns when nothing of the server is left.
	serve    func() error
	shutdown func(ctx context.Context) error
}

// portOf is a port whose connections are of type T.
type portOf[T any] struct {
	kind portKind[T]
	log  *slog.Logger
	l    *listener[T]
	reg  *registrar

	mu     sync.Mutex
	cur    *serving[T]   // nil when it is closed
	former chan struct{} // closed when servers that were left with their clients shall end
}

func openPort[T any](l config.Listener, e *export, kind portKind[T]) (port, error) {
	p := &portOf[T]{kind: kind, former: make(chan struct{}), log: e.log.With("network", l.Network, "address", l.Address)}
	if err := p.renew(config.Reconnect); err != nil {
		return nil, err
	}
	p.reg = newRegistrar(p.log, l.Network, e.gateway.rpcbind())
	p.l = listen(l, p.log, kind.bind, p.deliver, p.reg.listening)
	return p, nil
}

func (p *portOf[T]) renew(how config.OnChange) error {
	s, err := p.kind.make(newRelay[T](p.kind.leave))
	if err != nil {
		return err
	}
	go func() {
		if err := s.serve(); err != nil && !errors.Is(err, net.ErrClosed) {
			p.log.Error("a server ended", "error", err)
		}
	}()
	p.swap(s, how)
	return nil
}

// swap makes s the server of new connections, and ends the one before: at once, or when its clients are gone.
func (p *portOf[T]) swap(s *serving[T], how config.OnChange) {
	p.mu.Lock()
	old, end := p.cur, p.former
	p.cur = s
	if how == config.Reconnect {
		close(p.former)
		p.former = make(chan struct{})
	}
	p.mu.Unlock()
	if old == nil {
		return
	}
	_ = old.relay.Close()
	p.kind.drain(func() {
		select {
		case <-end:
		case <-old.relay.idle():
		}
	}, old.shutdown)
}

// deliver hands a connection to the present server.
func (p *portOf[T]) deliver(c T) {
	client := p.kind.from(c)
	if !p.kind.admit(client) {
		p.kind.refuse(c)
		return
	}
	for {
		p.mu.Lock()
		s := p.cur
		if s != nil {
			s.relay.conns.Add(1) // before the server can be left with its clients
		}
		p.mu.Unlock()
		if s == nil {
			p.kind.leave(client)
			p.kind.refuse(c)
			return
		}
		if s.relay.give(c) {
			return // the server's observer hears when it is gone
		}
		s.relay.conns.Done()
	}
}

func (p *portOf[T]) close() {
	// The server goes first, or a connection could wait for it for ever.
	p.swap(nil, config.Reconnect)
	p.l.close()
	p.kind.drain(func() {}, func(context.Context) error {
		p.reg.close()
		return nil
	})
}

func (p *portOf[T]) settled() bool         { return p.l.blocked() }
func (p *portOf[T]) retry()                { p.l.retry() }
func (p *portOf[T]) spec() config.Listener { return p.l.spec }
func (p *portOf[T]) register(wanted bool)  { p.reg.want(wanted) }

func (p *portOf[T]) state() status.Listener {
	s := p.l.state()
	s.RPCBind = p.reg.status()
	if p.kind.device != nil {
		s.Device = p.kind.device()
	}
	return s
}
