package gateway

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
)

const (
	firstRetry = 50 * time.Millisecond
	lastRetry  = 5 * time.Second
)

// source is what [net.Listener] and rdma.Listener are: T is a connection, or a request for one.
type source[T any] interface {
	Accept() (T, error)
	Addr() net.Addr
	Close() error
}

// listener keeps one address listened on: an address that cannot be had, or is lost, is tried again until close.
// So trouble with one address is that address's alone.
type listener[T any] struct {
	spec    config.Listener
	log     *slog.Logger
	bind    func(context.Context) (source[T], error)
	deliver func(T)
	told    func(netip.AddrPort) // where it listens; the zero value when it does not

	cancel context.CancelFunc
	tried  chan struct{} // closed after the first attempt
	again  chan struct{} // the next attempt is due
	done   chan struct{} // closed when nothing is delivered any more

	mu     sync.Mutex
	status status.Listener
	src    source[T]
	inUse  bool // the address is, by somebody else
	closed bool
}

// listen starts a listener.
func listen[T any](spec config.Listener, log *slog.Logger, bind func(context.Context) (source[T], error), deliver func(T),
	told func(netip.AddrPort)) *listener[T] {
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener[T]{
		spec: spec, bind: bind, deliver: deliver, told: told, cancel: cancel, tried: make(chan struct{}), again: make(chan struct{}, 1), done: make(chan struct{}),
		log: log,
		status: status.Listener{
			Network: spec.Network, Provider: spec.Provider, Configured: spec.Address, State: status.Retrying, Since: time.Now(),
		},
	}
	go l.run(ctx)
	return l
}

func (l *listener[T]) run(ctx context.Context) {
	defer close(l.done)
	first := sync.OnceFunc(func() { close(l.tried) })
	defer first()
	wait := firstRetry
	for ctx.Err() == nil {
		src, err := l.bind(ctx)
		if !l.attempted(src, err) {
			return
		}
		first()
		if err == nil {
			wait = firstRetry
			err = acceptAll(src, l.log, l.deliver)
			_ = src.Close()
			if !l.attempted(nil, err) {
				return
			}
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, lastRetry)
		case <-l.again:
			wait = firstRetry
		case <-ctx.Done():
		}
	}
}

// acceptAll takes connections until the source fails.
func acceptAll[T any](src source[T], log *slog.Logger, deliver func(T)) error {
	for {
		c, err := src.Accept()
		switch {
		case err == nil:
			deliver(c)
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ENOMEM):
			// The address is not lost. Clients wait in the queue until there are resources again.
			log.Error("a connection cannot be taken now", "error", err)
			time.Sleep(lastRetry / 50)
		case errors.Is(err, syscall.ECONNABORTED), errors.Is(err, syscall.EINTR):
		default:
			return err
		}
	}
}

// attempted notes the outcome of an attempt to listen, or the end of listening. It returns false when the listener is closed.
func (l *listener[T]) attempted(src source[T], err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		if src != nil {
			_ = src.Close()
		}
		return false
	}
	state, text, address := status.Listening, "", ""
	if err != nil {
		state, text = status.Retrying, err.Error()
	} else {
		address = src.Addr().String()
	}
	l.src, l.inUse = src, errors.Is(err, syscall.EADDRINUSE)
	if l.status.State != state || l.status.Error != text || l.status.Address != address {
		if err != nil {
			l.log.Error("the address cannot be listened on; it is tried again and again", "error", err)
		} else {
			l.log.Info("listening", "on", address)
		}
		l.status.State, l.status.Error, l.status.Address, l.status.Since = state, text, address, time.Now()
		at, _ := netip.ParseAddrPort(address)
		l.told(at)
	}
	return true
}

// blocked waits for the first attempt, and tells whether the address is in use.
func (l *listener[T]) blocked() bool {
	<-l.tried
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.inUse
}

// retry makes the next attempt due now.
func (l *listener[T]) retry() {
	select {
	case l.again <- struct{}{}:
	default:
	}
}

// close ends the listener and returns when nothing is delivered any more.
func (l *listener[T]) close() {
	l.mu.Lock()
	l.closed = true
	if l.src != nil {
		_ = l.src.Close()
	}
	l.status.State, l.status.Since = status.Closed, time.Now()
	l.mu.Unlock()
	l.cancel()
	<-l.done
}

func (l *listener[T]) state() status.Listener {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

// relay is the listener of a server: it gets what is delivered to it from all addresses of an export. So a server can take another one's place
// while the addresses stay, and end without them.
type relay[T any] struct {
	ch     chan T
	closed chan struct{}
	once   sync.Once
	conns  sync.WaitGroup   // those that were given
	gone   func(netip.Addr) // is called for each that is gone, with its client
}

func newRelay[T any](gone func(netip.Addr)) *relay[T] {
	return &relay[T]{ch: make(chan T), closed: make(chan struct{}), gone: gone}
}

// left takes note that a connection that was given is gone.
func (r *relay[T]) left(client netip.Addr) {
	r.gone(client)
	r.conns.Done()
}

// idle returns what is closed when all connections are gone. No further ones may be given.
func (r *relay[T]) idle() <-chan struct{} {
	idle := make(chan struct{})
	go func() {
		r.conns.Wait()
		close(idle)
	}()
	return idle
}

// give hands c to the server. It returns false if that has ended.
func (r *relay[T]) give(c T) bool {
	select {
	case r.ch <- c:
		return true
	case <-r.closed:
		return false
	}
}

// Accept implements net.Listener and rdma.Listener.
func (r *relay[T]) Accept() (c T, err error) {
	select {
	case c = <-r.ch:
		return c, nil
	case <-r.closed:
		return c, net.ErrClosed
	}
}

// Close implements net.Listener and rdma.Listener.
func (r *relay[T]) Close() error {
	r.once.Do(func() { close(r.closed) })
	return nil
}

// Addr implements net.Listener and rdma.Listener: connections know their own.
func (r *relay[T]) Addr() net.Addr { return &net.TCPAddr{} }
