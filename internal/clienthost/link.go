package clienthost

import (
	"errors"
	"fmt"
	"net"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// device is an RDMA device with one port.
type device struct {
	name, netdev string // netdev is empty if it has none
	protocol     string // iw, roce, ib, …
}

// network is the kernel's part of the work with interfaces and RDMA devices.
type network interface {
	devices() ([]device, error)
	add(name, kind, netdev string) error
	remove(name string) error
	interfaces() ([]string, error)
	// defaultInterface returns the interface of the default route, empty if there is none.
	defaultInterface() (string, error)
}

// Of linux/rdma_netlink.h, and not in package nl.
const (
	cmdPortGet      = 5
	attrDevProtocol = 67
)

// kernel is the network namespace of this process.
type kernel struct{}

func (kernel) devices() ([]device, error) {
	links, err := netlink.RdmaLinkList()
	if errors.Is(err, unix.EPROTONOSUPPORT) { // ib_core is not loaded
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("list of RDMA devices: %w", err)
	}
	var all []device
	for _, l := range links {
		d := device{name: l.Attrs.Name}
		for cmd, text := range map[int]*string{nl.RDMA_NLDEV_CMD_GET: &d.protocol, cmdPortGet: &d.netdev} {
			attr := uint16(attrDevProtocol)
			if cmd == cmdPortGet {
				attr = nl.RDMA_NLDEV_ATTR_NDEV_NAME
			}
			if *text, err = get(cmd, l.Attrs.Index, attr); err != nil {
				return nil, fmt.Errorf("RDMA device %s: %w", d.name, err)
			}
		}
		all = append(all, d)
	}
	return all, nil
}

// get returns a text among the attributes of a device or its first port, or "".
func get(cmd int, index uint32, attr uint16) (string, error) {
	req := nl.NewNetlinkRequest(nl.RDMA_NL_NLDEV<<nl.RDMA_NL_GET_CLIENT_SHIFT|cmd, 0)
	req.AddData(nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_DEV_INDEX, nl.Uint32Attr(index)))
	if cmd == cmdPortGet {
		req.AddData(nl.NewRtAttr(nl.RDMA_NLDEV_ATTR_PORT_INDEX, nl.Uint32Attr(1)))
	}
	answers, err := req.Execute(unix.NETLINK_RDMA, 0)
	if err != nil {
		return "", err
	}
	for _, a := range answers {
		attrs, err := nl.ParseRouteAttr(a)
		if err != nil {
			return "", err
		}
		for _, x := range attrs {
			if x.Attr.Type == attr {
				return nl.BytesToString(x.Value), nil
			}
		}
	}
	return "", nil
}

func (kernel) add(name, kind, netdev string) error { return netlink.RdmaLinkAdd(name, kind, netdev) }

func (kernel) remove(name string) error { return netlink.RdmaLinkDel(name) }

func (kernel) interfaces() (names []string, err error) {
	all, err := net.Interfaces()
	for _, i := range all {
		names = append(names, i.Name)
	}
	return names, err
}

func (kernel) defaultInterface() (string, error) {
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := netlink.RouteListFiltered(family, &netlink.Route{Table: unix.RT_TABLE_MAIN}, netlink.RT_FILTER_TABLE)
		if err != nil {
			return "", fmt.Errorf("routes: %w", err)
		}
		for _, r := range routes {
			if ones, _ := mask(r.Dst).Size(); ones > 0 || r.LinkIndex == 0 {
				continue
			}
			i, err := net.InterfaceByIndex(r.LinkIndex)
			if err != nil {
				return "", err
			}
			return i.Name, nil
		}
	}
	return "", nil
}

func mask(dst *net.IPNet) net.IPMask {
	if dst == nil {
		return nil
	}
	return dst.Mask
}
