package speaker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"sluice.dev/sluice/internal/speaker/api"
	"sluice.dev/sluice/test/prereq"
)

// The test's own program is also a speaker, and the process that keeps a namespace alive.
func TestMain(m *testing.M) {
	switch os.Getenv("SPEAKER_TEST") {
	case "speaker":
		os.Exit(Main(os.Args[1:], "test", os.Stdout, os.Stderr))
	case "namespace":
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}
	// The tests wait for Leases more than they compute.
	flag.Parse()
	if err := flag.Set("test.parallel", "8"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}

const (
	leaseTime = 3 * time.Second
	port      = "20049"
)

// namespace is a network namespace.
type namespace struct {
	t   *testing.T
	pid int
}

// newNamespace makes a namespace that is deleted with the test. Where that is not permitted the
// test is skipped.
func newNamespace(t *testing.T) *namespace {
	t.Helper()
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), "SPEAKER_TEST=namespace")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		if errors.Is(err, syscall.EPERM) {
			prereq.Missing(t, "making a network namespace wants root: %v", err)
		}
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = c.Wait() })
	n := &namespace{t, c.Process.Pid}
	n.do(func() error { return up("lo") })
	return n
}

// do runs f in the namespace, on a thread that ends with it.
func (n *namespace) do(f func() error) {
	n.t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is for this alone
		fd, err := unix.Open(fmt.Sprintf("/proc/%d/ns/net", n.pid), unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err == nil {
			err = unix.Setns(fd, unix.CLONE_NEWNET)
			_ = unix.Close(fd)
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	if err := <-done; err != nil {
		n.t.Fatal(err)
	}
}

func up(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// plug connects an interface of n with a bridge of the switch, and gives it addresses.
func (n *namespace) plug(sw *namespace, bridge, name, remote string, mac net.HardwareAddr, addrs ...string) {
	n.t.Helper()
	n.do(func() error {
		v := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: mac}, PeerName: remote, PeerNamespace: netlink.NsPid(sw.pid)}
		if err := netlink.LinkAdd(v); err != nil {
			return err
		}
		return number(name, addrs)
	})
	sw.do(func() error {
		l, err := netlink.LinkByName(remote)
		if err != nil {
			return err
		}
		b, err := netlink.LinkByName(bridge)
		if err == nil {
			err = errors.Join(netlink.LinkSetMaster(l, b), netlink.LinkSetUp(l))
		}
		return err
	})
}

// macvlan makes an interface on another.
func (n *namespace) macvlan(lower, name string, mac net.HardwareAddr, addrs ...string) {
	n.t.Helper()
	n.do(func() error {
		l, err := netlink.LinkByName(lower)
		if err != nil {
			return err
		}
		if err := netlink.LinkAdd(&netlink.Macvlan{LinkAttrs: netlink.LinkAttrs{Name: name, HardwareAddr: mac, ParentIndex: l.Attrs().Index}, Mode: netlink.MACVLAN_MODE_BRIDGE}); err != nil {
			return err
		}
		return number(name, addrs)
	})
}

// number gives addresses to an interface and sets it up.
func number(name string, addrs []string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	for _, a := range addrs {
		addr, err := netlink.ParseAddr(a)
		if err != nil {
			return err
		}
		addr.Flags = unix.IFA_F_NODAD
		if err := netlink.AddrAdd(l, addr); err != nil {
			return err
		}
	}
	return netlink.LinkSetUp(l)
}

// environment has two networks, one of them the API server's, and pods on both.
type env struct {
	t      *testing.T
	sw     *namespace
	client *namespace
	api    *fakeAPI
	pods   []*pod
	vips   []netip.Addr
	cap    *capture
	config string
}

type pod struct {
	r       *env
	n       int
	ns      *namespace
	name    string
	uid     int
	process *exec.Cmd
	logs    *lockedBuffer
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func hw(n int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 1, byte(n)} }

// newEnv makes pods without running speakers. There are as many groups as pods, each with an
// address of either family.
func newEnv(t *testing.T, pods int) *env {
	t.Helper()
	r := &env{t: t, sw: newNamespace(t)}
	r.sw.do(func() error {
		for _, name := range []string{"data", "mgmt"} {
			if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}); err != nil {
				return err
			}
			if err := up(name); err != nil {
				return err
			}
		}
		l, err := netlink.LinkByName("mgmt")
		if err != nil {
			return err
		}
		a, _ := netlink.ParseAddr("10.9.0.1/24")
		return netlink.AddrAdd(l, a)
	})
	r.api = newFakeAPI(t, r.sw, "10.9.0.1:8080")
	r.client = newNamespace(t)
	r.client.plug(r.sw, "data", "rdma0", "client", hw(99), "192.0.2.99/24", "fd00::99/64")
	var groups []string
	for i := range pods {
		lease := fmt.Sprintf("vip-%d", i)
		r.api.create(lease)
		groups = append(groups, fmt.Sprintf(`{"lease": %q, "addresses": ["192.0.2.%d", "fd00::1:%d"]}`, lease, 10+i, 10+i))
		r.vips = append(r.vips, netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 10+i)), netip.MustParseAddr(fmt.Sprintf("fd00::1:%d", 10+i)))
	}
	dir := t.TempDir()
	r.config = filepath.Join(dir, "speaker.yaml")
	r.write(`{"interface": "rdma0", "groups": [` + strings.Join(groups, ", ") + `]}`)
	kubeconfig := filepath.Join(dir, "kubeconfig")
	err := os.WriteFile(kubeconfig, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "c"}}],
