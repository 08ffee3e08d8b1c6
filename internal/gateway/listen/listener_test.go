package listen

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
)

// fakeSource is a source with connections made by the test.
type fakeSource[T any] struct {
	mu     sync.Mutex
	accept chan T
	fail   chan error
	closed chan struct{}
}

func newFakeSource[T any]() *fakeSource[T] {
	return &fakeSource[T]{accept: make(chan T), fail: make(chan error), closed: make(chan struct{})}
}

func (s *fakeSource[T]) Accept() (c T, err error) {
	select {
	case c = <-s.accept:
		return c, nil
	case err = <-s.fail:
		return c, err
	case <-s.closed:
		return c, net.ErrClosed
	}
}

func (s *fakeSource[T]) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 2049} }

func (s *fakeSource[T]) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.closed:
	default:
		close(s.closed)
	}
	return nil
}

func TestListenerRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begin := time.Now()
		var mu sync.Mutex // guards the variables below
		var at []time.Duration
		src := newFakeSource[int]()
		busy := true
		bind := func(context.Context) (Source[int], error) {
			mu.Lock()
			defer mu.Unlock()
			at = append(at, time.Since(begin))
			if busy {
				return nil, &net.OpError{Op: "listen", Err: syscall.EADDRINUSE}
			}
			return src, nil
		}
		var got []int
		l := startListener(config.Listener{Network: config.TCP, Address: "127.0.0.1:2049"}, slog.New(slog.DiscardHandler), bind, func(c int) { got = append(got, c) }, func(netip.AddrPort) {})
		if !l.awaitFirstTry() {
			t.Error("an address in use is not reported")
		}
		time.Sleep(400 * time.Millisecond)
		synctest.Wait()
		if s := l.state(); s.State != status.Retrying || s.Error == "" || s.Address != "" || !s.Since.Equal(begin) {
			t.Errorf("%+v", s)
		}
		mu.Lock()
		busy = false
		mu.Unlock()
		time.Sleep(time.Second)
		synctest.Wait()
		if s := l.state(); s.State != status.Listening || s.Error != "" || s.Address != "127.0.0.1:2049" {
			t.Errorf("%+v", s)
		}
		mu.Lock()
		// 0, 50, 150, 350, 750: intervals double.
		if want := []time.Duration{0, 50e6, 150e6, 350e6, 750e6}; len(at) != len(want) || at[4] != want[4] || at[3] != want[3] {
			t.Errorf("tried at %v, want %v", at, want)
		}
		mu.Unlock()
		src.accept <- 1
		src.fail <- syscall.EMFILE // the address stays
		src.fail <- &net.OpError{Err: syscall.ECONNABORTED}
		src.accept <- 2
		synctest.Wait()
		if len(got) != 2 || len(at) != 5 {
			t.Errorf("delivered %v, listened at %v", got, at)
		}
		lost := src
		mu.Lock()
		src = newFakeSource[int]()
		mu.Unlock()
		lost.fail <- errors.New("device removed") // the address is lost: a new attempt follows
		synctest.Wait()
		if s := l.state(); s.State != status.Retrying || s.Error != "device removed" {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Second)
		src.accept <- 3
		synctest.Wait()
		l.close()
		if len(got) != 3 || l.state().State != status.Closed {
			t.Errorf("delivered %v, state %v", got, l.state())
		}
		select {
		case <-lost.closed:
		default:
			t.Error("the lost source is not closed")
		}
		<-src.closed
	})
}

func TestListenerCloseWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := startListener(config.Listener{}, slog.New(slog.DiscardHandler), func(context.Context) (Source[int], error) {
			return nil, errors.New("no such device")
		}, nil, func(netip.AddrPort) {})
		time.Sleep(time.Minute)
		begin := time.Now()
		l.close()
		if time.Since(begin) > 0 {
			t.Error("close waits for the next attempt")
		}
	})
}
