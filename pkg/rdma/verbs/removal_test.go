//go:build verbs

package verbs

import (
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
)

var (
	remove = flag.String("remove", "", "the `command` that removes the device of -address")
	add    = flag.String("add", "", "the `command` that adds it again")
)

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

// TestRemoval: when the device is removed under load, all its connections end and are closed, so
// that it can go; when it returns, the same provider uses it.
func TestRemoval(t *testing.T) {
	if *remove == "" {
		t.Skip("no -remove: the test runs in the guest, by make test-verbs")
	}
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	pool := bufpool.New(0)
	for i := range 2 {
		c := connectPair(t, p, p, pool, 0, i == 1)
		select {
		case <-c.ends[0].enough:
		case <-time.After(30 * time.Second):
			t.Fatalf("only %d messages came back", c.ends[0].got.Load())
		}
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
		if _, err := c.l.Accept(); err == nil || errors.Is(err, context.Canceled) {
			t.Errorf("Accept: %v, want an error that says that the device was removed", err)
		}
		_ = c.l.Close()
		c.free(t)
		<-removed
		command(t, *add)
	}
	c := connectPair(t, p, p, pool, 0, false)
	c.close(t)
	_ = c.l.Close()
	c.free(t)
}

// close ends the connection.
func (c *pair) close(t *testing.T) {
	t.Helper()
	for i, e := range c.ends {
		_ = e.ep.Close()
		if err := <-c.served[i]; !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
			t.Errorf("end %d: %v", i, err)
		}
	}
}

// TestIdleRemoval: a device without connections, but with registered memory, can be removed and
// return. A listener on all addresses makes no difference: it has no device.
func TestIdleRemoval(t *testing.T) {
	if *remove == "" {
		t.Skip("no -remove: the test runs in the guest, by make test-verbs")
	}
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	pool := bufpool.New(0)
	for range 2 {
		c := connectPair(t, p, p, pool, few, false)
		defer c.free(t)
		c.close(t)
		_ = c.l.Close()
		time.Sleep(lingerTime + time.Second) // the ids are gone
		command(t, *remove)
		command(t, *add)
	}
}

// TestVainRemoval: a device without any connection can be removed. siw's port is a TCP port, which
// is in use here: the id has its device when it learns that.
func TestVainRemoval(t *testing.T) {
	if *remove == "" {
		t.Skip("no -remove: the test runs in the guest, by make test-verbs")
	}
	other, err := net.Listen("tcp", *address)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	if l, err := p.Listen(t.Context(), other.Addr().String()); err == nil {
		_ = l.Close()
		t.Fatal("a port is listened on that somebody else has")
	} else if !errors.Is(err, syscall.EADDRINUSE) {
		t.Fatal(err)
	}
	command(t, *remove)
	command(t, *add)
}
