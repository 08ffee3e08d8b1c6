package client_test

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/nfs/nfs4"
	"sluice.dev/sluice/pkg/nfs/server"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// volume is a server of a directory that can be restarted behind its connections.
type volume struct {
	t    *testing.T
	cfg  server.Config
	s    atomic.Pointer[server.Server]
	held chan struct{} // a call of procedure COMPOUND waits for it, if it is set
	mu   sync.Mutex
}

func newVolume(t *testing.T, nfs4 *server.NFS4Config) *volume {
	t.Helper()
	v := &volume{t: t, cfg: server.Config{
		Root: t.TempDir(), StateDir: t.TempDir(), Name: "v", NFS4: nfs4,
		Access: []server.Rule{{Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Squash: server.SquashNone}},
	}}
	v.start()
	t.Cleanup(func() { mustNot(t, v.s.Load().Close()) })
	return v
}

func (v *volume) start() {
	v.t.Helper()
	s, err := server.New(v.cfg)
	mustNot(v.t, err)
	v.s.Store(s)
}

func (v *volume) restart() {
	v.t.Helper()
	mustNot(v.t, v.s.Load().Close())
	time.Sleep(40 * time.Millisecond) // instances of a server differ after 16 ms
	v.start()
}

func (v *volume) ServeRPC(c *oncrpc.Call) {
	v.mu.Lock()
	held := v.held
	v.held = nil
	v.mu.Unlock()
	if held == nil {
		v.s.Load().ServeRPC(c)
		return
	}
	go func() {
		<-held
		v.s.Load().ServeRPC(c)
	}()
}

// calls returns the number of successful operations.
func (v *volume) calls(op nfs4.Op) uint64 {
	for _, o := range v.s.Load().NFS4Operations() {
		if o.Op == op {
			return o.OK
		}
	}
	return 0
}

// eachConn runs f with connections to the volume over TCP and RDMA.
func (v *volume) eachConn(f func(t *testing.T, rq client.Conn, pool *bufpool.Pool)) {
	v.t.Run("tcp", func(t *testing.T) {
		s, err := oncrpc.NewServer(oncrpc.Config{Pool: bufpool.New(0), Handler: v, Bindings: binding.For})
		mustNot(t, err)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		mustNot(t, err)
		var serving sync.WaitGroup
		serving.Go(func() { _ = s.Serve(l) })
		own := bufpool.New(0)
		rq, err := oncrpc.Dial(ctx, l.Addr().String(), oncrpc.Config{Pool: own, Bindings: binding.For})
		mustNot(t, err)
		f(t, rq, own)
		mustNot(t, rq.Close())
		<-rq.Done()
		rq.Wait()
		_ = s.Close()
		serving.Wait()
		noneLeft(t, own)
	})
	v.t.Run("rdma", func(t *testing.T) {
		p, err := iwarp.New(iwarp.Config{})
		mustNot(t, err)
		d, err := p.NewDomain()
		mustNot(t, err)
		pool := bufpool.New(0)
		mustNot(t, d.Register(pool))
		l, err := p.Listen(ctx, "127.0.0.1:0")
		mustNot(t, err)
		s, err := rpcrdma.NewServer(rpcrdma.Config{Pool: pool, Domain: d, Handler: v, Bindings: binding.For, RemoteInvalidation: true}, l)
		mustNot(t, err)
		var serving sync.WaitGroup
		serving.Go(func() { _ = s.Serve() })
		own := bufpool.New(0)
		rq, err := rpcrdma.Dial(ctx, p, l.Addr().String(), rpcrdma.Config{Pool: own, Bindings: binding.For, RemoteInvalidation: true})
		mustNot(t, err)
		f(t, rq, own)
		mustNot(t, rq.Close())
		<-rq.Done()
		_ = s.Close()
		serving.Wait()
		_ = d.Close()
		noneLeft(t, own)
	})
}

func newClientOf(t *testing.T, v client.Version, rq oncrpc.Requester, pool *bufpool.Pool) (*client.Client, nfs3.Handle) {
	t.Helper()
	cred, err := client.ProcessCred()
	mustNot(t, err)
	c := client.New(client.Config{Version: v, Requester: rq, Pool: pool, Cred: cred, Window: 4})
	root, err := c.Mount(ctx, "/")
	mustNot(t, err)
	return c, root
}

