package upstream

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"

	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/rdmatest"
)

// TestGather checks that a link corks its connection, and a connection's batches cork the client,
// across changes.
func TestGather(t *testing.T) {
	withEnv(t, Config{AnyPort: true}, func(b *env) {
		var out gatherer
		conn := client(1)
		conn.Out = &out
		lk := b.Open(conn, nil)
		lk.Cork() // no connection yet
		b.call(lk, 1, 1, nil)
		c := b.dialer.conn(t, 0)
		lk.Uncork()
		lk.Cork()
		if c.holds.held != 1 {
			t.Errorf("%d holds", c.holds.held)
		}
		c.peer.Cork()
		if out.held != 1 {
			t.Errorf("%d holds of the client", out.held)
		}
		c.reply(1)
		lk.Close()
		c.peer.Uncork()
		c.peer.Cork() // detached
		c.peer.Uncork()
		c.end(errBroken)
		lk.Uncork()
		if c.holds.held != 0 || out.held != 0 || out.most != 1 {
			t.Errorf("holds %+v, of the client %+v", c.holds, out)
		}
		b.want(ok(1, 1))
	})
}

// TestClosed checks that calls end with ErrClosed during and after Close.
func TestClosed(t *testing.T) {
	s := startEcho(t, nil)
	b, pool := newTCPBackend(t, s.addr, Config{})
	s.mu.Lock()
	s.hold = true
	s.mu.Unlock()
	lk := b.Open(client(1), nil)
	done := make(chan error, 2)
	submit := func(xid uint32) {
		r := newRequest(t, pool, xid, 1, 0)
		r.Finished = func(r *Request) {
			err := r.Err
			r.Reset()
			done <- err
		}
		lk.Submit(r)
	}
	submit(1)
	b.Close()
	submit(2)
	for range 2 {
		if err := <-done; !errors.Is(err, ErrClosed) {
			t.Errorf("error %v, want %v", err, ErrClosed)
		}
	}
}

// TestCallback checks that the backend's calls reach the link's handler.
func TestCallback(t *testing.T) {
	for _, p := range []rdma.Provider{nil, rdmatest.NewFabric(rdmatest.Options{})} {
		s := startEcho(t, p)
		b, pool := newBackend(t, p, s.addr, Config{})
		var calls atomic.Int32
		lk := b.Open(client(1), handler(func(c *oncrpc.Call) {
			if c.Program == cbProgram {
				calls.Add(1)
			}
			c.ReplyAccept(oncrpc.Success)
		}))
		do(t, lk, pool, 1, 0)
		for xid := uint32(2); xid < 10; xid++ {
			do(t, lk, pool, xid, procBack)
		}
		if n := calls.Load(); n != 8 {
			t.Errorf("%d callbacks, want 8", n)
		}
		nobody := b.Open(client(2), nil)
		do(t, nobody, pool, 1, 0)
		r := newRequest(t, pool, 1, procBack, 0)
		done := make(chan struct{})
		r.Finished = func(*Request) { close(done) }
		nobody.Submit(r)
		<-done
		var refused *oncrpc.StatusError
		if _, err := r.Results(); !errors.As(err, &refused) || refused.Status.Accept != oncrpc.SystemErr {
			t.Errorf("a callback to nobody: %v", err)
		}
		r.Reset()
	}
}

// TestOneWrite checks that calls submitted while the link is corked leave in one write.
func TestOneWrite(t *testing.T) {
	b, pool := newTCPBackend(t, startServer(t, quick{}), Config{})
	lk := b.Open(client(1), nil)
	var running sync.WaitGroup
	submit := func(xid uint32) {
		r := newRequest(t, pool, xid, 1, 0)
		running.Add(1)
		r.Finished = func(r *Request) {
			if r.Err != nil {
				t.Error(r.Err)
			}
			r.Reset()
			running.Done()
		}
		lk.Submit(r)
	}
	submit(1)
	running.Wait()
	conn := lk.bc.Load().live.Load().Conn.(tcpConn)
	before := conn.Stats().WriteCalls
	lk.Cork()
	for xid := uint32(2); xid < 20; xid++ {
		submit(xid)
	}
	lk.Uncork()
	running.Wait()
	if n := conn.Stats().WriteCalls - before; n != 1 {
		t.Errorf("%d writes, want 1", n)
	}
}
