package client_test

import (
	"bytes"
	"net"
	"sync"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/nfs/binding"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma/iwarp"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// eachTransport runs f with a client of fs, connected by the real transports on loopback.
func eachTransport(t *testing.T, f func(t *testing.T, c *client.Client, pool *bufpool.Pool)) {
	t.Run("tcp", func(t *testing.T) {
		pool := bufpool.New(0)
		s, err := oncrpc.NewServer(oncrpc.Config{Pool: pool, Handler: newMemFS(), Bindings: binding.For})
		mustNot(t, err)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		mustNot(t, err)
		var serving sync.WaitGroup
		serving.Go(func() { _ = s.Serve(l) })
		own := bufpool.New(0)
		rq, err := oncrpc.Dial(ctx, l.Addr().String(), oncrpc.Config{Pool: own, Bindings: binding.For})
		mustNot(t, err)
		f(t, client.New(client.Config{Requester: rq, Pool: own, Window: 4}), own)
		mustNot(t, rq.Close())
		rq.Wait()
		_ = s.Close()
		serving.Wait()
		noneLeft(t, own)
	})
	t.Run("rdma", func(t *testing.T) {
		p, err := iwarp.New(iwarp.Config{})
		mustNot(t, err)
		d, err := p.NewDomain()
		mustNot(t, err)
		pool := bufpool.New(0)
		mustNot(t, d.Register(pool))
		l, err := p.Listen(ctx, "127.0.0.1:0")
		mustNot(t, err)
		s, err := rpcrdma.NewServer(rpcrdma.Config{Pool: pool, Domain: d, Handler: newMemFS(), Bindings: binding.For, RemoteInvalidation: true}, l)
		mustNot(t, err)
		var serving sync.WaitGroup
		serving.Go(func() { _ = s.Serve() })
		own := bufpool.New(0)
		rq, err := rpcrdma.Dial(ctx, p, l.Addr().String(), rpcrdma.Config{Pool: own, Bindings: binding.For, RemoteInvalidation: true})
		mustNot(t, err)
		f(t, client.New(client.Config{Requester: rq, Pool: own, Window: 4}), own)
		mustNot(t, rq.Close())
		<-rq.Done()
		_ = s.Close()
		serving.Wait()
		_ = d.Close()
		noneLeft(t, own)
	})
}

func noneLeft(t *testing.T, pool *bufpool.Pool) {
	t.Helper()
	if s := pool.Stats(); s.Bufs != 0 {
		t.Errorf("%d buffers were not released", s.Bufs)
	}
}

func TestTransports(t *testing.T) {
	eachTransport(t, func(t *testing.T, c *client.Client, _ *bufpool.Pool) {
		root, err := c.Mount(ctx, "/export")
		mustNot(t, err)
		f, err := c.Create(ctx, root, "f", nfs3.Guarded, nfs3.SetAttrs{}, nfs3.Verifier{})
		mustNot(t, err)
		for _, n := range []int{1, 4093, 4096, 65537, 300_001} {
			data := randomBytes(n)
			mustNot(t, c.SetAttr(ctx, f.Handle, nfs3.SetAttrs{SetSize: true}, nil))
			mustNot(t, c.WriteAt(ctx, f.Handle, data, 0, nfs3.Unstable))
			got := make([]byte, n)
			if m, err := c.ReadAt(ctx, f.Handle, got, 0); err != nil || m != n || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes: read %d, %v", n, m, err)
			}
		}
		target := string(bytes.Repeat([]byte("abc/"), 1000))
		l, err := c.Symlink(ctx, root, "l", target, nfs3.SetAttrs{})
		mustNot(t, err)
		if got, err := c.Readlink(ctx, l.Handle); err != nil || got != target {
			t.Errorf("link of %d bytes, %v", len(got), err)
		}
		n := 0
		for _, err := range c.ReadDirPlus(ctx, root) {
			mustNot(t, err)
			n++
		}
		if n != 2 {
			t.Errorf("%d entries", n)
		}
	})
}

// READ data arrive in the caller's buffer, each time.
func TestOp(t *testing.T) {
	eachTransport(t, func(t *testing.T, c *client.Client, pool *bufpool.Pool) {
		root, err := c.Mount(ctx, "/export")
		mustNot(t, err)
		f, err := c.Create(ctx, root, "f", nfs3.Guarded, nfs3.SetAttrs{}, nfs3.Verifier{})
		mustNot(t, err)
		data := randomBytes(64 << 10)
		mustNot(t, c.WriteAt(ctx, f.Handle, data, 0, nfs3.Unstable))
		b, err := pool.Get(16 << 10)
		mustNot(t, err)
		file, err := c.Open(ctx, f.Handle, client.ShareRead)
		mustNot(t, err)
		read, err := file.NewRead(b)
		mustNot(t, err)
		for i := range 6 {
			at := i * 10_000
			read.SetRange(uint64(at), 10_000)
			read.Start()
			read.Wait(ctx)
			res, err := read.Result()
			mustNot(t, err)
			if !bytes.Equal(bytes.Join(res.Data, nil), data[at:at+10_000]) {
				t.Fatalf("other bytes at %d", at)
			}
			if &res.Data[0][0] != &b.B[0] {
				t.Fatalf("the data are not where they were wanted")
			}
		}
		read.Free()
		mustNot(t, file.Close(ctx))
		b.Release()
	})
}
