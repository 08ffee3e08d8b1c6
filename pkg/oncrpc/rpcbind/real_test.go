package rpcbind

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/test/prereq"
)

// TestReal registers with a real rpcbind, in namespaces of its own, apart from the host's. This
// process becomes the parent of another that runs TestInNamespace there.
func TestReal(t *testing.T) {
	path, err := exec.LookPath("rpcbind")
	if err != nil {
		if path = "/usr/sbin/rpcbind"; unix.Access(path, unix.X_OK) != nil {
			prereq.Missing(t, "rpcbind is not installed")
		}
	}
	if os.Getuid() != 0 {
		prereq.Missing(t, "namespaces need root")
	}
	cmd := exec.Command(os.Args[0], "-test.run=^TestInNamespace$", "-test.v")
	cmd.Env = append(os.Environ(), "TEST_RPCBIND="+path)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS}
	out, err := cmd.CombinedOutput()
	if errors.Is(err, unix.EPERM) {
		prereq.Missing(t, "namespaces are not permitted")
	}
	if err != nil || !strings.Contains(string(out), "--- PASS: TestInNamespace") {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestInNamespace(t *testing.T) {
	path := os.Getenv("TEST_RPCBIND")
	if path == "" {
		t.Skip("runs as a part of TestReal")
	}
	if err := loopbackUp(); err != nil {
		t.Fatal(err)
	}
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{{"", "/", "", unix.MS_REC | unix.MS_PRIVATE}, {"tmpfs", "/run", "tmpfs", 0}} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll("/run/rpcbind", 0o755); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	service := exec.Command(path, "-f")
	service.Stdout, service.Stderr = &out, &out
	if err := service.Start(); err != nil {
		t.Fatal(err)
	}
	stopped := false
	stop := func() {
		if !stopped {
			stopped = true
			_ = service.Process.Signal(unix.SIGTERM)
			_ = service.Wait()
		}
	}
	defer stop()

	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	all := Local()
	for _, addresses := range [][]Address{all, all[1:2], all[2:]} {
		var c *Client
		var err error
		for {
			if c, err = Dial(ctx, addresses); err == nil || ctx.Err() != nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out.String())
		}
		want := []Mapping{
			{100003, 3, TCP, netip.MustParseAddrPort("127.0.0.1:2049")},
			{100005, 3, TCP, netip.MustParseAddrPort("0.0.0.0:2049")},
			{100003, 3, TCP6, netip.MustParseAddrPort("[::1]:2049")},
			{100003, 3, RDMA, netip.MustParseAddrPort("127.0.0.1:20049")},
			{100003, 3, RDMA6, netip.MustParseAddrPort("[::1]:20049")},
		}
		r, err := Register(ctx, addresses, want...)
		if err != nil {
			t.Fatalf("by %v: %v", addresses, err)
		}
		for _, m := range want {
			other := m
			other.Addr = netip.AddrPortFrom(m.Addr.Addr(), 99)
			if _, err := Register(ctx, addresses, other); err == nil || !strings.Contains(err.Error(), "has registered it at "+FormatUniversal(m.Addr)) {
				t.Errorf("%s was registered at another address, too: %v", m, err)
			}
		}
		if a, err := c.GetAddr(ctx, 100003, 3, TCP); err != nil || addresses[0].Network == "tcp" && a.Port() != 2049 {
			t.Errorf("GETADDR by %v: %s, %v", addresses[0], a, err)
		}
		info := rpcinfo(t)
		for _, s := range []string{"100003 3 tcp 127.0.0.1.8.1", "100005 3 tcp 0.0.0.0.8.1", "100003 3 tcp6 ::1.8.1", "100003 3 rdma 127.0.0.1.78.81", "100003 3 rdma6 ::1.78.81"} {
			if info != "" && !strings.Contains(info, s) {
				t.Errorf("rpcinfo does not tell of %q:\n%s", s, info)
			}
		}
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
		if info := rpcinfo(t); strings.Contains(info, "100003") {
			t.Errorf("after Close rpcinfo tells:\n%s", info)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	stop()
	if _, err := Register(ctx, all, nfsOnRDMA); !errors.Is(err, ErrAbsent) {
		t.Errorf("without a service: %v", err)
	}
}

// rpcinfo returns the listing of rpcinfo, with single blanks; nothing if it is not installed.
func rpcinfo(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("rpcinfo")
	if err != nil {
		if path = filepath.Join("/usr/sbin", "rpcinfo"); unix.Access(path, unix.X_OK) != nil {
			return ""
		}
	}
	out, err := exec.Command(path, "127.0.0.1").CombinedOutput()
	if err != nil {
		t.Errorf("rpcinfo: %v\n%s", err, out)
	}
	var lines []string
	for line := range strings.Lines(string(out)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	return strings.Join(lines, "\n")
}

// loopbackUp sets lo's flag IFF_UP.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	ifr, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	ifr.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr)
}
