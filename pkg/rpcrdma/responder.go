package rpcrdma

import (
	"sync"
	"sync/atomic"
	"time"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// responder is the role that answers the peer's calls.
//
// A call goes through these steps, the first ones on the receive loop:
//
//	call → plan → acquire → fetch → serve → Respond → sent
//
// It may wait for memory in acquire, for RDMA Reads in fetch, and for its handler in serve; it blocks nobody meanwhile.
type responder struct {
	*link
	share   *bufpool.Share
	account credit.Account // nil in the reverse direction

	table      atomic.Pointer[[]*inCall] // all calls, by id; replaced with the loop held
	local      *inCall                   // free calls of whoever has the loop
	active     atomic.Int32              // calls that are not free
	closed     atomic.Bool
	draining   atomic.Bool
	idle       chan struct{} // closed when draining and nothing is active
	quarantine *quarantine   // a server's

	messages atomic.Int64 // bytes of the messages that have arrived
	readLook readLook

	recent   recentWrites
	retained retainedReplies

	unsentFree atomic.Int32 // answers to messages that cost no credit, posted and not sent

	mu        sync.Mutex
	free      *inCall
	ready     *inCall // calls that got their memory while nobody had the loop, oldest first
	readyLast *inCall
	running   bool           // somebody runs them
	run       func()         // runReady, made once
	orphans   sync.WaitGroup // calls that got their memory while the connection ended
}

func (in *responder) init(l *link) {
	in.link = l
	in.retained.budget = in.cfg.Budget
	in.idle = make(chan struct{})
	in.run = in.runReady
	in.table.Store(new([]*inCall))
	if in.server {
		in.account = in.cfg.Credits.Open()
	}
}

// Progress implements [bufpool.Peer]. What has come in beside messages are Read chunks. A provider that does not know what is on its way out leaves it at
// replies that have left.
func (in *responder) Progress() (fetched, written int64) {
	fetched = int64(in.ep.Stats().BytesIn) - in.messages.Load()
	if w, ok := in.ep.(rdma.Writer); ok {
		written = int64(w.Written())
	}
	return fetched, written
}

// Stalled implements [bufpool.Peer].
func (in *responder) Stalled(err error) { in.fail(err) }

// close frees the calls that are in nobody's hands. Those at the handler are freed when it answers. The loop is held.
func (in *responder) close() {
	in.closed.Store(true)
	in.mu.Lock()
	free := in.free
	in.free = nil
	in.mu.Unlock()
	for _, list := range []*inCall{in.local, free} {
		for ic := list; ic != nil; ic = ic.next {
			ic.freeHead()
		}
	}
	in.local = nil
	in.readLook.stop()
	for _, ic := range *in.table.Load() {
		switch ic.state {
		case stateWaiting:
			if ic.grant.Cancel() {
				ic.recycle()
			} else {
				in.orphans.Add(1) // memoryReady has it, or is about to
			}
		case stateReading:
			ic.recycle()
		case stateServing:
			if ic.unsent.CompareAndSwap(true, false) {
				ic.letGo()
			}
		}
	}
	in.retained.close()
	if in.account != nil {
		in.account.Close()
	}
}

// state of a call, as far as the end of the connection has to know it.
type callState uint8

const (
	stateReceived callState = iota // in the hands of whoever has the loop, or free
	stateWaiting                   // for bulk memory
	stateReading                   // for RDMA Reads
	stateServing                   // in the hands of the handler, or of Respond, or free again
)

// inCall is a call of the peer, with all that its processing needs, so that nothing is allocated for the next one. It is used for
// any message that arrives, until it turns out to be no call.
type inCall struct {
	oncrpc.Call
	inbound
	in    *responder
	id    uint32
	next  *inCall
	state callState // changed with the loop held only

	taken  int          // how many credits it counts for in retained
	source *inCall      // the call that the reply was made for, if not this one
	noted  bool         // its reply is kept after it was sent
	posted bool         // and has been sent
	before uint64       // the credits that were given back before
	size   int          // of the reply, in bytes, as far as retained counts it
	holds  atomic.Int32 // those who still need it, besides one

	identity identity // of a call of version 2

	group *groupPlan // for the reply to one

	dec     xdr.Decoder
	args    []oncrpc.Argument
	found   []oncrpc.Found // for each Write chunk
	header  oncrpc.ReplyHeader
	chunks  []argChunk
	memory  [][]byte // of the chunks
	bulk    int      // bytes of bulk memory that the reply may take, whatever the chunks have room for
	grant   bufpool.Grant
	onReady func()
	reads   int // outstanding

	head    *bufpool.Buf // three zero bytes, and the header of the answer
	split   split.Splitter
	out     [][]byte  // the answer's inline part
	data    [][]byte  // what was taken out of it
	lists   [][]byte  // memory of gather and scatter lists
	work    sendBatch // RDMA Reads, or the answer
	long    int       // length of what goes to the Reply chunk
	granted creditGrant

	unsent atomic.Bool // the answer is posted and has not completed; who resets it frees the call
}

// argChunk is a Read chunk, or an item of a group that is to be read.
type argChunk struct {
	position, length int
	item             int        // its index in the call's items
	first, n         int        // its segments in hdr.Reads
	source           *wire.Item // whose segments they are instead
	data             [][]byte
}

// readLook looks at RDMA Reads every readTimeout, as long as there are any. The loop is held, but by timer.
type readLook struct {
	calls   int // that wait for RDMA Reads
	running bool
	timer   *time.Timer
	fetched int64 // at the last look
}

// identity tells calls of a connection apart that have the same XID. It is the same for a call in
// whatever shape that comes: with its arguments in the stream or in Read chunks.
type identity struct {
	program, version, procedure uint32
	length                      int    // of the unreduced stream
	sum                         uint32 // checksum of its beginning
}

// blame finds the call whose memory the peer refused. The loop is held.
func (in *responder) blame(handle wire.Handle) {
	s := in.quarantine
	if s == nil {
		return
	}
	client, now := in.info.Remote.Addr(), in.cfg.Now()
	for _, ic := range *in.table.Load() {
		if ic.state != stateReading {
			continue
		}
		for i := range ic.chunks {
			for k := range ic.chunks[i].segments(&ic.hdr) {
				if ic.chunks[i].segment(&ic.hdr, k).Handle == handle {
					s.add(client, uint32(ic.hdr.XID), now)
					return
				}
			}
		}
	}
	in.recent.mu.Lock()
	defer in.recent.mu.Unlock()
	for i := range min(in.recent.next, len(in.recent.calls)) {
		c := &in.recent.calls[i]
		for _, h := range c.handle {
			if h == handle && h != 0 {
				s.add(client, c.xid, now)
				return
			}
		}
	}
}

// retainedReplies are replies of version 2 that may be wanted once more. Their calls have been executed, and must not be executed twice.
//
// Those in list did not fit what their calls offered: the call was answered REPLY_RESOURCE or WRITE_RESOURCE, and when it comes again, with more
// room, it gets that reply. A requester keeps the credit of such a call for sending it again. So calls that are executing and kept replies are
// together no more than the credits; where they are, the oldest reply's credit has been used otherwise, and nobody will ask for it.
//
// Those from first on were sent as groups, in this order, and may be reported. A requester that gets a bad one keeps the call's credit, and reports it
// before it uses any credit that came back behind it. Messages of a connection keep their order. So when a call arrives, count those that its
// sender would have outstanding if that reply had not reached it: they are all that have arrived, but for those that were answered before. If they take
// more credits than were ever granted it has reached the sender, whose report, if it is bad, has arrived; and the reply is let go of.
// That leaves at most one reply for each credit.
type retainedReplies struct {
	n atomic.Int32 // how many are in list, to look without the lock

	taken uint64        // credits that calls took; changed with the loop held
	given atomic.Uint64 // of those, the ones that answers gave back, some of which may not have been posted yet

	budget *bufpool.Budget

	mu          sync.Mutex
	list        []*inCall // oldest first; they are held
	first, last *inCall   // likewise, linked by next
	bytes       int       // of all replies that are or were kept, until their memory is free
	closed      bool
}
