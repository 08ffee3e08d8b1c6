package listen

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"sync"
	"syscall"
)

// arrival is the common part of [net.Conn] and rdma.ConnRequest.
type arrival interface{ LocalAddr() net.Addr }

// SharedSockets are the sockets of listeners with bind Wildcard: one socket a port, on all
// addresses of the host, or one for each family of addresses. A connection goes to the listener of
// its local address. Without such a listener it is refused. So addresses may come to the host and
// leave it while they are listened on. The last listener of a socket closes it.
type SharedSockets[T arrival] struct {
	log      *slog.Logger
	refuse   func(T)
	byFamily bool

	mu     sync.Mutex
	byPort map[portKey]*socket[T]
}

// portKey is a port. device is empty on TCP, whose ports all devices share. any is zero if the
// socket serves both families.
type portKey struct {
	device string
	any    netip.Addr
	port   uint16
}

type socket[T arrival] struct {
	src       Source[T]
	listeners map[netip.Addr]*addrListener[T]
}

// addrListener is the [Source] of the connections to one address.
type addrListener[T arrival] struct {
	shared *SharedSockets[T]
	key    portKey
	at     netip.AddrPort
	ch     chan T
	ended  chan struct{}
	err    error // set before ended is closed
}

// NewSharedSockets returns an empty set. refuse closes a connection to an address without listener.
// With byFamily a port has a socket for IPv4 and one for IPv6.
func NewSharedSockets[T arrival](log *slog.Logger, byFamily bool, refuse func(T)) *SharedSockets[T] {
	return &SharedSockets[T]{log: log, byFamily: byFamily, refuse: refuse, byPort: map[portKey]*socket[T]{}}
}

// Join returns the source of connections to an address. The first listener of a port calls bind
// with ":PORT", or by family with "0.0.0.0:PORT" or "[::]:PORT".
func (s *SharedSockets[T]) Join(ctx context.Context, device string, at netip.AddrPort, bind func(context.Context, string) (Source[T], error)) (Source[T], error) {
	key, address := portKey{device: device, port: at.Port()}, fmt.Sprintf(":%d", at.Port())
	if s.byFamily {
		key.any = netip.IPv6Unspecified()
		if at.Addr().Is4() {
			key.any = netip.IPv4Unspecified()
		}
		address = netip.AddrPortFrom(key.any, at.Port()).String()
	}
	l := &addrListener[T]{shared: s, key: key, at: at, ch: make(chan T), ended: make(chan struct{})}
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.byPort[l.key]
	if k == nil {
		src, err := bind(ctx, address)
		if err != nil {
			return nil, err
		}
		k = &socket[T]{src: src, listeners: map[netip.Addr]*addrListener[T]{}}
		s.byPort[l.key] = k
		go s.run(l.key, k)
	}
	if k.listeners[at.Addr()] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: net.TCPAddrFromAddrPort(at), Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	k.listeners[at.Addr()] = l
	return l, nil
}

// run dispatches the connections of a socket until it is closed or fails.
func (s *SharedSockets[T]) run(key portKey, k *socket[T]) {
	err := acceptAll(k.src, s.log, func(c T) {
		var to *addrListener[T]
		if at, err := netip.ParseAddrPort(c.LocalAddr().String()); err == nil {
			s.mu.Lock()
			to = k.listeners[at.Addr().Unmap()]
			s.mu.Unlock()
		}
		if to == nil || !to.send(c) {
			s.log.Debug("connection refused: no export has the address", "address", c.LocalAddr().String())
			s.refuse(c)
		}
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range k.listeners { // only after a failure: the listeners retry
		l.endLocked(err)
	}
	if s.byPort[key] == k {
		delete(s.byPort, key)
		_ = k.src.Close()
	}
}

// send returns false after the end of the listener.
func (l *addrListener[T]) send(c T) bool {
	select {
	case l.ch <- c:
		return true
	case <-l.ended:
		return false
	}
}

// Accept implements [Source].
func (l *addrListener[T]) Accept() (c T, err error) {
	select {
	case c = <-l.ch:
		return c, nil
	case <-l.ended:
		return c, l.err
	}
}

// Addr implements [Source].
func (l *addrListener[T]) Addr() net.Addr { return net.TCPAddrFromAddrPort(l.at) }

// Close implements [Source]. The last listener closes the socket.
func (l *addrListener[T]) Close() error {
	l.shared.mu.Lock()
	defer l.shared.mu.Unlock()
	k := l.shared.byPort[l.key]
	if !l.endLocked(net.ErrClosed) || k == nil {
		return nil
	}
	delete(k.listeners, l.at.Addr())
	if len(k.listeners) > 0 {
		return nil
	}
	delete(l.shared.byPort, l.key)
	return k.src.Close()
}

// endLocked ends the listener. It returns false if it has ended before. shared.mu is held.
func (l *addrListener[T]) endLocked(err error) bool {
	select {
	case <-l.ended:
		return false
	default:
		l.err = err
		close(l.ended)
		return true
	}
}
