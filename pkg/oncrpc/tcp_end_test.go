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
)

func TestTCPShutdown(t *testing.T) {
	s := startServer(t, Config{})
	busy, pool := dial(t, s.addr, Config{})
	lazy := dialRaw(t, s.addr) // hangs up for nobody: until the linger time is over
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
	c.ReplyAccept(Success) // goes nowhere, and loses nothing
}

// TestTCPConnectionLost: every request fails with the cause, those before and those after.
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

// TestTCPCancel: a cancelled request fails at once, and its late reply disturbs nobody.
func TestTCPCancel(t *testing.T) {
	s := startServer(t, Config{})
	c, pool := dial(t, s.addr, Config{})
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
	c.Cancel(r, io.EOF) // it is done: nothing happens
	r.Free()
	call := <-s.service.held
	e, err := call.BeginReply(100_000)
	if err != nil {
		t.Fatal(err)
	}
	e.Opaque(make([]byte, 90_000)) // large: skipped without memory
	call.Respond()
	echo(t, c, pool, fill(100, 1))
	if n := c.Stats().Orphans; n != 1 {
		t.Errorf("%d orphans", n)
	}
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
	if err := <-refused; err == nil {
		t.Error("two requests with one XID")
	}
	twin.Free()
	_ = c.Close()
	if err := <-failed; !errors.Is(err, net.ErrClosed) {
		t.Errorf("failed with %v", err)
	}
	r.Free()
	_ = s
}

// TestTCPRefusedThread: a connection that blocks a thread is closed, and its place free again, when the server refuses it.
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
