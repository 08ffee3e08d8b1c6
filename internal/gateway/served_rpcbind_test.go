package gateway

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/oncrpc/rpcbind"
)

// fakeRPCBind is an rpcbind in memory (RFC 1833 section 2).
type fakeRPCBind struct {
	mu   sync.Mutex
	maps map[string]string
}

func (f *fakeRPCBind) ServeRPC(c *oncrpc.Call) {
	d := c.Args()
	key := fmt.Sprintf("%d.%d ", d.Uint32(), d.Uint32())
	key += d.String(100)
	addr := d.String(100)
	e, err := c.BeginReply(200)
	if err != nil {
		c.ReplyAccept(oncrpc.SystemErr)
		return
	}
	f.mu.Lock()
	there, ok := f.maps[key]
	switch c.Procedure {
	case 1: // SET
		if !ok {
			f.maps[key] = addr
		}
		e.Bool(!ok)
	case 2: // UNSET
		delete(f.maps, key)
		e.Bool(ok)
	case 3: // GETADDR
		e.String(there)
	}
	f.mu.Unlock()
	c.Respond()
}

func (f *fakeRPCBind) has() map[string]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.maps)
}

func (f *fakeRPCBind) start(t *testing.T) []rpcbind.Address {
	t.Helper()
	f.maps = map[string]string{}
	pool := bufpool.New(0)
	srv, err := oncrpc.NewServer(oncrpc.Config{Pool: pool, Handler: f})
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
			t.Error(err)
		}
	})
	return []rpcbind.Address{{Network: "unix", Address: path}}
}

// TestRPCBind checks that addresses are registered while that is configured and they are listened
// on.
func TestRPCBind(t *testing.T) {
	var f fakeRPCBind
	r := newEnv(t)
	r.services = f.start(t)
	a := exportYAML{name: "a", rdma: freeAddress(t), tcp: freeAddress(t)}
	off := r.yaml(a)
	on := withRPCBind(off)
	r.start(on)
	universal := func(address string) string {
		return rpcbind.FormatUniversal(netip.MustParseAddrPort(address))
	}
	want := map[string]string{
		"100003.3 rdma": universal(a.rdma), "100003.4 rdma": universal(a.rdma), "100005.3 rdma": universal(a.rdma),
		"100003.3 tcp": universal(a.tcp), "100003.4 tcp": universal(a.tcp), "100005.3 tcp": universal(a.tcp),
	}
	eventually(t, "both addresses are registered", func() bool { return maps.Equal(f.has(), want) })
	eventually(t, "/status tells", func() bool {
		l := r.export("a").Listeners
		return l[0].RPCBind == "registered" && l[1].RPCBind == "registered"
	})
	c := r.connect("a", config.RDMA)
	r.apply(off)
	eventually(t, "nothing is registered", func() bool { return len(f.has()) == 0 })
	c.works() // the listener stays
	r.apply(on)
	eventually(t, "both addresses are registered again", func() bool { return maps.Equal(f.has(), want) })

	a.tcp = freeAddress(t)
	r.apply(withRPCBind(r.yaml(a)))
	for _, program := range []string{"100003.3", "100003.4", "100005.3"} {
		want[program+" tcp"] = universal(a.tcp)
	}
	eventually(t, "the new address is registered in the old one's place", func() bool { return maps.Equal(f.has(), want) })
	r.apply(r.yaml())
	eventually(t, "nothing is registered when the export is gone", func() bool { return len(f.has()) == 0 })
	if d := cmp.Diff(map[string]string{}, f.has()); d != "" {
		t.Error(d)
	}
}

// withRPCBind sets rpcbind on all listeners.
func withRPCBind(yaml string) string {
	return strings.ReplaceAll(yaml, "- {network: ", "- {rpcbind: true, network: ")
}

func TestRPCBindAbsent(t *testing.T) {
	r := newEnv(t)
	r.services = []rpcbind.Address{{Network: "unix", Address: filepath.Join(t.TempDir(), "nothing")}}
	r.start(withRPCBind(r.yaml(exportYAML{name: "a"})))
	eventually(t, "/status tells", func() bool {
		return strings.HasPrefix(r.export("a").Listeners[0].RPCBind, "not registered: rpcbind: no service answers")
	})
	r.connect("a", config.TCP).works()
}
