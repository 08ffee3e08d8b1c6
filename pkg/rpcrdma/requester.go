package rpcrdma

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/padded"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// cancelWait is how long a cancelled request waits for its reply while memory of its user is
// exposed.
const cancelWait = 2 * time.Second

// requester is the role that makes calls. It is the oncrpc.Requester of the connection.
//
// A request is done when its reply has come, its own Send has completed, and the peer can no longer
// reach any memory that was exposed for it (RFC 8166 section 4.4.1). Only then does the memory
// belong to its user again.
type requester struct {
	oncrpc.Waiters
	*link
	account credit.Account // its credits are requested; nil in the reverse direction

	peerLimits atomic.Pointer[peerLimits] // replaced with mu held

	mu       sync.Mutex
	closed   error
	answered bool // the first reply has come
	probed   bool // a call was made to learn of credits
	granted  int  // calls that the peer lets be in flight
	inFlight int  // calls sent and not answered, cancelled ones included
	retrying int  // of inFlight: calls with a credit that wait to be sent again
	halted   bool // a report is to be sent before the next call
	exposing int  // calls for which memory is exposed, or about to be
	tried    int  // calls that are done with their exposed memory
	returned int  // those of them that had been sent
	calls    []*outCall
	free     *outCall
	first    *outCall // queue of calls that wait for a credit
	last     *outCall
	buckets  []*outCall // by XID: all that have no reply yet
	xid      uint32

	noGroups atomic.Bool // the peer does not take XMTREQ after all
	// placedBytes are those of arguments in groups under way, counted on a near link.
	placedBytes atomic.Int64

	// The following are changed with recvMu held.
	freed   int // credits of replies handled, not given back yet
	ended   int // at a server: the number of such replies
	offered int // the grant of the last of them, 0 if there was none
	// Receives to give back: those reserved for the replies of groups, and those that such replies
	// hold.
	unreserved, heldParts int
}

func (out *requester) init(l *link) {
	out.link, l.onOpen = l, out.pump
	out.granted = 1
	out.buckets = make([]*outCall, 256)
	if l.server { // it makes few calls
		out.buckets = make([]*outCall, 16)
	}
	out.peerLimits.Store(&peerLimits{Limits: l.cfg.Limits, ReadChunks: l.cfg.Limits.ReadSegments})
	out.xid = rand.Uint32()
	l.callsOpen.Store(!l.server)
	if !l.server {
		out.account = l.cfg.Credits.Open()
	}
}

// asked is how many credits a call requests.
func (out *requester) asked() int {
	if out.account == nil {
		return out.cfg.ReverseCredits
	}
	return min(max(1, out.account.Credits(out.granted, out.inFlight)), credit.Max)
}

// NextXID implements oncrpc.Requester.
func (out *requester) NextXID() uint32 {
	out.mu.Lock()
	defer out.mu.Unlock()
	return out.nextXIDLocked()
}

func (out *requester) nextXIDLocked() uint32 {
	for {
		out.xid++
		if out.findLocked(out.xid) == nil {
			return out.xid
		}
	}
}

// Close implements oncrpc.Requester: it ends the connection.
func (out *requester) Close() error {
	out.fail(ErrClosed)
	return nil
}

func (out *requester) bucket(xid uint32) **outCall { return &out.buckets[xid%uint32(len(out.buckets))] }

func (out *requester) findLocked(xid uint32) *outCall {
	o := *out.bucket(xid)
	for o != nil && o.xid != xid {
		o = o.nextInBucket
	}
	return o
}

func (out *requester) addToBucketLocked(o *outCall) {
	b := out.bucket(o.xid)
	o.nextInBucket, *b = *b, o
}

func (out *requester) removeFromBucketLocked(o *outCall) {
	b := out.bucket(o.xid)
	for *b != o {
		b = &(*b).nextInBucket
	}
	*b, o.nextInBucket = o.nextInBucket, nil
}

