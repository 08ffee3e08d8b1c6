package rpcrdma

import (
	"errors"
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/credit"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
)

// headAt is the offset of the header in a call's head buffer. Zeros for XDR round-up precede it.
const headAt = 4

// Respond implements oncrpc.Responder. RDMA Writes and the Send are one batch. Only the memory
// waits for their completion.
func (ic *inCall) Respond(*oncrpc.Call) {
	in := ic.in
	if in.closed.Load() {
		ic.recycle()
		return
	}
	e := ic.placed()
	in.ep.Cork() // the receive for the credit that the answer gives back leaves with it
	defer in.ep.Uncork()
	if e != nil && ic.exposeReply(e) {
		return
	}
	if e != nil {
		in.protocolError(ReplyTooLong, "call %#x of program %d version %d procedure %d: %s", ic.XID, ic.Program, ic.Version, ic.Procedure, e.reason)
		ic.Release() // the error answer needs none of the large buffers
		ic.grant.Release()
		wanted := ic.v2 && (e.Code == wire.ReplyResource || e.Code == wire.WriteResource)
		if !wanted || !in.retained.retainForRetry(ic) {
			ic.Reply.Release()
		}
		ic.sendError(e.Fault2)
		return
	}
	if ic.xmt {
		ic.sendGroup()
		return
	}
	ic.sendReply()
}

// errDropped ends a connection on which a call is not answered.
var errDropped = errors.New("rpcrdma: a call cannot be answered")

// Drop implements oncrpc.Responder. It closes the connection (RFC 8166 section 4.5.4): the
// requester would wait for the answer and its credit.
func (ic *inCall) Drop(*oncrpc.Call) {
	ic.in.cfg.Observer.ProtocolError(Dropped)
	ic.in.fail(fmt.Errorf("%w: %#x of program %d version %d procedure %d", errDropped, ic.XID, ic.Program, ic.Version, ic.Procedure))
	ic.recycle()
}

// Supersede implements oncrpc.Responder. The requester loses the credit of the call, as it has sent
// another one with its XID.
func (ic *inCall) Supersede(*oncrpc.Call) {
	in := ic.in
	in.retained.returned.Add(uint64(ic.taken))
	if err := in.receives.replace(ic.held); err != nil {
		in.fail(err)
	}
	ic.recycle()
}

// refuse answers a call with RDMA_ERROR, counts and logs. The code is that of version 2, unless it
// is ErrVers.
func (ic *inCall) refuse(code wire.ErrorCode, f ErrorKind, format string, args ...any) {
	ic.refuseWith(wire.Fault2{Code: code}, f, format, args...)
}

func (ic *inCall) refuseWith(e wire.Fault2, f ErrorKind, format string, args ...any) {
	name := e.Code.Name(wire.Version2)
	if !ic.v2 && e.Code != wire.ErrVers {
		name = wire.ErrChunk.String()
	}
	ic.in.protocolError(f, "call %#x answered %s: %s", uint32(ic.hdr.XID), name, fmt.Sprintf(format, args...))
	ic.state = stateServing
	ic.sendError(e)
}

// sendError answers a call with RDMA_ERROR. It never invalidates the peer's memory. In version 1,
// ERR_CHUNK stands for every code but ErrVers. The requester may keep the credit, to send the call
// again.
func (ic *inCall) sendError(e wire.Fault2) {
	credits, err := ic.grantCredits(0)
	var head []byte
	if err == nil {
		head, err = ic.newHead(wire.ErrVersSize)
	}
	if err != nil {
		ic.failUnanswered(err)
		return
	}
	if e.Code == wire.ErrVers {
		low, high := uint32(wire.Version1), uint32(wire.Version1)
		if ic.in.headerLimits.NoVersion1 {
			low = wire.Version2
		}
		if ic.in.headerLimits.Version2 {
			high = wire.Version2
		}
		head = wire.AppendError(head, ic.hdr.XID, ic.hdr.Version, credits, wire.ErrVers, low, high)
	} else {
		head = ic.hdr.Dialect.AppendFault(head, &ic.hdr, credits, e)
	}
	ic.answerWith(head)
}

// answerHead returns the credits, and the place for a header of version 2 that answers a message
// about no RPC.
func (ic *inCall) answerHead() (credits wire.Credits, head []byte, err error) {
	ic.state = stateServing
	if credits, err = ic.grantCredits(0); err == nil {
		head, err = ic.newHead(wire.FirstMessage)
	}
	return credits, head, err
}

// drop gives up a message that holds no credit.
func (ic *inCall) drop(kind ErrorKind, why string) {
	ic.in.protocolError(kind, "message dropped: %s", why)
	ic.recycle()
}

