package credit

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// Kinds is the number of kinds of calls.
	Kinds = 128

	// ceilingInterval is the shortest time between two changes of the ceiling.
	ceilingInterval = 100 * time.Millisecond
	// lately is how long at least the lowest latency is remembered; at most twice as long.
	lately = 30 * time.Second
	// quick is the shortest latency that counts; shorter ones count as quick.
	quick = 1 << 18 * time.Nanosecond
	// sample is the number of calls for a figure.
	sample = 8

	slowAt = 256     // twice the latency, as doublings in 256 parts
	fineAt = 256 / 2 // √2 times
)

// latencies compare the backend's latency with the lowest one lately, for each kind of call, since
// a WRITE is slower than a GETATTR anyway. The figures are geometric means, so that a few slow
// calls do not make a slow backend.
type latencies struct {
	kinds [Kinds]speed
	due   atomic.Int64 // time of the next useful aggregate, in nanoseconds of the clock
}

// speed is the latency of a kind of call.
type speed struct {
	// sum has the number of calls in its upper 24 bits, and the sum of the logarithms of their
	// times in the lower 40.
	sum atomic.Uint64

	// The policy's lock guards these. Logarithms are to the base 2, in 256 parts; 0 is none.
	low, lower int64         // the lowest since turned, and in the period before
	turned     time.Duration // start of the period of low
}

const sumBits = 40

// add adds a call that took d, and reports whether aggregate is due.
func (s *latencies) add(kind int, d, now time.Duration) bool {
	s.kinds[uint(kind)%Kinds].sum.Add(1<<sumBits | uint64(log2(max(d, quick))))
	return int64(now) >= s.due.Load()
}

// aggregate returns the slowdown of the backend, in doublings of 256 parts, as the mean over the
// calls. ok is false with too few calls.
func (s *latencies) aggregate(now time.Duration) (slow int64, ok bool) {
	s.due.Store(int64(now + ceilingInterval))
	var calls, over, logs int64
	for i := range s.kinds {
		k := &s.kinds[i]
		if k.sum.Load()>>sumBits < sample {
			continue
		}
		v := k.sum.Swap(0)
		n := int64(v >> sumBits)
		mean := int64(v&(1<<sumBits-1)) / n
		calls += n
		logs += n * mean
		over += n * (mean - k.lowest(mean, now))
	}
	if calls == 0 {
		return 0, false
	}
	// Calls in flight were sent under the present grants: look at later ones next.
	s.due.Store(int64(now + max(ceilingInterval, time.Duration(1)<<min(logs/calls>>8, 33))))
	return over / calls, true
}

// lowest adds a figure, and returns the lowest one lately.
func (k *speed) lowest(mean int64, now time.Duration) int64 {
	if now-k.turned >= lately {
		k.lower = k.low
		if now-k.turned >= 2*lately {
			k.lower = 0
		}
		k.low, k.turned = 0, now
	}
	if k.low == 0 || mean < k.low {
		k.low = mean
	}
	if k.lower == 0 {
		return k.low
	}
	return min(k.low, k.lower)
}

// log2 is the logarithm of d to the base 2 in 256 parts, for d of at least 256 ns. It interpolates
// between powers of two, with an error of at most 22 parts.
func log2(d time.Duration) int64 {
	n := bits.Len64(uint64(d)) - 1
	return int64(n)<<8 | int64(uint64(d)>>(n-8)&0xff)
}