"clusters": [{"name": "c", "cluster": {"server": "http://10.9.0.1:8080"}}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	for i := range pods {
		p := &pod{r: r, n: i, ns: newNamespace(t), name: fmt.Sprintf("gw-%d", i)}
		own := []string{fmt.Sprintf("192.0.2.%d/24", 100+i), fmt.Sprintf("fd00::1%02d/64", i)}
		if i == 0 {
			p.ns.plug(r.sw, "data", "rdma0", "d0", hw(0), own...)
		} else {
			// A macvlan, which admits only multicast that was joined.
			p.ns.plug(r.sw, "data", "under0", fmt.Sprintf("d%d", i), nil)
			p.ns.macvlan("under0", "rdma0", hw(i), own...)
		}
		p.ns.plug(r.sw, "mgmt", "eth0", fmt.Sprintf("m%d", i), nil, fmt.Sprintf("10.9.0.%d/24", 10+i))
		p.serve()
		r.pods = append(r.pods, p)
	}
	r.cap = newCapture(t, r.sw, r.client, r.vips)
	t.Cleanup(func() {
		for _, p := range r.pods {
			p.kill()
			if t.Failed() {
				t.Logf("%s:\n%s", p.name, p.logs)
			}
		}
	})
	return r
}

func (r *env) write(config string) {
	r.t.Helper()
	if err := os.WriteFile(r.config+".new", []byte(config), 0o600); err != nil {
		r.t.Fatal(err)
	}
	if err := os.Rename(r.config+".new", r.config); err != nil {
		r.t.Fatal(err)
	}
}

// serve is the pod's gateway: it sends the pod's name to each client, and echoes.
func (p *pod) serve() {
	p.ns.do(func() error {
		l, err := net.Listen("tcp", ":"+port)
		if err != nil {
			return err
		}
		p.r.t.Cleanup(func() { _ = l.Close() })
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				go func() {
					_, _ = io.WriteString(c, p.name)
					_, _ = io.Copy(c, c)
					_ = c.Close()
				}()
			}
		}()
		return nil
	})
}

// start runs a speaker. fresh gives it another pod's identity.
func (p *pod) start(fresh bool) {
	p.r.t.Helper()
	if fresh {
		p.uid++
	}
	if p.logs == nil {
		p.logs = new(lockedBuffer)
	}
	c := exec.Command(os.Args[0], "--config", p.r.config, "--pod", p.name, "--pod-uid", fmt.Sprint(p.uid), "--namespace", "default",
		"--kubeconfig", filepath.Join(filepath.Dir(p.r.config), "kubeconfig"), "--lease-duration", leaseTime.String(), "--log-level", "debug")
	c.Env = append(os.Environ(), "SPEAKER_TEST=speaker")
	c.Stderr = p.logs
	p.ns.do(c.Start)
	p.process = c
}

func (p *pod) signal(s syscall.Signal) {
	if err := p.process.Process.Signal(s); err != nil {
		p.r.t.Fatal(err)
	}
}

func (p *pod) kill() {
	if p.process != nil {
		_ = p.process.Process.Kill()
		_ = p.process.Wait()
		p.process = nil
	}
}

// cut removes the pod from the API server's network, or puts it back.
func (p *pod) cut(off bool) {
	p.r.sw.do(func() error {
		l, err := netlink.LinkByName(fmt.Sprintf("m%d", p.n))
		if err != nil {
			return err
		}
		if off {
			return netlink.LinkSetDown(l)
		}
		return netlink.LinkSetUp(l)
	})
}

