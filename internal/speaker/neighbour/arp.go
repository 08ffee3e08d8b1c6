// Package neighbour speaks ARP (RFC 826, RFC 5227) and Neighbor Discovery (RFC 4861, RFC 4862) for
// addresses that the kernel does not answer for, on packet sockets.
package neighbour

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"sluice.dev/sluice/internal/speaker/fsm"
)

// An ARP packet for IPv4 on Ethernet, RFC 826: hardware type, protocol type, lengths, operation,
// sender's addresses, target's.
const (
	arpLen       = 28
	arpRequest   = 1
	arpReply     = 2
	etherTypeIP4 = 0x0800
)

var broadcast = fsm.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// ParseARP returns the content of an ARP packet, without its Ethernet header: at most a claim of
// its sender's and a question. Bytes after the first 28 are padding.
func ParseARP(b []byte) ([]fsm.Heard, error) {
	if len(b) < arpLen {
		return nil, fmt.Errorf("ARP packet of %d bytes, want %d", len(b), arpLen)
	}
	if h, p := binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:]); h != 1 || p != etherTypeIP4 || b[4] != 6 || b[5] != 4 {
		return nil, fmt.Errorf("ARP hardware type %d, protocol %#x, lengths %d and %d, want IPv4 on Ethernet", h, p, b[4], b[5])
	}
	op := binary.BigEndian.Uint16(b[6:])
	if op != arpRequest && op != arpReply {
		return nil, fmt.Errorf("ARP operation %d, want 1 or 2", op)
	}
	mac := fsm.MAC(b[8:14])
	sender, target := netip.AddrFrom4([4]byte(b[14:18])), netip.AddrFrom4([4]byte(b[24:28]))
	var heard []fsm.Heard
	if !sender.IsUnspecified() {
		heard = append(heard, fsm.Heard{Kind: fsm.Claim, Address: sender, From: mac})
	}
	if op == arpRequest && sender != target {
		kind := fsm.Request
		if sender.IsUnspecified() {
			kind = fsm.Probe
		}
		heard = append(heard, fsm.Heard{Kind: kind, Address: target, From: mac, IP: sender})
	}
	return heard, nil
}

func appendARP(b []byte, op uint16, sender fsm.MAC, senderIP netip.Addr, target fsm.MAC, targetIP netip.Addr) []byte {
	b = append(b, 0, 1, etherTypeIP4>>8, etherTypeIP4&0xff, 6, 4, byte(op>>8), byte(op))
	b = append(b, sender[:]...)
	b = append(b, senderIP.AsSlice()...)
	b = append(b, target[:]...)
	return append(b, targetIP.AsSlice()...)
}

// frame is a packet and where it goes.
type frame struct {
	to     fsm.MAC
	packet []byte
}

// arpProbe asks for ip without saying that it is ours, RFC 5227 section 2.1.1.
func arpProbe(mac fsm.MAC, ip netip.Addr) []frame {
	return []frame{{broadcast, appendARP(nil, arpRequest, mac, netip.IPv4Unspecified(), fsm.MAC{}, ip)}}
}

// arpAnnounce announces ip as ours, as a request and as a reply: some hosts take only one of them,
// RFC 5227 section 3.
func arpAnnounce(mac fsm.MAC, ip netip.Addr) []frame {
	return []frame{
		{broadcast, appendARP(nil, arpRequest, mac, ip, fsm.MAC{}, ip)},
		{broadcast, appendARP(nil, arpReply, mac, ip, broadcast, ip)},
	}
}

func arpAnswer(mac fsm.MAC, h fsm.Heard) []frame {
	return []frame{{h.From, appendARP(nil, arpReply, mac, h.Address, h.From, h.IP)}}
}
