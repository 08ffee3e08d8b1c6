package speaker

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/internal/speaker/fsm"
	"sluice.dev/sluice/internal/speaker/neighbour"
)

// capture records every frame on the data network, while a client there constantly requests each
// address.
type capture struct {
	mu     sync.Mutex
	claims map[netip.Addr][]claim
}

type claim struct {
	at  time.Time
	mac fsm.MAC
}

const askEvery = 20 * time.Millisecond

func newCapture(t *testing.T, sw, client *namespace, vips []netip.Addr) *capture {
	c := &capture{claims: map[netip.Addr][]claim{}}
	for _, ip := range vips {
		c.claims[ip] = nil
	}
	var fds [3]int // capture, and senders of ARP and Neighbor Discovery
	sw.do(func() error {
		l, err := netlink.LinkByName("data")
		if err != nil {
			return err
		}
		i := l.Attrs().Index
		if fds[0], err = packetSocket(i, unix.ETH_P_ALL); err != nil {
			return err
		}
		tv := unix.NsecToTimeval(int64(100 * time.Millisecond))
		if err = unix.SetsockoptTimeval(fds[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
			return err
		}
		if err = unix.SetsockoptInt(fds[0], unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1); err != nil {
			return err
		}
		return unix.SetsockoptPacketMreq(fds[0], unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &unix.PacketMreq{Ifindex: int32(i), Type: unix.PACKET_MR_PROMISC})
	})
	var index int
	client.do(func() error {
		l, err := netlink.LinkByName("rdma0")
		if err != nil {
			return err
		}
		index = l.Attrs().Index
		if fds[1], err = packetSocket(index, unix.ETH_P_ARP); err != nil {
			return err
		}
		if fds[2], err = unix.Socket(unix.AF_INET6, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMPV6); err != nil {
			return err
		}
		return unix.SetsockoptInt(fds[2], unix.IPPROTO_IPV6, unix.IPV6_MULTICAST_HOPS, 255)
	})
	stop := make(chan struct{})
	var work sync.WaitGroup
	work.Go(func() { c.read(t, fds[0], stop) })
	work.Go(func() { ask(t, fds[1], fds[2], index, vips, stop) })
	t.Cleanup(func() {
		close(stop)
		work.Wait()
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		c.check(t)
	})
	return c
}

func packetSocket(index int, proto uint16) (int, error) {
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	return fd, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto<<8 | proto>>8, Ifindex: index})
}

func (c *capture) read(t *testing.T, fd int, stop chan struct{}) {
	b, oob := make([]byte, 2048), make([]byte, 128)
	for {
		select {
		case <-stop:
			return
		default:
		}
		n, oobn, _, from, err := unix.Recvmsg(fd, b, oob, 0)
		ll, ok := from.(*unix.SockaddrLinklayer)
		if err != nil || !ok {
			continue
		}
		at, err := received(oob[:oobn])
		if err != nil {
			t.Error(err)
			return
		}
		var heard []fsm.Heard
		switch ll.Protocol {
		case 0x0608: // ARP, in network order
			heard, _ = neighbour.ParseARP(b[:n])
		case 0xdd86: // IPv6
			heard, _ = neighbour.ParseND(b[:n], fsm.MAC(ll.Addr[:6]))
		}
		c.mu.Lock()
		for _, h := range heard {
			if all, ours := c.claims[h.Address]; ours && h.Kind == fsm.Claim {
				c.claims[h.Address] = append(all, claim{at, h.From})
			}
		}
		c.mu.Unlock()
	}
}

// received is the time at which the kernel received a packet; the reader may be late.
func received(oob []byte) (time.Time, error) {
	messages, err := unix.ParseSocketControlMessage(oob)
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS {
			return time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:]))), nil
		}
	}
	return time.Time{}, errors.Join(errors.New("a packet without a time"), err)
}

// ask sends the client's requests and solicitations.
func ask(t *testing.T, arp, nd, index int, vips []netip.Addr, stop chan struct{}) {
	tick := time.NewTicker(askEvery)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return
		case <-tick.C:
		}
		for _, ip := range vips {
			var err error
			if ip.Is4() {
				b := append([]byte{0, 1, 8, 0, 6, 4, 0, 1}, hw(99)...)
				b = append(b, 192, 0, 2, 99, 0, 0, 0, 0, 0, 0)
				b = append(b, ip.AsSlice()...)
				err = unix.Sendto(arp, b, 0, &unix.SockaddrLinklayer{Protocol: 0x0608, Ifindex: index, Halen: 6, Addr: [8]byte{255, 255, 255, 255, 255, 255}})
			} else {
				a := ip.As16()
				b := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, a[:]...)
				b = append(append(b, 1, 1), hw(99)...)
				err = unix.Sendto(nd, b, 0, &unix.SockaddrInet6{ZoneId: uint32(index), Addr: [16]byte{0xff, 2, 11: 1, 12: 0xff, 13: a[13], 14: a[14], 15: a[15]}})
			}
			if err != nil {
				t.Errorf("asking for %v: %v", ip, err)
				return
			}
		}
	}
}

// check fails if two pods answered at any moment: before each change of the hardware address there
// was silence for as long as the new holder probed.
func (c *capture) check(t *testing.T) {
	silence := time.Duration(fsm.Default.Probes)*fsm.Default.Probe - 4*askEvery
	for ip, all := range c.claims {
		changes := 0
		for i := 1; i < len(all); i++ {
			if all[i].mac == all[i-1].mac {
				continue
			}
			changes++
			if gap := all[i].at.Sub(all[i-1].at); gap < silence {
				t.Errorf("%v: %x answered, and %v later %x", ip, all[i-1].mac, gap, all[i].mac)
			}
		}
		if len(all) == 0 {
			t.Errorf("%v: no answer was captured", ip)
		}
		t.Logf("%v: %d answers captured, %d changes of the hardware address", ip, len(all), changes)
	}
}
