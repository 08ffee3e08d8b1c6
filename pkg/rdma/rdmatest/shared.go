package rdmatest

import (
	"errors"
	"fmt"
	"sync"

	"sluice.dev/sluice/pkg/rdma"
)

// receiveQueue is an rdma.SRQ. Its lock is taken under that of a connection.
type receiveQueue struct {
	d     *domain
	depth int

	mu        sync.Mutex
	receives  fifo[rdma.Receive]
	taken     int // and not reported
	endpoints int
	closed    bool
}

func (f *Fabric) newReceiveQueue(of rdma.Domain, depth int) (*receiveQueue, error) {
	d, ok := of.(*domain)
	switch {
	case f.o.MaxShared < 0:
		return nil, errors.New("rdma fabric: there are no shared receives")
	case !ok || d.f != f:
		return nil, fmt.Errorf("rdma fabric: a queue of receives in a %T, it must be a domain of this fabric", of)
	case depth < 1:
		return nil, fmt.Errorf("rdma fabric: a queue of %d receives, it must hold one at least", depth)
	}
	if err := d.acquire(); err != nil {
		return nil, err
	}
	return &receiveQueue{d: d, depth: min(depth, f.o.MaxShared)}, nil
}

// checkShared returns the fault of o's SRQ.
func checkShared(d *domain, o *rdma.Options) error {
	if o.SRQ == nil {
		return nil
	}
	q, ok := o.SRQ.(*receiveQueue)
	switch {
	case !ok || q.d != d:
		return fmt.Errorf("Options.SRQ is %T, it must be of this fabric and Options.Domain", o.SRQ)
	case len(o.Receives) > 0:
		return fmt.Errorf("Options.Receives has %d, but receives are shared", len(o.Receives))
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errors.New("Options.SRQ is closed")
	}
	return nil
}

func sharedOf(o *rdma.Options) *receiveQueue {
	q, _ := o.SRQ.(*receiveQueue)
	return q
}

// join counts an endpoint that uses the queue; leave is its counterpart.
func (q *receiveQueue) join()  { q.count(1) }
func (q *receiveQueue) leave() { q.count(-1) }

func (q *receiveQueue) count(n int) {
	if q != nil {
		q.mu.Lock()
		q.endpoints += n
		q.mu.Unlock()
	}
}

// report releases taken receives that are about to be reported.
func (q *receiveQueue) report(taken *fifo[rdma.Receive]) {
	q.empty(taken, func(rdma.Receive) {})
}

// giveBack posts taken receives again that will not be reported.
func (q *receiveQueue) giveBack(taken *fifo[rdma.Receive]) {
	q.empty(taken, func(r rdma.Receive) { q.receives.push(r) })
}

func (q *receiveQueue) empty(taken *fifo[rdma.Receive], f func(rdma.Receive)) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for taken.len() > 0 {
		f(taken.pop())
		q.taken--
	}
}

func (q *receiveQueue) Depth() int { return q.depth }

func (q *receiveQueue) PostReceives(rs []rdma.Receive) error {
	if err := q.d.f.checkReceives(q.d, rs, q.depth); err != nil {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return errors.New("rdma fabric: post receives: the queue is closed")
	}
	if n := q.receives.len() + q.taken; n+len(rs) > q.depth {
		return fmt.Errorf("rdma fabric: post of %d receives: %d are posted, the queue holds %d", len(rs), n, q.depth)
	}
	for i := range rs {
		if q.d.f.o.ScribbleReceives {
			scribble(rs[i].Segments)
		}
		q.receives.push(rs[i])
	}
	return nil
}

func (q *receiveQueue) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	switch {
	case q.endpoints > 0:
		return fmt.Errorf("rdma fabric: the queue of receives has %d endpoints, which have to be closed before", q.endpoints)
	case !q.closed:
		q.closed = true
		q.receives = fifo[rdma.Receive]{}
		q.d.release()
	}
	return nil
}