// Both versions do the same with the same server.
func TestVersions(t *testing.T) {
	v := newVolume(t, &server.NFS4Config{})
	v.eachConn(func(t *testing.T, rq client.Conn, pool *bufpool.Pool) {
		best, err := client.Best(ctx, client.Config{Requester: rq, Pool: pool})
		if err != nil || best != client.V42 {
			t.Errorf("the best version is %v, %v", best, err)
		}
		for _, version := range []client.Version{client.V3, client.V42} {
			t.Run(version.String(), func(t *testing.T) {
				c, root := newClientOf(t, version, rq, pool)
				useFiles(t, c, root)
				useData(t, c, root)
				mustNot(t, c.Unmount(ctx, "/"))
				mustNot(t, c.Close(ctx))
			})
		}
	})
	if n := v.s.Load().NFS4Stats(); n.Clients != 0 || n.Opens != 0 || n.Sessions != 0 {
		t.Errorf("the server still has %+v", n.Stats)
	}
}

func TestBestOfVersion3(t *testing.T) {
	v := newVolume(t, nil)
	v.eachConn(func(t *testing.T, rq client.Conn, pool *bufpool.Pool) {
		if best, err := client.Best(ctx, client.Config{Requester: rq, Pool: pool}); err != nil || best != client.V3 {
			t.Errorf("the best version is %v, %v", best, err)
		}
	})
}

// useFiles calls every operation on names and attributes. It leaves nothing.
func useFiles(t *testing.T, c *client.Client, root nfs3.Handle) {
	mustNot(t, c.Null(ctx))
	d, err := c.Mkdir(ctx, root, "d", nfs3.SetAttrs{SetMode: true, Mode: 0o750})
	mustNot(t, err)
	if !d.Attr.Present || d.Attr.Attr.Type != nfs3.Dir || d.Attr.Attr.Mode != 0o750 {
		t.Errorf("made %+v", d)
	}
	f, err := c.Create(ctx, d.Handle, "f", nfs3.Guarded, nfs3.SetAttrs{SetMode: true, Mode: 0o640}, nfs3.Verifier{})
	mustNot(t, err)
	_, err = c.Create(ctx, d.Handle, "f", nfs3.Guarded, nfs3.SetAttrs{}, nfs3.Verifier{})
	mustBe(t, err, fs.ErrExist)
	_, err = c.Create(ctx, d.Handle, "f", nfs3.Unchecked, nfs3.SetAttrs{SetSize: true}, nfs3.Verifier{})
	mustNot(t, err)
	for range 2 {
		_, err = c.Create(ctx, d.Handle, "x", nfs3.Exclusive, nfs3.SetAttrs{}, nfs3.Verifier{1, 2, 3})
		mustNot(t, err)
	}
	_, err = c.Create(ctx, d.Handle, "x", nfs3.Exclusive, nfs3.SetAttrs{}, nfs3.Verifier{9})
	mustBe(t, err, fs.ErrExist)

	mtime := nfs3.Time{Sec: 1_000_000_007, Nsec: 5000}
	mustNot(t, c.SetAttr(ctx, f.Handle, nfs3.SetAttrs{
		SetSize: true, Size: 9, SetUID: true, UID: 77, SetGID: true, GID: 78, MtimeHow: nfs3.SetToClientTime, Mtime: mtime,
		AtimeHow: nfs3.SetToServerTime,
	}, nil))
	a, err := c.GetAttr(ctx, f.Handle)
	mustNot(t, err)
	if a.UID != 77 || a.GID != 78 || a.Size != 9 || a.Type != nfs3.Reg || a.Mtime != mtime || a.Nlink != 1 || a.FileID == 0 {
		t.Errorf("attributes %+v", a)
	}
	mustBe(t, c.SetAttr(ctx, f.Handle, nfs3.SetAttrs{SetSize: true}, &nfs3.Time{Sec: 12345}), nfs3.ErrNotSync)
	mustNot(t, c.SetAttr(ctx, f.Handle, nfs3.SetAttrs{SetSize: true}, &a.Ctime))
	bits, err := c.Access(ctx, f.Handle, nfs3.AccessRead|nfs3.AccessModify)
	if err != nil || bits != nfs3.AccessRead|nfs3.AccessModify {
		t.Errorf("access %#x, %v", bits, err)
	}
	_, err = c.Mknod(ctx, d.Handle, "fifo", nfs3.FIFO, nfs3.SetAttrs{}, nfs3.SpecData{})
	mustNot(t, err)
	target := strings.Repeat("t/", 700)
	l, err := c.Symlink(ctx, d.Handle, "l", target, nfs3.SetAttrs{})
	mustNot(t, err)
	if got, err := c.Readlink(ctx, l.Handle); err != nil || got != target {
		t.Errorf("link to %q, %v", got, err)
	}
	_, err = c.Readlink(ctx, f.Handle)
	if err == nil {
		t.Error("a file was read as a link")
	}
	mustNot(t, c.Link(ctx, f.Handle, d.Handle, "f2"))
	mustNot(t, c.Rename(ctx, d.Handle, "f", d.Handle, "f3"))
	_, err = c.Lookup(ctx, d.Handle, "f")
	mustBe(t, err, fs.ErrNotExist)
	_, err = c.Lookup(ctx, d.Handle, strings.Repeat("n", 5000)) // not even sent
	mustBe(t, err, unix.ENAMETOOLONG)
	useList(t, c, d.Handle, f.Handle)
	mustBe(t, c.Remove(ctx, root, "d"), unix.EISDIR)
	mustBe(t, c.Rmdir(ctx, d.Handle, "f2"), unix.ENOTDIR)
	mustBe(t, c.Rmdir(ctx, root, "d"), unix.ENOTEMPTY)
	for _, name := range []string{"f2", "f3", "l", "fifo", "x"} {
		mustNot(t, c.Remove(ctx, d.Handle, name))
	}
	mustNot(t, c.Rmdir(ctx, root, "d"))
	_, err = c.GetAttr(ctx, f.Handle)
	mustBe(t, err, unix.ESTALE)

	st, err := c.FSStat(ctx, root)
	if err != nil || st.TotalBytes == 0 || st.TotalBytes < st.AvailBytes {
		t.Errorf("%+v, %v", st, err)
	}
	info, err := c.FSInfo(ctx, root)
	if err != nil || info.RTMax != nfs3.MaxData || info.WTMax != nfs3.MaxData || info.Properties&nfs3.FSFSymlink == 0 {
		t.Errorf("%+v, %v", info, err)
	}
	pc, err := c.PathConf(ctx, root)
	if err != nil || pc.NameMax != 255 || !pc.CasePreserving || pc.LinkMax == 0 {
		t.Errorf("%+v, %v", pc, err)
	}
}

