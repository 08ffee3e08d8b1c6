package rpcrdma

import (
	"errors"
	"sync"
	"sync/atomic"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"

	"sluice.dev/sluice/pkg/rpcrdma/credit"
)

// responder is the role that answers the peer's calls.
//
// A call goes through these steps, the first ones on the receive loop:
//
//	call → plan → acquire → fetch → serve → Respond → sent
//
// It may wait for memory in acquire, for RDMA Reads in fetch, and for its handler in serve; it blocks nobody meanwhile.
type responder struct {
	c       *Conn
	share   *bufpool.Share
	account credit.Account // nil in the reverse direction

	table    atomic.Pointer[[]*inCall] // all calls, by id; replaced with the loop held
	local    *inCall                   // free calls of whoever has the loop
	active   atomic.Int32              // calls that are not free
	closed   atomic.Bool
	draining atomic.Bool
	idle     chan struct{} // closed when draining and nothing is active

	messages atomic.Int64 // bytes of the messages that have arrived
	readLook readLook

	recent recent
	kept   kept

	unsentFree atomic.Int32 // answers to messages that cost no credit, posted and not sent

	mu        sync.Mutex
	free      *inCall
	ready     *inCall // calls that got their memory while nobody had the loop, oldest first
	readyLast *inCall
	running   bool           // somebody runs them
	run       func()         // runReady, made once
	orphans   sync.WaitGroup // calls that got their memory while the connection ended
}

// state of a call, as far as the end of the connection has to know it.
type state uint8

const (
	onLoop  state = iota // in the hands of whoever has the loop, or free
	waiting              // for bulk memory
	reading              // for RDMA Reads
	serving              // in the hands of the handler, or of Respond, or free again
)

// inCall is a call of the peer, with all that its processing needs, so that nothing is allocated for the next one. It is used for
// any message that arrives, until it turns out to be no call.
type inCall struct {
	oncrpc.Call
	c     *Conn
	id    uint32
	next  *inCall
	state state // changed with the loop held only

	held   int          // how many receives it stands for until it is answered; 0 if it costs no credit
	xmt    bool         // it came as a group: by XMTREQ or XMTRESP
	v2     bool         // the message is of version 2
	taken  int          // how many credits it counts for in kept
	source *inCall      // the call that the reply was made for, if not this one
	noted  bool         // its reply is kept after it was sent
	posted bool         // and has been sent
	before uint64       // the credits that were given back before
	size   int          // of the reply, in bytes, as far as kept counts it
	holds  atomic.Int32 // those who still need it, besides one

	identity identity // of a call of version 2

	origins []int      // of a group: for each item, its index in the header
	group   *groupPlan // for the reply to one

	hdr     wire.Header
	message [][]byte // the message as received
	dec     xdr.Decoder
	args    []oncrpc.Argument
	found   []oncrpc.Found // for each Write chunk
	header  oncrpc.ReplyHeader
	chunks  []chunk
	memory  [][]byte // of the chunks
	bulk    int      // bytes of bulk memory that the reply may take, whatever the chunks have room for
	grant   bufpool.Grant
	onReady func()
	reads   int // outstanding

	head    *bufpool.Buf // three zero bytes, and the header of the answer
	split   split.Splitter
	out     [][]byte // the answer's inline part
	data    [][]byte // what was taken out of it
	lists   [][]byte // memory of gather and scatter lists
	work    batch    // RDMA Reads, or the answer
	long    int      // length of what goes to the Reply chunk
	granted grant

	unsent atomic.Bool // the answer is posted and has not completed; who resets it frees the call
}

// chunk is a Read chunk, or an item of a group that is to be read.
type chunk struct {
	position, length int
	item             int        // its index in the call's items
	first, n         int        // its segments in hdr.Reads
	source           *wire.Item // whose segments they are instead
	data             [][]byte
}

func (ch *chunk) segments(h *wire.Header) int {
	if ch.source != nil {
		return len(h.Transmit.Segments(ch.source))
	}
	return ch.n
}

func (ch *chunk) segment(h *wire.Header, i int) wire.Segment {
	if ch.source != nil {
		return h.Transmit.Segments(ch.source)[i]
	}
	return h.Reads[ch.first+i].Segment
}

func (in *responder) init(c *Conn) {
	in.c = c
	in.kept.budget = c.cfg.Budget
	in.idle = make(chan struct{})
	in.run = in.runReady
	in.table.Store(new([]*inCall))
	if c.server {
		in.account = c.cfg.Credits.Open()
	}
}

