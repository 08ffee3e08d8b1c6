package adminport

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/prereq"
)

func TestHosts(t *testing.T) {
	for in, want := range map[string]string{"": "", "10.0.0.5": "10.0.0.5", "10.0.0.5,fd00::5,": "10.0.0.5,fd00::5", "::ffff:10.0.0.5, 127.0.0.1": "10.0.0.5,127.0.0.1"} {
		var h Hosts
		if err := h.Set(in); err != nil || h.String() != want {
			t.Errorf("%q: %s, %v; want %s", in, &h, err, want)
		}
	}
	for _, in := range []string{"0.0.0.0", "::", "$(POD_IPS)", "10.0.0.5:9180"} {
		var h Hosts
		if err := h.Set(in); err == nil || !strings.Contains(err.Error(), "want IP addresses") {
			t.Errorf("%q: %v, %v", in, h, err)
		}
	}
}

// pod enters a new network namespace with two interfaces, as a pod with Multus has them: one of the
// cluster, one of an RDMA network. get gets a page from a namespace at their other ends. The thread
// is lost: not for parallel tests.
func pod(t *testing.T) (get func(address string) error) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread ends with its goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); errors.Is(err, unix.EPERM) {
		prereq.Missing(t, "only root may make network namespaces")
	} else if err != nil {
		t.Fatal(err)
	}
	requests, answers := make(chan string), make(chan error)
	ready := make(chan int)
	go func() {
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			t.Error(err)
		}
		ready <- unix.Gettid()
		for address := range requests {
			answers <- page(address)
		}
	}()
	t.Cleanup(func() { close(requests) })
	outside := <-ready
	ip := func(args string, in ...string) {
		t.Helper()
		all := slices.Concat(in, []string{"ip"}, strings.Fields(args))
		if out, err := exec.Command(all[0], all[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", all, err, out)
		}
	}
	there := []string{"nsenter", "--net=/proc/" + strconv.Itoa(unix.Getpid()) + "/task/" + strconv.Itoa(outside) + "/ns/net"}
	ip("link set lo up")
	for i, link := range []string{"eth0", "rdma0"} {
		ip("link add " + link + " type veth peer name peer" + strconv.Itoa(i))
		ip("link set peer" + strconv.Itoa(i) + " netns " + strconv.Itoa(outside))
		ip("link set " + link + " up")
		ip("link set peer"+strconv.Itoa(i)+" up", there...)
	}
	for link, addresses := range map[string][2]string{"eth0": {"10.9.0.2/24", "fd00:9::2/64"}, "rdma0": {"192.0.2.2/24", "fd00:a::2/64"}} {
		ip("addr add " + addresses[0] + " dev " + link)
		ip("addr add " + addresses[1] + " dev " + link + " nodad")
	}
	for link, addresses := range map[string][2]string{"peer0": {"10.9.0.1/24", "fd00:9::1/64"}, "peer1": {"192.0.2.1/24", "fd00:a::1/64"}} {
		ip("addr add "+addresses[0]+" dev "+link, there...)
		ip("addr add "+addresses[1]+" dev "+link+" nodad", there...)
	}
	return func(address string) error {
		// the pod's own address, by its other interface
		if via, ok := strings.CutPrefix(address, "by rdma0 "); ok {
			host, _, _ := net.SplitHostPort(via)
			ip("route replace "+host+"/32 via 192.0.2.2 dev peer1", there...)
			defer ip("route del "+host+"/32", there...)
			address = via
		}
		requests <- address
		return <-answers
	}
}

// page gets a page from this thread's network namespace.
func page(address string) error {
	c, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err != nil {
		return err
	}
	defer c.Close()
	_, _ = io.WriteString(c, "GET / HTTP/1.0\r\n\r\n")
	_ = c.SetReadDeadline(time.Now().Add(30 * time.Second))
	b, err := io.ReadAll(c)
	if err == nil && !strings.Contains(string(b), "the page") {
		err = errors.New("answered: " + string(b))
	}
	return err
}

// TestOtherNetworks checks that the port is reached at the pod's addresses and on loopback, but
// neither at addresses of its RDMA network nor from there.
func TestOtherNetworks(t *testing.T) {
	get := pod(t)
	var hosts Hosts
	if err := hosts.Set("10.9.0.2,fd00:9::2,127.0.0.1"); err != nil {
		t.Fatal(err)
	}
	l, err := Listen(":9180", hosts)
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "the page") }), ReadHeaderTimeout: time.Minute}
	done := make(chan error)
	go func() { done <- s.Serve(l) }()
	for _, address := range []string{"10.9.0.2:9180", "[fd00:9::2]:9180"} {
		if err := get(address); err != nil {
			t.Errorf("%s: %v", address, err)
		}
	}
	if err := page("127.0.0.1:9180"); err != nil {
		t.Errorf("on loopback: %v", err)
	}
	for _, address := range []string{"192.0.2.2:9180", "[fd00:a::2]:9180", "by rdma0 10.9.0.2:9180"} {
		if err := get(address); !errors.Is(err, unix.ECONNREFUSED) {
			t.Errorf("%s: %v, want it refused", address, err)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		t.Error(err)
	}
	if err := page("127.0.0.1:9180"); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("after it was closed: %v", err)
	}
	again, err := Listen(":9180", nil) // all addresses, as without hosts
	if err != nil {
		t.Fatal(err)
	}
	_ = again.Close()
	hosts = append(hosts, hosts[0].Next())
	if l, err := Listen(":9180", hosts); !errors.Is(err, unix.EADDRNOTAVAIL) {
		t.Errorf("an address that is not the host's: %v, %v", l, err)
	}
}
