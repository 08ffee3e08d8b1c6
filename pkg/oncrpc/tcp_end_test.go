package oncrpc

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
)

func TestTCPShutdown(t *testing.T) {
	s := startServer(t, Config{})
	busy, pool := dial(t, s.addr, Config{})
	lazy := dialRaw(t, s.addr) // never hangs up: the linger time ends it
	if _, err := lazy.Write(marked(callBytes(1, procNull))); err != nil {
		t.Fatal(err)
	}
	readRecord(t, lazy)
	r, _ := newCall(t, pool, procHold, 100)
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	answered := make(chan error, 2)
	done := func(r *Request) { answered <- r.Err }
	r.Done = done
	Submit(busy, r)
	c := <-s.service.held

	over := make(chan error, 1)
	go func() { over <- s.Shutdown(context.Background()) }()
	waitFor(t, func() bool { return errors.Is(<-s.served, net.ErrClosed) })
	s.served <- net.ErrClosed
	if conn, err := net.Dial("tcp", s.addr); err == nil {
		_ = conn.Close()
		t.Error("a server that shuts down accepts")
	}
	waitFor(t, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		n := 0
		for l := range s.links {
			l.mu.Lock()
			if l.draining {
				n++
			}
			l.mu.Unlock()
		}
		return n == len(s.links)
	})
	late, _ := newCall(t, pool, procHold, 100) // not executed any more
	if err := late.Seal(); err != nil {
		t.Fatal(err)
	}
	late.Done = done
	Submit(busy, late)
	waitFor(t, func() bool { return s.Stats().RecordsIn >= 3 })
	select {
	case err := <-over:
		t.Fatalf("Shutdown returned %v with a call in flight", err)
	case err := <-answered:
		t.Fatalf("a call came back with %v", err)
	default:
	}
	c.ReplyAccept(Success)
	if err := <-answered; err != nil {
		t.Errorf("the call in flight failed: %v", err)
	}
	if _, err := r.Results(); err != nil {
		t.Error(err)
	}
	if err := <-answered; !errors.Is(err, io.EOF) {
		t.Errorf("the late call: %v, want EOF", err)
	}
	if err := <-over; err != nil {
		t.Error(err)
	}
	if len(s.service.held) != 0 {
		t.Error("the late call was executed")
	}
	r.Free()
	late.Free()
}

func TestTCPShutdownTimeout(t *testing.T) {
	s := startServer(t, Config{})
	conn := dialRaw(t, s.addr)
	if _, err := conn.Write(marked(callBytes(1, procHold))); err != nil {
		t.Fatal(err)
	}
	c := <-s.service.held
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if err := s.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Shutdown returned %v", err)
	}
	select {
	case <-c.Conn.Done:
	default:
		t.Error("the connection is not done")
	}
	c.ReplyAccept(Success) // dropped, and leaks nothing
}

// TestTCPConnectionLost: every request fails with the cause, earlier and later ones.
func TestTCPConnectionLost(t *testing.T) {
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{})
	var failed atomic.Int32
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			r, _ := newCall(t, pool, procDrop, 100)
			defer r.Free()
			if err := Do(context.Background(), c, r); errors.Is(err, io.EOF) {
				failed.Add(1)
			} else {
				t.Errorf("failed with %v, want EOF", err)
			}
		})
	}
	waitFor(t, func() bool { return s.Stats().RecordsIn == 10 })
	_ = s.Close()
	wg.Wait()
	<-c.Done()
	if c.Err() == nil || failed.Load() != 10 {
		t.Errorf("%v, %d failed", c.Err(), failed.Load())
	}
	r, _ := newCall(t, pool, procNull, 100)
	defer r.Free()
	if err := Do(context.Background(), c, r); !errors.Is(err, io.EOF) {
		t.Errorf("a later request: %v", err)
	}
}