func useList(t *testing.T, c *client.Client, dir, f3 nfs3.Handle) {
	var names []string
	for e, err := range c.ReadDirPlus(ctx, dir) {
		mustNot(t, err)
		if e.Name == "." || e.Name == ".." {
			continue
		}
		names = append(names, e.Name)
		if e.Name == "f3" && (!bytes.Equal(e.Handle, f3) || !e.Attr.Present || e.Attr.Attr.FileID != e.FileID) {
			t.Errorf("entry %+v", e)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"f2", "f3", "fifo", "l", "x"}) {
		t.Errorf("list %q", names)
	}
	o, err := c.Walk(ctx, dir, "/f3", true)
	if err != nil || !bytes.Equal(o.Handle, f3) {
		t.Errorf("walk to %+v, %v", o, err)
	}
}

func useData(t *testing.T, c *client.Client, root nfs3.Handle) {
	f, err := c.Create(ctx, root, "data", nfs3.Guarded, nfs3.SetAttrs{SetMode: true, Mode: 0o600}, nfs3.Verifier{})
	mustNot(t, err)
	for _, n := range []int{1, 4093, 65537, 3_000_001} {
		for _, stable := range []nfs3.Stability{nfs3.Unstable, nfs3.FileSync} {
			data := randomBytes(n)
			mustNot(t, c.SetAttr(ctx, f.Handle, nfs3.SetAttrs{SetSize: true}, nil))
			mustNot(t, c.WriteAt(ctx, f.Handle, data, 0, stable))
			got := make([]byte, n)
			if m, err := c.ReadAt(ctx, f.Handle, got, 0); err != nil || m != n || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes: read %d, %v", n, m, err)
			}
		}
	}
	mustNot(t, c.Remove(ctx, root, "data"))
}

