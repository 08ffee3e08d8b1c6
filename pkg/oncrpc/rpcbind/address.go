package rpcbind

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Network identifiers (RFC 5665 section 5.1, RFC 8166 section 9).
const (
	TCP   = "tcp"
	TCP6  = "tcp6"
	RDMA  = "rdma"
	RDMA6 = "rdma6"
)

// NetID returns the network identifier of a network ("tcp" or "rdma") for addresses of a's family.
func NetID(network string, a netip.Addr) string {
	if a.Unmap().Is6() {
		return network + "6"
	}
	return network
}

// FormatUniversal returns the universal address of a (RFC 5665 section 5.2.3): the address in text,
// then the two bytes of the port in decimal.
func FormatUniversal(a netip.AddrPort) string {
	return fmt.Sprintf("%s.%d.%d", a.Addr().Unmap().WithZone(""), a.Port()>>8, a.Port()&0xff)
}

// ParseUniversal reads a universal address of either family.
func ParseUniversal(s string) (netip.AddrPort, error) {
	bad := func(what string) (netip.AddrPort, error) {
		return netip.AddrPort{}, fmt.Errorf("rpcbind: universal address %q: %s", s, what)
	}
	rest, low, ok := cutLast(s)
	if !ok {
		return bad("has no port, must end in two decimal numbers")
	}
	host, high, ok := cutLast(rest)
	if !ok {
		return bad("has no port, must end in two decimal numbers")
	}
	hi, err := strconv.ParseUint(high, 10, 8)
	if err != nil {
		return bad(fmt.Sprintf("upper byte of the port is %q, must be 0 to 255", high))
	}
	lo, err := strconv.ParseUint(low, 10, 8)
	if err != nil {
		return bad(fmt.Sprintf("lower byte of the port is %q, must be 0 to 255", low))
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return bad(fmt.Sprintf("host is %q, must be an IPv4 or IPv6 address", host))
	}
	return netip.AddrPortFrom(addr, uint16(hi)<<8|uint16(lo)), nil
}

func cutLast(s string) (before, after string, ok bool) {
	i := strings.LastIndexByte(s, '.')
	if i < 0 {
		return "", "", false
	}
	return s[:i], s[i+1:], true
}