// TestTCPCancel: a cancelled request fails at once. Its XID is not used again before its late
// reply, which harms no other request.
func TestTCPCancel(t *testing.T) {
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{})
	for i, size := range []int{10, 90_000} { // a large one is skipped without memory
		ctx, cancel := context.WithCancelCause(context.Background())
		why := errors.New("changed my mind")
		r, _ := newCall(t, pool, procHold, 100)
		go func() {
			waitFor(t, func() bool { return len(s.service.held) == 1 })
			cancel(why)
		}()
		if err := Do(ctx, c, r); !errors.Is(err, why) {
			t.Errorf("failed with %v", err)
		}
		c.Cancel(r, io.EOF) // done already: no effect
		xid := r.XID
		r.Free()
		if err := doXID(t, c, pool, xid); !errors.Is(err, ErrXIDInUse) {
			t.Errorf("another request with its XID: %v, want %v", err, ErrXIDInUse)
		}
		c.link.xid = xid - 1
		if next := c.NextXID(); next != xid+1 {
			t.Errorf("XID %#x after %#x, want %#x", next, xid-1, xid+1)
		}
		call := <-s.service.held
		e, err := call.BeginReply(size + 100)
		if err != nil {
			t.Fatal(err)
		}
		e.Opaque(make([]byte, size))
		call.Respond()
		echo(t, c, pool, fill(100, 1))
		if n := c.Stats().Orphans; n != uint64(i+1) {
			t.Errorf("%d orphans, want %d", n, i+1)
		}
		if err := doXID(t, c, pool, xid); err != nil {
			t.Errorf("another request with its XID, after the late reply: %v", err)
		}
	}
}

// doXID calls procNull with the XID, and returns the request's error.
func doXID(t *testing.T, c *Client, pool *bufpool.Pool, xid uint32) error {
	t.Helper()
	r, _ := newCall(t, pool, procNull, 100)
	defer r.Free()
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	r.SetXID(xid)
	done := make(chan struct{})
	r.Done = func(*Request) { close(done) }
	c.Submit(r)
	<-done
	return r.Err
}

// TestTCPWithdraw: the XID of a request that was cancelled before it was sent is free.
func TestTCPWithdraw(t *testing.T) {
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{})
	c.Conn().Out.Cork()
	r, _ := newCall(t, pool, procNull, 100)
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	r.Done = func(*Request) {}
	Submit(c, r)
	c.Cancel(r, io.EOF)
	c.Conn().Out.Uncork()
	if !errors.Is(r.Err, io.EOF) {
		t.Errorf("failed with %v", r.Err)
	}
	if err := doXID(t, c, pool, r.XID); err != nil {
		t.Errorf("another request with its XID: %v", err)
	}
	r.Free()
}

// TestTCPOwed: a connection ends when too many replies to cancelled requests are outstanding.
func TestTCPOwed(t *testing.T) {
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{})
	for i := range maxOwed + 1 {
		if err := c.Err(); err != nil {
			t.Fatalf("after %d: %v", i, err)
		}
		r, _ := newCall(t, pool, procDrop, 100)
		if err := r.Seal(); err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		r.Done = func(*Request) { close(done) }
		Submit(c, r)
		waitFor(t, func() bool { return c.Stats().RecordsOut == uint64(i+1) })
		c.Cancel(r, io.EOF)
		<-done
		r.Free()
	}
	if err := c.Err(); !errors.Is(err, errOwed) {
		t.Errorf("ended with %v, want %v", err, errOwed)
	}
}

// TestTCPDrop: when a handler drops a call, the connection ends, and with it the wait for the
// reply.
func TestTCPDrop(t *testing.T) {
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{})
	r, _ := newCall(t, pool, procGiveUp, 100)
	defer r.Free()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := Do(ctx, c, r); !errors.Is(err, io.EOF) {
		t.Errorf("a call that is dropped: %v, want EOF", err)
	}
	<-c.Done()
}

func TestTCPSameXID(t *testing.T) {
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{})
	r, _ := newCall(t, pool, procDrop, 100)
	failed := make(chan error, 1)
	r.Done = func(r *Request) { failed <- r.Err }
	if err := r.Seal(); err != nil {
		t.Fatal(err)
	}
	Submit(c, r)
	twin, _ := newCall(t, pool, procNull, 100)
	if err := twin.Seal(); err != nil {
		t.Fatal(err)
	}
	twin.SetXID(r.XID)
	refused := make(chan error, 1)
	twin.Done = func(r *Request) { refused <- r.Err }
	c.Submit(twin)
	if err := <-refused; !errors.Is(err, ErrXIDInUse) {
		t.Errorf("two requests with one XID: %v, want %v", err, ErrXIDInUse)
	}
	twin.Free()
	_ = c.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("failed with %v", err)
	}
	r.Free()
	_ = s
}

// TestTCPRefusedThread: a connection that blocks a thread is closed, and its slot free again, when
// the server refuses it.
func TestTCPRefusedThread(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(3)) // two may block a thread
	s := startServer(t, Config{MaxConns: 1, Thread: true})
	c, pool := dial(t, s.addr, Config{})
	echo(t, c, pool, fill(10, 1))
	for range 3 {
		refused := dialRaw(t, s.addr)
		_ = refused.SetReadDeadline(time.Now().Add(10 * time.Second))
		if _, err := refused.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("a connection too many: %v, must be EOF", err)
		}
	}
}