// The server forgets everything while a file is open. The client reclaims it, instead of waiting
// for the end of the grace period.
func TestServerRestarts(t *testing.T) {
	v := newVolume(t, &server.NFS4Config{})
	v.eachConn(func(t *testing.T, rq client.Conn, pool *bufpool.Pool) {
		c, root := newClientOf(t, client.V42, rq, pool)
		o, err := c.Create(ctx, root, "f", nfs3.Unchecked, nfs3.SetAttrs{SetMode: true, Mode: 0o600}, nfs3.Verifier{})
		mustNot(t, err)
		f, err := c.Open(ctx, o.Handle, client.ShareRead|client.ShareWrite)
		mustNot(t, err)
		b, err := pool.Get(100)
		mustNot(t, err)
		op, err := f.NewWrite(b, nfs3.FileSync)
		mustNot(t, err)
		for range 3 {
			v.restart()
			began := time.Now()
			op.Start()
			_, err := op.Await(ctx)
			mustNot(t, err)
			if d := time.Since(began); d > time.Minute {
				t.Errorf("the recovery took %v, as long as the grace period", d)
			}
			if n := v.calls(nfs4.OpReclaimComplete); n != 1 {
				t.Errorf("%d times RECLAIM_COMPLETE", n)
			}
			if n := v.calls(nfs4.OpOpen); n != 1 {
				t.Errorf("%d times OPEN", n)
			}
		}
		op.Free()
		b.Release()
		mustNot(t, f.Close(ctx))
		mustNot(t, c.Close(ctx))
	})
}

// TestCopyRange: files are copied within the server, again after it lost uncommitted data or the
// open files, and the rest after a short COPY.
func TestCopyRange(t *testing.T) {
	v := newVolume(t, &server.NFS4Config{})
	v.eachConn(func(t *testing.T, rq client.Conn, pool *bufpool.Pool) {
		c, root := newClientOf(t, client.V42, rq, pool)
		newFile := func(name string) nfs3.Handle {
			o, err := c.Create(ctx, root, name, nfs3.Unchecked, nfs3.SetAttrs{SetMode: true, Mode: 0o600, SetSize: true}, nfs3.Verifier{})
			mustNot(t, err)
			return o.Handle
		}
		const offset = 5000
		data := randomBytes(40 << 20) // three COPYs
		from := newFile("from")
		mustNot(t, c.WriteAt(ctx, from, data, 0, nfs3.Unstable))
		for name, disturb := range map[string]func(){"nothing": func() {}, "restart": v.restart, "expel": v.expel} {
			to, copied, calls := newFile("to"), int64(0), 0
			mustNot(t, c.CopyRange(ctx, from, to, offset, uint64(len(data)-offset), func(n int64) {
				if copied += n; calls == 0 {
					disturb()
				}
				calls++
			}))
			if copied != int64(len(data)-offset) {
				t.Errorf("%s: progress ended at %d of %d bytes", name, copied, len(data)-offset)
			}
			got := make([]byte, len(data)-offset)
			_, err := c.ReadAt(ctx, to, got, offset)
			mustNot(t, err)
			if !bytes.Equal(got, data[offset:]) {
				t.Errorf("%s: other data", name)
			}
		}
		if v.calls(nfs4.OpCopy) == 0 {
			t.Error("no COPY was made")
		}
		if err := c.CopyRange(ctx, from, newFile("to"), uint64(len(data)), 1, nil); !errors.Is(err, nfs4.ErrInval) {
			t.Errorf("a copy behind the end: %v", err)
		}
		mustNot(t, c.Close(ctx))
		three, _ := newClientOf(t, client.V3, rq, pool)
		if err := three.CopyRange(ctx, from, root, 0, 1, nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("version 3: %v", err)
		}
	})
}

