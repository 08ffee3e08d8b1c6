package neighbour

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"sluice.dev/sluice/internal/speaker/fsm"
)

// Neighbor Discovery, RFC 4861 sections 4.3 and 4.4: behind the IPv6 header type, code, checksum,
// flags, target, options.
const (
	ip6Header     = 40
	ndLen         = ip6Header + 24
	protoICMPv6   = 58
	solicitation  = 135
	advertisement = 136
	optSource     = 1 // link-layer address, in units of 8 bytes
	optTarget     = 2
	hopLimit      = 255 // nobody from behind a router can send this

	flagSolicited = 0x40
	flagOverride  = 0x20
)

var allNodes = netip.MustParseAddr("ff02::1")

// ParseND returns the content of a solicitation or an advertisement. b begins with the IPv6 header;
// from is the frame's sender.
func ParseND(b []byte, from fsm.MAC) ([]fsm.Heard, error) {
	if len(b) < ndLen {
		return nil, fmt.Errorf("neighbor discovery packet of %d bytes, want at least %d", len(b), ndLen)
	}
	if b[0]>>4 != 6 || b[6] != protoICMPv6 || b[7] != hopLimit {
		return nil, fmt.Errorf("IP version %d, next header %d, hop limit %d, want 6, %d, %d", b[0]>>4, b[6], b[7], protoICMPv6, hopLimit)
	}
	n := int(binary.BigEndian.Uint16(b[4:]))
	if n < ndLen-ip6Header || n > len(b)-ip6Header {
		return nil, fmt.Errorf("IPv6 payload length %d, want %d to %d", n, ndLen-ip6Header, len(b)-ip6Header)
	}
	b = b[:ip6Header+n]
	if checksum(b) != 0 {
		return nil, errors.New("ICMPv6 checksum is wrong")
	}
	src := netip.AddrFrom16([16]byte(b[8:24]))
	target := netip.AddrFrom16([16]byte(b[ip6Header+8 : ndLen]))
	kind, code := b[ip6Header], b[ip6Header+1]
	if code != 0 || target.IsMulticast() || kind != solicitation && kind != advertisement {
		return nil, fmt.Errorf("ICMPv6 type %d, code %d, target %v, want a solicitation or an advertisement", kind, code, target)
	}
	for o := b[ndLen:]; len(o) > 0; o = o[int(o[1])*8:] {
		if len(o) < 8 || o[1] == 0 || len(o) < int(o[1])*8 {
			return nil, fmt.Errorf("neighbor discovery options are cut off, %d bytes are left", len(o))
		}
		if kind == solicitation && o[0] == optSource || kind == advertisement && o[0] == optTarget {
			from = fsm.MAC(o[2:8])
		}
	}
	if kind == advertisement {
		return []fsm.Heard{{Kind: fsm.Claim, Address: target, From: from}}, nil
	}
	if src.IsUnspecified() {
		return []fsm.Heard{{Kind: fsm.Probe, Address: target, From: from, IP: src}}, nil
	}
	return []fsm.Heard{
		{Kind: fsm.Claim, Address: src, From: from},
		{Kind: fsm.Request, Address: target, From: from, IP: src},
	}, nil
}

// checksum is that of RFC 4443 section 2.3 over an IPv6 packet; zero if the packet's own is right.
func checksum(b []byte) uint16 {
	sum := uint32(len(b)-ip6Header) + protoICMPv6
	b = b[8:] // the addresses are part of the pseudo header
	for ; len(b) > 1; b = b[2:] {
		sum += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		sum += uint32(b[0]) << 8
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}

func appendND(kind, flags byte, src, dst, target netip.Addr, options ...byte) []byte {
	b := []byte{0x60, 0, 0, 0, 0, byte(ndLen - ip6Header + len(options)), protoICMPv6, hopLimit}
	b = append(b, src.AsSlice()...)
	b = append(b, dst.AsSlice()...)
	b = append(b, kind, 0, 0, 0, flags, 0, 0, 0)
	b = append(b, target.AsSlice()...)
	b = append(b, options...)
	binary.BigEndian.PutUint16(b[ip6Header+2:], checksum(b))
	return b
}

// ndProbe asks for ip as a host does before it takes an address, RFC 4862 section 5.4.2.
func ndProbe(_ fsm.MAC, ip netip.Addr) []frame {
	dst := solicitedNode(ip)
	return []frame{{multicastMAC(dst), appendND(solicitation, 0, netip.IPv6Unspecified(), dst, ip)}}
}

// ndAnnounce announces ip as ours, RFC 4861 section 7.2.6.
func ndAnnounce(mac fsm.MAC, ip netip.Addr) []frame {
	return []frame{{multicastMAC(allNodes), advertise(mac, flagOverride, allNodes, ip)}}
}

// ndAnswer answers a solicitation; one without a source asks for an answer to everybody, RFC 4861
// section 7.2.4.
func ndAnswer(mac fsm.MAC, h fsm.Heard) []frame {
	if h.IP.IsUnspecified() {
		return ndAnnounce(mac, h.Address)
	}
	return []frame{{h.From, advertise(mac, flagSolicited|flagOverride, h.IP, h.Address)}}
}

func advertise(mac fsm.MAC, flags byte, dst, ip netip.Addr) []byte {
	return appendND(advertisement, flags, ip, dst, ip, append([]byte{optTarget, 1}, mac[:]...)...)
}

// solicitedNode is the multicast group in which solicitations for ip are sent, RFC 4291 section
// 2.7.1.
func solicitedNode(ip netip.Addr) netip.Addr {
	b := ip.As16()
	return netip.AddrFrom16([16]byte{0xff, 2, 11: 1, 12: 0xff, 13: b[13], 14: b[14], 15: b[15]})
}

// multicastMAC is RFC 2464 section 7.
func multicastMAC(ip netip.Addr) fsm.MAC {
	b := ip.As16()
	return fsm.MAC{0x33, 0x33, b[12], b[13], b[14], b[15]}
}
