package gateway

import (
	"math"
	"sync/atomic"

	config "sluice.dev/sluice/api/config/v1alpha1"
	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// totals are what all exports take together, and the limits of that.
type totals struct {
	memory *bufpool.Ceiling
	// receives is the memory for the receives of RDMA connections.
	receives credit.Memory
	limit    atomic.Int64
	taken    atomic.Int64 // connections
}

func (t *totals) set(l config.TotalLimits) {
	limit := int64(l.Connections)
	if limit == 0 {
		limit = math.MaxInt64
	}
	t.limit.Store(limit)
	t.memory.SetTotal(int64(l.Memory))
	t.receives.SetLimit(int64(l.ReceiveMemory))
}

// admit lets a connection in, unless there are as many as there may be. A connection that was let in is given back by leave.
func (t *totals) admit() bool {
	if t.taken.Add(1) <= t.limit.Load() {
		return true
	}
	t.leave()
	return false
}

func (t *totals) leave() { t.taken.Add(-1) }