// An expelled client loses its open files. It opens them anew.
func TestStateIsLost(t *testing.T) {
	v := newVolume(t, &server.NFS4Config{})
	v.eachConn(func(t *testing.T, rq client.Conn, pool *bufpool.Pool) {
		c, root := newClientOf(t, client.V42, rq, pool)
		o, err := c.Create(ctx, root, "f", nfs3.Unchecked, nfs3.SetAttrs{SetMode: true, Mode: 0o600}, nfs3.Verifier{})
		mustNot(t, err)
		data := randomBytes(3 << 20)
		expelled := 0
		mustNot(t, c.Upload(ctx, o.Handle, bytes.NewReader(data), 0, uint64(len(data)), client.UploadOptions{Progress: func(int64) {
			if expelled++; expelled <= 2 {
				v.expel()
			}
		}}))
		if expelled < 3 {
			t.Fatalf("%d WRITEs", expelled)
		}
		got := make([]byte, len(data))
		_, err = c.ReadAt(ctx, o.Handle, got, 0)
		mustNot(t, err)
		if !bytes.Equal(got, data) {
			t.Error("other data")
		}
		mustNot(t, c.Close(ctx))
	})
}

func (v *volume) expel() {
	clients, _ := v.s.Load().NFS4Clients(10)
	for _, c := range clients {
		v.s.Load().ExpelNFS4Client(c.ID)
	}
}

// A call that is given up keeps its slot until the server is done with it.
func TestCallIsGivenUp(t *testing.T) {
	v := newVolume(t, &server.NFS4Config{})
	v.eachConn(func(t *testing.T, rq client.Conn, pool *bufpool.Pool) {
		c, root := newClientOf(t, client.V42, rq, pool)
		for range 3 {
			held := make(chan struct{})
			v.mu.Lock()
			v.held = held
			v.mu.Unlock()
			short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
			_, err := c.GetAttr(short, root)
			cancel()
			mustBe(t, err, context.DeadlineExceeded)
			_, err = c.GetAttr(ctx, root)
			mustNot(t, err)
			close(held)
			_, err = c.GetAttr(ctx, root)
			mustNot(t, err)
		}
		mustNot(t, c.Close(ctx))
	})
}

// More calls than slots wait for each other.
func TestManyCalls(t *testing.T) {
	v := newVolume(t, &server.NFS4Config{})
	v.eachConn(func(t *testing.T, rq client.Conn, pool *bufpool.Pool) {
		c, root := newClientOf(t, client.V42, rq, pool)
		var wg sync.WaitGroup
		for range 300 {
			o, err := c.NewGetAttr(root)
			mustNot(t, err)
			o.Start()
			wg.Go(func() {
				o.Wait(ctx)
				if res, err := o.Result(); err != nil || res.Attr.Type != nfs3.Dir {
					t.Errorf("%+v, %v", res, err)
				}
				o.Free()
			})
		}
		wg.Wait()
		mustNot(t, c.Close(ctx))
		_, err := c.GetAttr(ctx, root)
		if err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a call after Close: %v", err)
		}
	})
}

// A client with an open file keeps its lease, one without renews nothing.
func TestLeaseIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := newVolume(t, &server.NFS4Config{Lease: 10 * time.Second, Delegations: -1})
		pool := bufpool.New(0)
		l := newLoop(t, v, pool, false)
		c, root := newClientOf(t, client.V42, l, pool)
		o, err := c.Create(ctx, root, "f", nfs3.Unchecked, nfs3.SetAttrs{SetMode: true, Mode: 0o600}, nfs3.Verifier{})
		mustNot(t, err)
		f, err := c.Open(ctx, o.Handle, client.ShareRead)
		mustNot(t, err)
		before := v.calls(nfs4.OpSequence)
		time.Sleep(time.Hour)
		if n := v.calls(nfs4.OpSequence) - before; n < 500 || n > 1200 {
			t.Errorf("%d renewals in an hour", n)
		}
		mustNot(t, f.Close(ctx))
		before = v.calls(nfs4.OpSequence)
		time.Sleep(time.Hour)
		if n := v.calls(nfs4.OpSequence) - before; n > 1 {
			t.Errorf("%d renewals without an open file", n)
		}
		_, err = c.GetAttr(ctx, root) // in another session
		mustNot(t, err)
		if n := v.calls(nfs4.OpExchangeID); n != 2 {
			t.Errorf("%d client IDs", n)
		}
		mustNot(t, c.Close(ctx))
		l.serving.Wait()
	})
}
