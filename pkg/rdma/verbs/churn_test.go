//go:build verbs

package verbs

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
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

// calm returns the objects as soon as they are the wanted ones, or after a while. Without wanted
// ones, it waits until they stay the same for longer than an id waits for the peer's answer.
func calm(t *testing.T, want string) (got string) {
	same := 0
	for range 20 {
		time.Sleep(lingerTime / 4) // the kernel frees objects later
		last := got
		got = objects(t)
		if same++; got != last {
			same = 0
		}
		if got == want || want == "" && same == 5 {
			break
		}
	}
	return got
}

// resident is the memory of this process in bytes.
func resident(t *testing.T) int {
	t.Helper()
	debug.FreeOSMemory()
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Fatal(err)
	}
	var total, pages int
	if _, err := fmt.Sscan(string(statm), &total, &pages); err != nil {
		t.Fatal(err)
	}
	return pages * os.Getpagesize()
}

// end closes the pair in order.
func (c *pair) end(t *testing.T) {
	t.Helper()
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

// few is the number of messages over each of the simultaneous connections.
const few = 10

// TestChurn: connections, one after the other and then 64 at once, leak neither objects nor memory.
func TestChurn(t *testing.T) {
	if *cycles == 0 {
		t.Skip("no -cycles: the test runs in the guest, by make test-verbs")
	}
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	pool := bufpool.New(0)
	connectPair(t, p, p, pool, 0, false).end(t) // creates the objects that librdmacm keeps for good
	before := calm(t, "")
	if before == "" {
		t.Fatalf("rdma resource show does not know %s0", *kind)
	}
	memory := resident(t)
	for i := range *cycles {
		connectPair(t, p, p, pool, 0, i%2 == 1).end(t)
	}
	if after := calm(t, before); after != before {
		t.Errorf("objects after %d connections:\n%s\nbefore:\n%s", *cycles, after, before)
	}
	// The queues of a connection take 32 KiB at its two ends, which the allocator may not give back
	// at once.
	grown := resident(t) - memory
	if t.Logf("%d connections one after the other: %d KiB more memory", *cycles, grown>>10); *cycles >= 500 && grown > 16<<20 {
		t.Errorf("%d connections have left %d bytes", *cycles, grown)
	}
	var all []*pair
	for range 64 {
		all = append(all, connectPair(t, p, p, pool, few, false))
	}
	for i, c := range all {
		for end := time.Now().Add(time.Minute); c.ends[0].got.Load() < few; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("%d messages came back over connection %d, want %d", c.ends[0].got.Load(), i, few)
			}
		}
	}
	for _, c := range all {
		c.end(t)
	}
	if after := calm(t, before); after != before {
		t.Errorf("objects after 64 connections at once:\n%s\nbefore:\n%s", after, before)
	}
}
