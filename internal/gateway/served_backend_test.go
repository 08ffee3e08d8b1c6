package gateway

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
	status "sluice.dev/sluice/api/status/v1alpha1"
	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rdma/verbs"
)

// inFrontOf returns a backend that is an export of another gateway.
func inFrontOf(t *testing.T, network config.Network, address string) string {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		t.Fatal(err)
	}
	if network == config.RDMA {
		return fmt.Sprintf(`{rdma: {server: %s, port: %s, versions: ["3"]}}`, host, port)
	}
	return fmt.Sprintf(`{nfs: {server: %s, port: %s, mountPort: %s, path: /, versions: ["3"]}}`, host, port, port)
}

// TestRemoteBackend serves a directory of one gateway through another, over each network on both
// sides.
func TestRemoteBackend(t *testing.T) {
	far := newEnv(t)
	far.start(far.yaml(exportYAML{name: "far"}))
	near := newEnv(t)
	near.start(near.yaml(
		exportYAML{name: "nfs", backend: inFrontOf(t, config.TCP, far.address("far", config.TCP))},
		exportYAML{name: "rdma", backend: inFrontOf(t, config.RDMA, far.address("far", config.RDMA))},
	))
	data := make([]byte, 300_001)
	for i := range data {
		data[i] = byte(rand.Uint32())
	}
	ctx := context.Background()
	names := 0
	for _, export := range []string{"nfs", "rdma"} {
		for _, network := range networks {
			c := near.connect(export, network)
			name := export + " by " + string(network)
			o, err := c.Create(ctx, c.root, name, nfs3.Unchecked, nfs3.SetAttrs{}, nfs3.Verifier{})
			if err != nil {
				t.Fatal(name, err)
			}
			names++
			if err := c.WriteAt(ctx, o.Handle, data, 0, nfs3.FileSync); err != nil {
				t.Fatal(name, err)
			}
			if got, err := os.ReadFile(filepath.Join(far.vols, "far", name)); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes are in the file, %v; want the %d that were written", name, len(got), err, len(data))
			}
			got := make([]byte, len(data))
			if n, err := c.ReadAt(ctx, o.Handle, got, 0); err != nil || n != len(data) || !bytes.Equal(got, data) {
				t.Errorf("%s: %d bytes are read, %v", name, n, err)
			}
			found := map[string]bool{}
			for e, err := range c.ReadDirPlus(ctx, c.root) {
				if err != nil {
					t.Fatal(name, err)
				}
				if e.Name != "." && e.Name != ".." {
					found[e.Name] = true
				}
			}
			if len(found) != names || !found[name] {
				t.Errorf("%s: the directory has %v", name, found)
			}
		}
		s := near.export(export).Backend
		if s.Kind != export || !s.Healthy || s.Error != "" || s.Remote == nil || s.Connections < len(networks) {
			t.Errorf("%+v, %+v", s, s.Remote)
		}
	}
	direct, through := far.connect("far", config.TCP), near.connect("nfs", config.TCP)
	if bytes.Equal(direct.root, through.root) {
		t.Error("the handle of the root is the server's own, not signed")
	}
	if _, err := through.GetAttr(ctx, direct.root); !errors.Is(err, nfs3.ErrBadHandle) {
		t.Errorf("a handle of the server's own is answered with %v, want %v", err, nfs3.ErrBadHandle)
	}
}

