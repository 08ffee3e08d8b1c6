package listen

import (
	"context"
	"net"
	"net/netip"
	"strings"

	config "sluice.dev/sluice/api/config/v1alpha1"
)

// BindTCP listens for l on TCP: on address, or with bind Wildcard on l.Address by a shared socket.
// Software iWARP is TCP, and shares ports with it.
func BindTCP(ctx context.Context, shared *SharedSockets[net.Conn], l config.Listener, address string) (Source[net.Conn], error) {
	bind := func(ctx context.Context, address string) (Source[net.Conn], error) {
		var lc net.ListenConfig
		return lc.Listen(ctx, networkOf(address), address)
	}
	if l.Bind != config.Wildcard {
		return bind(ctx, address)
	}
	at, err := netip.ParseAddrPort(l.Address)
	if err != nil {
		return nil, err
	}
	return shared.Join(ctx, "", at, bind)
}

// networkOf returns the network of an address for package net, which with "tcp" listens for 0.0.0.0
// on the addresses of IPv6 too.
func networkOf(address string) string {
	if strings.HasPrefix(address, "0.0.0.0:") {
		return "tcp4"
	}
	return "tcp"
}

// RefuseTCP resets a connection.
func RefuseTCP(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// screened is a source without the connections that allow refuses.
type screened struct {
	Source[net.Conn]
	allow func(net.Conn) bool
}

// Screen returns the connections of src that allow accepts. It resets the others before a byte is
// read.
func Screen(src Source[net.Conn], allow func(net.Conn) bool) Source[net.Conn] {
	return screened{src, allow}
}

// Accept implements [Source].
func (s screened) Accept() (net.Conn, error) {
	for {
		c, err := s.Source.Accept()
		if err != nil {
			return nil, err
		}
		if s.allow(c) {
			return c, nil
		}
		RefuseTCP(c)
	}
}
