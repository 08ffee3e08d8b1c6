package rpcbind

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUniversal(t *testing.T) {
	for addr, want := range map[string]string{
		"127.0.0.1:2049":          "127.0.0.1.8.1",
		"10.1.3.7:1781":           "10.1.3.7.6.245",
		"0.0.0.0:111":             "0.0.0.0.0.111",
		"192.0.2.1:65535":         "192.0.2.1.255.255",
		"[::1]:20049":             "::1.78.81",
		"[2001:db8::5]:2049":      "2001:db8::5.8.1",
		"[::]:0":                  "::.0.0",
		"[::ffff:192.0.2.1]:2049": "192.0.2.1.8.1",
		"[fe80::1%eth0]:2049":     "fe80::1.8.1",
	} {
		a := netip.MustParseAddrPort(addr)
		got := FormatUniversal(a)
		if got != want {
			t.Errorf("%s is %q, want %q", addr, got, want)
		}
		back, err := ParseUniversal(got)
		if plain := netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port()); err != nil || back != plain {
			t.Errorf("%q is %s, %v", got, back, err)
		}
	}
	for _, s := range []string{"", "1", "127.0.0.1", "127.0.0.1.8", "127.0.0.1.8.256", "127.0.0.1.256.1", "127.0.0.1.8.-1", "127.0.0.1.8.", "host.8.1", "::1.8", ".8.1", "127.0.0.1.8.1.1"} {
		if a, err := ParseUniversal(s); err == nil {
			t.Errorf("%q is taken for %s", s, a)
		}
	}
}

func FuzzParseUniversal(f *testing.F) {
	f.Add("127.0.0.1.8.1")
	f.Add("::1.78.81")
	f.Add("fe80::1%eth0.8.1")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := ParseUniversal(s)
		if err != nil {
			return
		}
		b, err := ParseUniversal(FormatUniversal(a))
		if err != nil || b != netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port()) {
			t.Fatalf("%q is %s, which is written %q and read as %s, %v", s, a, FormatUniversal(a), b, err)
		}
	})
}

func TestNetID(t *testing.T) {
	for _, tt := range []struct{ network, addr, want string }{
		{"tcp", "127.0.0.1", TCP}, {"tcp", "::1", TCP6}, {"rdma", "0.0.0.0", RDMA}, {"rdma", "2001:db8::1", RDMA6}, {"tcp", "::ffff:10.0.0.1", TCP},
	} {
		if got := NetID(tt.network, netip.MustParseAddr(tt.addr)); got != tt.want {
			t.Errorf("%s at %s is %q, want %q", tt.network, tt.addr, got, tt.want)
		}
	}
}

// service is an rpcbind in memory, of versions low to high.
type service struct {
	low, high uint32
	mu        sync.Mutex
	mappings  map[Entry]string
	calls     [][]byte // arguments as they came
	garbage   bool
}

func (s *service) ServeRPC(c *oncrpc.Call) {
	if c.Version < s.low || c.Version > s.high {
		c.ReplyMismatch(s.low, s.high)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	d := c.Args()
	s.calls = append(s.calls, append([]byte{byte(c.Version), byte(c.Procedure)}, c.Stream[0][c.ArgsAt:]...))
	if c.Procedure == procDump {
		s.dump(c)
		return
	}
	prog, vers := d.Uint32(), d.Uint32()
	netID, addr := d.String(100), d.String(100)
	d.String(100)
	if d.Err() != nil || d.Left() != 0 {
		c.ReplyAccept(oncrpc.GarbageArgs)
		return
	}
	e, err := c.BeginReply(200)
	if err != nil {
		c.ReplyAccept(oncrpc.SystemErr)
		return
	}
	key := Entry{Program: prog, Version: vers, NetID: netID}
	there, ok := s.mappings[key]
	switch c.Procedure {
	case procSet:
		if !ok {
			s.mappings[key] = addr
		}
		e.Bool(!ok || there == addr)
	case procUnset:
		delete(s.mappings, key)
		e.Bool(ok)
	case procGetAddr:
		if s.garbage {
			there = "nonsense"
		}
		e.String(there)
	}
	c.Respond()
}

func (s *service) dump(c *oncrpc.Call) {
	e, err := c.BeginReply(2000)
	if err != nil {
		c.ReplyAccept(oncrpc.SystemErr)
		return
	}
	for key, addr := range s.mappings {
		e.Bool(true)
		e.Uint32(key.Program)
		e.Uint32(key.Version)
		e.String(key.NetID)
		e.String(addr)
		e.String("somebody")
	}
	if s.garbage {
		e.Uint32(7)
	} else {
		e.Bool(false)
	}
	c.Respond()
}

func (s *service) start(t *testing.T) []Address {
	t.Helper()
	s.mappings = map[Entry]string{}
	pool := bufpool.New(0)
	var mux oncrpc.Mux
	mux.Handle(program, 0, 10, s)
	srv, err := oncrpc.NewServer(oncrpc.Config{Pool: pool, Handler: &mux})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "sock")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	t.Cleanup(func() {
		_ = srv.Close()
		if err := <-served; !errors.Is(err, net.ErrClosed) {
			t.Errorf("serving ended with %v", err)
		}
		if err := pool.Close(); err != nil {
			t.Error(err)
		}
	})
	return []Address{{"unix", filepath.Join(t.TempDir(), "absent")}, {"unix", path}}
}

