package proxy_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/oncrpc"
)

// TestMountPaths checks that directories beneath the root can be mounted, and nothing else.
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

// TestMountsTogether checks that MNTs are looked up on their client's link, and wait for the
// backend with its other calls.
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
			if dials := f.Status().Dials - before; dials > 2 { // one for another look at the root
				t.Errorf("100 MNTs took %d connections to the backend", dials)
			}
			s.kill()
			waiting := many()
			*s = *serve(t, s.address, p, v)
			waiting.Wait()
		})
	}
}

// follows is a server whose MOUNT follows symbolic links, like other servers.
type follows struct {
	*server.Server
	links map[string]string // symbolic links by path
}

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
