//go:build verbs

package verbs

import (
	"encoding/binary"
	"errors"
	"flag"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/bufpool"
)

var between = flag.String("between", "", "`interface` that packets of the kind rxe cross")

// TestTOS: the packets of a dialed connection have the configured type of service, in both
// directions.
func TestTOS(t *testing.T) {
	if *kind != "rxe" || *between == "" {
		t.Skip("no -kind rxe -between INTERFACE: the test runs in the guest, by make test-verbs")
	}
	const tos = 104
	link, err := net.InterfaceByName(*between)
	if err != nil {
		t.Fatal(err)
	}
	all := binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL)
	protocol := binary.NativeEndian.Uint16(all)
	s, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM, int(protocol))
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(s)
	if err := unix.SetsockoptTimeval(s, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 60}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Bind(s, &unix.SockaddrLinklayer{Protocol: protocol, Ifindex: link.Index}); err != nil {
		t.Fatal(err)
	}
	p, err := New(Config{TOS: tos})
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	c := connectPair(t, p, q, bufpool.New(0), few, false)
	b := make([]byte, 8192)
	begun := time.Now()
	for seen := map[netip.Addr]bool{}; len(seen) < 2; {
		n, _, err := unix.Recvfrom(s, b, 0)
		if err != nil || time.Since(begun) > time.Minute {
			t.Fatalf("packets of %v only: %v", seen, err)
		}
		const ip, udp, roce, manager = 20, 8, 4791, 1
		if n < ip+udp+12 || b[0] != 4<<4|ip/4 || b[9] != unix.IPPROTO_UDP || binary.BigEndian.Uint16(b[ip+2:]) != roce {
			continue
		}
		if pair := binary.BigEndian.Uint32(b[ip+udp+4:]) & 0xffffff; pair == manager {
			continue
		}
		source := netip.AddrFrom4([4]byte(b[12:]))
		if b[1] != tos {
			t.Errorf("a packet from %v has type of service %d, want %d", source, b[1], tos)
		}
		seen[source] = true
	}
	_ = c.ends[0].ep.Close()
	if err := <-c.served[0]; !errors.Is(err, net.ErrClosed) {
		t.Errorf("the dialer's Serve returned %v, want net.ErrClosed", err)
	}
	if err := <-c.served[1]; !errors.Is(err, io.EOF) {
		t.Errorf("the acceptor's Serve returned %v, want io.EOF", err)
	}
	_ = c.l.Close()
	c.free(t)
}
