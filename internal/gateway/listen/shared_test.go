package listen

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
)

// fakeArrival is a connection to an address.
type fakeArrival string

func (a fakeArrival) LocalAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(string(a)))
}

// TestSharedSockets checks the listener of each connection, without sockets.
func TestSharedSockets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx := t.Context()
		var turnedAway []fakeArrival
		w := NewSharedSockets(slog.New(slog.DiscardHandler), false, func(a fakeArrival) { turnedAway = append(turnedAway, a) })
		var made []*fakeSource[fakeArrival]
		join := func(device, at string) Source[fakeArrival] {
			t.Helper()
			s, err := w.Join(ctx, device, netip.MustParseAddrPort(at), func(_ context.Context, address string) (Source[fakeArrival], error) {
				if address != ":2049" {
					t.Errorf("the socket is on %q", address)
				}
				made = append(made, newFakeSource[fakeArrival]())
				return made[len(made)-1], nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		one, six, other := join("", "192.0.2.1:2049"), join("", "[2001:db8::1]:2049"), join("mlx5_0", "192.0.2.1:2049")
		if len(made) != 2 {
			t.Fatalf("%d sockets, want one for each device", len(made))
		}
		if _, err := w.Join(ctx, "", netip.MustParseAddrPort("192.0.2.1:2049"), nil); !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("the same address twice: %v", err)
		}
		get := func(s Source[fakeArrival], in *fakeSource[fakeArrival], a fakeArrival) {
			t.Helper()
			in.accept <- a
			if got, err := s.Accept(); got != a || err != nil {
				t.Errorf("got %q, %v; want %q", got, err, a)
			}
		}
		get(one, made[0], "[::ffff:192.0.2.1]:2049") // as an IPv6 socket reports it
		get(six, made[0], "[2001:db8::1]:2049")
		get(other, made[1], "192.0.2.1:2049")
		made[0].accept <- "192.0.2.2:2049"
		_ = one.Close()
		_ = one.Close()
		if _, err := one.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error("a closed source:", err)
		}
		made[0].accept <- "192.0.2.1:2049"
		synctest.Wait()
		if fmt.Sprint(turnedAway) != "[192.0.2.2:2049 192.0.2.1:2049]" {
			t.Errorf("turned away: %s", turnedAway)
		}

		// A failed socket ends all its listeners, and is replaced.
		lost := errors.New("lost")
		made[0].fail <- lost
		if _, err := six.Accept(); !errors.Is(err, lost) {
			t.Error(err)
		}
		_ = six.Close()
		synctest.Wait()
		again := join("", "[2001:db8::1]:2049")
		get(again, made[2], "[2001:db8::1]:2049")
		_ = again.Close()
		_ = other.Close()
		for i, s := range made {
			select {
			case <-s.closed:
			default:
				t.Errorf("socket %d is open", i)
			}
		}
	})
}

// TestSharedByFamily checks that a port has a socket for each family, and each listener its own.
func TestSharedByFamily(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewSharedSockets(slog.New(slog.DiscardHandler), true, func(a fakeArrival) { t.Errorf("turned away: %s", a) })
		made := map[string]*fakeSource[fakeArrival]{}
		for _, at := range []string{"192.0.2.1:2049", "192.0.2.2:2049", "[2001:db8::1]:2049"} {
			s, err := w.Join(t.Context(), "siw0", netip.MustParseAddrPort(at), func(_ context.Context, address string) (Source[fakeArrival], error) {
				if made[address] != nil {
					t.Errorf("two sockets on %s", address)
				}
				made[address] = newFakeSource[fakeArrival]()
				return made[address], nil
			})
			if err != nil {
				t.Fatal(err)
			}
			address := "0.0.0.0:2049"
			if at[0] == '[' {
				address = "[::]:2049"
			}
			made[address].accept <- fakeArrival(at)
			if got, err := s.Accept(); got != fakeArrival(at) || err != nil {
				t.Errorf("got %q, %v; want %s", got, err, at)
			}
			defer s.Close()
		}
		if len(made) != 2 {
			t.Errorf("%d sockets, want one for each family", len(made))
		}
	})
}
