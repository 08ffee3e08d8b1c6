//go:build verbs

package verbs

import (
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

// TestKeepAlive: an idle connection is probed and lives, invisibly to its handlers; when its peer
// dies without disconnecting, it ends.
func TestKeepAlive(t *testing.T) {
	if *kind != "rxe" {
		t.Skip("no -kind rxe: the test runs in the guest, by make test-verbs")
	}
	p, err := New(Config{KeepAlive: time.Second, AckTimeout: 100 * time.Millisecond, RetryCount: 3})
	if err != nil {
		t.Fatal(err)
	}
	silent, err := New(Config{}) // it must have nothing to post when it is killed
	if err != nil {
		t.Fatal(err)
	}
	c := connectPair(t, p, silent, bufpool.New(0), few, false)
	dialer, acceptor := c.ends[0].ep.(*endpoint), c.ends[1].ep.(*endpoint)
	time.Sleep(5 * time.Second)
	dialer.mu.Lock()
	probes := dialer.sqTail - uint64(c.ends[0].got.Load()+1)
	dialer.mu.Unlock()
	if probes < 2 {
		t.Errorf("%d probes in 5 s, want 2 at least", probes)
	}
	select {
	case err := <-c.served[0]:
		t.Fatalf("the idle connection ended: %v", err)
	case err := <-c.served[1]:
		t.Fatalf("the idle connection ended: %v", err)
	default:
	}
	acceptor.mu.Lock()
	managed(func() int { acceptor.kill(); return 0 })
	acceptor.mu.Unlock()
	select {
	case err := <-c.served[0]:
		if err == nil || !strings.Contains(err.Error(), "keepalive probe") || !strings.Contains(err.Error(), "retry") {
			t.Errorf("Serve returned %v, want that retries of a keepalive probe are used up", err)
		}
	case <-time.After(2 * time.Minute):
		_ = dialer.Close()
		t.Errorf("the connection goes on though its peer is dead; closed, Serve returned %v", <-c.served[0])
	}
	_ = acceptor.Close()
	t.Logf("Serve of the acceptor returned %v", <-c.served[1])
	_ = c.l.Close()
	c.free(t)
}

// TestCompletionOverrun: a client that overruns the completion queue of a connection with an SRQ
// ends that connection, and later connections have another SRQ.
func TestCompletionOverrun(t *testing.T) {
	if *kind != "rxe" {
		t.Skip("no -kind rxe: the test runs in the guest, by make test-verbs")
	}
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	pool := bufpool.New(0)
	d, err := p.NewDomain()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Register(pool); err != nil {
		t.Fatal(err)
	}
	buf, err := pool.Get(64)
	if err != nil {
		t.Fatal(err)
	}
	defer buf.Release()
	l, err := p.Listen(t.Context(), *address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const depth = 256
	accepted := make(chan rdma.Endpoint, 1)
	var queue rdma.SRQ
	var before, after any
	go func() {
		defer close(accepted)
		in, err := l.Accept()
		if err != nil {
			t.Error(err)
			return
		}
		before = in.SRQKey()
		if queue, err = in.NewSRQ(d, depth); err != nil {
			t.Error(err)
			return
		}
		rs := make([]rdma.Receive, depth)
		for i := range rs {
			rs[i].Segments = [][]byte{buf.B}
		}
		if err := queue.PostReceives(rs); err != nil {
			t.Error(err)
		}
		ep, err := in.Accept(rdma.Options{Domain: d, NoRemoteAccess: true, SRQ: queue, SendQueue: 1, ReceiveQueue: 1})
		if err != nil {
			t.Error(err)
			return
		}
		accepted <- ep
	}()
	dialer, err := p.Dial(t.Context(), l.Addr().String(), rdma.Options{Domain: d, NoRemoteAccess: true})
	if err != nil {
		t.Fatal(err)
	}
	acceptor := <-accepted
	if acceptor == nil {
		t.FailNow()
	}
	served := make(chan error, 2)
	go func() { served <- dialer.Serve(&echo{ep: dialer, posts: dialer}) }()
	for range depth { // no one takes them
		if err := dialer.Post([]rdma.WorkRequest{{Op: rdma.Send, Signaled: true, Local: [][]byte{buf.B}}}); err != nil {
			break // the connection has ended already
		}
	}
	time.Sleep(2 * time.Second)
	go func() { served <- acceptor.Serve(&echo{ep: acceptor, posts: queue, most: 1}) }()
	for range 2 {
		select {
		case err := <-served:
			t.Log(err)
		case <-time.After(30 * time.Second):
			t.Fatal("a connection goes on whose completion queue overran")
		}
	}
	go func() {
		if in, err := l.Accept(); err == nil {
			after = in.SRQKey()
			_ = in.Reject(nil)
		}
	}()
	if _, err := p.Dial(t.Context(), l.Addr().String(), rdma.Options{Domain: d, NoRemoteAccess: true}); err == nil {
		t.Error("a rejected connection was established")
	}
	if before == nil || before == after {
		t.Errorf("connections share %v before and %v after receives were lost", before, after)
	}
	if n := Events(); len(n) == 0 {
		t.Error("no event was counted")
	}
	if err := queue.Close(); err != nil {
		t.Error(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}