// talk constantly sends from the addresses to the client, and deletes the client's hardware
// address, so that the pod's kernel requests it again and again.
func (p *pod) talk() {
	var conns []*net.UDPConn
	p.ns.do(func() error {
		for _, ip := range p.r.vips {
			c, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ip, 0)))
			if err == nil {
				conns = append(conns, c)
			}
		}
		return nil
	})
	if len(conns) != 2 {
		p.r.t.Fatalf("%d addresses to send from, want 2", len(conns))
	}
	stop, done := make(chan struct{}), make(chan struct{})
	p.r.t.Cleanup(func() { close(stop); <-done })
	go func() {
		defer close(done)
		tick := time.NewTicker(askEvery)
		defer tick.Stop()
		for {
			select {
			case <-stop:
				for _, c := range conns {
					_ = c.Close()
				}
				return
			case <-tick.C:
			}
			p.ns.do(func() error {
				l, err := netlink.LinkByName("rdma0")
				if err != nil {
					return err
				}
				for _, ip := range []string{"192.0.2.99", "fd00::99"} {
					_ = netlink.NeighDel(&netlink.Neigh{LinkIndex: l.Attrs().Index, IP: net.ParseIP(ip)})
				}
				return nil
			})
			for i, c := range conns {
				to := []string{"192.0.2.99", "fd00::99"}[i]
				// fails once the address is gone
				_, _ = c.WriteToUDP([]byte("x"), &net.UDPAddr{IP: net.ParseIP(to), Port: 9})
			}
		}
	}()
}

// status reads the pod's page.
func (p *pod) status() (st api.Status, err error) {
	tr := &http.Transport{DisableKeepAlives: true}
	p.ns.do(func() error {
		var d net.Dialer
		c, e := d.Dial("tcp", "127.0.0.1:9181")
		err = e
		tr.DialContext = func(context.Context, string, string) (net.Conn, error) { return c, e }
		return nil
	})
	if err != nil {
		return st, err
	}
	r, err := (&http.Client{Transport: tr, Timeout: patience}).Get("http://pod/status")
	if err != nil {
		return st, err
	}
	defer r.Body.Close()
	return st, json.NewDecoder(r.Body).Decode(&st)
}

// addresses counts ours in the pod's namespace.
func (p *pod) addresses() (n int) {
	p.ns.do(func() error {
		for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
			all, err := netlink.AddrList(nil, family)
			if err != nil {
				return err
			}
			for _, a := range all {
				for _, vip := range p.r.vips {
					if a.IP.Equal(vip.AsSlice()) {
						n++
					}
				}
			}
		}
		return nil
	})
	return n
}

// dial connects to the address as a client does, and returns the name of the pod that answers.
func (r *env) dial(ip netip.Addr) (c net.Conn, name string, err error) {
	r.client.do(func() error {
		c, err = net.DialTimeout("tcp", net.JoinHostPort(ip.String(), port), reach)
		return nil
	})
	if err != nil {
		return nil, "", err
	}
	b := make([]byte, len("gw-0"))
	if err = c.SetReadDeadline(time.Now().Add(reach)); err == nil {
		_, err = io.ReadFull(c, b)
	}
	if err != nil {
		_ = c.Close()
		return nil, "", err
	}
	return c, string(b), nil
}

// who is the name of the pod that a client reaches at the address, or the reason why it reaches
// none.
func (r *env) who(ip netip.Addr) string {
	c, name, err := r.dial(ip)
	if err != nil {
		return err.Error()
	}
	_ = c.Close()
	return name
}

// echo sends a byte and waits for it to come back.
func echo(c net.Conn) error {
	err := c.SetDeadline(time.Now().Add(reach))
	if err == nil {
		_, err = c.Write([]byte{1})
	}
	if err == nil {
		_, err = io.ReadFull(c, make([]byte, 1))
	}
	return err
}

// reach bounds a client's wait for an answer: a lost SYN is repeated after a second.
const reach = 10 * time.Second

// patience bounds waits on a busy machine. The log has the actual times.
const patience = 30 * time.Second

// eventually waits for a state of the environment.
func (r *env) eventually(what string, f func() bool) time.Duration {
	r.t.Helper()
	from := time.Now()
	for !f() {
		if time.Since(from) > patience {
			r.t.Fatalf("after %v not yet: %s", patience, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
	r.t.Logf("%-40s after %v", what, time.Since(from).Round(100*time.Millisecond))
	return time.Since(from)
}

// all reports whether this pod has the addresses, for a client.
func (r *env) all(p *pod) func() bool {
	return func() bool {
		for _, ip := range r.vips {
			if r.who(ip) != p.name {
				return false
			}
		}
		return true
	}
}
