package listen

import (
	"net"
	"net/netip"
	"sync"
)

// ChanListener is the listener of a server. It receives the connections to all addresses of an
// export by a channel, so a server can be replaced, and can end, while the addresses stay. It
// implements [net.Listener] and rdma.Listener.
type ChanListener[T any] struct {
	ch      chan T
	closed  chan struct{}
	once    sync.Once
	open    sync.WaitGroup   // connections handed to the server
	release func(netip.Addr) // gets the client of each ended connection
}

func newChanListener[T any](release func(netip.Addr)) *ChanListener[T] {
	return &ChanListener[T]{ch: make(chan T), closed: make(chan struct{}), release: release}
}

// ConnEnded records the end of a connection of a client. The server's observer calls it.
func (l *ChanListener[T]) ConnEnded(client netip.Addr) {
	l.release(client)
	l.open.Done()
}

// idle returns a channel that is closed when all connections have ended. send must not be called
// any more.
func (l *ChanListener[T]) idle() <-chan struct{} {
	idle := make(chan struct{})
	go func() {
		l.open.Wait()
		close(idle)
	}()
	return idle
}

// send hands c to the server. It returns false if the listener is closed.
func (l *ChanListener[T]) send(c T) bool {
	select {
	case l.ch <- c:
		return true
	case <-l.closed:
		return false
	}
}

// Accept waits for a connection.
func (l *ChanListener[T]) Accept() (c T, err error) {
	select {
	case c = <-l.ch:
		return c, nil
	case <-l.closed:
		return c, net.ErrClosed
	}
}

// Close ends Accept. The addresses stay.
func (l *ChanListener[T]) Close() error {
	l.once.Do(func() { close(l.closed) })
	return nil
}

// Addr returns no address: each connection has its own.
func (l *ChanListener[T]) Addr() net.Addr { return &net.TCPAddr{} }
