package rpcrdma

import (
	"fmt"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rdma"
	"sluice.dev/sluice/pkg/rpcrdma/internal/split"
	"sluice.dev/sluice/pkg/rpcrdma/padded"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// build fills in b.send. Exposed memory is in o.regions, also after an error.
func (b *callBuilder) build(o *outCall, t *negotiated, asked int, first bool) error {
	out, r := o.out, o.req
	if out.server && !t.backward {
		return &RequestError{"the peer takes no calls of the reverse direction"}
	}
	b.lim, b.dialect, b.short = *out.peerLimits.Load(), t.dialect, 0
	b.callMiddles, b.replyMiddles, b.segment = t.callMiddles, t.replyMiddles, t.segment
	if t.groups && !o.noGroup && (!first || out.server) && !out.noGroups.Load() && !fitsInline(r, t) && !b.preferChunks(o) {
		if done, err := b.buildGroup(o, t, asked); done || err != nil {
			return err
		}
	}
	if n := o.credits - 1; n > 0 { // it has waited for a group, and goes as one message
		out.takeCredits(-n)
		o.credits = 1
	}
	// nothing is exposed in the reverse direction, so there are no chunks
	if b.short > 0 && out.server {
		return errShort
	}
	sendLimit, recvLimit := t.sendLimit, t.recvLimit
	if first && !out.server { // a reverse call follows a reply of the forward direction
		sendLimit, recvLimit = min(sendLimit, wire.MinThreshold), min(recvLimit, wire.MinThreshold)
	}
	base, err := b.planReply(o, recvLimit)
	var proc wire.Procedure
	var size int
	if err == nil {
		proc, size, err = b.planCall(out, r, base, sendLimit)
	}
	if err == nil && proc == wire.Msg && out.rfc5666 != nil && b.dialect == wire.V1 && len(b.cuts) == 0 {
		proc, size, err = b.pad(out, r, size, sendLimit)
	}
	if _, impossible := err.(*RequestError); impossible && b.short > 0 { //nolint:errorlint // it is not wrapped
		return errShort
	}
	if err != nil {
		return err
	}
	head, err := b.header(o, size+b.middles*wire.MiddleSize)
	if err != nil {
		return err
	}
	head = b.dialect.AppendCall(head, wire.XID(o.xid), wire.Credits(asked), proc)
	if proc == wire.MsgP {
		head = wire.AppendPadding(head, uint32(b.padding.Align), uint32(b.padding.Threshold))
	}
	if head, err = b.appendReads(o, head, proc); err != nil {
		return err
	}
	if head, err = b.appendPlaces(o, head); err != nil {
		return err
	}
	if t.invalidate && len(o.regions) > 0 && out.ep.Attributes().RemoteInvalidation {
		b.dialect.SetInvalidate(head, wire.Handle(o.regions[0].handle))
	}
	last := 0
	b.gather, b.send.wrs = append(b.gather[:0], head), b.send.wrs[:0]
	if proc != wire.NoMsg {
		if 1+len(b.out) > out.maxGather {
			if err := b.join(out); err != nil {
				return err
			}
		}
		n := split.Length(b.out)
		if b.middles > 0 { // the last message is behind them
			p := parts{wire.XID(o.xid), wire.Call, sendLimit, head[len(head):]}
			b.send.wrs, b.gather, b.out = p.appendSends(b.send.wrs, b.gather, b.out, b.middles, n)
			last = len(b.gather)
			b.gather = append(b.gather, head)
		}
		b.gather = append(b.gather, b.out...)
		out.cfg.Observer.Transferred(InlineCall, n)
	} else {
		out.cfg.Observer.Transferred(LongCall, split.Length(b.out))
	}
	b.send.wrs = append(b.send.wrs, rdma.WorkRequest{ID: idRequest | uint64(o.id), Op: rdma.Send, Signaled: true, Local: b.gather[last:]})
	return nil
}

// fitsInline reports whether the call and its longest reply are one message each.
func fitsInline(r *oncrpc.Request, t *negotiated) bool {
	return wire.MinSize2+r.Call.Len() <= t.sendLimit && wire.MinSize2+r.Plan.MaxReply <= t.recvLimit
}

// preferChunks decides for chunks on a near link. A call that the peer has refused for its chunks
// may go as a group.
func (b *callBuilder) preferChunks(o *outCall) bool {
	out, r := o.out, o.req
	if !out.near || out.server || b.lim.lowered || o.noWrites || out.binding(r.Program, r.Version) == nil {
		return false
	}
	least := out.cfg.Placement.MinLength
	for i := range r.Plan.Results {
		if r.Plan.Results[i].Max >= least {
			return true
		}
	}
	n := int64(0)
	for _, a := range r.Eligible {
		if a.Length >= least {
			n += int64(a.Length)
		}
	}
	if n == 0 {
		return false
	}
	if out.placedBytes.Add(n) > NearArguments {
		out.placedBytes.Add(-n)
		return true
	}
	b.counted = n
	return false
}

// planReply takes memory for the reply, and returns the length of the call's header without its
// Read list.
func (b *callBuilder) planReply(o *outCall, limit int) (size int, err error) {
	out, r := o.out, o.req
	size = b.dialect.CallSize(wire.Msg)
	inline := size+r.Plan.MaxReply <= limit
	if inline && o.room == 0 || !inline && o.omitsChunks() {
		return size, nil
	}
	continues := o.room == 0 && b.replyMiddles > 0 && middles(r.Plan.MaxReply, b.dialect.ReplySize(), limit) <= b.replyMiddles
	if out.server && continues {
		return size, nil
	}
	if out.server {
		return 0, &RequestError{fmt.Sprintf("its reply may have %d bytes, a call of the reverse direction is limited to %d inline", r.Plan.MaxReply, limit-size)}
	}
	long := max(o.room, r.Plan.MaxReply)
	if writes, rest := b.writable(o, size); !inline && writes > 0 && writes+rest <= limit {
		for i := range r.Plan.Results {
			if err := b.takeResult(o, i); err != nil {
				return 0, err
			}
		}
		if size, long = writes, o.room; long == 0 {
			return size, nil
		}
	}
	if continues {
		return size, nil
	}
	b.hasLong = true
	if err := b.replyChunk.alloc(out.cfg.Pool, long); err != nil {
		return 0, err
	}
	return size + wire.ReplySize + wire.SegmentSize*len(b.replyChunk.data), nil
}

// writable returns the length of a header of size bytes with a Write chunk for each result, and the
// rest of the reply. It returns 0 when there are to be no Write chunks.
func (b *callBuilder) writable(o *outCall, size int) (header, rest int) {
	r := o.req
	n := len(r.Plan.Results)
	if n == 0 || n > b.lim.WriteChunks || o.noWrites || o.out.binding(r.Program, r.Version) == nil {
		return 0, 0
	}
	rest = r.Plan.MaxReply
	for i := range r.Plan.Results {
		k := segmentCount(o.result(i))
		if o.roundUp(i) > 0 {
			k++
		}
		if k > b.lim.SegmentsPerChunk && b.lim.lowered {
			return 0, 0
		}
		rest -= xdr.Round(r.Plan.Results[i].Max)
		size += wire.ChunkSize + wire.SegmentSize*k
	}
	return size, rest
}

// segmentCount is the number of segments of memory for a result.
func segmentCount(memory [][]byte, size int) int {
	if memory != nil {
		return len(memory)
	}
	return (size + bufpool.MaxSize - 1) / bufpool.MaxSize
}

// result returns the user's memory for a result, and the bytes that it needs. Memory that the peer
// found too short is not used.
func (o *outCall) result(i int) (memory [][]byte, size int) {
	r := &o.req.Plan.Results[i]
	if o.retryChunk == i+1 {
		return nil, max(r.Max, o.retrySize)
	}
	return r.Memory, r.Max
}

// roundUp is the room that a Write chunk needs for the round-up of its result, behind the user's
// memory: with Padding, for servers that rely on it (RFC 5666 section 3.7). The requester's own
// memory has it.
func (o *outCall) roundUp(i int) int {
	memory, size := o.result(i)
	if memory == nil || !o.roundsUp() {
		return 0
	}
	return max(0, xdr.Round(size)-split.Length(memory))
}

func (o *outCall) roundsUp() bool {
	return o.out.cfg.RFC5666&Padding != 0 && o.build.dialect == wire.V1
}

// takeResult adds a Write chunk.
func (b *callBuilder) takeResult(o *outCall, i int) error {
	memory, size := o.result(i)
	pad := o.roundUp(i)
	if n := segmentCount(memory, size); n > b.lim.SegmentsPerChunk {
		return &RequestError{fmt.Sprintf("the memory of a result has %d segments, a chunk may have %d", n, b.lim.SegmentsPerChunk)}
	}
	if b.writes == len(b.results) {
		b.results = append(b.results, resultBuf{})
	}
	p := &b.results[b.writes]
	b.writes++
	if memory == nil {
		if o.roundsUp() {
			size = xdr.Round(size)
		}
		return p.alloc(o.out.cfg.Pool, size)
	}
	p.data = append(p.data[:0], memory...)
	if p.room = split.Length(p.data); p.room < size {
		return &RequestError{fmt.Sprintf("the memory of a result has %d bytes, the result may have %d", p.room, size)}
	}
	if pad > 0 {
		buf, err := o.out.cfg.Pool.Get(pad)
		if err != nil {
			return err
		}
		b.bufs, p.data, p.pad = append(b.bufs, buf), append(p.data, buf.B), pad
	}
	return nil
}

func (p *resultBuf) alloc(pool *bufpool.Pool, n int) error {
	p.room = 0
	for p.room < n {
		buf, err := pool.Get(min(n-p.room, bufpool.MaxSize))
		if err != nil {
			return err
		}
		p.bufs = append(p.bufs, buf)
		p.data = append(p.data, buf.B)
		p.room += len(buf.B)
	}
	return nil
}

// planCall splits the call into its inline stream and Read chunks. It returns the procedure and the
// length of the header.
func (b *callBuilder) planCall(out *requester, r *oncrpc.Request, base, limit int) (wire.Procedure, int, error) {
	b.cuts = b.cuts[:0]
	if err := b.newHead(out, base); err != nil { // for its zeros
		return 0, 0, err
	}
	for {
		if err := b.splitArgs(out, r); err != nil {
			return 0, 0, err
		}
		size := base + wire.ReadSegmentSize*len(b.data)
		if size+split.Length(b.out) <= limit {
			return wire.Msg, size, nil
		}
		if n := middles(split.Length(b.out), size, limit); n <= b.callMiddles && size <= limit {
			b.middles = n
			return wire.Msg, size, nil
		}
		if out.server {
			return 0, 0, &RequestError{fmt.Sprintf("it has %d bytes, a call of the reverse direction is limited to %d inline", split.Length(b.out), limit-size)}
		}
		if !b.nextCut(r) {
			break
		}
	}
	// together with the Position Zero Read chunk they are too many
	if n := len(b.cuts); n > 0 && n >= b.lim.ReadChunks {
		b.cuts = b.cuts[:0]
		if err := b.splitArgs(out, r); err != nil {
			return 0, 0, err
		}
	}
	if b.lim.ReadChunks == 0 {
		return 0, 0, &RequestError{fmt.Sprintf("it has %d bytes, and the peer takes no Read chunk", split.Length(b.out))}
	}
	if len(b.out) > 1 {
		if err := b.join(out); err != nil {
			return 0, 0, err
		}
		b.copied = true
	}
	size := base + b.dialect.CallSize(wire.NoMsg) - b.dialect.CallSize(wire.Msg) + wire.ReadSegmentSize*(len(b.data)+len(b.out))
	if size > limit {
		return 0, 0, &RequestError{fmt.Sprintf("its header has %d bytes, the inline threshold is %d", size, limit)}
	}
	return wire.NoMsg, size, nil
}

// nextCut adds the largest eligible argument that is not cut out yet.
func (b *callBuilder) nextCut(r *oncrpc.Request) bool {
	best := -1
next:
	for i, a := range r.Eligible {
		if a.Length == 0 || best >= 0 && a.Length <= r.Eligible[best].Length {
			continue
		}
		for _, cut := range b.cuts {
			if cut.Position == a.Position {
				continue next
			}
		}
		best = i
	}
	if best < 0 || len(b.data) >= b.lim.ReadSegments-1 || len(b.cuts) >= b.lim.ReadChunks {
		return false
	}
	b.cuts = append(b.cuts, r.Eligible[best])
	for i := len(b.cuts) - 1; i > 0 && b.cuts[i].Position < b.cuts[i-1].Position; i-- {
		b.cuts[i], b.cuts[i-1] = b.cuts[i-1], b.cuts[i]
	}
	return true
}

// splitArgs fills in out, data and ends.
func (b *callBuilder) splitArgs(out *requester, r *oncrpc.Request) error {
	b.out, b.data, b.ends = b.out[:0], b.data[:0], b.ends[:0]
	b.split.Reset(&r.Call, b.head.B[:headAt])
	for _, a := range b.cuts {
		var ok bool
		at := len(b.data)
		if b.out, ok = b.split.Until(b.out, a.Position); ok {
			b.data, ok = b.split.Take(b.data, a.Length)
		}
		if !ok {
			return &RequestError{fmt.Sprintf("the argument of %d bytes is not at position %d", a.Length, a.Position)}
		}
		if n := len(b.data) - at; n > b.lim.SegmentsPerChunk {
			if !b.lim.lowered {
				return &RequestError{fmt.Sprintf("the argument at position %d has %d slices, a chunk may have %d segments", a.Position, n, b.lim.SegmentsPerChunk)}
			}
			var err error
			if b.data, err = b.joined(out, b.data, at); err != nil {
				return err
			}
		}
		b.ends = append(b.ends, len(b.data))
	}
	var ok bool
	if b.out, ok = b.split.Rest(b.out); !ok {
		return &RequestError{"an item's position is beyond the end of the call"}
	}
	return nil
}

func (b *callBuilder) join(out *requester) (err error) {
	b.out, err = b.joined(out, b.out, 0)
	return err
}

// joined copies list from index at on into one slice.
func (b *callBuilder) joined(out *requester, list [][]byte, at int) ([][]byte, error) {
	n := split.Length(list[at:])
	buf, err := out.cfg.Pool.Get(n)
	if err != nil {
		return list, &RequestError{fmt.Sprintf("no memory for %d bytes in one piece: %v", n, err)}
	}
	b.bufs = append(b.bufs, buf)
	s := buf.B[:0]
	for _, o := range list[at:] {
		s = append(s, o...)
	}
	return append(list[:at], s), nil
}

func (b *callBuilder) newHead(out *requester, n int) (err error) {
	if b.head, err = out.buffer(b.head, headAt+n); err != nil {
		return err
	}
	clear(b.head.B[:headAt])
	return nil
}

// header returns the place for a header of size bytes. The stream may refer to the zeros, so they
// stay where they are.
func (b *callBuilder) header(o *outCall, size int) ([]byte, error) {
	old := b.head
	if cap(old.B) >= headAt+size {
		return old.B[headAt:headAt], nil
	}
	buf, err := o.out.cfg.Pool.Get(headAt + size)
	if err != nil {
		return nil, err
	}
	clear(buf.B[:headAt])
	b.bufs = append(b.bufs, old)
	b.head = buf
	return buf.B[headAt:headAt], nil
}

// appendReads exposes the memory of the Read chunks and appends the Read list.
func (b *callBuilder) appendReads(o *outCall, head []byte, proc wire.Procedure) ([]byte, error) {
	if proc == wire.NoMsg {
		for _, s := range b.out {
			seg, err := o.expose(s, rdma.RemoteRead, !b.copied)
			if err != nil {
				return nil, err
			}
			head = wire.AppendReadSegment(head, wire.ReadSegment{Segment: seg})
		}
		head = b.dialect.EndBody(head)
	}
	at := 0
	for i, a := range b.cuts {
		for ; at < b.ends[i]; at++ {
			seg, err := o.expose(b.data[at], rdma.RemoteRead, true)
			if err != nil {
				return nil, err
			}
			head = wire.AppendReadSegment(head, wire.ReadSegment{Position: wire.Position(a.Position), Segment: seg})
		}
		o.out.cfg.Observer.Transferred(ReadChunk, a.Length)
	}
	return wire.AppendEnd(head), nil
}

// appendPlaces exposes the memory for the reply and appends the Write list and the Reply chunk.
func (b *callBuilder) appendPlaces(o *outCall, head []byte) ([]byte, error) {
	b.segs = b.segs[:0]
	var err error
	for i := range b.writes {
		if head, err = b.appendPlace(o, head, &b.results[i]); err != nil {
			return nil, err
		}
	}
	head = wire.AppendEnd(head)
	if b.hasLong {
		return b.appendPlace(o, head, &b.replyChunk)
	}
	return wire.AppendEnd(head), nil
}

func (b *callBuilder) appendPlace(o *outCall, head []byte, p *resultBuf) ([]byte, error) {
	head = wire.AppendChunk(head, len(p.data))
	p.at = len(b.segs)
	for _, s := range p.data {
		seg, err := o.expose(s, rdma.RemoteWrite, len(p.bufs) == 0)
		if err != nil {
			return nil, err
		}
		b.segs = append(b.segs, seg)
		head = wire.AppendSegment(head, seg)
	}
	return head, nil
}

// expose lets the peer reach mem until invalidate. foreign: it is the user's, at least in part.
func (o *outCall) expose(mem []byte, access rdma.Access, foreign bool) (wire.Segment, error) {
	if n := o.build.segment; n > 0 && len(mem) > n {
		return wire.Segment{}, &RequestError{fmt.Sprintf("a segment has %d bytes, the peer takes %d at most", len(mem), n)}
	}
	remote, err := o.out.ep.Expose(mem, access)
	if err != nil {
		return wire.Segment{}, fmt.Errorf("rpcrdma: expose %d bytes: %w", len(mem), err)
	}
	o.regions = append(o.regions, exposedRegion{handle: remote.Handle, foreign: foreign, access: access, mem: mem})
	return wire.Segment{Handle: wire.Handle(remote.Handle), Length: uint32(len(mem)), Offset: remote.Offset}, nil
}

func releaseAll(bufs []*bufpool.Buf) []*bufpool.Buf {
	for i, b := range bufs {
		b.Release()
		bufs[i] = nil
	}
	return bufs[:0]
}

func (p *resultBuf) release() {
	p.bufs = releaseAll(p.bufs)
	clear(p.data)
	p.data, p.room, p.pad = p.data[:0], 0, 0
}

// release frees the memory of the request. The header's buffer stays for the next one.
func (b *callBuilder) release(out *requester) {
	if b.counted > 0 {
		out.placedBytes.Add(-b.counted)
		b.counted = 0
	}
	b.bufs = releaseAll(b.bufs)
	for i := range b.writes {
		b.results[i].release()
	}
	b.replyChunk.release()
	b.writes, b.hasLong, b.copied, b.grouped, b.padding = 0, false, false, false, padded.Rule{}
	b.omitted, b.middles = false, 0
	if b.group != nil {
		b.group.planner.Reset()
	}
	clear(b.out)
	clear(b.data)
	clear(b.gather)
	clear(b.send.wrs)
	b.split = split.Splitter{}
}

func (b *callBuilder) freeHead() {
	if b.head != nil {
		b.head.Release()
		b.head = nil
	}
}
