package proxy_test

import (
	"bytes"
	"crypto/rand"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/access"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// volume makes a server of a directory, which it returns too.
func volume(t testing.TB) (*server.Server, string) {
	t.Helper()
	dir := t.TempDir()
	key := make([]byte, 32)
	rand.Read(key)
	cfg := server.Config{
		Root: dir, Name: "data", Key: key, Access: []access.Rule{{Networks: everyone, Squash: access.SquashNone}},
		Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	cfg.ReplyCache.PerClient = 16 // soon full: then it has all the memory that it takes
	v, err := server.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() })
	return v, dir
}

// asClient makes a client of version 3 of a caller.
func asClient(c *nfs4test.Caller) *client.Client {
	return client.New(client.Config{Requester: c.Requester, Pool: c.Pool, Cred: c.Cred})
}

// TestChain: one proxy stands in front of another, which stands in front of a volume, and RPC-over-RDMA is before the first, between both, and
// behind the second, in version 2 where that is offered. What goes in by one network comes out by the other.
func TestChain(t *testing.T) {
	for _, between := range []struct {
		name          string
		first, second string // networks
		extensions    rpcrdma.Extensions
	}{
		{"RDMA between the proxies", "rdma", "tcp", 0},
		{"RDMA to the volume", "tcp", "rdma", 0},
		{"RDMA all the way", "rdma", "rdma", 0},
		{"TCP all the way", "tcp", "tcp", 0},
		{"version 2", "rdma", "rdma", rpcrdma.TransportProperties},
		{"version 2, continued", "rdma", "rdma", rpcrdma.TransportProperties | rpcrdma.MessageContinuation},
		{"version 2, placed", "rdma", "rdma", rpcrdma.TransportProperties | rpcrdma.SendBasedPlacement},
		{"version 2, continued and placed", "rdma", "rdma", rpcrdma.TransportProperties | rpcrdma.MessageContinuation | rpcrdma.SendBasedPlacement},
	} {
		t.Run(between.name, func(t *testing.T) {
			v, dir := volume(t)
			p := pool(t)
			s := serve(t, "127.0.0.1:0", p, v)
			t.Cleanup(s.stop)
			behind := &spoken{offered: between.extensions}
			at := map[string]string{"tcp": s.address, "rdma": serveRDMA(t, p, v, behind)}[between.second]
			offer := func(c *proxy.Config) { c.Extensions = between.extensions }
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
			for _, f := range []*front{first, second} {
				if st := f.Status(); st.Unreadable != 0 || !st.Healthy {
					t.Errorf("status: %+v", st)
				}
			}
		})
	}
}

// TestMountPaths: directories beneath the root can be mounted, and nothing else.
func TestMountPaths(t *testing.T) {
	v, dir := volume(t)
	p := pool(t)
	s := serve(t, "127.0.0.1:0", p, v)
	t.Cleanup(s.stop)
	for _, d := range []string{"outside", "export/a/b"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"export/link": "a", "export/up": "../outside"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "export/file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for network, at := range map[string]string{"tcp": s.address, "rdma": serveRDMA(t, p, v, &spoken{})} {
		f := newFront(t, network, at, func(c *proxy.Config) { c.Path = "/export" })
		c := asClient(f.dial(t, "tcp", nil))
		for path, want := range map[string]error{
			"/": nil, "": nil, "/a": nil, "/a/b": nil, "a//b/.": nil, "/a/c": nfs3.ErrNoEnt, "/outside": nfs3.ErrNoEnt, "/..": nfs3.ErrNoEnt, "/a/..": nfs3.ErrNoEnt,
			"/link": nfs3.ErrNotDir, "/link/b": nfs3.ErrNotDir, "/up": nfs3.ErrNotDir, "/file": nfs3.ErrNotDir,
		} {
			at, err := c.Mount(t.Context(), path)
			if !errors.Is(err, want) {
				t.Errorf("MNT of %q, over %s: %v, want %v", path, network, err, want)
			}
			if err == nil {
				if _, err := c.GetAttr(t.Context(), at); err != nil {
					t.Errorf("GETATTR of %q, over %s: %v", path, network, err)
				}
			}
		}
	}
}

