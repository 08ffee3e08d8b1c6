package netif

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Settings of an interface, of linux/ip.h and linux/if_link.h.
const (
	iflaInetConf = 1
	arpAnnounce  = 18
	arpIgnore    = 19

	// Do not answer for addresses of scope host; all others are answered for as before.
	ignoreScopeHost = 3
	// Ask with an address of the network that is asked in, whatever the packet's own sender is.
	announceBest = 2
)

// restrictARP keeps the kernel from answering for addresses of scope host, on every interface of
// the pod: one on the same network would otherwise answer for the addresses of another.
func restrictARP() error {
	links, err := netlink.LinkList()
	if err != nil {
		return err
	}
	for _, l := range links {
		a := l.Attrs()
		if a.Flags&net.FlagLoopback != 0 || a.RawFlags&unix.IFF_NOARP != 0 || a.EncapType != "ether" {
			continue
		}
		if err := setConf(a.Index, map[int]uint32{arpIgnore: ignoreScopeHost, arpAnnounce: announceBest}); err != nil {
			return fmt.Errorf("arp_ignore and arp_announce of %s: %w", a.Name, err)
		}
	}
	return nil
}

// setConf sets IPv4 settings of an interface. It writes only the differences.
func setConf(index int, want map[int]uint32) error {
	have, err := conf(index)
	if err != nil {
		return err
	}
	req := nl.NewNetlinkRequest(unix.RTM_SETLINK, unix.NLM_F_ACK)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	spec := nl.NewRtAttr(unix.IFLA_AF_SPEC, nil)
	values := spec.AddRtAttr(unix.AF_INET, nil).AddRtAttr(iflaInetConf, nil)
	same := true
	for k, v := range want {
		if k > len(have) {
			return fmt.Errorf("the kernel has no setting %d", k)
		}
		if have[k-1] != v {
			same = false
			values.AddRtAttr(k, nl.Uint32Attr(v))
		}
	}
	if same {
		return nil
	}
	req.AddData(spec)
	_, err = req.Execute(unix.NETLINK_ROUTE, 0)
	return err
}

// conf returns the IPv4 settings of an interface; the first has number 1.
func conf(index int) ([]uint32, error) {
	req := nl.NewNetlinkRequest(unix.RTM_GETLINK, 0)
	msg := nl.NewIfInfomsg(unix.AF_UNSPEC)
	msg.Index = int32(index)
	req.AddData(msg)
	answers, err := req.Execute(unix.NETLINK_ROUTE, unix.RTM_NEWLINK)
	if err != nil {
		return nil, err
	}
	for _, b := range answers {
		if len(b) < unix.SizeofIfInfomsg {
			continue
		}
		b = b[unix.SizeofIfInfomsg:]
		for _, kind := range []uint16{unix.IFLA_AF_SPEC, unix.AF_INET, iflaInetConf} {
			if b, err = attribute(b, kind); err != nil {
				return nil, err
			}
		}
		values := make([]uint32, len(b)/4)
		for i := range values {
			values[i] = binary.NativeEndian.Uint32(b[4*i:])
		}
		return values, nil
	}
	return nil, errors.New("the kernel does not report the interface")
}

func attribute(b []byte, kind uint16) ([]byte, error) {
	attrs, err := nl.ParseRouteAttr(b)
	if err != nil {
		return nil, err
	}
	for _, a := range attrs {
		if a.Attr.Type&^unix.NLA_F_NESTED == kind {
			return a.Value, nil
		}
	}
	return nil, fmt.Errorf("the kernel's answer has no attribute %d: is IPv4 off?", kind)
}