// TestRemoteByVerbs checks that a backend uses the named adapter, and software iWARP by default.
func TestRemoteByVerbs(t *testing.T) {
	far := newEnv(t)
	far.start(far.yaml(exportYAML{name: "far"}))
	near := newEnv(t)
	devices := make(chan string, 10) // of opened providers
	near.verbs = func(cfg verbs.Config) (rdma.Provider, error) {
		devices <- cfg.Device
		return iwarp.New(iwarp.Config{}) // stands for an adapter
	}
	by := func(provider string) string {
		backend := strings.Replace(inFrontOf(t, config.RDMA, far.address("far", config.RDMA)), "versions:", provider+"versions:", 1)
		return near.yaml(exportYAML{name: "rdma", backend: backend})
	}
	near.start(by("provider: verbs, device: mlx5_4, "))
	near.connect("rdma", config.TCP).works()
	if d := <-devices; d != "mlx5_4" {
		t.Errorf("a provider of the device %q was opened", d)
	}
	near.apply(by(""))
	c := near.connect("rdma", config.TCP)
	near.apply(by("provider: iwarp, "))
	c.works()
	if len(devices) != 0 {
		t.Errorf("another provider was opened, of the device %q", <-devices)
	}
}

// TestRemoteRefuses checks that /status distinguishes a backend that refuses the gateway from an
// unreachable one, and has the address that it refuses.
func TestRemoteRefuses(t *testing.T) {
	far := newEnv(t)
	a := exportYAML{name: "far", access: `[{from: {networks: [192.0.2.0/24]}}]`}
	far.start(far.yaml(a))
	// Like other servers, it accepts the connection and refuses the mount.
	anybody, err := access.NewRules([]access.Rule{{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}})
	if err != nil {
		t.Fatal(err)
	}
	far.conns("far").SetRules(anybody)
	near := newEnv(t)
	near.start(near.yaml(
		exportYAML{name: "nfs", backend: inFrontOf(t, config.TCP, far.address("far", config.TCP))},
		exportYAML{name: "rdma", backend: inFrontOf(t, config.RDMA, far.address("far", config.RDMA))},
	))
	for _, name := range []string{"nfs", "rdma"} {
		eventually(t, "the refusal is told", func() bool { return near.export(name).Backend.Refused })
		b := near.export(name).Backend
		if !b.AskedAddress.IsLoopback() || b.AskedFrom == 0 || strings.HasSuffix(b.Server, fmt.Sprint(":", b.AskedFrom)) {
			t.Errorf("%s: asked from %s, port %d", name, b.AskedAddress, b.AskedFrom)
		}
		if want := "NFS3ERR_ACCES"; b.Healthy || !strings.Contains(b.Error, want) {
			t.Errorf("%s: healthy %v, error %q, want %s", name, b.Healthy, b.Error, want)
		}
	}
	a.access = ""
	far.apply(far.yaml(a))
	for _, name := range []string{"nfs", "rdma"} {
		eventually(t, "the backend is healthy", func() bool {
			b := near.export(name).Backend
			return b.Healthy && !b.Refused && b.Error == "" && slices.Equal(b.Versions, []string{"3"})
		})
	}
}

// TestRemoteAway checks that the export is served while its backend is unreachable, and that calls
// wait.
func TestRemoteAway(t *testing.T) {
	address := freeAddress(t)
	near := newEnv(t)
	g := near.start(near.yaml(exportYAML{name: "nfs", backend: inFrontOf(t, config.TCP, address)}))
	if s := g.Status(); !s.Ready || s.Exports[0].State != status.Serving {
		t.Fatalf("%+v", s)
	}
	eventually(t, "the backend's absence shows", func() bool {
		b := near.export("nfs").Backend
		return !b.Healthy && strings.Contains(b.Error, "connection refused")
	})
	if _, body := near.get("/metrics"); !strings.Contains(body, `sluice_backend_healthy{export="nfs"} 0`) {
		t.Error("the backend's absence is not in the metrics")
	}
	c, err := dial(t, config.RDMA, near.address("nfs", config.RDMA))
	if err != nil {
		t.Fatal(err)
	}
	mounted := make(chan error, 1)
	go func() {
		var err error
		c.root, err = c.Mount(context.Background(), "/")
		mounted <- err
	}()
	eventually(t, "the call is there", func() bool {
		clients := near.export("nfs").Clients
		return len(clients) == 1 && clients[0].RDMA.InUse == 1
	})
	select {
	case err := <-mounted:
		t.Fatal("mounted without a backend:", err)
	default:
	}
	far := newEnv(t)
	far.start(far.yaml(exportYAML{name: "far", tcp: address}))
	if err := <-mounted; err != nil {
		t.Fatal(err)
	}
	c.works()
	eventually(t, "the backend is well", func() bool { return near.export("nfs").Backend.Healthy })
}

