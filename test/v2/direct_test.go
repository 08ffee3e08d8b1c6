package v2

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"testing"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/internal/names"
	"sluice.dev/sluice/pkg/nfs/client"
	"sluice.dev/sluice/pkg/nfs/nfs3"
	"sluice.dev/sluice/pkg/rpcrdma"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// TestPlacements: a client gets the placement of arguments and results that it requests, with any
// extensions of the gateway.
func TestPlacements(t *testing.T) {
	for _, ext := range subsets {
		c := &chain{T: t, dir: t.TempDir()}
		g := c.gateway(fmt.Sprintf("{volume: {path: %q}}", c.dir), transport(ext, ""))
		for i, p := range []rpcrdma.Placement{
			{}, {Results: wire.Explicit, Threshold: 1}, {Results: wire.Choice, Threshold: 50_000}, {Results: wire.BySize, Threshold: 50_000},
		} {
			t.Run(fmt.Sprintf("%v, %v from %d bytes on", ext, p.Results, p.Threshold), func(t *testing.T) {
				files, root := mount(t, config.RDMA, address(t, g, config.RDMA), func(cfg *rpcrdma.Config) {
					cfg.Versions, cfg.Extensions, cfg.Placement = []int{2}, names.AllExtensions(), p
				})
				for _, n := range sizes {
					data := make([]byte, n)
					_, _ = rand.Read(data)
					made, err := files.Create(t.Context(), root, fmt.Sprint(i, "-", n), nfs3.Unchecked, nfs3.SetAttrs{}, nfs3.Verifier{})
					if err != nil {
						t.Fatal(err)
					}
					if err := files.Upload(t.Context(), made.Handle, bytes.NewReader(data), 0, uint64(n), client.UploadOptions{}); err != nil {
						t.Fatal(err)
					}
					got := make([]byte, n)
					if k, err := files.ReadAt(t.Context(), made.Handle, got, 0); err != nil || k != n || !bytes.Equal(got, data) {
						t.Errorf("%d of %d bytes come back, or others: %v", k, n, err)
					}
				}
			})
		}
	}
}
