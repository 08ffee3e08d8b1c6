package proxy_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4test"
	"sluice.dev/sluice/pkg/nfs/proxy"
	"sluice.dev/sluice/pkg/nfs/schema"
	"sluice.dev/sluice/pkg/nfs/sign"
)

// TestMountAway checks that version 3 is served while MOUNT is down, and that MOUNT is retried.
func TestMountAway(t *testing.T) {
	b, s, f := start(t, func(c *proxy.Config) { c.Minor[1] = true })
	c := f.dial(t, "tcp", nil)
	root := mnt(t, c, "/")
	away := func(noMount bool) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.noMount = noMount
	}
	// makes a connection that can be lost
	if status, _, err := call3(t, c, nfs3.ProcGetAttr, getAttr3(root)); status != nfs3.OK || err != nil {
		t.Fatalf("GETATTR: %v, %v", status, err)
	}
	s.kill()
	away(true)
	if status, _, _ := call3Async(t, c, root, func() { *s = *serve(t, s.address, s.pool, b) }); status != nfs3.OK {
		t.Errorf("GETATTR: %v", status)
	}
	untilRefused(t, b, c, root)
	// the first MNT may belong to an attempt that the crash cut short
	for tries := 0; f.Status().MountError == ""; tries++ {
		if tries == 100_000 {
			t.Fatalf("status: %+v", f.Status())
		}
		if status, _, err := call3(t, c, nfs3.ProcGetAttr, getAttr3(root)); status != nfs3.OK || err != nil {
			t.Fatalf("GETATTR: %v, %v", status, err)
		}
	}
	if st := f.Status(); st.RootError != "" || !slices.Equal(st.Versions, []string{"3", "4.1"}) {
		t.Errorf("status: %+v", st)
	}
	away(false)
	for tries := 0; f.Status().MountError != ""; tries++ {
		if tries == 100_000 {
			t.Fatal("MOUNT was not asked again")
		}
		if got := mnt(t, c, "/"); !bytes.Equal(got, root) {
			t.Fatalf("MNT: handle %x, must be %x", got, root)
		}
	}
}

// serves4 opens a session and makes a call that needs the root of version 4. It is done before the
// search for the root of version 3 ends.
func serves4(t *testing.T, c *nfs4test.Caller) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	session, err := nfs4test.NewSession(ctx, c, 1, "owner", 1, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := session.Next(ctx, 0, op(schema.OpPutRootFH), op(schema.OpGetFH)); err != nil {
		t.Fatal(err)
	}
}

// journal keeps log lines.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(b)
}

// count returns the number of lines that contain text.
func (j *journal) count(text string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return bytes.Count(j.buf.Bytes(), []byte(text))
}

// TestMountSilent checks that version 4 is served at once when MOUNT never answers.
func TestMountSilent(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.9.1:0") // connects, but is never accepted
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close() //nolint:errcheck // nothing was written to it
	_, _, f := start(t, func(c *proxy.Config) {
		c.Minor[1], c.MountPort = true, int(netip.MustParseAddrPort(silent.Addr().String()).Port())
	})
	serves4(t, f.dial(t, "tcp", nil))
}

// TestMountComes checks that a MNT waits for the MOUNT of a backend that serves version 4, and is
// refused after MountPatience.
func TestMountComes(t *testing.T) {
	b := newFake(t)
	b.noMount = true
	s := serve(t, "127.0.9.1:0", pool(t), b)
	t.Cleanup(s.stop)
	f := newFront(t, "tcp", s.address, func(c *proxy.Config) { c.Minor[1], c.MountPatience = true, time.Hour })
	c := f.dial(t, "tcp", nil)
	serves4(t, c)
	for f.Status().MountError == "" {
		time.Sleep(100 * time.Microsecond)
	}
	answered := make(chan []byte, 1)
	go func() {
		reply, err := c.Call(t.Context(), nfs3.MountProgram, 3, nfs3.MountProcMnt, fields("/"))
		if err != nil {
			t.Error(err)
		}
		answered <- reply
	}()
	for f.Status().WaitBytes == 0 {
		select {
		case reply := <-answered:
			t.Fatalf("MNT does not wait: %x", reply)
		default:
			time.Sleep(100 * time.Microsecond)
		}
	}
	b.mu.Lock()
	b.noMount = false
	b.mu.Unlock()
	if reply := <-answered; nfs3.Status(binary.BigEndian.Uint32(reply)) != nfs3.OK {
		t.Errorf("MNT: %x", reply)
	}
}

// TestNoMount checks that a backend without MOUNT is healthy: its version 3 is not listed, its
// handles work, and MNT is refused at once. Version 3 can be mounted once MOUNT is up.
func TestNoMount(t *testing.T) {
	for name, somebody := range map[string]bool{"no MOUNT at its port": true, "nobody at its port": false} {
		t.Run(name, func(t *testing.T) {
			b := newFake(t)
			b.noMount = somebody
			s := serve(t, "127.0.9.1:0", pool(t), b)
			t.Cleanup(s.stop)
			var log journal
			at := s.address
			if !somebody {
				at = absent(t)
			}
			f := newFront(t, "tcp", s.address, func(c *proxy.Config) {
				c.Minor[1], c.MountPort = true, int(netip.MustParseAddrPort(at).Port())
				c.MountPatience = time.Nanosecond
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			c := f.dial(t, "tcp", nil)
			serves4(t, c)
			refused, err := c.Call(t.Context(), nfs3.MountProgram, 3, nfs3.MountProcMnt, fields("/"))
			if err != nil || nfs3.Status(binary.BigEndian.Uint32(refused)) != nfs3.ErrServerFault {
				t.Fatalf("MNT: %x, %v, must be SERVERFAULT", refused, err)
			}
			if st := f.Status(); st.MountError == "" || st.RootError != "" || !slices.Equal(st.Versions, []string{"4.1"}) {
				t.Errorf("status: %+v", st)
			}
			handle := f.signer.Append(nil, []byte("a file"), sign.Max3)
			if status, _, err := call3(t, c, nfs3.ProcGetAttr, getAttr3(handle)); status != nfs3.OK || err != nil {
				t.Errorf("GETATTR: %v, %v", status, err)
			}
			if somebody {
				b.mu.Lock()
				b.noMount = false
				b.mu.Unlock()
			} else {
				other := serve(t, at, pool(t), b)
				t.Cleanup(other.stop)
			}
			for f.Status().MountError != "" {
				time.Sleep(100 * time.Microsecond)
			}
			mnt(t, c, "/")
			if st := f.Status(); st.RootError != "" || !slices.Equal(st.Versions, []string{"3", "4.1"}) {
				t.Errorf("status: %+v", st)
			}
			if warned, failed := log.count("NFSv3 root not found"), log.count("level=ERROR"); warned != 1 || failed != 0 {
				t.Errorf("%d warnings and %d errors were logged, must be 1 and 0", warned, failed)
			}
		})
	}
}

// TestWithin checks that below Config.Within no symbolic link leads to the root, even if the
// backend's MOUNT follows links.
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
		{"/allowed/out", "", true}, // no bound
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
