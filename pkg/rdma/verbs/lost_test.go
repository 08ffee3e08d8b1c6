//go:build verbs

package verbs

import (
	"testing"

	"sluice.dev/sluice/pkg/rdma"
)

// TestExposeLost: an arena that came after the removal of the device is not registered there, and
// exposing it is an error.
func TestExposeLost(t *testing.T) {
	mem := make([]byte, 100)
	d := &domain{}
	insert(&d.arenas, arena{from: addressOf(mem), to: addressOf(mem) + uintptr(len(mem))})
	e := &endpoint{ident: &ident{p: &provider{cfg: Config{MaxRegions: 1}}}, dev: &device{name: "mlx5_0"}, domain: d, space: &space{lost: true}, connParams: connParams{windows: 1}}
	e.exposed.put(&window{})
	if r, err := e.Expose(mem, rdma.RemoteRead); err == nil {
		t.Errorf("exposed as %+v", r)
	}
}