// TestDrainWithoutBackend checks that calls waiting for an unreachable backend delay neither a
// reload nor a stop.
func TestDrainWithoutBackend(t *testing.T) {
	far := newEnv(t)
	far.start(far.yaml(exportYAML{name: "far"}))
	near := newEnv(t)
	long := func(backend string) string {
		return strings.Replace(near.yaml(exportYAML{name: "nfs", backend: backend}), "drainTimeout: 20s", "drainTimeout: 1h", 1)
	}
	g := near.start(long(inFrontOf(t, config.TCP, freeAddress(t))))
	mount := func() (*testClient, <-chan error) {
		c, err := dial(t, config.RDMA, near.address("nfs", config.RDMA))
		if err != nil {
			t.Fatal(err)
		}
		outcome := make(chan error, 1)
		go func() {
			_, err := c.Mount(context.Background(), "/")
			outcome <- err
		}()
		eventually(t, "the call is there", func() bool {
			clients := near.export("nfs").Clients
			return len(clients) > 0 && clients[len(clients)-1].RDMA.InUse == 1
		})
		return c, outcome
	}
	c, outcome := mount()
	near.apply(long(inFrontOf(t, config.TCP, far.address("far", config.TCP)))) // with the files
	if err := <-outcome; err == nil {
		t.Error("the call was answered without a backend")
	}
	c.ends()
	near.connect("nfs", config.RDMA).works()

	near.apply(long(inFrontOf(t, config.TCP, freeAddress(t))))
	c, outcome = mount()
	if err := g.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if err := <-outcome; err == nil {
		t.Error("the call was answered without a backend")
	}
	c.ends()
}

// TestRemoteReload checks that clients reconnect after a change of the server, not after a change
// of rules.
func TestRemoteReload(t *testing.T) {
	far := newEnv(t)
	far.start(far.yaml(exportYAML{name: "one"}, exportYAML{name: "two"}))
	near := newEnv(t)
	a := exportYAML{name: "nfs", backend: inFrontOf(t, config.TCP, far.address("one", config.TCP))}
	near.start(near.yaml(a))
	cr, ct := near.connect("nfs", config.RDMA), near.connect("nfs", config.TCP)
	cr.put("file", 10)

	a.access = `[{from: {networks: ["127.0.0.0/8"]}, mode: ReadOnly, squash: None}]`
	near.apply(near.yaml(a))
	for _, c := range []*testClient{cr, ct} {
		if _, err := c.Mkdir(context.Background(), c.root, "d", nfs3.SetAttrs{}); !errors.Is(err, nfs3.ErrROFS) {
			t.Errorf("MKDIR on what is read-only now: %v", err)
		}
		c.works()
	}

	a.access = ""
	a.backend = inFrontOf(t, config.TCP, far.address("two", config.TCP))
	if s := near.apply(near.yaml(a)); s.Exports[0].State != status.Serving {
		t.Fatalf("%+v", s.Exports[0])
	}
	cr.ends()
	ct.ends()
	c := near.connect("nfs", config.RDMA)
	if _, err := c.Lookup(context.Background(), c.root, "file"); !errors.Is(err, nfs3.ErrNoEnt) {
		t.Errorf("the former server's file: %v", err)
	}
	c.put("other", 10)
	if _, err := os.Stat(filepath.Join(far.vols, "two", "other")); err != nil {
		t.Error(err)
	}

	// A volume can replace a server.
	a.backend = ""
	near.apply(near.yaml(a))
	c.ends()
	if b := near.export("nfs").Backend; b.Kind != "volume" || b.Remote != nil {
		t.Errorf("%+v", b)
	}
	near.connect("nfs", config.TCP).put("local", 1)
}
