package v2

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/internal/gateway"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rdma/iwarp/iwarptest"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/test/v2/faultinject"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// chain is two gateways: clients connect to the near one, by version 1 or TCP; the far one has the
// files, by version 2.
//
//	client -- version 1, TCP --> near -- version 2 --> relay --> far -- directory
type chain struct {
	*testing.T
	dir       string // exported by the far gateway
	near, far *gateway.Gateway
	relay     *iwarptest.Relay
	injector  *faultinject.Injector
}

// transport returns the transport settings of both gateways.
func transport(extensions []string, rest string) string {
	return fmt.Sprintf("{rpcRDMAVersions: [1, 2], extensions: [%s]%s}", strings.Join(extensions, ", "), rest)
}

func newChain(t *testing.T, nearTransport, farTransport string, s *faultinject.Injector) *chain {
	t.Helper()
	c := &chain{T: t, dir: t.TempDir(), injector: s}
	c.far = c.gateway(fmt.Sprintf("{volume: {path: %q}}", c.dir), farTransport)
	var err error
	if c.relay, err = iwarptest.Listen(iwarptest.Config{Target: address(t, c.far, config.RDMA), Inspect: s.Inspect}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.relay.Close)
	host, port, _ := net.SplitHostPort(c.relay.Address())
	c.near = c.gateway(fmt.Sprintf(`{rdma: {server: %s, port: %s, versions: ["3"]}}`, host, port), nearTransport)
	return c
}

// gateway starts a gateway with one export.
func (c *chain) gateway(backend, transport string) *gateway.Gateway {
	c.Helper()
	f, err := config.Parse([]byte(fmt.Sprintf(`apiVersion: %s
kind: %s
admin: {address: ""}
stateDir: %q
exports:
- name: files
  listeners: [{network: rdma, address: "127.0.0.1:0"}, {network: tcp, address: "127.0.0.1:0"}]
  backend: %s
  access: [{from: {networks: ["127.0.0.0/8"]}, mode: ReadWrite, squash: None}]
  transport: %s
`, config.APIVersion, config.Kind, c.TempDir(), backend, transport)))
	if err != nil {
		c.Fatal(err)
	}
	g, err := gateway.New(gateway.Options{Version: "test", Config: &f.Config, Log: slog.New(slog.NewTextHandler(c.Output(), nil))})
	if err != nil {
		c.Fatal(err)
	}
	if err := g.Start(); err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() {
		if err := g.Stop(context.Background()); err != nil {
			c.Error("stop:", err)
		}
	})
	return g
}

func address(t *testing.T, g *gateway.Gateway, network config.Network) string {
	t.Helper()
	for _, e := range g.Status().Exports {
		for _, l := range e.Listeners {
			if l.Network == network && l.State == status.Listening {
				return l.Address
			}
		}
		t.Fatalf("the export is not served: %+v", e)
	}
	return ""
}

// mount makes a client of the near gateway.
func (c *chain) mount(network config.Network) (*client.Client, nfs3.Handle) {
	c.Helper()
	return mount(c.T, network, address(c.T, c.near, network), func(cfg *rpcrdma.Config) { cfg.Versions = []int{1} })
}

func mount(t *testing.T, network config.Network, address string, change func(*rpcrdma.Config)) (*client.Client, nfs3.Handle) {
	t.Helper()
	pool := bufpool.New(0)
	var rq oncrpc.Requester
	var done <-chan struct{}
	if network == config.RDMA {
		p, err := iwarp.New(iwarp.Config{})
		if err != nil {
			t.Fatal(err)
		}
		cfg := rpcrdma.Config{Pool: pool, Bindings: binding.For, RemoteInvalidation: true}
		change(&cfg)
		r, err := rpcrdma.Dial(t.Context(), p, address, cfg)
		if err != nil {
			t.Fatal(err)
		}
		rq, done = r, r.Done()
	} else {
		r, err := oncrpc.Dial(t.Context(), address, oncrpc.Config{Pool: pool, Bindings: binding.For})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(r.Wait)
		rq, done = r, r.Done()
	}
	t.Cleanup(func() {
		_ = rq.Close()
		<-done
	})
	cred, err := client.ProcessCred()
	if err != nil {
		t.Fatal(err)
	}
	c := client.New(client.Config{Requester: rq, Pool: pool, Cred: cred})
	root, err := c.Mount(t.Context(), "/")
	if err != nil {
		t.Fatal(err)
	}
	return c, root
}

