package iwarp

import (
	"slices"

	"sluice.dev/sluice/pkg/rdma"
)

// receiveQueue is first in, first out. With reuse, receives of one shape are last in, first out: a
// connection with few calls uses few of its receives, again and again, and these stay in the cache.
// The memory of the others is not touched. Receives of different shapes keep their order.
type receiveQueue struct {
	reuse bool           // Options.ReuseReceives
	ready []rdma.Receive // with reuse, of one shape
	later ring[rdma.Receive]
}

// push adds a receive.
func (q *receiveQueue) push(r *rdma.Receive) {
	if q.reuse && q.later.len() == 0 && (len(q.ready) == 0 || sameShape(&q.ready[0], r)) {
		q.ready = append(q.ready, *r)
	} else {
		q.later.push(*r)
	}
}

// pop removes the next receive. It returns false if there is none.
func (q *receiveQueue) pop() (r rdma.Receive, ok bool) {
	if !q.reuse {
		if q.later.len() == 0 {
			return r, false
		}
		return q.later.pop(), true
	}
	if len(q.ready) == 0 {
		for q.later.len() > 0 && (len(q.ready) == 0 || sameShape(&q.ready[0], q.later.at(0))) {
			q.ready = append(q.ready, q.later.pop())
		}
	}
	n := len(q.ready) - 1
	if n < 0 {
		return r, false
	}
	r, q.ready[n] = q.ready[n], rdma.Receive{}
	q.ready = q.ready[:n]
	return r, true
}

// trim frees room in the lists beyond their present lengths.
func (q *receiveQueue) trim() {
	q.ready = slices.Clip(slices.Clone(q.ready))
	if q.later.len() == 0 {
		q.later = ring[rdma.Receive]{}
	}
}

// sameShape reports whether the segments of both have the same lengths.
func sameShape(a, b *rdma.Receive) bool {
	if len(a.Segments) != len(b.Segments) {
		return false
	}
	for i := range a.Segments {
		if len(a.Segments[i]) != len(b.Segments[i]) {
			return false
		}
	}
	return true
}
