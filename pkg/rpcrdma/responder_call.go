package rpcrdma

import (
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// newInbound takes a call from the free list, or makes one.
func (in *responder) newInbound() *inCall {
	ic := in.local
	if ic == nil {
		in.mu.Lock()
		ic, in.free = in.free, nil
		in.mu.Unlock()
	}
	if ic == nil {
		ic = in.newCall()
	}
	in.local, ic.next = ic.next, nil
	in.active.Add(1)
	ic.state = stateReceived
	return ic
}

func (in *responder) newCall() *inCall {
	calls := *in.table.Load()
	ic := &inCall{in: in, id: uint32(len(calls))}
	ic.payload = &ic.Message
	ic.Init(in.cfg.Pool, ic)
	ic.onReady = ic.memoryReady
	if n := len(in.vacant); n > 0 {
		ic.id, in.vacant = in.vacant[n-1], in.vacant[:n-1]
		calls[ic.id] = ic // nobody looks for a call of this number
		return ic
	}
	calls = append(calls, ic)
	in.table.Store(&calls)
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
	ic.Conn = &in.info
	in.cfg.Observer.CallReceived(&ic.Call)
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
	if in.rfc5666 != nil && in.rfc5666.noReads && len(h.Reads) > 0 {
		ic.refuse(wire.ReadChunks, BadChunk, "Read chunks of a client that bears no RDMA Reads")
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
	case h.Procedure != wire.NoMsg && long:
		return wire.BadXDR, h.Procedure.String() + " with a Position Zero Read chunk"
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
