package rpcrdma

import (
	"sluice.dev/sluice/pkg/oncrpc"
)

// outCall is a request in the hands of the requester, with all that it needs, so that nothing is allocated for the next one.
type outCall struct {
	out          *requester
	id           uint32
	req          *oncrpc.Request // nil: cancelled, all that is left is to wait for the reply
	xid          uint32
	next         *outCall // in the free list or the queue
	nextInBucket *outCall // in its bucket

	// Under the requester's lock.
	live     bool
	queued   bool // it waits for a credit
	posted   bool // the peer may know of it
	again    bool // the peer refused it, and it will be sent in another shape
	credited bool // it is so, and has a credit
	starved  bool // it waits until others expose less
	exposes  bool // it is one of the requester's exposing
	// The requester's, when it was sent.
	tried, returned int
	detached        bool // cancelled: the request goes back to its user, the memory stays until the reply comes
	unsent          bool // its Send has not completed
	unread          bool // its reply has not come
	invalidating    int  // invalidations that have not completed
	busy            int  // goroutines that work on it without the lock
	err             error
	credits         int // that it takes
	needs           int // that it has to wait for together, since nothing but a group can carry it; 0 otherwise
	reserved        int // receives for the transmissions of its reply, if that may be a group

	// What to do differently when it is sent again; see retry.
	tries                 int
	noGroup               bool // not as a group
	room                  int  // bytes in the Reply chunk
	retryChunk, retrySize int  // Write chunk, counted from 1, and its bytes
	noWrites              bool // no Write chunks

	// Of whoever is busy with it.
	regions       []exposedRegion
	invalidations sendBatch
	build         callBuilder
	reply         receivedReply
}

// exposedRegion is memory that the peer can reach.
type exposedRegion struct {
	handle uint32
	gone   bool // invalidated, or about to be
}
