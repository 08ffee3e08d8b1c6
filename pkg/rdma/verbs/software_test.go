//go:build verbs

package verbs

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rdma/iwarp"
)

// TestSoftware: an iWARP device works with our own iWARP in both roles, and either disconnects in
// order.
func TestSoftware(t *testing.T) {
	if *kind != "siw" {
		t.Skip("no -kind siw: the test runs in the guest, by make test-verbs")
	}
	hard, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	soft, err := iwarp.New(iwarp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	pool := bufpool.New(0)
	for name, providers := range map[string][2]rdma.Provider{"the device dials": {hard, soft}, "the software dials": {soft, hard}} {
		t.Run(name, func(t *testing.T) {
			c := connectPair(t, providers[0], providers[1], pool, 0, false)
			select {
			case <-c.ends[0].enough:
			case err := <-c.served[0]:
				t.Fatalf("the dialer ended: %v", err)
			case err := <-c.served[1]:
				t.Fatalf("the acceptor ended: %v", err)
			case <-time.After(30 * time.Second):
				t.Fatalf("only %d messages came back", c.ends[0].got.Load())
			}
			if depth := c.ends[0].ep.Attributes().ORD; depth != 4 {
				t.Errorf("the dialer may have %d Reads under way, want 4", depth)
			}
			_ = c.ends[0].ep.Close()
			if err := <-c.served[0]; !errors.Is(err, net.ErrClosed) {
				t.Errorf("the dialer's Serve returned %v, want net.ErrClosed", err)
			}
			if err := <-c.served[1]; !errors.Is(err, io.EOF) {
				t.Errorf("the acceptor's Serve returned %v, want io.EOF", err)
			}
			_ = c.l.Close()
			c.free(t)
		})
	}
}