var nfsOnRDMA = Mapping{100003, 3, RDMA, netip.MustParseAddrPort("192.0.2.1:20049")}

func TestRegister(t *testing.T) {
	for _, versions := range [][2]uint32{{3, 4}, {2, 3}} {
		s := &service{low: versions[0], high: versions[1]}
		addresses := s.start(t)
		ctx := context.Background()
		onTCP := Mapping{100003, 3, TCP, netip.MustParseAddrPort("0.0.0.0:2049")}
		r, err := Register(ctx, addresses, nfsOnRDMA, onTCP)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff([]Mapping{nfsOnRDMA, onTCP}, r.mappings, cmp.Comparer(func(a, b netip.AddrPort) bool { return a == b })); d != "" {
			t.Error(d)
		}
		c, err := Dial(ctx, addresses)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := c.GetAddr(ctx, 100003, 3, RDMA); err != nil || a != nfsOnRDMA.Addr {
			t.Errorf("served at %s, %v", a, err)
		}
		if a, err := c.GetAddr(ctx, 100005, 3, RDMA); err != nil || a.IsValid() {
			t.Errorf("what is not served is at %s, %v", a, err)
		}
		if err := c.Set(ctx, Mapping{100003, 3, TCP, netip.MustParseAddrPort("192.0.2.1:2050")}); err == nil {
			t.Error("registered at two addresses")
		}
		// Another process registers the same: the first one of its mappings must not stay.
		other := Mapping{100005, 3, TCP, netip.MustParseAddrPort("192.0.2.1:635")}
		if _, err := Register(ctx, addresses, other, Mapping{100003, 3, TCP, netip.MustParseAddrPort("192.0.2.1:2050")}); err == nil || !strings.Contains(err.Error(), "192.0.2.1:2050: user somebody has registered it at 0.0.0.0.8.1;") {
			t.Errorf("a conflict ended with %v", err)
		}
		if a, err := c.GetAddr(ctx, other.Program, other.Version, other.NetID); err != nil || a.IsValid() {
			t.Errorf("a failed registration left %s, %v", a, err)
		}
		again, err := Register(ctx, addresses, onTCP) // left over from an earlier run
		if err != nil {
			t.Fatal(err)
		}
		if err := again.Close(ctx); err != nil {
			t.Error(err)
		}
		if err := r.Close(ctx); err == nil || !strings.Contains(err.Error(), "removing program 100003 version 3 on tcp") {
			t.Errorf("closed with %v, but one mapping was gone", err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if len(s.mappings) != 0 {
			t.Errorf("left: %v", s.mappings)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		for _, call := range s.calls {
			if uint32(call[0]) != versions[1] {
				t.Errorf("a call of version %d", call[0])
			}
		}
		// program, version, "rdma", "192.0.2.1.78.81", and the owner
		want, _ := hex.DecodeString("000186a3" + "00000003" + "00000004" + "72646d61" + "0000000f" + "3139322e302e322e312e37382e383100")
		if got := s.calls[0][2:]; len(got) < len(want) || cmp.Diff(want, got[:len(want)]) != "" {
			t.Errorf("SET has the arguments %x, want %x and an owner", got, want)
		}
	}
}

func TestAbsent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	addresses := []Address{{"unix", filepath.Join(t.TempDir(), "absent")}, {"tcp", l.Addr().String()}}
	if _, err := Register(context.Background(), addresses, nfsOnRDMA); !errors.Is(err, ErrAbsent) {
		t.Errorf("failed with %v", err)
	}
	if err := (&Registration{addresses, []Mapping{nfsOnRDMA}}).Close(context.Background()); err != nil {
		t.Errorf("the service has gone: %v", err)
	}
	if err := (*Registration)(nil).Close(context.Background()); err != nil {
		t.Error(err)
	}
}

func TestBadService(t *testing.T) {
	ctx := context.Background()
	s := &service{low: 3, high: 4, garbage: true}
	c, err := Dial(ctx, s.start(t))
	if err != nil {
		t.Fatal(err)
	}
	if a, err := c.GetAddr(ctx, 100003, 3, TCP); err == nil {
		t.Errorf("nonsense was taken for %s", a)
	}
	if all, err := c.Dump(ctx); err == nil {
		t.Errorf("nonsense was taken for %v", all)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	s = &service{low: 2, high: 2}
	if c, err = Dial(ctx, s.start(t)); err != nil {
		t.Fatal(err)
	}
	var status *oncrpc.StatusError
	if err := c.Set(ctx, nfsOnRDMA); !errors.As(err, &status) || status.Status.Accept != oncrpc.ProgMismatch {
		t.Errorf("failed with %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
