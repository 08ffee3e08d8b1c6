package rpcrdma

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
)

// reserve is the number of receives that are posted besides those that credits account for.
const reserve = 2

// errNoReceive is why a connection ends when no receive is left, nor memory for one.
var errNoReceive = errors.New("rpcrdma: no memory for another receive")

// receives are the posted receives of a connection. A message that arrives takes its receive's buffer with it;
// another one is posted in time, so that there always are
//
//	credits + extra = posted + held
//
// of them, or more for a while after credits were lowered, since what is posted cannot be recalled.
//
// What a held message took is replaced at once, so that memory which becomes scarce meanwhile costs no credit: the receive is ready, and posted
// when the message is answered. If there is no memory even then, the message moves out of the receive into smaller buffers, as many as it fills. If there
// are none of these either the receive is missing until there is memory again, which that of the message itself may be, and fewer credits are granted. The
// last credit is lent one of the reserve.
//
// Answers may be sent in another order than they were composed in. So lower credits count only when all answers that
// grant more are on their way: until then a client may yet be told the higher number last. Answers belong to one of two
// generations for that. Those of the earlier one grant at most credits, those of the later one at most peak; when the earlier one
// is sent, credits fall to peak, and the later one becomes the earlier.
type receives struct {
	ep   rdma.Endpoint
	pool *bufpool.Pool

	table atomic.Pointer[[]*receive] // all, by id; replaced under the lock

	mu       sync.Mutex
	free     *receive
	ready    *receive // those that have their buffers, of the present layout
	prepared int      // how many these are; at most held, but for what comes just now
	posted   int
	held     int // messages that stand for a receive until they are answered
	credits  int // for what the peer's credits, or ours, let arrive
	peak     int // the most that answers of the present generation grant
	extra    int // for everything else
	granted  int // the credits that were granted last
	most     int // the most that ever were
	list     []rdma.Receive
	closed   bool
	layout   [][]int // lengths of the segments in each buffer of receives to come
	layouts  uint32  // how often it has changed

	generation uint32
	unsent     [2]atomic.Int32 // answers of each generation
}

// receive is an entry of the receive queue: buffers, cut into segments.
type receive struct {
	id     uint64
	bufs   []*bufpool.Buf // of which none is nil, or there are none
	segs   [][]byte
	layout [][]int // how bufs are cut, and when that was decided
	of     uint32
	next   *receive
}

// prepare makes the first receives, which are posted with the connection.
func (r *receives) prepare() ([]rdma.Receive, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.gather(r.credits + r.extra); err != nil {
		r.giveUp()
		return nil, err
	}
	r.posted = len(r.list)
	return r.list, nil
}

// gather puts n new receives into r.list, or as many as there is memory for.
func (r *receives) gather(n int) error {
	clear(r.list)
	r.list = r.list[:0]
	for range n {
		if s := r.ready; s != nil {
			r.ready, s.next = s.next, nil
			r.prepared--
			r.list = append(r.list, rdma.Receive{ID: s.id, Segments: s.segs})
			continue
		}
		s := r.free
		if s == nil {
			all := *r.table.Load()
			s = &receive{id: idReceive | uint64(len(all))}
			all = append(all, s)
			r.table.Store(&all)
		} else {
			r.free = s.next
		}
		s.next = nil
		s.layout, s.of = r.layout, r.layouts
		if err := s.make(r.pool); err != nil {
			s.next, r.free = r.free, s
			return err
		}
		r.list = append(r.list, rdma.Receive{ID: s.id, Segments: s.segs})
	}
	return nil
}

// make gets the buffers of a receive, and cuts them.
func (s *receive) make(pool *bufpool.Pool) error {
	for _, lengths := range s.layout {
		buf, err := pool.Get(sum(lengths))
		if err != nil {
			s.release()
			return err
		}
		s.bufs = append(s.bufs, buf)
	}
	s.cut()
	return nil
}

func (s *receive) cut() {
	s.segs = s.segs[:0]
	for i, lengths := range s.layout {
		s.segs = cut(s.segs, s.bufs[i].B, lengths)
	}
}

// cut appends the segments of a buffer to dst, as far as the buffer goes.
func cut(dst [][]byte, b []byte, lengths []int) [][]byte {
	for _, l := range lengths {
		if l = min(l, len(b)); l > 0 {
			dst, b = append(dst, b[:l:l]), b[l:]
		}
	}
	return dst
}

func sum(lengths []int) (n int) {
	for _, l := range lengths {
		n += l
	}
	return n
}

// release frees the buffers of a receive.
func (s *receive) release() {
	for i, b := range s.bufs {
		b.Release()
		s.bufs[i] = nil
	}
	s.bufs = s.bufs[:0]
}

// giveUp frees what gather made.
func (r *receives) giveUp() {
	for _, l := range r.list {
		s := r.get(l.ID)
		s.release()
		s.next, r.free = r.free, s
	}
	r.list = r.list[:0]
}

// fill posts what is missing. When memory is short it posts less, and fails only if nothing is left, the reserve included.
func (r *receives) fill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fillLocked()
}

func (r *receives) fillLocked() error {
	defer r.trim(max(0, r.held))
	n := r.credits + r.extra - r.posted - r.held
	if n <= 0 || r.closed {
		return nil
	}
	short := r.gather(n)
	if len(r.list) > 0 {
		if err := r.ep.PostReceives(r.list); err != nil {
			r.giveUp()
			return fmt.Errorf("rpcrdma: post receives: %w", err)
		}
		r.posted += len(r.list)
	}
	if short != nil && r.posted+r.held <= max(0, r.extra-reserve) {
		return fmt.Errorf("%w: %w", errNoReceive, short)
	}
	return nil
}

