//go:build verbs

package verbs

import (
	"errors"
	"flag"
	"io"
	"net"
	"os/exec"
	"regexp"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
)

var cycles = flag.Int("cycles", 0, "how many connections TestChurn makes, one after the other")

// objects returns the kernel's count of each kind of object of the device.
func objects(t *testing.T) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "rdma", "resource", "show").CombinedOutput()
	if err != nil {
		t.Fatalf("rdma resource show: %v\n%s", err, out)
	}
	return regexp.MustCompile(`(?m)^.*\b` + *kind + `0:.*$`).FindString(string(out))
}

// TestChurn: connections leave no object behind.
func TestChurn(t *testing.T) {
	if *cycles == 0 {
		t.Skip("no -cycles: the test runs in the guest, by make test-verbs")
	}
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	pool := bufpool.New(0)
	cycle := func() {
		c := connectPair(t, p, p, pool)
		_ = c.ends[0].ep.Close()
		if err := <-c.served[0]; !errors.Is(err, net.ErrClosed) {
			t.Errorf("the dialer's Serve returned %v, want net.ErrClosed", err)
		}
		if err := <-c.served[1]; !errors.Is(err, io.EOF) {
			t.Errorf("the acceptor's Serve returned %v, want io.EOF", err)
		}
		_ = c.l.Close()
		c.free(t)
	}
	settled := func(want string) (got string) {
		for range 20 {
			time.Sleep(farewell / 4) // the kernel's objects go at their own time
			if got = objects(t); got == want {
				break
			}
		}
		return got
	}
	cycle() // what librdmacm keeps for good is there now
	before := settled("")
	if before == "" {
		t.Fatalf("rdma resource show does not know %s0", *kind)
	}
	for range *cycles {
		cycle()
	}
	if after := settled(before); after != before {
		t.Errorf("objects after %d connections:\n%s\nbefore:\n%s", *cycles, after, before)
	}
}
