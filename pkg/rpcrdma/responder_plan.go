package rpcrdma

import (
	"errors"
	"hash/crc32"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/oncrpc"
	"sluice.dev/sluice/pkg/rpcrdma/wire"
	"sluice.dev/sluice/pkg/xdr"
)

// identityBytes bounds the part of a stream that an identity covers. Eligible arguments, and bytes
// after them, do not count.
const identityBytes = 256

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// identify notes the identity of a call that has been decoded and planned. The handler may change
// the stream afterwards.
func (ic *inCall) identify() {
	left := identityBytes
	if len(ic.args) > 0 {
		left = min(left, ic.args[0].Position)
	}
	id := identity{program: ic.Program, version: ic.Version, procedure: ic.Procedure, length: ic.Len()}
	for _, b := range ic.Stream {
		if left == 0 {
			break
		}
		b = b[:min(left, len(b))]
		left -= len(b)
		id.sum = crc32.Update(id.sum, castagnoli, b)
	}
	ic.identity = id
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
	if ic.hdr.Procedure == wire.MsgP && !ic.stripCall() {
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
	if ic.in.exposes() && !ic.v2 {
		ic.Plan.MaxReply = max(ic.Plan.MaxReply, ic.in.cfg.MaxBulk)
	}
	d := ic.Args()
	capacity := ic.Plan.MaxReply
	var err error
	ic.args, err = b.Plan(&ic.Plan, ic.args, ic.Procedure, d)
	if err == nil {
		ic.bulk = min(ic.Plan.Bulk(), ic.in.cfg.MaxBulk)
	}
	if !ic.in.exposes() && !ic.hdr.Chunks() && len(ic.Items) == 0 && len(ic.hdr.Transmit.Sets) == 0 {
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
	t := ic.in.negotiated.Load()
	n := max(0, t.sendLimit-ic.answerSize()) + t.replyMiddles*middleRoom(t.sendLimit)
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
