package netif

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// States of a TCP socket in which somebody may still wait for it, of net/tcp_states.h.
const (
	tcpEstablished = 1
	tcpCloseWait   = 8
)

// closeConnections ends the TCP connections of an address that is about to leave. Their clients
// learn it at once and reconnect to the next holder, and the gateway keeps no dead connections. It
// does as much as the kernel supports: the feature is optional.
func closeConnections(ip netip.Addr) error {
	var errs []error
	// Sockets of IPv6 take connections of IPv4 too.
	for _, family := range []uint8{unix.AF_INET, unix.AF_INET6} {
		all, err := netlink.SocketDiagTCP(family)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, s := range all {
			if local, ok := netip.AddrFromSlice(s.ID.Source); !ok || local.Unmap() != ip || s.State != tcpEstablished && s.State != tcpCloseWait {
				continue
			}
			req := nl.NewNetlinkRequest(nl.SOCK_DESTROY, unix.NLM_F_ACK)
			req.AddRawData(diagRequest(family, &s.ID))
			if _, err := req.Execute(unix.NETLINK_INET_DIAG, 0); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EOPNOTSUPP) {
				errs = append(errs, fmt.Errorf("connection of %v: %w", ip, err))
			}
		}
	}
	return errors.Join(errs...)
}

// diagRequest is struct inet_diag_req_v2 of linux/inet_diag.h: family, protocol, two bytes of no
// meaning here, states, and the socket's ports, addresses, interface and cookie.
func diagRequest(family uint8, id *netlink.SocketID) []byte {
	b := []byte{family, unix.IPPROTO_TCP, 0, 0, 0xff, 0xff, 0xff, 0xff}
	b = binary.BigEndian.AppendUint16(b, id.SourcePort)
	b = binary.BigEndian.AppendUint16(b, id.DestinationPort)
	for _, ip := range [][]byte{id.Source, id.Destination} {
		if family == unix.AF_INET && len(ip) == 16 {
			ip = ip[12:]
		}
		var field [16]byte
		copy(field[:], ip)
		b = append(b, field[:]...)
	}
	b = binary.NativeEndian.AppendUint32(b, id.Interface)
	b = binary.NativeEndian.AppendUint32(b, id.Cookie[0])
	return binary.NativeEndian.AppendUint32(b, id.Cookie[1])
}
