package neighbour

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/internal/speaker/fsm"
)

// Port sends and receives on one interface. Its methods are for one goroutine, but Close, Watch and
// the two that Open starts.
type Port struct {
	index    int
	mac      fsm.MAC
	arp, nd  socket
	groups   int // a socket that is a member of multicast groups
	joined   map[netip.Addr]int
	watched  atomic.Pointer[map[netip.Addr]bool]
	receives sync.WaitGroup
}

// socket is a packet socket without Ethernet headers.
type socket struct {
	file  *os.File
	proto uint16
}

// Open opens a port on the interface of an index and a hardware address. Until Close it calls heard
// for frames about watched addresses, from two goroutines.
func Open(index int, mac fsm.MAC, heard func(fsm.Heard)) (*Port, error) {
	p := &Port{index: index, mac: mac, groups: -1, joined: map[netip.Addr]int{}}
	p.watched.Store(&map[netip.Addr]bool{})
	var err error
	if p.arp, err = openSocket(index, unix.ETH_P_ARP, nil); err == nil {
		if p.nd, err = openSocket(index, unix.ETH_P_IPV6, onlyND); err == nil {
			p.groups, err = unix.Socket(unix.AF_INET6, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
			if errors.Is(err, unix.EAFNOSUPPORT) {
				p.groups, err = -1, nil // no IPv6 here; Watch says so if it is wanted
			}
		}
	}
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("packet socket: %w (it wants the capability NET_RAW)", err)
	}
	for _, s := range []socket{p.arp, p.nd} {
		p.receives.Go(func() { p.receive(s, heard) })
	}
	return p, nil
}

// onlyND lets solicitations and advertisements pass: the offsets count from the IPv6 header.
var onlyND = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 6},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: protoICMPv6, Jf: 4},
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: ip6Header},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: solicitation, Jt: 1},
	{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: advertisement, Jf: 1},
	{Code: unix.BPF_RET | unix.BPF_K, K: packetMost},
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},
}

const packetMost = 1500 // bytes that are read of a packet

func htons(n uint16) uint16 { return n<<8 | n>>8 }

func openSocket(index int, proto uint16, filter []unix.SockFilter) (socket, error) {
	// Of no protocol until it is bound, so that nothing of other interfaces gets in.
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return socket{}, err
	}
	err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TIMESTAMPNS, 1)
	if err == nil && filter != nil {
		err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	}
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: htons(proto), Ifindex: index})
	}
	if err != nil {
		_ = unix.Close(fd)
		return socket{}, err
	}
	return socket{os.NewFile(uintptr(fd), "packet"), proto}, nil
}

// Close ends it, and waits until heard is called no more.
func (p *Port) Close() {
	for _, s := range []socket{p.arp, p.nd} {
		if s.file != nil {
			_ = s.file.Close()
		}
	}
	if p.groups >= 0 {
		_ = unix.Close(p.groups)
	}
	p.receives.Wait()
}

// Watch replaces the addresses for heard. It joins and leaves the multicast groups of IPv6
// addresses: the kernel does so only for addresses of the interface.
func (p *Port) Watch(addresses []netip.Addr) error {
	watched, groups := map[netip.Addr]bool{}, map[netip.Addr]bool{}
	for _, ip := range addresses {
		watched[ip] = true
		if ip.Is6() {
			groups[solicitedNode(ip)] = true
		}
	}
	p.watched.Store(&watched)
	var errs []error
	for g := range p.joined {
		if !groups[g] {
			delete(p.joined, g)
			errs = append(errs, p.member(unix.IPV6_LEAVE_GROUP, g))
		}
	}
	for g := range groups {
		if p.joined[g] == 0 {
			if err := p.member(unix.IPV6_JOIN_GROUP, g); err != nil {
				errs = append(errs, fmt.Errorf("joining %v, in which addresses are asked for: %w", g, err))
				continue
			}
			p.joined[g] = 1
		}
	}
	return errors.Join(errs...)
}

