package rpcrdma

import (
	"fmt"
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// sendGate holds back Sends until the peer has receives for them, in the working group's dialect of
// version 2. Each Send costs a credit, replies too, and carries the limit of the peer's Sends.
//
// Replies pass calls. The last credit is for a reply while a call of ours is unanswered: that call
// may wait for just this reply. The messages of a continued one follow each other, but for grants.
type sendGate struct {
	work     *workQueue
	receives *recvCredits
	active   atomic.Bool // the dialect is spoken, or about to be
	waiting  atomic.Bool

	mu       sync.Mutex
	sends    credit.Sends
	replies  batchList
	calls    batchList
	part     *sendBatch // the batch of which some messages are sent
	next     int        // its first work request that is not sent
	callsOut int        // calls that were sent and have no reply
	draining bool       // a goroutine sends
	due      bool       // a grant is to be sent
	granting bool       // one is posted and has not completed
	grant    *bufpool.Buf
	batch    sendBatch
	closed   bool
}

// batchList is a queue of batches, linked by next.
type batchList struct{ first, last *sendBatch }

func (l *batchList) push(b *sendBatch) {
	b.next = nil
	if l.last == nil {
		l.first = b
	} else {
		l.last.next = b
	}
	l.last = b
}

func (l *batchList) pop() {
	b := l.first
	if l.first = b.next; l.first == nil {
		l.last = nil
	}
	b.next = nil
}

func newSendGate(work *workQueue, receives *recvCredits, server bool) *sendGate {
	g := &sendGate{work: work, receives: receives, sends: credit.NewSends()}
	work.admit, receives.window = g.post, credit.NewReceives()
	g.active.Store(!server)
	return g
}

func isSend(wr *rdma.WorkRequest) bool {
	return wr.Op == rdma.Send || wr.Op == rdma.SendWithInvalidate
}

// post sends b, or lets it wait. Batches without a Send pass.
func (g *sendGate) post(b *sendBatch) {
	last := &b.wrs[len(b.wrs)-1]
	if !isSend(last) {
		g.work.enqueue(b)
		return
	}
	if !g.active.Load() {
		g.mu.Lock()
		g.sends.Send(1)
		g.mu.Unlock()
		g.work.enqueue(b)
		return
	}
	g.mu.Lock()
	if last.ID&idKind == idRequest {
		g.calls.push(b)
	} else {
		g.replies.push(b)
	}
	g.waiting.Store(true)
	g.drainLocked()
	g.mu.Unlock()
}

// arrived takes the limit in a message that came.
func (g *sendGate) arrived(h *wire.Header) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.sends.Allow(h.Limit)
	if h.Procedure == wire.Error || h.Direction == wire.Reply && h.Procedure != wire.Middle {
		g.callsOut = max(0, g.callsOut-1)
	}
	if g.waiting.Load() {
		g.drainLocked()
	}
}

// drainLocked sends waiting batches within the credits. It unlocks the gate while it posts; then
// another goroutine leaves the work to this one.
func (g *sendGate) drainLocked() {
	if g.draining {
		return
	}
	g.draining = true
	for b := g.nextLocked(); b != nil && !g.closed; b = g.nextLocked() {
		g.mu.Unlock()
		g.work.enqueue(b)
		g.mu.Lock()
	}
	g.waiting.Store(g.part != nil || g.replies.first != nil || g.calls.first != nil)
	g.draining = false
}

// nextLocked returns the next batch to be posted, or as many messages of it as the peer takes.
func (g *sendGate) nextLocked() *sendBatch {
	free := g.sends.Free()
	if g.due && g.sends.MayGrant() {
		g.due, g.granting = false, true
		g.stampLocked(g.grant.B)
		g.batch.wrs = append(g.batch.wrs[:0], rdma.WorkRequest{ID: idGrant, Op: rdma.Send, Signaled: true, Local: [][]byte{g.grant.B}})
		return &g.batch
	}
	if g.part == nil {
		switch {
		case free > 0 && g.replies.first != nil:
			g.part = g.replies.first
			g.replies.pop()
		case g.calls.first != nil && (free > 1 || free == 1 && g.callsOut == 0):
			g.part = g.calls.first
			g.calls.pop()
		default:
			return nil
		}
		g.next = 0
	}
	b, from := g.part, g.next
	sends, end := 0, from
	for ; end < len(b.wrs); end++ {
		wr := &b.wrs[end]
		if !isSend(wr) {
			continue
		}
		if sends == free {
			break
		}
		sends++
		g.stampLocked(wr.Local[0])
	}
	if sends == 0 || free <= 0 {
		return nil
	}
	if end < len(b.wrs) {
		g.next = end
		return &sendBatch{wrs: b.wrs[from:end:end]}
	}
	if b.wrs[end-1].ID&idKind == idRequest {
		g.callsOut++
	}
	g.part = nil
	if from > 0 {
		return &sendBatch{wrs: b.wrs[from:]}
	}
	return b
}

// stampLocked writes the limit of the peer's Sends into a header that is about to be sent.
func (g *sendGate) stampLocked(head []byte) {
	g.sends.Send(1)
	wire.SetLimit(head, g.receives.announce())
}

// refresh sends a grant when the peer has used more than half of the credits that it knows. Without
// memory for one it ends the connection.
func (g *sendGate) refresh(pool *bufpool.Pool) {
	if !g.active.Load() || !g.receives.due() {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.granting || g.closed || !g.sends.MayGrant() {
		return
	}
	if g.grant == nil {
		b, err := pool.Get(wire.FixedSize)
		if err != nil { // the peer may wait for it for ever
			g.work.fail(fmt.Errorf("rpcrdma: no memory for a grant of credits: %w", err))
			return
		}
		b.B = wire.AppendGrant(b.B[:0])
		g.grant = b
	}
	g.due = true
	g.drainLocked()
}

// sent handles the completion of a grant. The peer may have used it already, and wait for another.
func (g *sendGate) sent(pool *bufpool.Pool) {
	g.mu.Lock()
	g.granting = false
	g.mu.Unlock()
	g.work.completed(1)
	g.refresh(pool)
}

// close drops the waiting batches. The endpoint has let go of everything.
func (g *sendGate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed, g.part, g.replies, g.calls = true, nil, batchList{}, batchList{}
	if g.grant != nil {
		g.grant.Release()
		g.grant = nil
	}
}

// announce returns the limit of the peer's Sends for a message that is about to be sent.
func (r *recvCredits) announce() uint32 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.window.Announce(r.posted)
}

// due reports whether the peer is to learn of more receives now.
func (r *recvCredits) due() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.window.Due(r.posted)
}
