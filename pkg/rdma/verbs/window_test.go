//go:build verbs

package verbs

import (
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

// TestQueueRefused: a device that refuses the longer queue of requests that windows need gives a
// connection without them, which exposes regions instead.
func TestQueueRefused(t *testing.T) {
	if *kind == "" {
		t.Skip("no -kind: the test runs in the guest, by make test-verbs")
	}
	p, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	// one for a probe
	p.(*provider).refuses = func(requests int) bool { return requests > defaultQueue+1 }
	pool := bufpool.New(0)
	c := connectPair(t, p, p, pool, 0, false)
	select {
	case <-c.ends[0].enough:
	case err := <-c.served[0]:
		t.Fatalf("the dialer ended: %v", err)
	case <-time.After(30 * time.Second):
		t.Fatalf("only %d messages came back", c.ends[0].got.Load())
	}
	if a := c.ends[0].ep.Attributes(); a.RemoteInvalidation {
		t.Errorf("%+v: remote invalidation without windows", a)
	}
	if _, err := c.ends[0].ep.Expose(c.ends[0].buf[0], rdma.RemoteRead); err != nil {
		t.Error(err)
	}
	_ = c.ends[0].ep.Close()
	t.Logf("Serve returned %v, and at the peer %v", <-c.served[0], <-c.served[1])
	_ = c.l.Close()
	c.free(t)
}