// get takes a call from the free list.
func (in *responder) get() *inCall {
	ic := in.local
	if ic == nil {
		in.mu.Lock()
		ic, in.free = in.free, nil
		in.mu.Unlock()
	}
	if ic == nil {
		calls := *in.table.Load()
		ic = &inCall{c: in.c, id: uint32(len(calls))}
		ic.Init(in.c.cfg.Pool, ic)
		ic.onReady = ic.memoryReady
		calls = append(calls, ic)
		in.table.Store(&calls)
	}
	in.local, ic.next = ic.next, nil
	in.active.Add(1)
	ic.state = onLoop
	return ic
}

// recycle frees all that the call has.
func (ic *inCall) recycle() {
	in := &ic.c.in
	ic.Recycle()
	clear(ic.chunks)
	ic.chunks, ic.reads, ic.bulk, ic.xmt, ic.noted, ic.taken = ic.chunks[:0], 0, 0, false, false, 0
	if ic.group != nil {
		ic.group.planner.Reset()
	}
	if ic.head != nil && cap(ic.head.B) > maxHead {
		ic.freeHead()
	}
	ic.grant.Release()
	if k := ic.source; k != nil {
		ic.source = nil
		k.letGo()
	}
	if ic.size > 0 {
		in.kept.forget(ic)
	}
	in.mu.Lock()
	if in.closed.Load() {
		ic.freeHead()
	} else {
		ic.next, in.free = in.free, ic
	}
	in.mu.Unlock()
	if in.active.Add(-1) == 0 && in.draining.Load() {
		in.signalIdle()
	}
}

// maxHead is the longest buffer for headers that a free call keeps.
const maxHead = 16 << 10

// letGo frees the call when nobody else needs it.
func (ic *inCall) letGo() {
	if ic.holds.Add(-1) < 0 {
		ic.holds.Store(0)
		ic.recycle()
	}
}

func (ic *inCall) freeHead() {
	if ic.head != nil {
		ic.head.Release()
		ic.head = nil
	}
}

// Progress implements [bufpool.Peer]. What has come in beside messages are Read chunks. A provider that does not know what is on its way out leaves it at
// replies that have left.
func (in *responder) Progress() (fetched, written int64) {
	fetched = int64(in.c.ep.Stats().BytesIn) - in.messages.Load()
	if w, ok := in.c.ep.(rdma.Writer); ok {
		written = int64(w.Written())
	}
	return fetched, written
}

// Stalled implements [bufpool.Peer].
func (in *responder) Stalled(err error) { in.c.fail(err) }

func (in *responder) signalIdle() {
	in.mu.Lock()
	defer in.mu.Unlock()
	select {
	case <-in.idle:
	default:
		close(in.idle)
	}
}

// drain makes idle be closed when no call is in flight any more. Calls that come from now on are not answered: the client will
// send them again on another connection.
func (in *responder) drain() <-chan struct{} {
	in.draining.Store(true)
	in.kept.close()
	if in.active.Load() == 0 {
		in.signalIdle()
	}
	return in.idle
}

// call checks what can be checked before any payload is fetched.
func (in *responder) call(ic *inCall) {
	if in.draining.Load() {
		ic.recycle()
		return
	}
	h, c := &ic.hdr, in.c
	if c.groups.asm != nil {
		ic.taken = ic.held
		in.kept.arrived(ic.held, c.receives.mostGranted())
	}
	if c.suspects != nil && c.suspects.n.Load() > 0 && c.suspects.take(c.info.Remote.Addr(), uint32(h.XID), c.cfg.Now()) {
		ic.refuse(wire.System, BadRetry, "the memory that it named has cost a connection")
		return
	}
	if items, results := h.Transmit.Exposed(); !c.server && (h.Chunks() || items || results) {
		code := wire.WriteChunks
		if len(h.Reads) > 0 || items {
			code = wire.ReadChunks
		}
		ic.refuse(code, BadChunk, "chunks in a call of the reverse direction are not supported")
		return
	}
	if code, reason := ic.collect(); reason != "" {
		ic.refuse(code, BadChunk, "%s", reason)
		return
	}
	if h.Procedure == wire.NoMsg {
		ic.XID = uint32(h.XID)
		ic.acquire()
		return
	}
	c.cfg.Observer.Transferred(InlineCall, split.Length(ic.Stream))
	if !ic.decode() {
		return
	}
	ic.acquire()
}

