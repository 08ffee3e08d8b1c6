package gateway

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"syscall"

	config "sluice.dev/sluice/api/config/v1alpha1"
)

// located is what [net.Conn] and rdma.ConnRequest have in common.
type located interface{ LocalAddr() net.Addr }

// wildcards are the sockets on all of the host's addresses that listeners with bind Wildcard share, one for each port. A connection goes to the
// listener of the address that it came to; one to another address is refused. So addresses may come to the host, leave it and come
// back while they are listened on, and listeners come and go while the socket stays: the last one closes it.
type wildcards[T located] struct {
	log    *slog.Logger
	refuse func(T)

	mu     sync.Mutex
	byPort map[portKey]*wildcard[T]
}

// portKey is a port, of a device where that has its own.
type portKey struct {
	device string
	port   uint16
}

// wildcard is one such socket.
type wildcard[T located] struct {
	src   source[T]
	doors map[netip.Addr]*door[T]
}

// door is the [source] of the connections to one address.
type door[T located] struct {
	of    *wildcards[T]
	key   portKey
	at    netip.AddrPort
	ch    chan T
	ended chan struct{}
	err   error // why it has ended
}

func newWildcards[T located](log *slog.Logger, refuse func(T)) *wildcards[T] {
	return &wildcards[T]{log: log, refuse: refuse, byPort: map[portKey]*wildcard[T]{}}
}

// join returns the source of connections to an address. The first one on a port has bind listen on ":port".
func (w *wildcards[T]) join(ctx context.Context, device string, at netip.AddrPort, bind func(context.Context, string) (source[T], error)) (source[T], error) {
	d := &door[T]{of: w, key: portKey{device, at.Port()}, at: at, ch: make(chan T), ended: make(chan struct{})}
	w.mu.Lock()
	defer w.mu.Unlock()
	s := w.byPort[d.key]
	if s == nil {
		src, err := bind(ctx, fmt.Sprintf(":%d", at.Port()))
		if err != nil {
			return nil, err
		}
		s = &wildcard[T]{src: src, doors: map[netip.Addr]*door[T]{}}
		w.byPort[d.key] = s
		go w.run(d.key, s)
	}
	if s.doors[at.Addr()] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Addr: net.TCPAddrFromAddrPort(at), Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	s.doors[at.Addr()] = d
	return d, nil
}

// run hands out the connections of a socket until it is closed or fails.
func (w *wildcards[T]) run(key portKey, s *wildcard[T]) {
	err := acceptAll(s.src, w.log, func(c T) {
		var to *door[T]
		if at, err := netip.ParseAddrPort(c.LocalAddr().String()); err == nil {
			w.mu.Lock()
			to = s.doors[at.Addr().Unmap()]
			w.mu.Unlock()
		}
		if to == nil || !to.give(c) {
			w.log.Debug("a connection to an address of no export is refused", "address", c.LocalAddr().String())
			w.refuse(c)
		}
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, d := range s.doors { // it failed: their listeners try again
		d.endLocked(err)
	}
	if w.byPort[key] == s {
		delete(w.byPort, key)
		_ = s.src.Close()
	}
}

// give returns false if the door has been closed.
func (d *door[T]) give(c T) bool {
	select {
	case d.ch <- c:
		return true
	case <-d.ended:
		return false
	}
}

// Accept implements [source].
func (d *door[T]) Accept() (c T, err error) {
	select {
	case c = <-d.ch:
		return c, nil
	case <-d.ended:
		return c, d.err
	}
}

// Addr implements [source].
func (d *door[T]) Addr() net.Addr { return net.TCPAddrFromAddrPort(d.at) }

// Close implements [source]. The last one closes the socket.
func (d *door[T]) Close() error {
	d.of.mu.Lock()
	defer d.of.mu.Unlock()
	s := d.of.byPort[d.key]
	if !d.endLocked(net.ErrClosed) || s == nil {
		return nil
	}
	delete(s.doors, d.at.Addr())
	if len(s.doors) > 0 {
		return nil
	}
	delete(d.of.byPort, d.key)
	return s.src.Close()
}

// endLocked ends the door, unless that has been done. of is locked.
func (d *door[T]) endLocked(err error) bool {
	select {
	case <-d.ended:
		return false
	default:
		d.err = err
		close(d.ended)
		return true
	}
}

// refuseTCP closes a connection so that the peer sees it refused.
func refuseTCP(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// networkOf returns what net calls the network of an address. By itself it takes 0.0.0.0, which is all of the host's IPv4 addresses, for those of IPv6 too.
func networkOf(address string) string {
	if strings.HasPrefix(address, "0.0.0.0:") {
		return "tcp4"
	}
	return "tcp"
}

// bindTCP takes a listener's address: for itself, or a part of what comes to all addresses. Software iWARP is TCP, and shares ports with it.
func (g *Gateway) bindTCP(ctx context.Context, l config.Listener) (source[net.Conn], error) {
	listen := func(ctx context.Context, address string) (source[net.Conn], error) {
		var lc net.ListenConfig
		return lc.Listen(ctx, networkOf(address), address)
	}
	if l.Bind != config.Wildcard {
		return listen(ctx, g.at(l.Address))
	}
	at, err := netip.ParseAddrPort(l.Address)
	if err != nil {
		return nil, err
	}
	return g.shared.join(ctx, "", at, listen)
}
