//go:build verbs

package verbs

import (
	"context"
	"errors"
	"flag"
	"os/exec"
	"strings"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

var (
	remove = flag.String("remove", "", "the `command` that removes the device of -address")
	add    = flag.String("add", "", "the `command` that adds it again")
)

// echo sends back what it gets, over one buffer.
type echo struct {
	ep  rdma.Endpoint
	buf [][]byte
	got int
}

func (e *echo) Completed(batch []rdma.Completion) {
	for _, c := range batch {
		if c.Op == rdma.Recv {
			e.got++
			_ = e.ep.PostReceives([]rdma.Receive{{Segments: e.buf}}) // an end of the connection is Serve's to tell
			_ = e.ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Signaled: true, Local: e.buf}})
		}
	}
}

func (e *echo) Sent([]uint64) {}

// pair is a connection that is under way at all times.
type pair struct {
	l      rdma.Listener
	domain rdma.Domain
	ends   [2]*echo
	served [2]chan error
}

func connectPair(t *testing.T, p rdma.Provider, pool *bufpool.Pool) *pair {
	t.Helper()
	l, err := p.Listen(t.Context(), *address)
	if err != nil {
		t.Fatal(err)
	}
	c := &pair{l: l}
	if c.domain, err = p.NewDomain(); err != nil {
		t.Fatal(err)
	}
	if err := c.domain.Attach(pool); err != nil {
		t.Fatal(err)
	}
	var options [2]rdma.Options
	for i := range c.ends {
		buf, err := pool.Get(1000)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(buf.Release)
		c.ends[i] = &echo{buf: [][]byte{buf.B}}
		options[i] = rdma.Options{Domain: c.domain, Receives: []rdma.Receive{{Segments: c.ends[i].buf}}}
	}
	accepted := make(chan error, 1)
	go func() {
		in, err := l.Accept()
		if err == nil {
			c.ends[1].ep, err = in.Accept(options[1])
		}
		accepted <- err
	}()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if c.ends[0].ep, err = p.Dial(ctx, l.Addr().String(), options[0]); err != nil {
		t.Fatal(err)
	}
	if err := <-accepted; err != nil {
		t.Fatal(err)
	}
	for i, e := range c.ends {
		c.served[i] = make(chan error, 1)
		go func() { c.served[i] <- e.ep.Serve(e) }()
	}
	if err := c.ends[0].ep.Post([]rdma.WorkRequest{{Op: rdma.Send, Signaled: true, Local: c.ends[0].buf}}); err != nil {
		t.Fatal(err)
	}
	return c
}

func command(t *testing.T, words string) {
	t.Helper()
	f := strings.Fields(words)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	start := time.Now()
	if out, err := exec.CommandContext(ctx, f[0], f[1:]...).CombinedOutput(); err != nil {
		t.Errorf("%s: %v after %v\n%s", words, err, time.Since(start), out)
	}
}

// TestRemoval: when the device goes under load, everything that stands on it ends and is closed, so that it can go; when it comes again, the
// same provider uses it.
func TestRemoval(t *testing.T) {
	if *remove == "" {
		t.Skip("no -remove: the test runs in the guest, by make test-verbs")
	}
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	pool := bufpool.New(0)
	for range 2 {
		c := connectPair(t, p, pool)
		removed := make(chan struct{})
		go func() {
			command(t, *remove)
			close(removed)
		}()
		for i := range c.served {
			select {
			case err := <-c.served[i]:
				t.Logf("end %d: %v", i, err)
			case <-time.After(20 * time.Second):
				t.Fatalf("end %d goes on without the device", i)
			}
		}
		if c.ends[0].got == 0 {
			t.Error("nothing had come before the device was removed")
		}
		if _, err := c.l.Accept(); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("Accept: %v, want an error that says that the device was removed", err)
		}
		_ = c.l.Close()
		if err := c.domain.Close(); err != nil {
			t.Error(err)
		}
		<-removed
		command(t, *add)
	}
	c := connectPair(t, p, pool)
	for i, e := range c.ends {
		_ = e.ep.Close()
		<-c.served[i]
	}
	_ = c.l.Close()
	if err := c.domain.Close(); err != nil {
		t.Error(err)
	}
}