// collect makes chunks of the Read list and holds them against the payload stream; it returns what is wrong.
func (ic *inCall) collect() (code wire.ErrorCode, reason string) {
	if ic.xmt {
		return ic.collectItems()
	}
	h := &ic.hdr
	total := 0
	for i := 0; i < len(h.Reads); {
		ch := chunk{position: int(h.Reads[i].Position), first: i}
		n := uint64(0)
		for ; i < len(h.Reads) && h.Reads[i].Position == wire.Position(ch.position); i++ {
			n += uint64(h.Reads[i].Length)
		}
		ch.n = i - ch.first
		if n > uint64(ic.c.cfg.MaxBulk-total) {
			return wire.System, "the Read chunks have more bytes together than a call may have"
		}
		ch.length = int(n)
		total += ch.length
		ic.chunks = append(ic.chunks, ch)
	}
	long := len(ic.chunks) > 0 && ic.chunks[0].position == 0
	stream := split.Length(ic.Stream)
	switch {
	case h.Procedure == wire.NoMsg && !long:
		return wire.BadXDR, "RDMA_NOMSG without a Position Zero Read chunk"
	case h.Procedure == wire.Msg && long:
		return wire.BadXDR, "RDMA_MSG with a Position Zero Read chunk"
	case long:
		stream = ic.chunks[0].length
		ic.Stream = ic.Stream[:0]
	}
	if stream < oncrpc.MinCallLen {
		return wire.BadXDR, "the payload stream is shorter than an RPC call header"
	}
	end, taken := 0, 0 // in the unreduced stream: the end of the last chunk, and what all chunks so far took out
	for i := range ic.chunks {
		ch := &ic.chunks[i]
		if ch.position == 0 || ch.length == 0 {
			continue
		}
		if ch.position < end {
			return wire.BadXDR, "Read chunks overlap"
		}
		if ch.position-taken > stream {
			return wire.BadXDR, "a Read chunk's position is beyond the payload stream"
		}
		end = ch.position + xdr.Round(ch.length)
		taken += xdr.Round(ch.length)
		ch.item = len(ic.Items)
		ic.Items = append(ic.Items, xdr.Item{Position: ch.position, Length: ch.length})
	}
	return 0, ""
}

// decode reads the RPC header, and plans the reply. It returns false when the call has been
// answered: with an error, or with the reply that was kept.
func (ic *inCall) decode() bool {
	err := oncrpc.DecodeCall(&ic.Call)
	if ic.XID != uint32(ic.hdr.XID) {
		ic.refuse(wire.BadXDR, BadHeader, "XID is %#x in the header, %#x in the call", uint32(ic.hdr.XID), ic.XID)
		return false
	}
	switch {
	case err == nil:
	case errors.Is(err, oncrpc.ErrRPCVersion), errors.Is(err, oncrpc.ErrBadCred), errors.Is(err, oncrpc.ErrBadVerf):
		ic.c.fault(BadArguments, "%v", err)
		ic.state = serving
		ic.Refuse(err)
		return false
	default:
		ic.refuse(wire.BadXDR, BadHeader, "%v", err)
		return false
	}
	ic.Plan.MaxReply = ic.capacity()
	if !ic.plan() {
		return false
	}
	if ic.v2 {
		ic.identify()
	}
	return !ic.v2 || ic.c.in.kept.n.Load() == 0 || !ic.again()
}

// plan asks the binding what may be placed, and how long the reply may get.
func (ic *inCall) plan() bool {
	ic.args = ic.args[:0]
	var b oncrpc.Binding
	if ic.c.cfg.Bindings != nil {
		b = ic.c.cfg.Bindings(ic.Program, ic.Version)
	}
	if b == nil {
		if len(ic.Items) > 0 {
			ic.refuse(wire.BadXDR, BadChunk, "program %d version %d has no arguments that may be in Read chunks", ic.Program, ic.Version)
			return false
		}
		return true
	}
	d := ic.Args()
	capacity := ic.Plan.MaxReply
	var err error
	ic.args, err = b.Plan(&ic.Plan, ic.args, ic.Procedure, d)
	if err == nil {
		ic.bulk = min(ic.Plan.Bulk(), ic.c.cfg.MaxBulk)
	}
	if !ic.hdr.Chunks() && len(ic.Items) == 0 && len(ic.hdr.Transmit.Sets) == 0 {
		ic.Plan.Reset() // nothing is placed
		ic.Plan.MaxReply = capacity
		return true
	}
	switch {
	case len(ic.Items) == 0 && err != nil:
		ic.Plan.Reset() // nothing was reduced: how to answer is the handler's business
	case err != nil && misplaced(err):
		ic.refuse(wire.BadXDR, BadChunk, "%v", err)
		return false
	case err != nil:
		ic.c.fault(BadArguments, "Read chunks do not fit the arguments: %v", err)
		ic.state = serving
		ic.ReplyAccept(oncrpc.GarbageArgs)
		return false
	case d.Used() < len(ic.Items):
		ic.refuse(wire.BadXDR, BadChunk, "the Read chunk at position %d is no argument that may be in one", ic.Items[d.Used()].Position)
		return false
	default:
		capacity = min(capacity, oncrpc.MinReplyLen+oncrpc.MaxAuthLen+ic.Plan.MaxReply)
	}
	ic.Plan.MaxReply = capacity
	for i := range min(len(ic.Plan.Results), ic.hdr.Writes()) {
		if segs := ic.hdr.Write(i); len(segs) > 0 {
			ic.Plan.Results[i].Max = int(min(uint64(ic.Plan.Results[i].Max), wire.Length(segs)))
		}
	}
	return true
}