// answerWith posts an answer without a payload.
func (ic *inCall) answerWith(head []byte) {
	ic.lists = append(ic.lists[:0], head)
	ic.work.wrs = append(ic.work.wrs[:0], rdma.WorkRequest{ID: idAnswer | uint64(ic.id), Op: rdma.Send, Signaled: true, Local: ic.lists})
	ic.postAnswer()
}

// grantCredits replaces the receives that the call holds, and returns the number of credits to
// grant. returned is the number of credits that the answer gives back for certain.
func (ic *inCall) grantCredits(returned int) (wire.Credits, error) {
	in := ic.in
	account, asked := in.account, int(min(ic.hdr.Credits, credit.Max))
	if account == nil {
		asked = in.cfg.ReverseCredits
	}
	var err error
	if ic.granted, err = in.receives.answer(account, asked, ic.held, returned); err != nil {
		return 0, err
	}
	in.retained.returned.Add(uint64(ic.taken))
	in.cfg.Observer.Credits(ic.granted.credits, ic.granted.inUse)
	return wire.Credits(ic.granted.credits), nil
}

// failUnanswered closes the connection, since a call cannot be answered (RFC 8166 section 4.5.4).
func (ic *inCall) failUnanswered(err error) {
	ic.in.cfg.Observer.ProtocolError(NoMemory)
	ic.in.fail(fmt.Errorf("rpcrdma: no answer can be sent to call %#x: %w", uint32(ic.hdr.XID), err))
	ic.letGo()
}

// newHead returns the place for a header of at most n bytes.
func (ic *inCall) newHead(n int) ([]byte, error) {
	var err error
	if ic.head, err = ic.in.buffer(ic.head, headAt+n); err != nil {
		return nil, err
	}
	clear(ic.head.B[:headAt])
	return ic.head.B[headAt:headAt], nil
}

// answerSize is the length of the answer's header. It repeats the Write list and the Reply chunk of
// the call.
func (ic *inCall) answerSize() int {
	h := &ic.hdr
	n := h.Dialect.ReplySize()
	for i := range h.Writes() {
		n += wire.ChunkSize + wire.SegmentSize*len(h.Write(i))
	}
	if h.HasReply {
		n += wire.ReplySize + wire.SegmentSize*len(h.Reply())
	}
	return n
}

// roomError is the reason why a reply does not fit its call, and the answer instead.
type roomError struct {
	wire.Fault2
	reason string
}

func noRoom(code wire.ErrorCode, index, needed int, format string, args ...any) *roomError {
	return &roomError{wire.Fault2{Code: code, Index: uint32(index), Needed: uint32(needed)}, fmt.Sprintf(format, args...)}
}

func (ic *inCall) placed() *roomError {
	switch {
	case len(ic.Reply.Stream) == 0:
		return noRoom(wire.System, 0, 0, "the handler made no reply")
	case ic.xmt:
		return ic.placeGroup()
	}
	return ic.place()
}

// place makes the RDMA Writes of the reply in ic.work, and leaves its inline part in ic.out.
// ic.long is the number of bytes that go to the Reply chunk instead.
func (ic *inCall) place() *roomError {
	in, h := ic.in, &ic.hdr
	size := ic.answerSize()
	t := in.negotiated.Load()
	limit := t.sendLimit
	if size > limit {
		return noRoom(wire.System, 0, 0, "the reply's header has %d bytes, the inline threshold is %d", size, limit)
	}
	if _, err := ic.newHead(size + t.replyMiddles*wire.MiddleSize); err != nil {
		return noRoom(wire.System, 0, 0, "%v", err)
	}
	ic.matchWrites()
	ic.work.wrs, ic.lists, ic.out = ic.work.wrs[:0], ic.lists[:0], ic.out[:0]
	ic.split.Reset(&ic.Reply, ic.head.B[:headAt])
	for k := range ic.found {
		f := &ic.found[k]
		if f.State != oncrpc.Placed {
			continue
		}
		segs := h.Write(k)
		if room := wire.Length(segs); uint64(f.Length) > room {
			return noRoom(wire.WriteResource, k+1, f.Length, "result %d has %d bytes, its Write chunk %d", k, f.Length, room)
		}
		var ok bool
		if ic.out, ok = ic.split.Until(ic.out, f.Position); ok {
			ic.data, ok = ic.split.Take(ic.data[:0], f.Length)
		}
		if !ok {
			return noRoom(wire.System, 0, 0, "result %d of %d bytes is not at position %d of the reply", k, f.Length, f.Position)
		}
		ic.write(segs, ic.data)
	}
	var ok bool
	if ic.out, ok = ic.split.Rest(ic.out); !ok {
		return noRoom(wire.System, 0, 0, "an item's position is beyond the end of the reply")
	}
	ic.long, ic.middles = 0, 0
	inline := split.Length(ic.out)
	if size+inline <= limit {
		return nil
	}
	room := wire.Length(h.Reply())
	if n := middles(inline, size, limit); uint64(inline) > room && n <= t.replyMiddles {
		ic.middles = n
		return nil
	}
	if uint64(inline) > room {
		return noRoom(wire.ReplyResource, 0, inline,
			"%d bytes of the reply are not placed: its Reply chunk has %d, and with a header of %d they exceed the inline threshold of %d",
			inline, room, size, limit)
	}
	ic.long = inline
	ic.write(h.Reply(), ic.out)
	ic.out = ic.out[:0]
	return nil
}

