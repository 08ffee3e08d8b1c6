package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/rdma/verbs"
)

// Client describes this host as a mount client: the needs of the kernel's NFS/RDMA client.
type Client struct {
	*Host
	// Server is its address, "IP:port".
	Server netip.AddrPort
	// Modules are the kernel modules for NFS over RDMA, in order.
	Modules []Module
	// From is this host's address on the route to the server, on Interface. NoRoute is the error if
	// there is no route.
	From      netip.Addr
	Interface string
	NoRoute   error
	// RouteMTU is the route's MTU in bytes, 0 if unknown.
	RouteMTU int
	// On is the RDMA device of Interface, "" if none.
	On string
	// Dial is the error of a TCP connection to Server; nil on success. It is meaningful for iWARP
	// servers only.
	Dial error
}

// Module is a kernel module.
type Module struct {
	Name string
	// Loaded: the kernel runs it. Installed: the kernel can load it.
	Loaded, Installed bool
}

// modules are the modules for mounts. siw serves hosts without an adapter.
var modules = []string{"rpcrdma", "siw"}

// dialPatience limits the wait for a TCP connection.
const dialPatience = 5 * time.Second

// held is how long that connection stays open, unless the server closes it. A listening Linux siw
// takes the end of a connection that it has not accepted yet for its own end, and silently stops
// listening: so the connection must not end at once.
const held = 2 * time.Second

// ReadClient examines this host as a client of server, "host:port".
func ReadClient(ctx context.Context, server string) (*Client, error) {
	c, err := towards(ctx, server)
	if err != nil {
		return nil, err
	}
	var kernel unix.Utsname
	release := ""
	if unix.Uname(&kernel) == nil {
		release = unix.ByteSliceToString(kernel.Release[:])
	}
	c.Modules = readModules(os.DirFS("/sys"), os.DirFS("/lib/modules"), release)
	d := net.Dialer{Timeout: dialPatience}
	conn, err := d.DialContext(ctx, "tcp", c.Server.String())
	if c.Dial = err; err == nil {
		_ = conn.SetReadDeadline(time.Now().Add(held))
		_, _ = conn.Read(make([]byte, 1))
		_ = conn.Close()
	}
	return c, nil
}

// DeviceTo returns the RDMA device on the route to server, "host:port"; nil if none.
func DeviceTo(ctx context.Context, server string) (*Device, error) {
	c, err := towards(ctx, server)
	if err != nil {
		return nil, err
	}
	return c.Device(), nil
}

func towards(ctx context.Context, server string) (*Client, error) {
	host, port, err := net.SplitHostPort(server)
	if err != nil {
		return nil, err
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "tcp", port)
	if err != nil {
		return nil, err
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	c := &Client{Host: ReadHost(), Server: netip.AddrPortFrom(ips[0].Unmap(), uint16(n))}
	// Connecting a UDP socket only looks up the route, and sends nothing.
	probe, err := net.Dial("udp", c.Server.String())
	if err != nil {
		c.NoRoute = err
		return c, nil //nolint:nilerr // it is among what was found
	}
	c.From = probe.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
	c.RouteMTU = routeMTU(probe.(*net.UDPConn), c.From.Is4())
	_ = probe.Close()
	if c.Interface, c.NoRoute = InterfaceOf(c.From); c.NoRoute != nil {
		return c, nil //nolint:nilerr // as above
	}
	c.On = verbs.DeviceOf(os.DirFS("/sys"), c.Interface)
	return c, nil
}

// routeMTU returns the MTU of a connected socket's route, 0 if unknown.
func routeMTU(probe *net.UDPConn, v4 bool) (mtu int) {
	raw, err := probe.SyscallConn()
	if err != nil {
		return 0
	}
	level, option := unix.IPPROTO_IPV6, unix.IPV6_MTU
	if v4 {
		level, option = unix.IPPROTO_IP, unix.IP_MTU
	}
	_ = raw.Control(func(fd uintptr) { mtu, err = unix.GetsockoptInt(int(fd), level, option) })
	if err != nil {
		return 0
	}
	return mtu
}

func readModules(sys, lib fs.FS, release string) (all []Module) {
	known := ""
	for _, list := range []string{"modules.dep", "modules.builtin"} {
		if b, err := fs.ReadFile(lib, path.Join(release, list)); err == nil {
			known += string(b)
		}
	}
	for _, name := range modules {
		m := Module{Name: name}
		_, err := fs.Stat(sys, "module/"+name)
		m.Loaded = err == nil
		m.Installed = m.Loaded || strings.Contains(known, "/"+name+".ko")
		all = append(all, m)
	}
	return all
}

// Device returns the RDMA device on the route to the server, nil if none.
func (c *Client) Device() *Device {
	for i := range c.Devices {
		if c.Devices[i].Name == c.On {
			return &c.Devices[i]
		}
	}
	return nil
}

// Check returns the problems that keep the host from mounting. Those of a client alone have no
// reason.
func (c *Client) Check() []Problem {
	ps, say := collect()
	software := fmt.Sprintf(", or, for a server on iWARP, create a software device (rdma link add siw0 type siw netdev %s)", c.Interface)
	for _, m := range c.Modules {
		switch {
		case m.Name == "siw" && !m.Installed:
			software = "; this kernel has no siw, the software device for servers on iWARP"
		case m.Loaded || m.Name == "siw":
		case m.Installed:
			say("", "the module %s is not loaded: modprobe %[1]s (a mount with proto=rdma loads it if it may)", m.Name)
		default:
			say("", "this kernel has no module %s, so it cannot mount over RDMA: install the kernel's extra modules (linux-modules-extra on Ubuntu, kernel-modules-extra on Fedora)", m.Name)
		}
	}
	if c.NoRoute != nil {
		say("", "no route leads to %s (%v): check ip route get %[1]s", c.Server.Addr(), c.NoRoute)
		return *ps
	}
	d := c.Device()
	switch {
	case d == nil && len(c.Devices) == 0:
		say(DeviceMissing, "there is no RDMA device: load the adapter's driver%s", software)
	case d == nil:
		say("", "the route to %s uses %s, which has no RDMA device: mount by an address reached through one of %s%s",
			c.Server.Addr(), c.Interface, names(c.Devices), software)
	default:
		c.checkState(d, c.From, c.Interface, say)
		c.checkPartitions([]Device{*d}, Wanted{Interface: c.Interface}, say)
	}
	if c.Dial != nil && (d == nil || d.IWARP) {
		say("", "%s", unreachable(c.Server, c.Dial))
	}
	return *ps
}

func unreachable(server netip.AddrPort, err error) string {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Sprintf("nothing listens on %s (connection refused): check the listeners on the gateway's /status", server)
	}
	return fmt.Sprintf("%s does not answer (%v): check firewalls and network policies in between, which must allow TCP port %d for iWARP", server, err, server.Port())
}

func names(devices []Device) string {
	var list []string
	for _, d := range devices {
		list = append(list, d.Name)
	}
	return strings.Join(list, ", ")
}
