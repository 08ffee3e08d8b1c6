package iwarp

import (
	crand "crypto/rand"
	"math/rand/v2"

	"sluice.dev/sluice/pkg/rdma"
)

// pendingRead is an RDMA Read of ours, from its turn in the send queue to the end of its response.
type pendingRead struct {
	id     uint64
	remote rdma.Remote
	local  [][]byte
	size   uint32
	// stag and to name the sink. They are valid for this read's response only and are in no table.
	stag uint32
	to   uint64
}

// readQueue holds our reads in order: the first sent of them are outstanding, the others wait until
// the peer's queue has room (ORD). The endpoint's mu guards it.
type readQueue struct {
	ring[pendingRead]
	sent   int
	random *rand.ChaCha8
}

// add appends a read and names its sink.
func (q *readQueue) add(w *rdma.WorkRequest) {
	if q.random == nil {
		var seed [32]byte
		crand.Read(seed[:]) // never fails: it would end the process
		q.random = rand.NewChaCha8(seed)
	}
	q.push(pendingRead{id: w.ID, remote: w.Remote, local: w.Local, size: uint32(length(w.Local)),
		stag: uint32(q.random.Uint64()), to: q.random.Uint64() >> 8})
}

// sendable reports whether a read waits and may be sent.
func (q *readQueue) sendable(ord int) bool { return q.sent < min(q.n, ord) }

// next returns the read to send now.
func (q *readQueue) next() *pendingRead {
	q.sent++
	return q.at(q.sent - 1)
}

// oldest returns the read of the next response.
func (q *readQueue) oldest() (pendingRead, bool) {
	if q.sent == 0 {
		return pendingRead{}, false
	}
	return *q.at(0), true
}

// finish removes the oldest read.
func (q *readQueue) finish() {
	q.pop()
	q.sent--
}

// answer is a Read Request of the peer.
type answer struct {
	readRequest
	msn uint32
}

// header is the DDP header that the request came with.
func (a *answer) header() []byte {
	return untaggedHeader{last: true, op: opReadRequest, qn: queueRead, msn: a.msn}.append(nil)
}

// remaining is the rest of the request after sent bytes (RFC 5040 section 4.8).
func (a *answer) remaining(sent uint64) []byte {
	r := a.readRequest
	r.sinkTO += sent
	r.sourceTO += sent
	r.size -= uint32(sent)
	return r.append(nil)
}
