package conns

import (
	"math"
	"sync/atomic"
)

// Totals counts the connections of all exports together, up to a limit. The zero value admits none
// before SetLimit.
type Totals struct {
	limit atomic.Int64
	taken atomic.Int64
}

// SetLimit changes the limit; 0 is no limit.
func (t *Totals) SetLimit(connections int64) {
	if connections == 0 {
		connections = math.MaxInt64
	}
	t.limit.Store(connections)
}

// Taken returns the number of admitted connections.
func (t *Totals) Taken() int64 { return t.taken.Load() }

// admit admits a connection below the limit. release gives it back.
func (t *Totals) admit() bool {
	if t.taken.Add(1) <= t.limit.Load() {
		return true
	}
	t.release()
	return false
}

func (t *Totals) release() { t.taken.Add(-1) }