// sizes of files in bytes, and the number of empty ones besides.
var sizes = []int{1, 4097, 65_536, 200_001, 3<<20 + 5}

const many = 40

// work makes files over one network, reads them over the other, and compares both with the
// directory.
func (c *chain) work(round string) {
	c.Helper()
	for in, out := range map[config.Network]config.Network{config.RDMA: config.TCP, config.TCP: config.RDMA} {
		writer, root := c.mount(in)
		reader, _ := c.mount(out)
		dir, err := writer.Mkdir(c.Context(), root, round+"-by-"+string(in), nfs3.SetAttrs{})
		if err != nil {
			c.Fatal(err)
		}
		sums := map[string][sha256.Size]byte{}
		for _, n := range sizes {
			name, data := fmt.Sprint("file-of-", n), make([]byte, n)
			_, _ = rand.Read(data)
			sums[name] = sha256.Sum256(data)
			made, err := writer.Create(c.Context(), dir.Handle, name, nfs3.Unchecked, nfs3.SetAttrs{}, nfs3.Verifier{})
			if err != nil {
				c.Fatal(err)
			}
			if err := writer.Upload(c.Context(), made.Handle, bytes.NewReader(data), 0, uint64(n), client.UploadOptions{}); err != nil {
				c.Fatalf("%s: %v", name, err)
			}
			sum := sha256.New()
			got, err := reader.Download(c.Context(), made.Handle, 0, uint64(n), func(b [][]byte) error {
				for _, s := range b {
					sum.Write(s)
				}
				return nil
			})
			if err != nil || got != int64(n) || [sha256.Size]byte(sum.Sum(nil)) != sums[name] {
				c.Errorf("%s: %d bytes come back, or others: %v", name, got, err)
			}
			there, err := os.ReadFile(filepath.Join(c.dir, round+"-by-"+string(in), name))
			if err != nil || sha256.Sum256(there) != sums[name] {
				c.Errorf("%s: %d bytes lie there, or others: %v", name, len(there), err)
			}
		}
		target := strings.Repeat("long/", 180)
		if _, err := writer.Symlink(c.Context(), dir.Handle, "link", target, nfs3.SetAttrs{}); err != nil {
			c.Fatal(err)
		}
		if o, err := reader.Lookup(c.Context(), dir.Handle, "link"); err != nil {
			c.Error(err)
		} else if got, err := reader.Readlink(c.Context(), o.Handle); err != nil || got != target {
			c.Errorf("the link leads to %q: %v", got, err)
		}
		for k := range many {
			if _, err := writer.Create(c.Context(), dir.Handle, fmt.Sprintf("%s-%03d", strings.Repeat("name", 40), k), nfs3.Unchecked, nfs3.SetAttrs{}, nfs3.Verifier{}); err != nil {
				c.Fatal(err)
			}
		}
		found := 0
		for e, err := range reader.ReadDirPlus(c.Context(), dir.Handle) {
			if err != nil {
				c.Fatal(err)
			}
			if e.Name != "." && e.Name != ".." {
				found++
			}
		}
		if want := len(sizes) + 1 + many; found != want {
			c.Errorf("the directory has %d names, want %d", found, want)
		}
	}
}

// spoke checks the version and extensions of the link between the gateways.
func (c *chain) spoke(extensions []string) {
	c.Helper()
	links := 0
	for _, e := range c.far.Status().Exports {
		for _, l := range e.Clients {
			// the near gateway has just opened another one, to probe the far one
			if l.RDMA.Version == 0 {
				continue
			}
			links++
			if l.RDMA.Version != 2 || strings.Join(l.RDMA.Extensions, ", ") != strings.Join(extensions, ", ") {
				c.Errorf("a link of version %d with %v, must be 2 with %v", l.RDMA.Version, l.RDMA.Extensions, extensions)
			}
		}
	}
	if links == 0 {
		c.Error("there is no link")
	}
}
