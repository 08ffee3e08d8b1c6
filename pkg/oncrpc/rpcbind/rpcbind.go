// Package rpcbind registers the programs of this process with the host's rpcbind service (RFC 1833
// section 2, versions 3 and 4), by the network identifiers of TCP and RDMA. Clients of NFS version
// 3 query it.
package rpcbind

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/xdr"
)

const (
	program  = 100000
	version4 = 4
	version3 = 3

	procSet     = 1
	procUnset   = 2
	procGetAddr = 3
	procDump    = 4

	maxString = 1024 // of the service's strings
	maxCall   = 1024
)

// ErrAbsent is the error when no rpcbind runs here.
var ErrAbsent = errors.New("rpcbind: no service answers")

// Local returns the addresses of this host's service, in the order of trying. The service accepts
// changes only from a local peer: one on its Unix socket, or one on loopback with a reserved port,
// which needs privilege.
func Local() []Address {
	return []Address{{"unix", "/run/rpcbind.sock"}, {"tcp", "127.0.0.1:111"}, {"tcp", "[::1]:111"}}
}

// Address is a network and an address as for net.Dial: "unix" and a path, or "tcp" and host:port.
type Address struct{ Network, Address string }

// Mapping is the address of a program's version.
type Mapping struct {
	Program, Version uint32
	NetID            string // TCP, TCP6, RDMA or RDMA6
	Addr             netip.AddrPort
}

func (m Mapping) String() string {
	return fmt.Sprintf("program %d version %d on %s at %s", m.Program, m.Version, m.NetID, m.Addr)
}

// Client is a connection to the service.
type Client struct {
	rpc     *oncrpc.Client
	pool    *bufpool.Pool
	version uint32
}

// Dial connects to the first of the addresses that answers. If none does, the error is [ErrAbsent].
func Dial(ctx context.Context, addresses []Address) (*Client, error) {
	var errs []error
	for _, a := range addresses {
		conn, err := dial(ctx, a)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		pool := bufpool.New(0)
		rpc, err := oncrpc.NewClient(conn, oncrpc.Config{Pool: pool, MaxRecord: 64 << 10, ReadBuffer: 32 << 10})
		if err != nil {
			_ = conn.Close()
			return nil, err
		}
		return &Client{rpc: rpc, pool: pool, version: version4}, nil
	}
	return nil, fmt.Errorf("%w: %w", ErrAbsent, errors.Join(errs...))
}

// dial connects, to a service of this host from a reserved port where that is allowed.
func dial(ctx context.Context, a Address) (net.Conn, error) {
	var d net.Dialer
	if at, err := netip.ParseAddrPort(a.Address); err == nil && at.Addr().IsLoopback() {
		d.Control = func(network, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { bindReserved(int(fd), network == "tcp6") })
		}
	}
	return d.DialContext(ctx, a.Network, a.Address)
}

// bindReserved binds to a free port below 1024. Without the privilege it does nothing: the service
// still answers queries.
func bindReserved(fd int, six bool) {
	for port := 1023; port >= 600; port-- {
		var sa unix.Sockaddr = &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
		if six {
			sa = &unix.SockaddrInet6{Port: port, Addr: netip.IPv6Loopback().As16()}
		}
		if err := unix.Bind(fd, sa); !errors.Is(err, unix.EADDRINUSE) {
			return
		}
	}
}

// Close ends the connection.
func (c *Client) Close() error {
	err := c.rpc.Close()
	c.rpc.Wait()
	return errors.Join(err, c.pool.Close())
}

// Set registers m. It fails if the service has another address for that program, version and
// network, or does not accept registrations from this process.
func (c *Client) Set(ctx context.Context, m Mapping) error {
	ok, err := c.change(ctx, procSet, m, FormatUniversal(m.Addr))
	if err == nil && !ok {
		err = errors.New("the service refused; it has another address, or demands more privilege")
	}
	if err != nil {
		return fmt.Errorf("rpcbind: registering %s: %w", m, err)
	}
	return nil
}

// Unset removes the registration of m's program, version and network; m.Addr does not matter.
func (c *Client) Unset(ctx context.Context, m Mapping) error {
	ok, err := c.change(ctx, procUnset, m, "")
	if err == nil && !ok {
		err = errors.New("the service refused; there is none, or it belongs to another user")
	}
	if err != nil {
		return fmt.Errorf("rpcbind: removing %s: %w", m, err)
	}
	return nil
}

// GetAddr returns a program's address; the zero address means that it is not registered. Services
// go by the network of the query and not by netID: over TCP they return TCP addresses. Dump returns
// all.
func (c *Client) GetAddr(ctx context.Context, program, version uint32, netID string) (a netip.AddrPort, err error) {
	m := Mapping{Program: program, Version: version, NetID: netID}
	err = c.call(ctx, procGetAddr, rpcb(m, ""), func(d *xdr.Decoder) error {
		s := d.String(maxString)
		if d.Err() != nil || s == "" {
			return d.Err()
		}
		a, err = ParseUniversal(s)
		return err
	})
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("rpcbind: asking for program %d version %d on %s: %w", program, version, netID, err)
	}
	return a, nil
}

// Entry is a registration as the service returns it.
type Entry struct {
	Program, Version uint32
	NetID            string
	Addr             string // a universal address, if NetID is of an Internet protocol
	Owner            string
}

// Dump returns all registrations.
func (c *Client) Dump(ctx context.Context) (all []Entry, err error) {
	err = c.call(ctx, procDump, func(*xdr.Encoder) {}, func(d *xdr.Decoder) error {
		all = nil
		for d.Bool() { // ends at the latest with the message
			all = append(all, Entry{d.Uint32(), d.Uint32(), d.String(maxString), d.String(maxString), d.String(maxString)})
		}
		return d.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("rpcbind: listing the registrations: %w", err)
	}
	return all, nil
}

// rpcb writes the argument of most calls (RFC 1833 section 2.1).
func rpcb(m Mapping, addr string) func(*xdr.Encoder) {
	return func(e *xdr.Encoder) {
		e.Uint32(m.Program)
		e.Uint32(m.Version)
		e.String(m.NetID)
		e.String(addr)
		// the owner; the service prefers the peer's user where it sees it
		e.String(strconv.Itoa(os.Getuid()))
	}
}

func (c *Client) change(ctx context.Context, procedure uint32, m Mapping, addr string) (ok bool, err error) {
	err = c.call(ctx, procedure, rpcb(m, addr), func(d *xdr.Decoder) error {
		ok = d.Bool()
		return d.Err()
	})
	return ok, err
}

// call makes a call in version 4, or in 3 with a service that has no more.
func (c *Client) call(ctx context.Context, procedure uint32, arguments func(*xdr.Encoder), results func(*xdr.Decoder) error) error {
	for {
		err := c.callOnce(ctx, procedure, arguments, results)
		var status *oncrpc.StatusError
		if c.version == version4 && errors.As(err, &status) && status.Status.Accept == oncrpc.ProgMismatch && !status.Status.Denied {
			c.version = version3
			continue
		}
		return err
	}
}

func (c *Client) callOnce(ctx context.Context, procedure uint32, arguments func(*xdr.Encoder), results func(*xdr.Decoder) error) error {
	r, e, err := oncrpc.NewRequest(c.pool, program, c.version, procedure, oncrpc.Auth{}, maxCall)
	if err != nil {
		return err
	}
	defer r.Free()
	arguments(e)
	if err := oncrpc.Do(ctx, c.rpc, r); err != nil {
		return err
	}
	d, err := r.Results()
	if err != nil {
		return err
	}
	return results(d)
}
