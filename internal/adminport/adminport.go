// Package adminport serves the admin pages of a program: on chosen addresses, so that other
// networks of the host cannot reach them, and with limits on connections and times.
package adminport

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/internal/doctor"
)

// Hosts are IP addresses of this host. As a flag.Value they are separated by commas.
type Hosts []netip.Addr

// String implements flag.Value.
func (h *Hosts) String() string {
	var s []string
	for _, a := range *h {
		s = append(s, a.String())
	}
	return strings.Join(s, ",")
}

// Set implements flag.Value. It skips empty entries.
func (h *Hosts) Set(v string) error {
	*h = nil
	for s := range strings.SplitSeq(v, ",") {
		if s = strings.TrimSpace(s); s == "" {
			continue
		}
		a, err := netip.ParseAddr(s)
		if err != nil || a.IsUnspecified() {
			return fmt.Errorf("%q: want IP addresses with commas between them, such as 10.0.0.5,fd00::5", s)
		}
		*h = append(*h, a.Unmap())
	}
	return nil
}

// Listen listens on address, HOST:PORT. Without HOST it listens on PORT of each of hosts, and
// accepts only connections by the interface with that address: Linux accepts packets for any of its
// addresses on every interface. Without HOST and hosts it listens on all addresses.
func Listen(address string, hosts Hosts) (net.Listener, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil || host != "" || len(hosts) == 0 {
		network := "tcp"
		if host == "0.0.0.0" { // "tcp" would listen on the addresses of IPv6 too
			network = "tcp4"
		}
		return net.Listen(network, address)
	}
	m := &merged{accepted: make(chan accepted), closed: make(chan struct{})}
	for _, h := range hosts {
		l, err := listenOn(h, port)
		if err != nil {
			_ = m.Close()
			return nil, err
		}
		m.all = append(m.all, l)
	}
	for _, l := range m.all {
		go m.run(l)
	}
	return m, nil
}

func listenOn(host netip.Addr, port string) (net.Listener, error) {
	link, err := doctor.InterfaceOf(host)
	if err != nil {
		return nil, err
	}
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var failed error
		err := c.Control(func(fd uintptr) { failed = unix.BindToDevice(int(fd), link) })
		// before Linux 5.7 this needs NET_RAW; fall back to the address alone
		if errors.Is(failed, unix.EPERM) {
			failed = nil
		}
		return errors.Join(err, failed)
	}}
	return lc.Listen(context.Background(), "tcp", net.JoinHostPort(host.String(), port))
}

// merged accepts from several listeners.
type merged struct {
	all      []net.Listener
	accepted chan accepted
	closing  sync.Once
	closed   chan struct{}
}

// accepted is a result of Accept.
type accepted struct {
	conn net.Conn
	err  error
}

// run forwards the results of one listener until Close.
func (m *merged) run(l net.Listener) {
	for {
		c, err := l.Accept()
		select {
		case m.accepted <- accepted{c, err}:
		case <-m.closed:
			if err == nil {
				_ = c.Close()
			}
			return
		}
	}
}

// Accept implements net.Listener.
func (m *merged) Accept() (net.Conn, error) {
	select {
	case a := <-m.accepted:
		return a.conn, a.err
	case <-m.closed:
		return nil, net.ErrClosed
	}
}

// Close implements net.Listener.
func (m *merged) Close() error {
	m.closing.Do(func() {
		close(m.closed)
		for _, l := range m.all {
			_ = l.Close()
		}
	})
	return nil
}

// Addr implements net.Listener. It returns the address of the first host.
func (m *merged) Addr() net.Addr { return m.all[0].Addr() }