// expects reports whether xid is that of a call of ours which waits for its reply.
func (out *requester) expects(xid uint32) bool {
	out.mu.Lock()
	defer out.mu.Unlock()
	o := out.findLocked(xid)
	return o != nil && o.posted
}

func (out *requester) newCallLocked(r *oncrpc.Request, xid uint32) *outCall {
	o := out.free
	if o == nil {
		o = &outCall{out: out, id: uint32(len(out.calls))}
		out.calls = append(out.calls, o)
	} else {
		out.free, o.next = o.next, nil
	}
	o.req, o.xid, o.live, o.unread, o.credits, o.reserved = r, xid, true, true, 1, 0
	out.addToBucketLocked(o)
	return o
}

func (out *requester) freeCallLocked(o *outCall) {
	o.req, o.live, o.posted, o.detached, o.credited, o.err = nil, false, false, false, false, nil
	o.starved = false
	o.tries, o.room, o.retryChunk, o.retrySize, o.noWrites, o.noGroup, o.needs = 0, 0, 0, 0, false, false, 0
	o.next, out.free = out.free, o
}

// returnCredits gives back the credits of the handled replies. There are receives for the replies
// that they admit.
func (out *requester) returnCredits() {
	if out.unreserved|out.heldParts|out.ended != 0 {
		if err := out.receives.giveBack(out.unreserved+out.ended, out.heldParts); err != nil {
			out.fail(err)
		}
		out.unreserved, out.heldParts, out.ended = 0, 0, 0
	}
	if out.freed == 0 {
		return
	}
	granted := max(1, min(out.offered, credit.Max))
	if !out.server {
		out.mu.Lock()
		granted = min(granted, out.asked())
		out.granted = min(out.granted, granted) // later calls have no more
		inFlight := out.inFlight - out.freed
		out.mu.Unlock()
		var err error
		if granted, err = out.receives.allow(granted, inFlight); err != nil {
			out.fail(err)
		}
	}
	out.mu.Lock()
	out.inFlight -= out.freed
	out.granted, out.answered = granted, true
	out.mu.Unlock()
	out.freed = 0
	out.pump()
}

// close fails all outstanding requests. The endpoint has let go of all memory, and the peer has no
// access any more.
func (out *requester) close(cause error) {
	var lost error = &LostError{cause}
	if errors.Is(cause, ErrClosed) {
		lost = cause
	}
	out.mu.Lock()
	out.closed = lost
	out.first, out.last = nil, nil
	clear(out.buckets)
	var gone *outCall
	for _, o := range out.calls {
		if !o.live {
			o.build.freeHead()
			continue
		}
		o.next, o.nextInBucket = nil, nil
		if o.unread && o.err == nil {
			o.err = lost
		}
		if (o.again || o.fetching && o.fetched.reads > 0) && o.err == nil {
			o.err = lost
		}
		o.queued, o.unsent, o.unread, o.again, o.fetching, o.invalidating, o.redirecting = false, false, false, false, false, 0, 0
		if o.busy == 0 {
			o.live = false
			o.next, gone = gone, o
		}
	}
	out.mu.Unlock()
	for gone != nil {
		o := gone
		gone, o.next = o.next, nil
		o.finish()
	}
	if out.account != nil {
		out.account.Close()
	}
}