// get returns a receive that completed. It belongs to whoever has the loop until arrived.
func (r *receives) get(id uint64) *receive { return (*r.table.Load())[index(id)] }

// message moves the message of n bytes that came in s to m, and returns it in dst: cut as the receive is. Its buffers are m's from then on. s has others, or
// none if there is no memory; those that have nothing of the message stay.
func (s *receive) message(dst [][]byte, n int, m *oncrpc.Message, pool *bufpool.Pool) [][]byte {
	whole := true
	for i, b := range s.bufs {
		k := min(n, len(b.B))
		if n -= k; k == 0 && i > 0 {
			continue
		}
		other, err := pool.Get(len(b.B))
		if err != nil {
			if moved := smaller(pool, k, len(b.B)); moved != nil {
				copy(moved.B, b.B)
				b, other = moved, b
			} else {
				whole = false
			}
		}
		m.Own(b)
		s.bufs[i] = other
		dst = cut(dst, b.B[:k], s.layout[i])
	}
	if whole {
		s.cut()
		return dst
	}
	for _, b := range s.bufs {
		if b != nil {
			b.Release()
		}
	}
	clear(s.bufs)
	s.bufs = s.bufs[:0]
	return dst
}

// smaller gets a buffer for n bytes of a class below that of size, nil if there is none.
func smaller(pool *bufpool.Pool, n, size int) *bufpool.Buf {
	for k := max(n, 1); k <= size/2; k *= 2 {
		if b, err := pool.Get(k); err == nil {
			b.B = b.B[:n]
			return b
		}
	}
	return nil
}

// arrived counts a receive whose message is gone from it. With hold the message keeps its place until drop or answer.
func (r *receives) arrived(s *receive, hold bool) {
	r.mu.Lock()
	r.posted--
	if hold {
		r.held++
	}
	r.put(s)
	r.mu.Unlock()
}

// put keeps a receive that is not posted.
func (r *receives) put(s *receive) {
	if len(s.bufs) > 0 && s.of == r.layouts && !r.closed {
		s.next, r.ready = r.ready, s
		r.prepared++
		return
	}
	s.release()
	s.next, r.free = r.free, s
}

// trim frees the buffers of ready receives but for n of them.
func (r *receives) trim(n int) {
	for r.prepared > n {
		s := r.ready
		r.ready = s.next
		r.prepared--
		s.release()
		s.next, r.free = r.free, s
	}
}

// drop replaces the receives of a message that will not be answered.
func (r *receives) drop(held int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= held
	return r.fillLocked()
}

// grant is what an answer tells of credits.
type grant struct {
	credits, inUse int
	generation     uint32
}

// answer replaces the receives of a message that is about to be answered, as many as it holds, and returns the credits to grant with it: no more
// than receives are posted. Without an account they are what extra is for. When the answer is on its way, answered follows.
func (r *receives) answer(a CreditAccount, asked, held int) (g grant, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= held
	g.inUse = r.held
	if a == nil {
		g.credits = max(1, min(asked, r.extra-reserve))
	} else {
		asked = min(max(asked, 1), maxCredits)
		g.credits = max(1, min(asked, a.Credits(asked, g.inUse)))
		r.promise(g.credits)
	}
	g.generation = r.generation
	r.unsent[g.generation].Add(1)
	if err := r.fillLocked(); err != nil {
		return g, err
	}
	if a != nil {
		g.credits = max(1, min(g.credits, r.posted+r.held-r.extra))
		r.tell(a)
	}
	r.granted, r.most = g.credits, max(r.most, g.credits)
	return g, nil
}

// mostGranted is the most credits that were ever granted: the peer has one from the beginning.
func (r *receives) mostGranted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.most, 1)
}

// promise makes credits such that an answer may grant n.
func (r *receives) promise(n int) {
	if n < r.credits && r.unsent[1-r.generation].Load() == 0 {
		r.credits, r.peak = r.peak, n
		r.generation = 1 - r.generation
	}
	r.peak = max(r.peak, n)
	r.credits = max(r.credits, r.peak)
}

// answered notes that the answer with g is on its way.
func (r *receives) answered(g grant) { r.unsent[g.generation].Add(-1) }

// allow sets how many messages our own credits let arrive, and returns how many receives there are for them.
func (r *receives) allow(n int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.credits = n
	err := r.fillLocked()
	return max(1, min(n, r.posted+r.held-r.extra)), err
}

// settle sets the structure of receives to come, and adds n to extra.
func (r *receives) settle(layout [][]int, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.trim(0) // they are of another structure
	r.layout = layout
	r.layouts++
	r.extra += n
}

// spare is how many credits are not in use.
func (r *receives) spare() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.credits - r.held
}

// reserve posts n more receives, or none.
func (r *receives) reserve(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extra += n
	if err := r.fillLocked(); err == nil && r.posted+r.held >= r.credits+r.extra {
		return true
	}
	r.extra -= n
	return false
}

// done gives up n receives that were reserved, and replaces those of held messages.
func (r *receives) done(n, held int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extra -= n
	r.held -= held
	return r.fillLocked()
}

// smaller reports whether a receive of fewer than n bytes is posted. The loop is held.
func (r *receives) smaller(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range *r.table.Load() {
		if len(s.bufs) > 0 && len(s.bufs[0].B) < n {
			return true
		}
	}
	return false
}

// more changes extra: for one more reply to a reverse call, or one less.
func (r *receives) more(n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extra += n
	return r.fillLocked()
}

// close frees what is posted; the endpoint has let go of it.
func (r *receives) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	for _, s := range *r.table.Load() {
		s.release()
	}
	r.posted, r.ready, r.prepared = 0, nil, 0
}
