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

// recvQueue is a queue of receives with their buffers: of one connection, or shared. At least as
// many are posted as connections were promised. Receives of a connection that ended are used before
// more are posted.
type recvQueue struct {
	to    poster // nil until there is an endpoint
	pool  *bufpool.Pool
	table atomic.Pointer[[]*recvBuffer] // all, by id; replaced under the lock

	// The following are for shared queues.
	shared bool
	depth  int // the most posted receives
	// posted receives beyond the promised ones, to find out in time connections that take too many
	margin   int
	onPosted func(int) // gets the change of posted receives

	mu       sync.Mutex
	free     *recvBuffer
	ready    *recvBuffer // receives with buffers of the present layout
	prepared int         // their number; at most held, but for a moment
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

// supply promises n more receives, or as many as there is memory for, and returns their number.
// short is the reason for fewer, err for none at all. held is the change of held messages.
func (q *recvQueue) supply(n, held int) (got int, short, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.held += held
	defer q.trimLocked(max(0, q.held))
	q.promised += n
	if q.posted < q.promised+q.margin/2 {
		short, err = q.postLocked(q.promised + q.margin - q.posted)
	}
	lack := min(n, max(0, q.promised-q.posted))
	q.promised -= lack
	return n - lack, short, err
}

// postLocked posts n receives, or as many as there is memory for.
func (q *recvQueue) postLocked(n int) (short, err error) {
	if q.shared && n > q.depth-q.posted {
		n, short = q.depth-q.posted, errFull
	}
	if s := q.prepareLocked(n); s != nil {
		short = s
	}
	if q.to != nil && len(q.list) > 0 {
		if err := q.to.PostReceives(q.list); err != nil {
			q.undoPrepareLocked()
			return short, fmt.Errorf("rpcrdma: post receives: %w", err)
		}
	}
	q.countPostedLocked(len(q.list))
	return short, nil
}

func (q *recvQueue) countPostedLocked(n int) {
	q.posted += n
	if q.onPosted != nil {
		q.onPosted(n)
	}
}

// initial returns the receives of a queue without an endpoint.
func (q *recvQueue) initial() []rdma.Receive {
	if q.shared {
		return nil
	}
	return q.list
}

// prepareLocked puts n new receives into q.list, or as many as there is memory for.
func (q *recvQueue) prepareLocked(n int) error {
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

// undoPrepareLocked frees the receives that prepareLocked made.
func (q *recvQueue) undoPrepareLocked() {
	for _, l := range q.list {
		s := q.completed(l.ID)
		s.release()
		s.next, q.free = q.free, s
	}
	q.list = q.list[:0]
}

// completed returns a receive that completed. It belongs to the holder of the connection's recvMu
// until takeBack.
func (q *recvQueue) completed(id uint64) *recvBuffer { return (*q.table.Load())[idIndex(id)] }

// takeBack takes back a receive after its message was moved. promised is 1 if it was a promised
// one, otherwise 0.
func (q *recvQueue) takeBack(s *recvBuffer, promised int) {
	q.mu.Lock()
	q.countPostedLocked(-1)
	q.promised -= promised
	q.putLocked(s)
	q.mu.Unlock()
}

// putLocked keeps a receive that is not posted.
func (q *recvQueue) putLocked(s *recvBuffer) {
	if len(s.bufs) > 0 && s.of == q.layouts && !q.closed {
		s.next, q.ready = q.ready, s
		q.prepared++
		return
	}
	s.release()
	s.next, q.free = q.free, s
}

// trimLocked frees the buffers of all but n ready receives.
func (q *recvQueue) trimLocked(n int) {
	for q.prepared > n {
		s := q.ready
		q.ready = s.next
		q.prepared--
		s.release()
		s.next, q.free = q.free, s
	}
}

// trim frees memory that an idle connection does not need. That of shared receives stays.
func (q *recvQueue) trim() {
	if q.shared {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.list = nil
}

// setStructure sets the structure of receives to come. That of shared ones stays.
func (q *recvQueue) setStructure(layout [][]int) {
	if q.shared {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.trimLocked(0) // they are of another structure
	q.layout = layout
	q.layouts++
}

// bytesPerReceive is how many bytes a receive has.
func (q *recvQueue) bytesPerReceive() (n int) {
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

// returnPromised takes back the unused promised receives and held messages of a connection. A queue
// of its own is closed.
func (q *recvQueue) returnPromised(promised, held int) {
	if !q.shared {
		q.close()
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.promised -= promised
	q.held -= held
	q.trimLocked(max(0, q.held))
}

// close frees the receives when no message can come any more.
func (q *recvQueue) close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	for _, s := range *q.table.Load() {
		s.release()
	}
	q.countPostedLocked(-q.posted)
	q.promised, q.ready, q.prepared = 0, nil, 0
}