// outCall is a request in the hands of the requester. It holds everything that a request needs, so
// that the next one allocates nothing.
type outCall struct {
	out          *requester
	id           uint32
	req          *oncrpc.Request // nil: cancelled; only its reply is awaited
	xid          uint32
	next         *outCall // in the free list or the queue
	nextInBucket *outCall // in its bucket

	// The following need the requester's lock.
	live     bool
	queued   bool // it waits for a credit
	posted   bool // the peer may know of it
	again    bool // the peer refused it, and it will be sent in another shape
	credited bool // the same, and it has a credit
	starved  bool // it waits until less memory is exposed
	exposes  bool // it counts in the requester's exposing
	// The requester's counts when it was sent.
	tried, returned int
	// cancelled: the request went back to its user, the memory stays until the reply comes
	detached     bool
	unsent       bool // its Send has not completed
	unread       bool // its reply has not come
	invalidating int  // invalidations that have not completed
	redirecting  int  // the same of redirections
	fetching     bool // its reply's data are being read; see fetchedReply
	busy         int  // goroutines that work on it without the lock
	err          error
	credits      int // credits that it takes
	needs        int // credits to wait for, if only a group can carry it; 0 otherwise
	reserved     int // receives for the transmissions of its reply, if that may be a group

	// The shape in which it is sent again; see retryLocked.
	tries                 int
	noGroup               bool // not as a group
	room                  int  // bytes in the Reply chunk
	retryChunk, retrySize int  // Write chunk, counted from 1, and its bytes
	noWrites              bool // no Write chunks

	// Owned by the goroutine that is busy with it.
	regions       []exposedRegion
	invalidations sendBatch
	redirections  sendBatch // of a cancelled call
	build         callBuilder
	reply         receivedReply
	fetched       *fetchedReply // of RFC 5666 alone
}

// exposedRegion is memory that the peer can reach.
type exposedRegion struct {
	handle  uint32
	gone    bool // invalidated, or about to be
	foreign bool // it is the user's
	access  rdma.Access
	mem     []byte
}

// callBuilder turns a request into a message. It chooses as the Linux client does:
//
//   - the reply goes inline if its bound fits, else its eligible results into Write chunks if the
//     rest fits, else all of it into a Reply chunk;
//   - the call goes inline if it fits, else with as few of its eligible arguments as need be in
//     Read chunks, else all that is left of it into a Position Zero Read chunk.
type callBuilder struct {
	head       *bufpool.Buf // three zero bytes, and the header
	split      split.Splitter
	cuts       []oncrpc.Argument // arguments for Read chunks, by position
	out        [][]byte          // the stream without them
	data       [][]byte          // their data
	ends       []int             // where in data each cut ends
	gather     [][]byte
	send       sendBatch
	bufs       []*bufpool.Buf // copies
	writes     int            // Write chunks
	results    []resultBuf    // memory for the results
	hasLong    bool
	copied     bool      // the stream for the Position Zero Read chunk is the requester's memory
	replyChunk resultBuf // the memory of the Reply chunk
	segs       []wire.Segment

	padding padded.Rule // of a call that is RDMA_MSGP
	omitted bool        // no memory is offered for a reply that may be long; see omitsChunks
	lim     peerLimits
	dialect wire.Dialect
	// In the working group's dialect of version 2: Middles of the call; the most Middles of a call
	// and of a reply; the most bytes of a segment.
	middles, callMiddles, replyMiddles, segment int

	grouped   bool // the call is sent as a group
	short     int  // missing credits for a group
	group     *groupPlan
	maxGather int
	counted   int64 // the call's share of the requester's placedBytes
}

// resultBuf is memory in which the peer puts a result.
type resultBuf struct {
	data [][]byte
	room int            // bytes for the result
	pad  int            // bytes behind them, in a segment of their own, for its round-up
	bufs []*bufpool.Buf // if it is the requester's own
	at   int            // first segment in callBuilder.segs
}

// receivedReply is the reply to an outCall before it is assembled.
type receivedReply struct {
	message oncrpc.Message
	long    int   // bytes in the Reply chunk, if it is a long one
	placed  []int // bytes in each Write chunk
	slots   []int // bytes placed for each result
	from    []int // its Write chunk
	found   []oncrpc.Found
	header  oncrpc.ReplyHeader
	dec     xdr.Decoder
}

// peerLimits are the known limits of headers that the peer accepts.
type peerLimits struct {
	wire.Limits
	ReadChunks int
	lowered    bool // the peer has lowered them
}
