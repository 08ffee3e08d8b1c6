package rpcrdma

import (
	"errors"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

func (ch *argChunk) segments(h *wire.Header) int {
	if ch.source != nil {
		return len(h.Transmit.Segments(ch.source))
	}
	return ch.n
}

func (ch *argChunk) segment(h *wire.Header, i int) wire.Segment {
	if ch.source != nil {
		return h.Transmit.Segments(ch.source)[i]
	}
	return h.Reads[ch.first+i].Segment
}

// newInbound takes a call from the free list, or makes one.
func (in *responder) newInbound() *inCall {
	ic := in.local
	if ic == nil {
		in.mu.Lock()
		ic, in.free = in.free, nil
		in.mu.Unlock()
	}
	if ic == nil {
		calls := *in.table.Load()
		ic = &inCall{in: in, id: uint32(len(calls))}
		ic.payload = &ic.Message
		ic.Init(in.cfg.Pool, ic)
		ic.onReady = ic.memoryReady
		calls = append(calls, ic)
		in.table.Store(&calls)
	}
	in.local, ic.next = ic.next, nil
	in.active.Add(1)
	ic.state = stateReceived
	return ic
}

// recycle frees all memory of the call, and the call.
func (ic *inCall) recycle() {
	in := ic.in
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
		in.retained.forgetBytes(ic)
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

// letGo recycles the call when nobody else needs it.
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

// call makes all checks that need no payload.
func (in *responder) call(ic *inCall) {
	if in.draining.Load() {
		ic.recycle()
		return
	}
	h := &ic.hdr
	if in.grouped {
		ic.taken = ic.held
		in.retained.countCall(ic.held, in.receives.mostGranted())
	}
	if in.quarantine != nil && in.quarantine.n.Load() > 0 && in.quarantine.readmit(in.info.Remote.Addr(), uint32(h.XID), in.cfg.Now()) {
		ic.refuse(wire.System, BadRetry, "the memory that it named has cost a connection")
		return
	}
	if items, results := h.Transmit.Exposed(); !in.server && (h.Chunks() || items || results) {
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
	in.cfg.Observer.Transferred(InlineCall, split.Length(ic.Stream))
	if !ic.decode() {
		return
	}
	ic.acquire()
}

// collect makes chunks of the Read list, and checks them against the payload stream. It returns an
// error code and the reason.
func (ic *inCall) collect() (code wire.ErrorCode, reason string) {
	if ic.xmt {
		return ic.collectItems()
	}
	h := &ic.hdr
	total := 0
	for i := 0; i < len(h.Reads); {
		ch := argChunk{position: int(h.Reads[i].Position), first: i}
		n := uint64(0)
		for ; i < len(h.Reads) && h.Reads[i].Position == wire.Position(ch.position); i++ {
			n += uint64(h.Reads[i].Length)
		}
		ch.n = i - ch.first
		if n > uint64(ic.in.cfg.MaxBulk-total) {
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
	// in the unreduced stream: the end of the last chunk, and the bytes that all chunks so far took
	// out
	end, taken := 0, 0
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

// decode reads the RPC header and plans the reply. It returns false when the call has been
// answered: with an error, or with a retained reply.
func (ic *inCall) decode() bool {
	err := oncrpc.DecodeCall(&ic.Call)
	if ic.XID != uint32(ic.hdr.XID) {
		ic.refuse(wire.BadXDR, BadHeader, "XID is %#x in the header, %#x in the call", uint32(ic.hdr.XID), ic.XID)
		return false
	}
	switch {
	case err == nil:
	case errors.Is(err, oncrpc.ErrRPCVersion), errors.Is(err, oncrpc.ErrBadCred), errors.Is(err, oncrpc.ErrBadVerf):
		ic.in.protocolError(BadArguments, "%v", err)
		ic.state = stateServing
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
	return !ic.v2 || ic.in.retained.n.Load() == 0 || !ic.answerRetained()
}

// plan asks the binding which items may be placed, and how long the reply may get.
func (ic *inCall) plan() bool {
	ic.args = ic.args[:0]
	var b oncrpc.Binding
	if ic.in.cfg.Bindings != nil {
		b = ic.in.cfg.Bindings(ic.Program, ic.Version)
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
		ic.bulk = min(ic.Plan.Bulk(), ic.in.cfg.MaxBulk)
	}
	if !ic.hdr.Chunks() && len(ic.Items) == 0 && len(ic.hdr.Transmit.Sets) == 0 {
		ic.Plan.Reset() // nothing is placed
		ic.Plan.MaxReply = capacity
		return true
	}
	switch {
	case len(ic.Items) == 0 && err != nil:
		ic.Plan.Reset() // nothing was reduced: the handler decides how to answer
	case err != nil && misplaced(err):
		ic.refuse(wire.BadXDR, BadChunk, "%v", err)
		return false
	case err != nil:
		ic.in.protocolError(BadArguments, "Read chunks do not fit the arguments: %v", err)
		ic.state = stateServing
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

// capacity is the longest reply that the call has room for.
func (ic *inCall) capacity() int {
	if ic.xmt {
		return ic.groupCapacity()
	}
	h := &ic.hdr
	n := max(0, ic.in.negotiated.Load().sendLimit-ic.answerSize())
	if h.HasReply {
		n = max(n, int(min(wire.Length(h.Reply()), uint64(bufpool.MaxSize))))
	}
	for i := range h.Writes() {
		n += int(min(wire.Length(h.Write(i)), uint64(ic.in.cfg.MaxBulk)))
	}
	return n
}

// need is the bulk memory that the call takes: for the Read chunks, plus the larger of the reply's
// chunks, as far as the call may fill them, and the handler's bound. Before an RPC header in a Read
// chunk is fetched, the reply may take MaxBulk.
func (ic *inCall) need() (n int64) {
	for i := range ic.chunks {
		n += int64(ic.chunks[i].length)
	}
	if ic.ArgsAt == 0 {
		return n + max(ic.room(), int64(ic.in.cfg.MaxBulk))
	}
	return n + max(ic.room(), int64(ic.bulk))
}

// room is the part of the reply's bound that fits the chunks of the call.
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
		n += min(room, int64(ic.in.cfg.MaxBulk))
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

// acquire takes all bulk memory of the call at once. A call that waits for it holds none.
func (ic *inCall) acquire() {
	n := ic.need()
	if n == 0 {
		ic.handle()
		return
	}
	ic.state = stateWaiting
	ok, err := ic.in.share.Acquire(&ic.grant, n, ic.onReady)
	switch {
	case err != nil:
		ic.state = stateReceived
		ic.refuse(wire.System, TooLarge, "%v", err)
	case ok:
		ic.state = stateReceived
		ic.fetch()
	}
}

// memoryReady hands a waiting call that got its memory to another goroutine; its caller may be busy
// with anything.
func (ic *inCall) memoryReady() {
	in := ic.in
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

// handle hands the call to the handler.
func (ic *inCall) handle() {
	ic.state = stateServing
	ic.Conn = &ic.in.info
	ic.Conn.Calls.Add(1)
	ic.in.cfg.Handler.ServeRPC(&ic.Call)
}

func (in *responder) signalIdle() {
	in.mu.Lock()
	defer in.mu.Unlock()
	select {
	case <-in.idle:
	default:
		close(in.idle)
	}
}

// drain returns a channel that is closed when no call is in flight. Calls that come from now on get
// no answer: the client sends them again on another connection.
func (in *responder) drain() <-chan struct{} {
	in.draining.Store(true)
	in.retained.close()
	if in.active.Load() == 0 {
		in.signalIdle()
	}
	return in.idle
}

func (in *responder) runReady() {
	for {
		in.recvMu.Lock()
		in.mu.Lock()
		ic := in.ready
		if ic == nil {
			in.running = false
			in.mu.Unlock()
			in.recvMu.Unlock()
			return
		}
		if in.ready = ic.next; in.ready == nil {
			in.readyLast = nil
		}
		ic.next = nil
		in.mu.Unlock()
		ic.state = stateReceived
		if in.closed.Load() {
			ic.recycle()
			in.orphans.Done()
		} else {
			ic.fetch()
		}
		in.recvMu.Unlock()
	}
}