// matchWrites sets ic.found for each Write chunk: Placed, or Inline for an unused chunk. Chunk k
// belongs to the k-th planned result, whatever became of it (RFC 8267 section 6.4.1).
func (ic *inCall) matchWrites() {
	ic.findResults(min(ic.hdr.Writes(), len(ic.Plan.Results)))
	for k := range ic.found {
		f := &ic.found[k]
		if f.Length > 0 && len(ic.hdr.Write(k)) > 0 {
			f.State = oncrpc.Placed
		} else {
			f.State, f.Length = oncrpc.Inline, 0
		}
	}
}

// findResults sets ic.found to the positions of the first n planned results in the reply. Results
// that the reply lacks get length 0.
func (ic *inCall) findResults(n int) {
	ic.found = ic.found[:0]
	if n == 0 || !ic.Status.OK() {
		return
	}
	if len(ic.Plan.Results) == 1 && len(ic.Reply.Items) == 1 { // no need to read the reply
		it := &ic.Reply.Items[0]
		ic.found = append(ic.found, oncrpc.Found{State: oncrpc.Placed, Position: it.Position, Length: it.Length})
	} else {
		ic.dec.Reset(ic.Reply.Stream, ic.Reply.Items)
		if err := ic.header.Decode(&ic.dec); err == nil && ic.header.Status.OK() {
			b := ic.in.cfg.Bindings(ic.Program, ic.Version)
			if ic.found, err = b.Results(ic.found, &ic.Plan, nil, ic.Procedure, &ic.dec); err != nil {
				ic.found = ic.found[:0] // the handler's reply cannot be parsed: leave it whole
			}
		}
	}
	ic.found = ic.found[:min(n, len(ic.found))]
	for k := range ic.found {
		f := &ic.found[k]
		if f.State != oncrpc.Placed && f.State != oncrpc.Inline {
			f.Length = 0
		}
	}
}

// write adds the RDMA Writes that bring data to segs: in order, each segment filled before the
// next, without round-up (RFC 8166 section 3.4.6).
func (ic *inCall) write(segs []wire.Segment, data [][]byte) {
	i, off := 0, 0
	for _, s := range segs {
		for s.Length > 0 && i < len(data) {
			at, n := len(ic.lists), 0
			for i < len(data) && n < int(s.Length) && len(ic.lists)-at < ic.in.maxGather {
				k := min(len(data[i])-off, int(s.Length)-n)
				ic.lists = append(ic.lists, data[i][off:off+k:off+k])
				n += k
				if off += k; off == len(data[i]) {
					i, off = i+1, 0
				}
			}
			ic.work.wrs = append(ic.work.wrs, rdma.WorkRequest{
				Op: rdma.Write, Local: ic.lists[at:len(ic.lists):len(ic.lists)],
				Remote: rdma.Remote{Handle: uint32(s.Handle), Offset: s.Offset},
			})
			s.Length -= uint32(n)
			s.Offset += uint64(n)
		}
	}
}

func (ic *inCall) sendReply() {
	h := &ic.hdr
	credits, err := ic.grantCredits(ic.held)
	if err != nil {
		ic.failUnanswered(err)
		return
	}
	proc := wire.Msg
	if ic.long > 0 {
		proc = wire.NoMsg
	}
	ic.finishReply(h.Dialect.AppendReply(ic.head.B[headAt:headAt], h.XID, credits, proc))
}