func (p *Port) member(option int, group netip.Addr) error {
	if p.groups < 0 {
		return unix.EAFNOSUPPORT
	}
	return unix.SetsockoptIPv6Mreq(p.groups, unix.IPPROTO_IPV6, option, &unix.IPv6Mreq{Multiaddr: group.As16(), Interface: uint32(p.index)})
}

// Ask sends a probe for ip.
func (p *Port) Ask(ip netip.Addr) error { return p.send(ip, arpProbe, ndProbe) }

// Announce announces ip as ours.
func (p *Port) Announce(ip netip.Addr) error { return p.send(ip, arpAnnounce, ndAnnounce) }

// Reply answers h.
func (p *Port) Reply(h fsm.Heard) error {
	answer := func(make func(fsm.MAC, fsm.Heard) []frame) func(fsm.MAC, netip.Addr) []frame {
		return func(mac fsm.MAC, _ netip.Addr) []frame { return make(mac, h) }
	}
	return p.send(h.Address, answer(arpAnswer), answer(ndAnswer))
}

func (p *Port) send(ip netip.Addr, v4, v6 func(fsm.MAC, netip.Addr) []frame) error {
	s, frames := p.nd, v6
	if ip.Is4() {
		s, frames = p.arp, v4
	}
	raw, err := s.file.SyscallConn()
	if err != nil {
		return err
	}
	for _, f := range frames(p.mac, ip) {
		to := &unix.SockaddrLinklayer{Protocol: htons(s.proto), Ifindex: p.index, Halen: 6}
		copy(to.Addr[:], f.to[:])
		// It is sent now or not at all: a frame that waited could be wrong.
		if e := raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), f.packet, unix.MSG_DONTWAIT, to) }); e != nil || err != nil {
			return errors.Join(e, err)
		}
	}
	return nil
}

func (p *Port) receive(s socket, heard func(fsm.Heard)) {
	raw, err := s.file.SyscallConn()
	if err != nil {
		return
	}
	buf, oob := make([]byte, packetMost), make([]byte, 128)
	for {
		var n, oobn int
		var from unix.Sockaddr
		err := raw.Read(func(fd uintptr) bool {
			var e error
			n, oobn, _, from, e = unix.Recvmsg(int(fd), buf, oob, 0)
			if e != nil {
				n = 0
			}
			return !errors.Is(e, unix.EAGAIN) && !errors.Is(e, unix.EINTR)
		})
		if err != nil {
			return // closed
		}
		ll, ok := from.(*unix.SockaddrLinklayer)
		if n == 0 || !ok {
			continue // such as the news that the interface is down
		}
		for _, h := range p.parse(s, buf[:n], fsm.MAC(ll.Addr[:6])) {
			if (*p.watched.Load())[h.Address] && h.From != p.mac {
				h.Age = age(oob[:oobn])
				heard(h)
			}
		}
	}
}

// parse drops invalid frames: others' faults are not ours to report.
func (p *Port) parse(s socket, b []byte, from fsm.MAC) []fsm.Heard {
	var all []fsm.Heard
	if s.proto == unix.ETH_P_ARP {
		all, _ = ParseARP(b)
	} else {
		all, _ = ParseND(b, from)
	}
	return all
}

// age is how long ago the kernel received a packet. One of unknown age, or from the future since
// the clock was set, is old.
func age(oob []byte) time.Duration {
	messages, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return time.Hour
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_SOCKET && m.Header.Type == unix.SO_TIMESTAMPNS && len(m.Data) >= int(unsafe.Sizeof(unix.Timespec{})) {
			at := time.Unix(int64(binary.NativeEndian.Uint64(m.Data)), int64(binary.NativeEndian.Uint64(m.Data[8:])))
			if d := time.Since(at); d >= 0 {
				return d
			}
		}
	}
	return time.Hour
}