// TestMountsTogether: the paths of all MNTs of a client are looked up by its own connection to the backend, and wait for the backend with its other calls.
func TestMountsTogether(t *testing.T) {
	v, dir := volume(t)
	if err := os.MkdirAll(filepath.Join(dir, "a/b"), 0o755); err != nil {
		t.Fatal(err)
	}
	for _, network := range []string{"tcp", "rdma"} {
		t.Run(network, func(t *testing.T) {
			p := pool(t)
			s := serve(t, "127.0.9.1:0", p, v)
			t.Cleanup(func() { s.stop() })
			f := newFront(t, "tcp", s.address, nil)
			c := f.dial(t, network, nil)
			want := mnt(t, c, "/a/b")
			before := f.Status().Dials
			many := func() *sync.WaitGroup {
				var wg sync.WaitGroup
				for range 50 {
					wg.Go(func() {
						if got, err := asClient(c).Mount(t.Context(), "/a/b"); err != nil || !bytes.Equal(got, want) {
							t.Errorf("MNT: %x, %v, must be %x", got, err, want)
						}
					})
				}
				return &wg
			}
			many().Wait()
			for range 50 {
				mnt(t, c, "/a/b")
			}
			if dials := f.Status().Dials - before; dials > 2 { // to look at the root a second time
				t.Errorf("100 MNTs took %d connections to the backend", dials)
			}
			s.kill()
			waiting := many()
			*s = *serve(t, s.address, p, v)
			waiting.Wait()
		})
	}
}

// TestWithin: below the directory that the path may not leave, no symbolic link is followed to the
// export's root, whatever the backend's MOUNT does.
func TestWithin(t *testing.T) {
	v, dir := volume(t)
	p := pool(t)
	behind := &follows{Server: v, links: map[string]string{"/allowed/out": "/closed", "/allowed/out/c": "/closed/c", "/allowed/in": "/allowed/a", "/alias/a": "/allowed/a", "/alias": "/allowed"}}
	s := serve(t, "127.0.0.1:0", p, behind)
	t.Cleanup(s.stop)
	for _, d := range []string{"closed/c", "allowed/a/b"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"allowed/out": "../closed", "allowed/in": "a", "alias": "allowed"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct {
		path, within string
		found        bool
	}{
		{"/allowed/out", "", true}, // nothing is said of links
		{"/allowed/a", "/allowed", true},
		{"/allowed/a/b", "/allowed", true},
		{"/allowed", "/allowed", true},
		{"/alias/a", "/alias", true}, // an allowed path may be a link itself
		{"/allowed/out", "/allowed", false},
		{"/allowed/out/c", "/allowed", false},
		{"/allowed/in", "/allowed", false},
	} {
		for network, at := range map[string]string{"tcp": s.address, "rdma": serveRDMA(t, p, behind, &spoken{})} {
			f := newFront(t, network, at, func(c *proxy.Config) { c.Path, c.Within = test.path, test.within })
			var st proxy.Status
			for st = f.Status(); len(st.Versions) == 0 && st.RootError == ""; st = f.Status() {
				time.Sleep(100 * time.Microsecond)
			}
			if found := st.RootError == ""; found != test.found {
				t.Errorf("%s within %q, over %s: found is %v, must be %v: %s", test.path, test.within, network, found, test.found, st.RootError)
			}
		}
	}
}

// follows is a server whose MOUNT follows symbolic links, as those of other servers do.
type follows struct {
	*server.Server
	links map[string]string // paths, and where they lead
}

// ServeRPC implements [oncrpc.Handler].
func (f *follows) ServeRPC(c *oncrpc.Call) {
	if c.Program == nfs3.MountProgram && c.Procedure == nfs3.MountProcMnt {
		var a nfs3.MountArgs
		a.Decode(c.Args())
		if to, ok := f.links[string(a.Path)]; ok {
			c.Stream = [][]byte{append(slices.Concat(c.Gather(nil)...)[:c.ArgsAt:c.ArgsAt], fields(to)...)}
		}
	}
	f.Server.ServeRPC(c)
}
