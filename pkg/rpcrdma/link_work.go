package rpcrdma

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/rdma"
)

// The send queue of a connection has two work requests for each credit within these bounds:
// providers lock its memory. The longest batch, that of a call with the most segments which
// [wire.DefaultLimits] allows, fits the least; groups of transmissions need the most.
const leastSends, mostSends = 256, 1024

// QueueDepths returns the lengths of the send and receive queues of a server's connection with so
// many credits. groups: with MessageContinuation.
func QueueDepths(credits int, groups bool) (sends, receives int) {
	return sendDepth(credits, groups), credits + defaultReverseCredits + spareReceives
}

func sendDepth(credits int, groups bool) int {
	if groups {
		return mostSends
	}
	return min(max(leastSends, 2*credits), mostSends)
}

// workQueue posts batches of work requests. Batches wait, in order, while the provider's queue has
// no room: a peer that takes nothing, or a burst of long chunk lists, must not end the connection.
//
// The number of waiting batches is bounded. A well-behaved peer leaves only a few batches for each
// credit untaken. The same holds for our own calls. A batch that cannot be posted ends the
// connection, and with it everything that waits for its completion.
type workQueue struct {
	ep      rdma.Endpoint
	credits *recvCredits
	fail    func(error)
	admit   func(*sendBatch) // if not nil, lets batches wait for credits before enqueue
	room    atomic.Int64     // work requests that the provider can take
	waiting atomic.Int64     // batches
	depth   int              // of the provider's queue
	own     int              // messages that may be under way beyond the peer's credits

	mu          sync.Mutex
	first, last *sendBatch
	draining    bool // a goroutine posts the waiting batches
	closed      bool
}

// errPeerNotReading ends a connection whose peer sends calls, or messages without credit, and does
// not take the answers.
var errPeerNotReading = errors.New("rpcrdma: the peer does not take its messages")

// sendBatch is a list of work requests that are posted together. Its owner embeds it.
type sendBatch struct {
	wrs  []rdma.WorkRequest
	next *sendBatch
}

func (q *workQueue) init(credits *recvCredits, fail func(error), own, depth int) {
	q.credits, q.fail, q.own, q.depth = credits, fail, own, depth
	q.room.Store(int64(depth))
}

// post posts b when the peer has receives for it. Memory in b stays untouched until it completes.
func (q *workQueue) post(b *sendBatch) {
	if q.admit != nil {
		q.admit(b)
		return
	}
	q.enqueue(b)
}

// enqueue posts b, or queues it.
func (q *workQueue) enqueue(b *sendBatch) {
	if q.waiting.Load() == 0 && q.reserveRoom(b) {
		q.submit(b)
		return
	}
	q.mu.Lock()
	if q.closed {
		q.mu.Unlock()
		return
	}
	b.next = nil
	if q.last == nil {
		q.first = b
	} else {
		q.last.next = b
	}
	q.last = b
	n := int(q.waiting.Add(1))
	q.mu.Unlock()
	if n > 4*(q.own+q.credits.mostGranted()) {
		q.fail(errPeerNotReading)
	}
	q.postWaiting() // room may have come before b was seen to wait
}

// reserveRoom reserves the room for b. A batch that is larger than the queue goes alone: the
// provider may refuse it.
func (q *workQueue) reserveRoom(b *sendBatch) bool {
	n := int64(len(b.wrs))
	if room := q.room.Add(-n); room >= 0 || room+n == int64(q.depth) {
		return true
	}
	q.room.Add(n)
	return false
}

// completed counts n completed work requests, and posts waiting batches.
func (q *workQueue) completed(n int) {
	q.room.Add(int64(n))
	if q.waiting.Load() > 0 {
		q.postWaiting()
	}
}

func (q *workQueue) postWaiting() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.draining {
		return // the other goroutine will see the room
	}
	q.draining = true
	for q.first != nil && q.reserveRoom(q.first) {
		b := q.first
		if q.first = b.next; q.first == nil {
			q.last = nil
		}
		b.next = nil
		q.mu.Unlock()
		q.submit(b)
		q.waiting.Add(-1) // until now no batch goes past it
		q.mu.Lock()
	}
	q.draining = false
}

// submit hands a batch to the provider. Its owner may be done with it before submit returns.
func (q *workQueue) submit(b *sendBatch) {
	if err := q.ep.Post(b.wrs); err != nil {
		q.fail(fmt.Errorf("rpcrdma: post: %w", err))
	}
}

// close drops the waiting batches.
func (q *workQueue) close() {
	q.mu.Lock()
	q.closed, q.first, q.last = true, nil, nil
	q.waiting.Store(0)
	q.mu.Unlock()
}
