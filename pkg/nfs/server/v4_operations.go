package server

import (
	"math/bits"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/nfs/nfs4"
)

// NFS4Buckets is the number of bounds of durations; see NFS4Bound.
const NFS4Buckets = 9

// firstBound is the exponent of the first bound, 2^14 ns or 16 µs. Each is four times the one
// before; the last is 1.07 s.
const firstBound = 14

// NFS4Bound returns bound i of durations, from 0 to NFS4Buckets-1.
func NFS4Bound(i int) time.Duration { return 1 << (firstBound + 2*i) }

// bucketOf returns the first bound that is at least d, or NFS4Buckets.
func bucketOf(d time.Duration) int {
	if d <= 1<<firstBound {
		return 0
	}
	return min((bits.Len64(uint64(d-1))-firstBound+1)/2, NFS4Buckets)
}

// NFS4Operation has the figures of an operation of COMPOUNDs.
type NFS4Operation struct {
	Op nfs4.Op
	// OK and Failed are the results of status NFS4_OK, and the others.
	OK, Failed uint64
	// Seconds is the time that all of them took, waits included. Buckets counts them by the lowest
	// bound that is not exceeded; the last has those above all bounds.
	Seconds float64
	Buckets [NFS4Buckets + 1]uint64
}

// operationCount counts and times the results of an operation.
type operationCount struct {
	ok, failed  atomic.Uint64
	nanoseconds atomic.Int64
	buckets     [NFS4Buckets + 1]atomic.Uint64
}

// count counts an operation that took d.
func (v *v4Server) count(op nfs4.Op, st nfs4.Status, d time.Duration) {
	if op >= nfs4.Operations {
		op = 0
	}
	o := &v.operations[op]
	if st == nfs4.OK {
		o.ok.Add(1)
	} else {
		o.failed.Add(1)
	}
	o.nanoseconds.Add(int64(d))
	o.buckets[bucketOf(d)].Add(1)
}

// NFS4Operations returns the figures of each operation that was called. Unknown ones are
// OpIllegal.
func (s *Server) NFS4Operations() (list []NFS4Operation) {
	for i := range s.v4.operations {
		o := &s.v4.operations[i]
		n := NFS4Operation{Op: nfs4.Op(i), OK: o.ok.Load(), Failed: o.failed.Load()}
		if n.OK+n.Failed == 0 {
			continue
		}
		if i == 0 {
			n.Op = nfs4.OpIllegal
		}
		n.Seconds = time.Duration(o.nanoseconds.Load()).Seconds()
		for j := range n.Buckets {
			n.Buckets[j] = o.buckets[j].Load()
		}
		list = append(list, n)
	}
	return list
}
