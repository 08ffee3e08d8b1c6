package rpcrdma

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// spareReceives is the number of receives beside those for credits.
const spareReceives = 2

// recvCredits is a connection's account of its receives. They lie in a queue of its own, or in one
// that connections share. A message takes its receive's buffer with it. Another receive is posted
// in time, so that always
//
//	credits + extra <= posted + held
//
// At a server, credits covers all calls that the peer may have under way by any grant so far, and
// falls only by the credits that answers give back; at a client it covers all replies that may
// still come. So a receive beyond the sum is promised to nobody, and may serve the other direction.
//
// A held message's buffer is replaced at once, so that a later lack of memory costs no credit: the
// receive is posted when the message is answered. Without memory the message moves into smaller
// buffers. Without these the receive is missing until there is memory again, and fewer credits are
// granted. The last credit borrows a spare receive.
//
// Answers may be sent in another order than they are composed. So a lower grant counts only when
// all answers with higher ones are sent: until then a client may get the higher number last. For
// that, answers belong to one of two generations, each with its highest grant. When all answers of
// the earlier one are sent, that grant is forgotten, and the later one becomes the earlier.
type recvCredits struct {
	queue *recvQueue

	mu      sync.Mutex
	posted  int // in the queue for this connection
	held    int // messages that stand for a receive until they are answered
	known   int // those of them that the queue knows of
	credits int // receives for the peer's credits, or for ours
	extra   int // further receives
	granted int // the credits that were granted last
	most    int // the most that ever were
	closed  bool
	window  credit.Receives // where messages carry the limit of all that may come

	generation uint32
	peaks      [2]int          // the highest grant of each generation
	unsent     [2]atomic.Int32 // answers of each generation
}

// prepare makes the first receives. It returns those of a queue of its own, to be posted with the
// connection.
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

// fill posts missing receives. Without memory it posts fewer, and fails only if not even a spare
// one is left.
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

// expected reports whether the peer may send the message that came. It may not if the receives in a
// shared queue are all for other connections.
func (r *recvCredits) expected() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.posted > 0 || r.fillLocked() == nil && r.posted > 0
}

// consume counts a receive whose message is gone from it. With hold the message keeps its place
// until replace or answer.
func (r *recvCredits) consume(s *recvBuffer, hold bool) {
	r.mu.Lock()
	r.posted--
	r.window.Receive()
	if hold {
		r.held++
	}
	r.queue.takeBack(s, 1)
	r.mu.Unlock()
}

// overrun takes back a receive of other connections that the message has used.
func (r *recvCredits) overrun(s *recvBuffer) {
	r.queue.takeBack(s, 0)
	_, _, _ = r.queue.supply(0, 0) // replace it; otherwise its owner finds out
}

// replace replaces the receives of a message that will not be answered.
func (r *recvCredits) replace(held int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= held
	return r.fillLocked()
}

// creditGrant describes the credits in an answer.
type creditGrant struct {
	credits, inUse int
	generation     uint32
}

// answer replaces the held receives of a message that is about to be answered, and returns the
// credits to grant: at most the posted receives. Without an account these are the extra ones.
// returned is the number of credits that the answer gives back for certain. When the answer is
// sent, grantSent follows.
func (r *recvCredits) answer(a credit.Account, asked, held, returned int) (g creditGrant, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.held -= held
	g.inUse = r.held
	if a == nil {
		g.credits = max(1, min(asked, r.extra-spareReceives))
	} else {
		asked = min(max(asked, 1), credit.Max)
		g.credits = max(1, min(asked, a.Credits(asked, g.inUse)))
		r.promiseLocked(g.credits, returned)
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

// mostGranted is the highest grant so far. The peer starts with one credit.
func (r *recvCredits) mostGranted() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(r.most, 1)
}

// promiseLocked raises or lowers credits such that an answer may grant n and give back returned.
func (r *recvCredits) promiseLocked(n, returned int) {
	if earlier := 1 - r.generation; n < r.credits && r.unsent[earlier].Load() == 0 {
		r.generation, r.peaks[earlier] = earlier, 0
	}
	r.peaks[r.generation] = max(r.peaks[r.generation], n)
	r.credits = max(r.peaks[0], r.peaks[1], r.credits-returned)
}

// grantSent counts the answer with g as sent.
func (r *recvCredits) grantSent(g creditGrant) { r.unsent[g.generation].Add(-1) }

// allow sets credits to the n calls that our own credits let be in flight, or to those that are in
// flight already, and returns the number of receives for them.
func (r *recvCredits) allow(n, inFlight int) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.credits = max(n, inFlight)
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

// spare is the number of credits that are not in use.
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

// more changes extra by n, and posts receives as far as there is memory.
func (r *recvCredits) more(n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.extra += n
	return r.fillLocked()
}

// close gives up all receives and held messages. The endpoint has let go of them.
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
