package listen

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

// Source is the common part of [net.Listener] and rdma.Listener. T is a connection, or a request
// for one.
type Source[T any] interface {
	Accept() (T, error)
	Addr() net.Addr
	Close() error
}

// listener listens on one address until close. It retries when it cannot get the address, or loses
// it.
type listener[T any] struct {
	spec     config.Listener
	log      *slog.Logger
	bind     func(context.Context) (Source[T], error)
	deliver  func(T)
	onChange func(netip.AddrPort) // gets the address; the zero value while it does not listen

	cancel context.CancelFunc
	tried  chan struct{} // closed after the first attempt
	again  chan struct{} // makes the next attempt due
	done   chan struct{} // closed after the last call of deliver

	mu     sync.Mutex
	status status.Listener
	src    Source[T]
	inUse  bool // somebody else has the address
	closed bool
}

func startListener[T any](spec config.Listener, log *slog.Logger, bind func(context.Context) (Source[T], error), deliver func(T),
	onChange func(netip.AddrPort)) *listener[T] {
	ctx, cancel := context.WithCancel(context.Background())
	l := &listener[T]{
		spec: spec, log: log, bind: bind, deliver: deliver, onChange: onChange,
		cancel: cancel, tried: make(chan struct{}), again: make(chan struct{}, 1), done: make(chan struct{}),
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
		if !l.update(src, err) {
			return
		}
		first()
		if err == nil {
			wait = firstRetry
			err = acceptAll(src, l.log, l.deliver)
			_ = src.Close()
			if !l.update(nil, err) {
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

// acceptAll delivers connections until the source fails.
func acceptAll[T any](src Source[T], log *slog.Logger, deliver func(T)) error {
	for {
		c, err := src.Accept()
		switch {
		case err == nil:
			deliver(c)
		case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE), errors.Is(err, syscall.ENOBUFS), errors.Is(err, syscall.ENOMEM):
			// The source still has the address. Clients wait in its queue.
			log.Error("accept failed; retrying", "error", err)
			time.Sleep(lastRetry / 50)
		case errors.Is(err, syscall.ECONNABORTED), errors.Is(err, syscall.EINTR):
		default:
			return err
		}
	}
}

// update records the outcome of an attempt to listen, or the end of listening. It returns false
// after close.
func (l *listener[T]) update(src Source[T], err error) bool {
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
			l.log.Error("listen failed; retrying", "error", err)
		} else {
			l.log.Info("listening", "on", address)
		}
		l.status.State, l.status.Error, l.status.Address, l.status.Since = state, text, address, time.Now()
		at, _ := netip.ParseAddrPort(address)
		l.onChange(at)
	}
	return true
}

// awaitFirstTry waits for the first attempt, and reports whether the address is in use.
func (l *listener[T]) awaitFirstTry() (inUse bool) {
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

// close ends the listener. deliver is not called after it returns.
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
