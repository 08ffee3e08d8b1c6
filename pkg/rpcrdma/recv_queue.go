package rpcrdma

import (
	"fmt"
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
)

// poster is an rdma.Endpoint, or an rdma.SRQ.
type poster interface{ PostReceives(rs []rdma.Receive) error }

// recvQueue is a queue of receives with their buffers: that of a connection, or one that connections share. At least as many are posted as are
// promised to connections. What a connection leaves when it ends is used before more are posted.
type recvQueue struct {
	to    poster // nil until there is an endpoint
	pool  *bufpool.Pool
	table atomic.Pointer[[]*recvBuffer] // all, by id; replaced under the lock

	// Of a shared queue:
	shared bool
	depth  int       // what may be posted
	margin int       // what is posted besides what is promised, so that connections which take more than they may are found out in time
	told   func(int) // hears how many more are posted

	mu       sync.Mutex
	free     *recvBuffer
	ready    *recvBuffer // those that have their buffers, of the present layout
	prepared int         // how many these are; at most held, but for what comes just now
	posted   int
	promised int
	held     int // messages that stand for a receive until they are answered
	list     []rdma.Receive
	closed   bool
	layout   [][]int // lengths of the segments in each buffer of receives to come
	layouts  uint32  // how often it has changed
}

func newRecvQueue(pool *bufpool.Pool, layout [][]int) *recvQueue {
	q := &recvQueue{pool: pool, layout: layout}
	q.table.Store(new([]*recvBuffer))
	return q
}

// take promises n more receives, or as many as there is memory for, and returns how many. short says why they are fewer, err that none can be posted.
// Of messages that stand for receives there are held more than before.
func (q *recvQueue) take(n, held int) (got int, short, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held += held
	defer q.trim(max(0, q.held))
	q.promised += n
	if q.posted < q.promised+q.margin/2 {
		short, err = q.post(q.promised + q.margin - q.posted)
	}
	lack := min(n, max(0, q.promised-q.posted))
	q.promised -= lack
	return n - lack, short, err
}

// post posts n receives, or as many as there is memory for.
func (q *recvQueue) post(n int) (short, err error) {
	if q.shared && n > q.depth-q.posted {
		n, short = q.depth-q.posted, errFull
	}
	if s := q.gather(n); s != nil {
		short = s
	}
	if q.to != nil && len(q.list) > 0 {
		if err := q.to.PostReceives(q.list); err != nil {
			q.giveUp()
			return short, fmt.Errorf("rpcrdma: post receives: %w", err)
		}
	}
	q.count(len(q.list))
	return short, nil
}

func (q *recvQueue) count(n int) {
	q.posted += n
	if q.told != nil {
		q.told(n)
	}
}

// first are the receives of a queue whose endpoint is not there yet.
func (q *recvQueue) first() []rdma.Receive {
	if q.shared {
		return nil
	}
	return q.list
}

// gather puts n new receives into q.list, or as many as there is memory for.
func (q *recvQueue) gather(n int) error {
	clear(q.list)
	q.list = q.list[:0]
	for range n {
		if s := q.ready; s != nil {
			q.ready, s.next = s.next, nil
			q.prepared--
			q.list = append(q.list, rdma.Receive{ID: s.id, Segments: s.segs})
			continue
		}
		s := q.free
		if s == nil {
			all := *q.table.Load()
			s = &recvBuffer{id: idReceive | uint64(len(all))}
			all = append(all, s)
			q.table.Store(&all)
		} else {
			q.free = s.next
		}
		s.next = nil
		s.layout, s.of = q.layout, q.layouts
		if err := s.make(q.pool); err != nil {
			s.next, q.free = q.free, s
			return err
		}
		q.list = append(q.list, rdma.Receive{ID: s.id, Segments: s.segs})
	}
	return nil
}

// giveUp frees what gather made.
func (q *recvQueue) giveUp() {
	for _, l := range q.list {
		s := q.get(l.ID)
		s.release()
		s.next, q.free = q.free, s
	}
	q.list = q.list[:0]
}

// get returns a receive that completed. It belongs to whoever has the loop of its connection until arrived.
func (q *recvQueue) get(id uint64) *recvBuffer { return (*q.table.Load())[idIndex(id)] }

// arrived takes back a receive whose message is gone from it, and which was one of those promised, or (0) not.
func (q *recvQueue) arrived(s *recvBuffer, promised int) {
	q.mu.Lock()
	q.count(-1)
	q.promised -= promised
	q.put(s)
	q.mu.Unlock()
}

// put keeps a receive that is not posted.
func (q *recvQueue) put(s *recvBuffer) {
	if len(s.bufs) > 0 && s.of == q.layouts && !q.closed {
		s.next, q.ready = q.ready, s
		q.prepared++
		return
	}
	s.release()
	s.next, q.free = q.free, s
}

// trim frees the buffers of ready receives but for n of them.
func (q *recvQueue) trim(n int) {
	for q.prepared > n {
		s := q.ready
		q.ready = s.next
		q.prepared--
		s.release()
		s.next, q.free = q.free, s
	}
}

// settle sets the structure of receives to come. That of shared ones stays.
func (q *recvQueue) settle(layout [][]int) {
	if q.shared {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.trim(0) // they are of another structure
	q.layout = layout
	q.layouts++
}

// size is how many bytes a receive has.
func (q *recvQueue) size() (n int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, lengths := range q.layout {
		n += sumLengths(lengths)
	}
	return n
}

// smaller reports whether a receive of fewer than n bytes is posted.
func (q *recvQueue) smaller(n int) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, s := range *q.table.Load() {
		if len(s.bufs) > 0 && len(s.bufs[0].B) < n {
			return true
		}
	}
	return false
}

// leave takes back what a connection was promised and did not use, and messages that it held. A queue of its own is closed.
func (q *recvQueue) leave(promised, held int) {
	if !q.shared {
		q.close()
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.promised -= promised
	q.held -= held
	q.trim(max(0, q.held))
}

// close frees what is posted, when nobody will receive any more.
func (q *recvQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, s := range *q.table.Load() {
		s.release()
	}
	q.count(-q.posted)
	q.promised, q.ready, q.prepared = 0, nil, 0
}
