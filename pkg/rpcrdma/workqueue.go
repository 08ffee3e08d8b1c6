package rpcrdma

import (
	"errors"
	"fmt"
	"sync"

	"sluice.dev/sluice/pkg/rdma"
)

// sendQueue is the most work requests of a connection that the provider has at once.
const sendQueue = 1024

// workQueue posts batches of work requests, and lets them wait where the provider's queue has no room: a peer that takes
// nothing, or a burst of long chunk lists, must not end the connection. Batches are posted in order.
//
// Its length is bounded: a peer that keeps to its credits leaves no more than a few batches for each of them untaken.
// A batch that cannot be posted ends the connection, and with it everything that waits for its completion.
type workQueue struct {
	c *Conn

	mu          sync.Mutex
	room        int // work requests that the provider can take
	first, last *batch
	waiting     int // batches
	limit       int // of waiting
	closed      bool
}

// errStuck is why a connection ends whose peer sends calls and takes no replies.
var errStuck = errors.New("rpcrdma: the peer does not take what is sent to it")

// batch is a list of work requests that are posted together. It is part of what they are for.
type batch struct {
	wrs  []rdma.WorkRequest
	next *batch
}

// post posts b, or queues it. What b refers to stays untouched until it completes.
func (q *workQueue) post(b *batch) {
	q.mu.Lock()
	if q.first == nil && q.take(b) {
		q.mu.Unlock()
		q.submit(b.wrs)
		return
	}
	if !q.closed {
		b.next = nil
		if q.last == nil {
			q.first = b
		} else {
			q.last.next = b
		}
		q.last = b
		q.waiting++
	}
	stuck := q.waiting > q.limit
	q.mu.Unlock()
	if stuck {
		q.c.fail(errStuck)
	}
}

// take reserves the room for b. A batch that is larger than the queue goes alone: the provider may refuse it.
func (q *workQueue) take(b *batch) bool {
	if q.closed || len(b.wrs) > q.room && q.room < sendQueue {
		return false
	}
	q.room -= len(b.wrs)
	return true
}

// done notes that n work requests have completed, and posts what waited for them.
func (q *workQueue) done(n int) {
	q.mu.Lock()
	q.room += n
	for q.first != nil && q.take(q.first) {
		b := q.first
		if q.first = b.next; q.first == nil {
			q.last = nil
		}
		b.next = nil
		q.waiting--
		q.mu.Unlock()
		q.submit(b.wrs)
		q.mu.Lock()
	}
	q.mu.Unlock()
}

// submit hands work requests to the provider. Whom they belong to may be done with them when it returns.
func (q *workQueue) submit(wrs []rdma.WorkRequest) {
	if err := q.c.ep.Post(wrs); err != nil {
		q.c.fail(fmt.Errorf("rpcrdma: post: %w", err))
	}
}

// close drops what waits.
func (q *workQueue) close() {
	q.mu.Lock()
	q.closed, q.first, q.last, q.waiting = true, nil, nil, 0
	q.mu.Unlock()
}