// finishReply appends the Write list and the Reply chunk to the head of a reply, and sends it.
func (ic *inCall) finishReply(head []byte) {
	in, h := ic.in, &ic.hdr
	for k := range h.Writes() {
		n := 0
		if k < len(ic.found) {
			n = ic.found[k].Length
		}
		head = wire.AppendReturned(head, h.Write(k), n)
		if n > 0 {
			in.cfg.Observer.Transferred(WriteChunk, n)
		}
	}
	head = h.Dialect.AppendReplyChunk(wire.AppendEnd(head), h, ic.long)
	if ic.long > 0 {
		in.cfg.Observer.Transferred(ReplyChunk, ic.long)
	} else {
		in.cfg.Observer.Transferred(InlineReply, split.Length(ic.out))
	}
	if 1+len(ic.out) > in.maxGather {
		if err := ic.join(); err != nil {
			ic.failUnanswered(err)
			return
		}
	}
	if len(ic.work.wrs) > 0 {
		in.recent.record(h.XID, ic.work.wrs)
	}
	if ic.middles > 0 {
		p := parts{h.XID, wire.Reply, in.negotiated.Load().sendLimit, head[len(head):]}
		ic.work.wrs, ic.lists, ic.out = p.appendSends(ic.work.wrs, ic.lists, ic.out, ic.middles, split.Length(ic.out))
	}
	at := len(ic.lists)
	ic.lists = append(append(ic.lists, head), ic.out...)
	wr := rdma.WorkRequest{ID: idAnswer | uint64(ic.id), Op: rdma.Send, Signaled: true, Local: ic.lists[at:]}
	if handle, ok := ic.handleToInvalidate(); ok && in.negotiated.Load().invalidate {
		wr.Op, wr.Invalidate = rdma.SendWithInvalidate, uint32(handle)
	}
	ic.work.wrs = append(ic.work.wrs, wr)
	ic.postAnswer()
	in.openCalls()
}

// join copies the inline part into one slice, for providers that cannot gather so many.
func (ic *inCall) join() error {
	buf, err := ic.in.cfg.Pool.Get(split.Length(ic.out))
	if err != nil {
		return err
	}
	ic.Reply.Own(buf)
	b := buf.B[:0]
	for _, s := range ic.out {
		b = append(b, s...)
	}
	ic.out = append(ic.out[:0], b)
	return nil
}

// handleToInvalidate returns the handle that the reply may invalidate: in version 2 the call's own
// choice, if a chunk of the call has it.
func (ic *inCall) handleToInvalidate() (handle wire.Handle, ok bool) {
	if !ic.v2 {
		return ic.onlyHandle()
	}
	h := &ic.hdr
	if h.Invalidate == 0 {
		return 0, false
	}
	for i := range h.Reads {
		ok = ok || h.Reads[i].Handle == h.Invalidate
	}
	segs := h.Reply()
	for k := 0; ; k++ {
		for i := range segs {
			ok = ok || segs[i].Handle == h.Invalidate
		}
		if k == h.Writes() {
			return h.Invalidate, ok
		}
		segs = h.Write(k)
	}
}

// onlyHandle returns the handle of all chunks of the call, if they have one in common. With
// several, one may be registered for longer than this call.
func (ic *inCall) onlyHandle() (handle wire.Handle, ok bool) {
	h := &ic.hdr
	for i := range h.Reads {
		if ok && h.Reads[i].Handle != handle {
			return 0, false
		}
		handle, ok = h.Reads[i].Handle, true
	}
	segs := h.Reply()
	for k := 0; ; k++ {
		for i := range segs {
			if ok && segs[i].Handle != handle {
				return 0, false
			}
			handle, ok = segs[i].Handle, true
		}
		if k == h.Writes() {
			return handle, ok
		}
		segs = h.Write(k)
	}
}

// mostFree bounds the answers to messages without credit that are posted and not sent. A peer has
// two such messages under way at most.
const mostFree = 16

// postAnswer posts the answer. The call may be free again before it returns.
func (ic *inCall) postAnswer() {
	in := ic.in
	if ic.held == 0 && in.unsentFree.Add(1) > mostFree {
		in.fail(errPeerNotReading)
	}
	ic.grant.AwaitPeer(bufpool.Out)
	ic.unsent.Store(true)
	if in.closed.Load() { // close may have looked already
		if ic.unsent.CompareAndSwap(true, false) {
			ic.letGo()
		}
		return
	}
	in.work.post(&ic.work)
}

// sent frees a call whose answer is on its way.
func (in *responder) sent(id uint32) {
	ic := (*in.table.Load())[id]
	if ic.unsent.CompareAndSwap(true, false) {
		ic.Reach(oncrpc.Replied)
		n := len(ic.work.wrs)
		if ic.held == 0 {
			in.unsentFree.Add(-1)
		}
		in.receives.grantSent(ic.granted)
		if ic.noted { // only the reply may be asked for again
			in.retained.markSent(ic)
			ic.Release()
			ic.grant.Release()
		}
		ic.letGo()
		in.work.completed(n)
	}
}

// handle hands the call to the handler.
func (ic *inCall) handle() {
	ic.state = stateServing
	ic.Conn = &ic.in.info
	ic.Conn.Calls.Add(1)
	ic.Reach(oncrpc.Serving)
	ic.in.cfg.Handler.ServeRPC(&ic.Call)
}
