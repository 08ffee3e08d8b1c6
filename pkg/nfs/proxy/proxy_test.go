package proxy_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/nfs/sign"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var everyone = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// service is an RPC server on loopback.
type service struct {
	t       testing.TB
	address string
	pool    *bufpool.Pool
	srv     *oncrpc.Server
	done    chan struct{}
}

// serve starts a service; an empty address means any port.
func serve(t testing.TB, address string, pool *bufpool.Pool, h oncrpc.Handler) *service {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	srv, err := oncrpc.NewServer(oncrpc.Config{Pool: pool, Handler: h, Bindings: binding.For})
	if err != nil {
		t.Fatal(err)
	}
	s := &service{t, l.Addr().String(), pool, srv, make(chan struct{})}
	go func() { defer close(s.done); _ = srv.Serve(l) }()
	return s
}

func (s *service) stop() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	if err := s.srv.Shutdown(ctx); err != nil {
		s.t.Errorf("shutdown: %v", err)
	}
	<-s.done
}

// fileEnv is a client, a proxy and a backend with a directory, all over TCP.
type fileEnv struct {
	*client.Client
	root    nfs3.Handle
	proxy   *proxy.Server
	backend *service
	dir     string
}

func newFileEnv(t *testing.T, change func(*proxy.Config)) *fileEnv {
	t.Helper()
	r := &fileEnv{dir: t.TempDir()}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	key := make([]byte, 32)
	rand.Read(key)
	volume, err := server.New(server.Config{
		Root: r.dir, Name: "data", Key: key, Access: []access.Rule{{Networks: everyone, Squash: access.SquashNone}}, Logger: log,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = volume.Close() })
	r.backend = serve(t, "127.0.0.1:0", pool(t), volume)
	t.Cleanup(func() { r.backend.stop() })

	at := netip.MustParseAddrPort(r.backend.address)
	cfg := proxy.Config{
		UID: []byte("01234567"), Network: "tcp", Server: at.Addr().String(), Port: int(at.Port()), MountPort: int(at.Port()), Path: "/",
		V3: true, Access: []access.Rule{{Networks: everyone, Squash: access.SquashNone}}, Pool: pool(t), Logger: log,
	}
	if cfg.Signer, err = sign.New([][]byte{key}, cfg.UID, sign.Required); err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&cfg)
	}
	if r.proxy, err = proxy.New(cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = r.proxy.Close() })
	front := serve(t, "127.0.0.1:0", cfg.Pool, r.proxy)
	t.Cleanup(front.stop)

	cred, err := client.ProcessCred()
	if err != nil {
		t.Fatal(err)
	}
	mine := pool(t)
	conn, err := oncrpc.Dial(t.Context(), front.address, oncrpc.Config{Pool: mine, Bindings: binding.For})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		conn.Wait()
	})
	r.Client = client.New(client.Config{Requester: conn, Pool: mine, Cred: cred})
	if r.root, err = r.Mount(t.Context(), "/"); err != nil {
		t.Fatal(err)
	}
	return r
}

