package upstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// Dialer connects to a backend.
type Dialer interface {
	// Dial connects from the local port, or from any port if it is 0. p handles the backend's
	// calls, and is corked around each batch of messages.
	Dial(ctx context.Context, port int, p Peer) (Conn, error)
}

// Peer is this side of a connection to a backend.
type Peer interface {
	oncrpc.Handler // handles the backend's calls
	oncrpc.Corker  // corked while a batch of received messages is processed
}

// noPeer is the Peer of the gateway's own connections.
type noPeer struct{}

func (noPeer) ServeRPC(c *oncrpc.Call) { c.ReplyAccept(oncrpc.ProgUnavail) }
func (noPeer) Cork()                   {}
func (noPeer) Uncork()                 {}

// Conn is a connection to a backend.
type Conn interface {
	oncrpc.Requester
	oncrpc.Canceler
	// Out is the sending side.
	Out() oncrpc.Corker
	// Wait returns when the connection has ended and released its resources. Err then returns the
	// reason.
	Wait()
	Err() error
	// Port is the local port, or 0 if a later Dial cannot reuse it.
	Port() int
	Local() netip.AddrPort
	// Final reports whether a request's error is permanent, so that sending it again would not
	// help. After any other error the connection is lost, or must be closed if the error is
	// [oncrpc.ErrXIDInUse].
	Final(err error) bool
}

const (
	// A vanished host is noticed within a minute.
	keepAliveIdle     = 15 * time.Second
	keepAliveInterval = 5 * time.Second
	keepAliveCount    = 3
	userTimeout       = 60 * time.Second
)

// TCP dials a backend over TCP.
type TCP struct {
	// Address is "host:port". Each dial resolves the name.
	Address string
	// Config is used for each connection. Dial sets Handler, Batch and Thread.
	Config oncrpc.Config
}

// Dial implements [Dialer].
func (t *TCP) Dial(ctx context.Context, port int, p Peer) (Conn, error) {
	d := net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveInterval, Count: keepAliveCount},
		Control: func(_, _ string, raw syscall.RawConn) error {
			var err error
			if e := raw.Control(func(fd uintptr) {
				err = errors.Join(
					unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
					unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(userTimeout.Milliseconds())))
			}); e != nil {
				return e
			}
			return err
		},
	}
	if port != 0 {
		d.LocalAddr = &net.TCPAddr{Port: port}
	}
	sock, err := d.DialContext(ctx, "tcp", t.Address)
	if err != nil {
		return nil, fmt.Errorf("upstream: %w", err)
	}
	cfg := t.Config
	cfg.Handler, cfg.Batch = p, p
	cfg.Thread = p != Peer(noPeer{}) // own calls are not latency-sensitive
	c, err := oncrpc.NewClient(sock, cfg)
	if err != nil {
		_ = sock.Close()
		return nil, err
	}
	return tcpConn{c}, nil
}

type tcpConn struct{ *oncrpc.Client }

func (c tcpConn) Out() oncrpc.Corker    { return c.Conn().Out }
func (c tcpConn) Port() int             { return int(c.Conn().Local.Port()) }
func (c tcpConn) Local() netip.AddrPort { return c.Conn().Local }
func (c tcpConn) Final(error) bool      { return false }

// RDMA dials a backend over RPC-over-RDMA.
type RDMA struct {
	Provider rdma.Provider
	// Address is "host:port".
	Address string
	// Config is used for each connection. Dial sets Handler and Batch.
	Config rpcrdma.Config

	latest atomic.Pointer[rpcrdma.Client]
}

// Negotiated returns the values agreed for the latest connection, which may have ended; nil before
// the first.
func (t *RDMA) Negotiated() *rpcrdma.Negotiated {
	c := t.latest.Load()
	if c == nil {
		return nil
	}
	n := c.Negotiated()
	return &n
}

// Dial implements [Dialer]. The provider chooses the local port.
func (t *RDMA) Dial(ctx context.Context, _ int, p Peer) (Conn, error) {
	cfg := t.Config
	cfg.Handler, cfg.Batch = p, p
	c, err := rpcrdma.Dial(ctx, t.Provider, t.Address, cfg)
	if err != nil {
		return nil, err
	}
	t.latest.Store(c)
	return rdmaConn{c}, nil
}

type rdmaConn struct{ *rpcrdma.Client }

func (c rdmaConn) Out() oncrpc.Corker    { return c.Conn().Out }
func (c rdmaConn) Wait()                 { <-c.Done() }
func (c rdmaConn) Port() int             { return 0 }
func (c rdmaConn) Local() netip.AddrPort { return c.Conn().Local }

func (c rdmaConn) Err() error {
	select {
	case <-c.Done():
		return c.Client.Err()
	default:
		return nil
	}
}

func (c rdmaConn) Final(err error) bool {
	var lost *rpcrdma.LostError
	return !errors.As(err, &lost) && !errors.Is(err, rpcrdma.ErrClosed) && !errors.Is(err, oncrpc.ErrXIDInUse)
}

// portTaken reports whether a dial failed because its local port is in use, or was moments ago.
func portTaken(err error) bool {
	return errors.Is(err, syscall.EADDRINUSE) || errors.Is(err, syscall.EADDRNOTAVAIL)
}

// portDenied reports whether a dial failed because this process may not use its local port.
func portDenied(err error) bool {
	var call *os.SyscallError
	return errors.As(err, &call) && call.Syscall == "bind" && (errors.Is(err, syscall.EACCES) || errors.Is(err, syscall.EPERM))
}
