//go:build !race

package credit

import (
	"testing"
	"time"
)

// TestAdaptiveAllocations: methods on the data path allocate nothing, even if they change grants.
func TestAdaptiveAllocations(t *testing.T) {
	s := newAdaptiveSim(t, Limits{Min: 4, Max: 128, Memory: 1 << 20, ReceiveSize: 4096})
	a, b := s.open("a").account, s.open("b").account
	if n := testing.AllocsPerRun(10000, func() {
		s.now += 100 * time.Microsecond
		for range 3 {
			a.(ReceiveAccount).Posted(a.Credits(128, 1), 4096)
		}
		b.(ReceiveAccount).Posted(b.Credits(128, 1), 4096)
		s.p.Latency(3, time.Duration(s.now.Nanoseconds()%7+1)*time.Millisecond)
	}); n > 0 {
		t.Errorf("%v allocations a call", n)
	}
}