// TestThrough writes and reads a file through the proxy, and mounts a directory beneath the root.
func TestThrough(t *testing.T) {
	r := newFileEnv(t, nil)
	ctx := t.Context()
	data := make([]byte, 5<<20+3)
	rand.Read(data)
	dir, err := r.Mkdir(ctx, r.root, "sub", nfs3.SetAttrs{})
	if err != nil {
		t.Fatal(err)
	}
	made, err := r.Create(ctx, dir.Handle, "file", nfs3.Unchecked, nfs3.SetAttrs{}, nfs3.Verifier{})
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Upload(ctx, made.Handle, bytes.NewReader(data), 0, uint64(len(data)), client.UploadOptions{}); err != nil {
		t.Fatal(err)
	}
	at, err := r.Mount(ctx, "/sub")
	if err != nil {
		t.Fatal(err)
	}
	file, err := r.Lookup(ctx, at, "file")
	if err != nil {
		t.Fatal(err)
	}
	var got []byte
	if _, err := r.Download(ctx, file.Handle, 0, uint64(len(data)), func(b [][]byte) error {
		got = append(got, bytes.Join(b, nil)...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, data) {
		t.Error("what came back differs")
	}
	if st := r.proxy.Status(); !st.Healthy || st.Unreadable != 0 || st.RootError != "" {
		t.Errorf("status: %+v", st)
	}
}

// TestChain connects two proxies and a volume in a row, with RPC-over-RDMA before, between and
// behind the proxies, in version 2 where offered.
func TestChain(t *testing.T) {
	for _, between := range []struct {
		name          string
		first, second string // networks
		extensions    rpcrdma.Extensions
		forms         rpcrdma.RFC5666
	}{
		{"RDMA between the proxies", "rdma", "tcp", 0, 0},
		{"RDMA to the volume", "tcp", "rdma", 0, 0},
		{"RDMA all the way", "rdma", "rdma", 0, 0},
		{"TCP all the way", "tcp", "tcp", 0, 0},
		{"version 2", "rdma", "rdma", rpcrdma.TransportProperties, 0},
		{"version 2, continued", "rdma", "rdma", rpcrdma.TransportProperties | rpcrdma.MessageContinuation, 0},
		{"version 2, placed", "rdma", "rdma", rpcrdma.TransportProperties | rpcrdma.SendBasedPlacement, 0},
		{"version 2, continued and placed", "rdma", "rdma", rpcrdma.TransportProperties | rpcrdma.MessageContinuation | rpcrdma.SendBasedPlacement, 0},
		{"RFC 5666", "rdma", "rdma", 0, rpcrdma.Padding | rpcrdma.ReadRead | rpcrdma.Configuration},
	} {
		t.Run(between.name, func(t *testing.T) {
			v, dir := volume(t)
			p := pool(t)
			s := serve(t, "127.0.0.1:0", p, v)
			t.Cleanup(s.stop)
			behind := &spoken{offered: between.extensions} // without forms of RFC 5666
			at := map[string]string{"tcp": s.address, "rdma": serveRDMA(t, p, v, behind)}[between.second]
			offer := func(c *proxy.Config) { c.Extensions, c.RFC5666 = between.extensions, between.forms }
			second := newFront(t, between.second, at, offer)
			first := newFront(t, between.first, map[string]string{"tcp": second.tcp, "rdma": second.rdma}[between.first], offer)
			data := make([]byte, 3<<20+1)
			rand.Read(data)
			for name, networks := range map[string][2]string{"by RDMA": {"rdma", "tcp"}, "by TCP": {"tcp", "rdma"}} {
				in, out := asClient(first.dial(t, networks[0], nil)), asClient(first.dial(t, networks[1], nil))
				root, err := in.Mount(t.Context(), "/")
				if err != nil {
					t.Fatal(err)
				}
				made, err := in.Create(t.Context(), root, name, nfs3.Unchecked, nfs3.SetAttrs{}, nfs3.Verifier{})
				if err != nil {
					t.Fatal(err)
				}
				if err := in.Upload(t.Context(), made.Handle, bytes.NewReader(data), 0, uint64(len(data)), client.UploadOptions{}); err != nil {
					t.Fatal(err)
				}
				file, err := out.Lookup(t.Context(), root, name)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(file.Handle, made.Handle) {
					t.Errorf("the same file has the handles %x and %x", made.Handle, file.Handle)
				}
				var got []byte
				if _, err := out.Download(t.Context(), file.Handle, 0, uint64(len(data)), func(b [][]byte) error {
					got = append(got, bytes.Join(b, nil)...)
					return nil
				}); err != nil {
					t.Fatal(err)
				}
				there, err := os.ReadFile(filepath.Join(dir, name))
				if err != nil || !bytes.Equal(got, data) || !bytes.Equal(there, data) {
					t.Errorf("%d bytes went in, %d came out, %d lie there: %v", len(data), len(got), len(there), err)
				}
			}
			version := 1
			if between.extensions != 0 {
				version = 2
			}
			if between.second == "rdma" {
				behind.only(t, version)
			}
			if between.first == "rdma" {
				second.spoken.only(t, version)
			}
			if between.forms != 0 {
				old := first.Status().RDMA
				if old == nil || old.Version != 1 || old.Padding == 0 || !old.ReadRead || !old.Configured {
					t.Errorf("between the proxies: %+v", old)
				}
			}
			for _, f := range []*front{first, second} {
				// the first probe may still be under way
				for start := time.Now(); !f.Status().Healthy && time.Since(start) < time.Minute; {
					time.Sleep(time.Millisecond)
				}
				if st := f.Status(); st.Unreadable != 0 || !st.Healthy {
					t.Errorf("status: %+v", st)
				}
			}
		})
	}
}
