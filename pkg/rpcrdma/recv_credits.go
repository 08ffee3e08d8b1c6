package rpcrdma

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// spareReceives is the number of receives that are posted besides those that credits account for.
const spareReceives = 2

// receives are a connection's account of its receives. They lie in a queue of its own, or in one that connections share. A message that arrives takes
// its receive's buffer with it; another one is posted in time, so that there always are
//
//	credits + extra = posted + held
//
// of them, or more for a while after credits were lowered, since what the peer may send by then cannot be recalled.
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
type recvCredits struct {
	queue *recvQueue

	mu      sync.Mutex
	posted  int // in the queue for this connection
	held    int // messages that stand for a receive until they are answered
	known   int // how many of them the queue knows of
	credits int // for what the peer's credits, or ours, let arrive
	peak    int // the most that answers of the present generation grant
	extra   int // for everything else
	granted int // the credits that were granted last
	most    int // the most that ever were
	closed  bool

	generation uint32
	unsent     [2]atomic.Int32 // answers of each generation
}

// prepare makes the first receives. Those of a queue of its own, which does not exist yet, are returned, to be posted with the connection.
func (r *recvCredits) prepare() ([]rdma.Receive, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.credits + r.extra
	var short, err error
	r.posted, short, err = r.queue.supply(n, 0)
	if r.posted < n {
		return nil, errors.Join(err, short)
	}
	return r.queue.initial(), nil
}

// fill posts what is missing. When memory is short it posts less, and fails only if nothing is left, the reserve included.
func (r *recvCredits) fill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.fillLocked()
}

func (r *recvCredits) fillLocked() error {
	if r.closed {
		return nil
	}
	n := max(0, r.credits+r.extra-r.posted-r.held)
	more, short, err := r.queue.supply(n, r.held-r.known)
	r.posted += more
	r.known = r.held
	if err == nil && more < n && r.posted+r.held <= max(0, r.extra-spareReceives) {
		err = fmt.Errorf("%w: %w", errNoReceive, short)
	}
	return err
}

// expected tells whether the peer may send the message that came. It may not where other connections' receives are in the queue, and none is for it.
func (r *recvCredits) expected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.posted > 0 || r.fillLocked() == nil && r.posted > 0
}

// consume counts a receive whose message is gone from it. With hold the message keeps its place until replace or answer.
func (r *recvCredits) consume(s *recvBuffer, hold bool) {
	r.mu.Lock()
	r.posted--
	if hold {
		r.held++
	}
	r.queue.takeBack(s, 1)
	r.mu.Unlock()
}

// overrun takes back a receive of others, whose message came without leave.
func (r *recvCredits) overrun(s *recvBuffer) {
	r.queue.takeBack(s, 0)
	_, _, _ = r.queue.supply(0, 0) // in place of it; those who miss it find out if there is none
}

// replace replaces the receives of a message that will not be answered.
func (r *recvCredits) replace(held int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= held
	return r.fillLocked()
}

// creditGrant is what an answer tells of credits.
type creditGrant struct {
	credits, inUse int
	generation     uint32
}

// answer replaces the receives of a message that is about to be answered, as many as it holds, and returns the credits to grant with it: no more
// than receives are posted. Without an account they are what extra is for. When the answer is on its way, grantSent follows.
func (r *recvCredits) answer(a credit.Account, asked, held int) (g creditGrant, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= held
	g.inUse = r.held
	if a == nil {
		g.credits = max(1, min(asked, r.extra-spareReceives))
	} else {
		asked = min(max(asked, 1), credit.Max)
		g.credits = max(1, min(asked, a.Credits(asked, g.inUse)))
		r.promiseLocked(g.credits)
	}
	g.generation = r.generation
	r.unsent[g.generation].Add(1)
	if err := r.fillLocked(); err != nil {
		return g, err
	}
	if a != nil {
		g.credits = max(1, min(g.credits, r.posted+r.held-r.extra))
		r.reportPostedLocked(a)
	}
	r.granted, r.most = g.credits, max(r.most, g.credits)
	return g, nil
}

// mostGranted is the most credits that were ever granted: the peer has one from the beginning.
func (r *recvCredits) mostGranted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.most, 1)
}

// promiseLocked makes credits such that an answer may grant n.
func (r *recvCredits) promiseLocked(n int) {
	if n < r.credits && r.unsent[1-r.generation].Load() == 0 {
		r.credits, r.peak = r.peak, n
		r.generation = 1 - r.generation
	}
	r.peak = max(r.peak, n)
	r.credits = max(r.credits, r.peak)
}

// grantSent notes that the answer with g is on its way.
func (r *recvCredits) grantSent(g creditGrant) { r.unsent[g.generation].Add(-1) }

// allow sets how many messages our own credits let arrive, and returns how many receives there are for them.
func (r *recvCredits) allow(n int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.credits = n
	err := r.fillLocked()
	return max(1, min(n, r.posted+r.held-r.extra)), err
}

// setStructure sets the structure of receives to come, and adds n to extra.
func (r *recvCredits) setStructure(layout [][]int, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue.setStructure(layout)
	r.extra += n
}

// spare is how many credits are not in use.
func (r *recvCredits) spare() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.credits - r.held
}

// reserve posts n more receives, or none.
func (r *recvCredits) reserve(n int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extra += n
	if err := r.fillLocked(); err == nil && r.posted+r.held >= r.credits+r.extra {
		return true
	}
	r.extra -= n
	return false
}

// giveBack gives up n receives that were reserved, and replaces those of held messages.
func (r *recvCredits) giveBack(n, held int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extra -= n
	r.held -= held
	return r.fillLocked()
}

// more changes extra by n, and posts what there is memory for.
func (r *recvCredits) more(n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extra += n
	return r.fillLocked()
}

// close gives up what is posted, and what stands for held messages; the endpoint has let go of it.
func (r *recvCredits) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.queue.returnPromised(r.posted, r.known)
	r.posted, r.known = 0, 0
}

// reportPostedLocked reports to the account the receives that stand for its credits now.
func (r *recvCredits) reportPostedLocked(a credit.Account) {
	p, ok := a.(credit.ReceiveAccount)
	if !ok {
		return
	}
	p.Posted(max(r.credits, r.posted+r.held-r.extra), r.queue.bytesPerReceive())
}
