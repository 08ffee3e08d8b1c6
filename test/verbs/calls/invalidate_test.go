//go:build verbs

package calls

import (
	"context"
	"sync/atomic"
	"testing"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma"
)

// client is a provider that counts invalidations of its endpoints' exposed memory: by themselves,
// or by the peer.
type client struct {
	rdma.Provider
	local, remote atomic.Int64
}

func (c *client) Dial(ctx context.Context, address string, o rdma.Options) (rdma.Endpoint, error) {
	ep, err := c.Provider.Dial(ctx, address, o)
	return &clientEnd{ep, c}, err
}

type clientEnd struct {
	rdma.Endpoint
	c *client
}

func (e *clientEnd) Post(wrs []rdma.WorkRequest) error {
	for i := range wrs {
		if wrs[i].Op == rdma.LocalInvalidate {
			e.c.local.Add(1)
		}
	}
	return e.Endpoint.Post(wrs)
}

func (e *clientEnd) Serve(h rdma.Handler) error { return e.Endpoint.Serve(&clientHandler{h, e.c}) }

type clientHandler struct {
	rdma.Handler
	c *client
}

func (h *clientHandler) Completed(batch []rdma.Completion) {
	for i := range batch {
		if batch[i].HasInvalidated {
			h.c.remote.Add(1)
		}
	}
	h.Handler.Completed(batch)
}

// testInvalidate: the responder invalidates the memory of each call where the client's device has
// memory windows; else the client does.
func testInvalidate(t *testing.T, p rdma.Provider) {
	pool := bufpool.New(0)
	counts := &client{Provider: p}
	cl, _ := connect(t, p, counts, pool, rpcrdma.Config{Handler: &handler{}, RemoteInvalidation: true}, rpcrdma.Config{RemoteInvalidation: true})
	r := newRun(t, cl, pool, 64<<10)
	defer r.free()
	r.make(t, warmUp) // each of the connection's windows is used more often than it has handles
	n := cl.Negotiated()
	if n.RemoteInvalidation != n.Attributes.RemoteInvalidation {
		t.Errorf("remote invalidation is settled: %v, want what the device can: %v", n.RemoteInvalidation, n.Attributes.RemoteInvalidation)
	}
	local, remote := int64(warmUp), int64(0)
	if n.RemoteInvalidation {
		local, remote = remote, local
	}
	t.Logf("%s: %d regions of %d calls were invalidated by the client, %d by the server", n.Attributes.Device, counts.local.Load(), warmUp, counts.remote.Load())
	if counts.local.Load() != local || counts.remote.Load() != remote {
		t.Errorf("%d and %d regions were invalidated by client and server, want %d and %d", counts.local.Load(), counts.remote.Load(), local, remote)
	}
}