func misplaced(err error) bool {
	var e *xdr.Error
	return errors.As(err, &e) && e.Misplaced
}

// capacity bounds the reply by what the call has room for.
func (ic *inCall) capacity() int {
	if ic.xmt {
		return ic.groupCapacity()
	}
	h := &ic.hdr
	n := max(0, ic.c.terms.Load().sendLimit-ic.answerSize())
	if h.HasReply {
		n = max(n, int(min(wire.Length(h.Reply()), uint64(bufpool.MaxSize))))
	}
	for i := range h.Writes() {
		n += int(min(wire.Length(h.Write(i)), uint64(ic.c.cfg.MaxBulk)))
	}
	return n
}

// need is how much bulk memory the call takes, for its arguments and its reply: for that what the chunks have room for, as far as the call may have it, and as
// much as the handler may take though there is no room. Before an RPC header in a Read chunk was fetched, the reply may take MaxBulk.
func (ic *inCall) need() (n int64) {
	for i := range ic.chunks {
		n += int64(ic.chunks[i].length)
	}
	if ic.ArgsAt == 0 {
		return n + max(ic.room(), int64(ic.c.cfg.MaxBulk))
	}
	return n + max(ic.room(), int64(ic.bulk))
}

// room is how much of the reply goes to where the call has room for it.
func (ic *inCall) room() (n int64) {
	if ic.xmt {
		return ic.groupRoom()
	}
	h := &ic.hdr
	known := ic.ArgsAt > 0
	for i := range h.Writes() {
		room := int64(wire.Length(h.Write(i)))
		if known {
			if i >= len(ic.Plan.Results) {
				break
			}
			room = min(room, int64(ic.Plan.Results[i].Max))
		}
		n += min(room, int64(ic.c.cfg.MaxBulk))
	}
	if h.HasReply {
		room := int64(min(wire.Length(h.Reply()), uint64(bufpool.MaxSize)))
		if known {
			room = min(room, int64(ic.Plan.MaxReply))
		}
		n += room
	}
	return n
}

// acquire takes the bulk memory that the call needs, all at once. If there is not enough the call waits; it holds
// nothing of it meanwhile.
func (ic *inCall) acquire() {
	n := ic.need()
	if n == 0 {
		ic.serve()
		return
	}
	ic.state = waiting
	ok, err := ic.c.in.share.Acquire(&ic.grant, n, ic.onReady)
	switch {
	case err != nil:
		ic.state = onLoop
		ic.refuse(wire.System, TooLarge, "%v", err)
	case ok:
		ic.state = onLoop
		ic.fetch()
	}
}

// memoryReady is called when a waiting call got its memory, on a goroutine that may be busy with anything: another one
// goes on with the call.
func (ic *inCall) memoryReady() {
	in := &ic.c.in
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.readyLast == nil {
		in.ready = ic
	} else {
		in.readyLast.next = ic
	}
	in.readyLast = ic
	if !in.running {
		in.running = true
		go in.run()
	}
}

func (in *responder) runReady() {
	for {
		in.c.loop.Lock()
		in.mu.Lock()
		ic := in.ready
		if ic == nil {
			in.running = false
			in.mu.Unlock()
			in.c.loop.Unlock()
			return
		}
		if in.ready = ic.next; in.ready == nil {
			in.readyLast = nil
		}
		ic.next = nil
		in.mu.Unlock()
		ic.state = onLoop
		if in.closed.Load() {
			ic.recycle()
			in.orphans.Done()
		} else {
			ic.fetch()
		}
		in.c.loop.Unlock()
	}
}

// serve hands the call to the handler.
func (ic *inCall) serve() {
	ic.state = serving
	ic.Conn = &ic.c.info
	ic.Conn.Calls.Add(1)
	ic.c.cfg.Handler.ServeRPC(&ic.Call)
}

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
		case waiting:
			if ic.grant.Cancel() {
				ic.recycle()
			} else {
				in.orphans.Add(1) // memoryReady has it, or is about to
			}
		case reading:
			ic.recycle()
		case serving:
			if ic.unsent.CompareAndSwap(true, false) {
				ic.letGo()
			}
		}
	}
	in.kept.close()
	if in.account != nil {
		in.account.Close()
	}
}
