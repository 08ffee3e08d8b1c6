package rpcrdma

import (
	"slices"
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
//	call → plan → acquire → fetch → handle → Respond → sent
//
// A call waits for memory in acquire, for RDMA Reads in fetch, and for its handler in handle. It
// blocks no goroutine meanwhile.
type responder struct {
	*link
	share   *bufpool.Share
	account credit.Account // nil in the reverse direction

	table      atomic.Pointer[[]*inCall] // all calls, by id; replaced with recvMu held
	local      *inCall                   // free calls; used with recvMu held
	vacant     []uint32                  // ids without a call, likewise
	active     atomic.Int32              // calls that are not free
	closed     atomic.Bool
	draining   atomic.Bool
	idle       chan struct{} // closed when draining and nothing is active
	quarantine *quarantine   // a server's

	messages atomic.Int64 // bytes of the messages that have arrived
	readLook readLook

	recent   recentWrites
	retained retainedReplies
	exposed  *exposedReplies // nil if none may be

	unsentFree atomic.Int32 // answers to messages that cost no credit, posted and not sent

	mu        sync.Mutex
	free      *inCall
	ready     *inCall // calls that got their memory while nobody held recvMu, oldest first
	readyLast *inCall
	running   bool           // runReady runs
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

// Progress implements [bufpool.Peer]. Bytes that arrived outside of messages belong to Read chunks.
// Providers that are no [rdma.Writer] report no written bytes.
func (in *responder) Progress() (fetched, written int64) {
	fetched = int64(in.ep.Stats().BytesIn) - in.messages.Load()
	if w, ok := in.ep.(rdma.Writer); ok {
		written = int64(w.Written())
	}
	return fetched, written
}

// Stalled implements [bufpool.Peer].
func (in *responder) Stalled(err error) { in.fail(err) }

// close frees the calls that wait. Those at the handler are freed when it answers. recvMu is held.
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
		if ic == nil {
			continue
		}
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
	if in.exposed != nil {
		in.exposed.close()
	}
	if in.account != nil {
		in.account.Close()
	}
}

// trim frees the memory of calls that are free. recvMu is held.
func (in *responder) trim() {
	in.mu.Lock()
	free := in.free
	in.free = nil
	in.mu.Unlock()
	if in.local == nil && free == nil {
		return
	}
	calls := slices.Clone(*in.table.Load()) // sent may be reading the old one
	for _, list := range []*inCall{in.local, free} {
		for ic := list; ic != nil; ic = ic.next {
			ic.freeHead()
			calls[ic.id] = nil
		}
	}
	in.local, in.vacant = nil, nil
	for len(calls) > 0 && calls[len(calls)-1] == nil {
		calls = calls[:len(calls)-1]
	}
	calls = slices.Clip(slices.Clone(calls))
	for id, ic := range calls {
		if ic == nil {
			in.vacant = append(in.vacant, uint32(id))
		}
	}
	in.table.Store(&calls)
}

// callState is the stage of a call, for the end of the connection.
type callState uint8

const (
	stateReceived callState = iota // in the hands of the goroutine that holds recvMu, or free
	stateWaiting                   // for bulk memory
	stateReading                   // for RDMA Reads
	stateServing                   // in the hands of the handler, or of Respond, or free again
)

// inCall is a call of the peer. It holds everything that its processing needs, so that the next
// call allocates nothing. Every message that arrives uses one until it turns out to be no call.
type inCall struct {
	oncrpc.Call
	inbound
	in    *responder
	id    uint32
	next  *inCall
	state callState // changed with recvMu held

	taken  int          // how many credits it counts for in retained
	source *inCall      // the call that the reply was made for, if not this one
	noted  bool         // its reply is retained after it was sent
	posted bool         // and has been sent
	before uint64       // the credits that answers had given back before
	size   int          // bytes of the reply, as retained counts them
	holds  atomic.Int32 // further holders, besides the first

	identity identity // of a call of version 2

	group *groupPlan // for the reply to one

	dec     xdr.Decoder
	args    []oncrpc.Argument
	found   []oncrpc.Found // for each Write chunk
	header  oncrpc.ReplyHeader
	chunks  []argChunk
	memory  [][]byte // of the chunks
	bulk    int      // bytes of bulk memory that the reply may take beyond the room in chunks
	grant   bufpool.Grant
	onReady func()
	reads   int // RDMA Reads that are outstanding

	head    *bufpool.Buf // three zero bytes, and the header of the answer
	split   split.Splitter
	out     [][]byte  // the answer's inline part
	data    [][]byte  // data of a result that is written
	lists   [][]byte  // memory of gather and scatter lists
	work    sendBatch // RDMA Reads, or the answer
	long    int       // bytes that go to the Reply chunk
	middles int       // messages before the last one of the answer
	granted creditGrant

	// the answer is posted and has not completed; the goroutine that resets it frees the call
	unsent atomic.Bool
}

// argChunk is a Read chunk, or an item of a group that is to be read.
type argChunk struct {
	position, length int
	item             int        // its index in the call's items
	first, n         int        // its segments in hdr.Reads
	source           *wire.Item // an item whose segments they are instead
	data             [][]byte
}

// readLook checks every readTimeout that RDMA Reads make progress. recvMu is held, but for timer.
type readLook struct {
	calls   int // calls that wait for RDMA Reads
	running bool
	timer   *time.Timer
	fetched int64 // bytes at the last check
}

// identity distinguishes calls of a connection that have the same XID. It does not depend on the
// shape of the call: arguments in the stream or in Read chunks.
type identity struct {
	program, version, procedure uint32
	length                      int    // of the unreduced stream
	sum                         uint32 // checksum of its beginning
}

// blame puts the call whose memory the peer refused into quarantine. recvMu is held.
func (in *responder) blame(handle wire.Handle) {
	s := in.quarantine
	if s == nil {
		return
	}
	client, now := in.info.Remote.Addr(), in.cfg.Now()
	for _, ic := range *in.table.Load() {
		if ic == nil || ic.state != stateReading {
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

// retainedReplies are replies of version 2 that the peer may ask for again. Their calls have been
// executed, and must not be executed twice.
//
//   - Replies in list did not fit their calls: the answer was REPLY_RESOURCE or WRITE_RESOURCE. The
//     same call with more room gets that reply. A requester keeps the credit for that. So executing
//     calls and retained replies together are at most the credits. Beyond that, the oldest reply's
//     credit was used otherwise, and nobody asks for it.
//   - Replies from first on were sent as groups, in this order, and the peer may report them. A
//     requester that gets a bad reply keeps the call's credit, and reports before it uses any
//     credit that came back behind it. Messages keep their order. If calls since a reply, without
//     those answered before it, take more credits than were ever granted, the peer has received the
//     reply and sent any report: drop it. At most one reply remains for each credit.
type retainedReplies struct {
	n atomic.Int32 // length of list, to look without the lock

	taken    uint64        // credits that calls took; changed with recvMu held
	returned atomic.Uint64 // credits that answers gave back; some may not be posted yet

	budget *bufpool.Budget

	mu          sync.Mutex
	list        []*inCall // oldest first; they are held
	first, last *inCall   // the same, linked by next
	bytes       int       // of all retained replies, until their memory is free
	closed      bool
}
