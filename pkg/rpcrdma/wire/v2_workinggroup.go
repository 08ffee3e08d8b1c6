package wire

import (
	"encoding/binary"
	"fmt"
	"math"
)

// V2WorkingGroup is version 2 in the dialect of docs/protocol-v2-wg.md: the last text of the NFSv4
// working group, draft-ietf-nfsv4-rpcrdma-version-two.
var V2WorkingGroup Dialect = v2WorkingGroup{}

type v2WorkingGroup struct{}

// Further procedures of this dialect, by numbers that are on no wire.
const (
	// Grant is RDMA2_GRANT: credits alone.
	Grant Procedure = 0x100 + iota
	// Middle is RDMA2_CALL_MIDDLE or RDMA2_REPLY_MIDDLE: a part of an RPC message, not the last.
	Middle
	// PropMiddle is RDMA2_CONNPROP_MIDDLE: properties, and more of them follow.
	PropMiddle
)

// Error codes of this dialect alone, by numbers that are on no wire.
const (
	InvalidProperty     ErrorCode = 0x100 + iota // the value of a property
	InvalidType                                  // no such header type
	InvalidContinuation                          // a message that does not continue the one before
	VersionMismatch                              // another version than that of the connection
)

// Header types on the wire.
const (
	typeError = 4 + iota
	typeGrant
	typePropMiddle
	typePropFinal
	typeCallExternal
	typeCallMiddle
	typeCallInline
	typeReplyExternal
	typeReplyMiddle
	typeReplyInline
)

// wgErrors are the error codes, by their numbers on the wire.
var wgErrors = map[uint32]struct {
	code ErrorCode
	name string
}{
	1: {ErrVers, "ERR_VERS"}, 2: {BadXDR, "BAD_XDR"}, 3: {InvalidProperty, "BAD_PROPVAL"}, 4: {InvalidType, "INVAL_HTYPE"},
	5: {InvalidContinuation, "INVAL_CONT"}, 6: {ReadChunks, "READ_CHUNKS"}, 7: {WriteChunks, "WRITE_CHUNKS"}, 8: {Segments, "SEGMENTS"},
	9: {WriteResource, "WRITE_RESOURCE"}, 10: {ReplyResource, "REPLY_RESOURCE"}, 11: {VersionMismatch, "VERS_MISMATCH"}, 100: {System, "SYSTEM"},
}

func wgNumber(code ErrorCode) uint32 {
	for n, e := range wgErrors {
		if e.code == code {
			return n
		}
	}
	return 100
}

const (
	wgCallSize  = FixedSize + 16 // the handle, and three absent lists
	wgReplySize = FixedSize + 8  // two absent lists; the inline form has one
	// MiddleSize is the length in bytes of the header of a Middle.
	MiddleSize = FixedSize + 4
	// UnknownCredits stands for the credits of a message that has a Limit instead.
	UnknownCredits Credits = math.MaxInt32
)

func (v2WorkingGroup) String() string { return "version 2 WorkingGroup" }

func (v2WorkingGroup) CallSize(p Procedure) int {
	if p == NoMsg {
		return wgCallSize + 4
	}
	return wgCallSize
}

func (v2WorkingGroup) ReplySize() int { return wgReplySize }

func (v2WorkingGroup) AppendCall(dst []byte, xid XID, credits Credits, p Procedure) []byte {
	kind := Procedure(typeCallInline)
	if p == NoMsg {
		kind = typeCallExternal
	}
	return AppendEnd(AppendFixed(dst, xid, Version2, credits, kind))
}

func (v2WorkingGroup) EndBody(dst []byte) []byte { return AppendEnd(dst) }

func (v2WorkingGroup) SetInvalidate(call []byte, h Handle) { setInvalidate(call, FixedSize, h) }

func (v2WorkingGroup) AppendReply(dst []byte, xid XID, credits Credits, p Procedure) []byte {
	kind := Procedure(typeReplyInline)
	if p == NoMsg {
		kind = typeReplyExternal
	}
	return AppendFixed(dst, xid, Version2, credits, kind)
}

// AppendReplyChunk appends the Reply chunk of the external form. The inline form has none.
func (v2WorkingGroup) AppendReplyChunk(dst []byte, call *Header, written int) []byte {
	if written == 0 {
		return dst
	}
	return AppendReturned(dst, call.Reply(), written)
}

func (v2WorkingGroup) AppendFault(dst []byte, call *Header, credits Credits, f Fault2) []byte {
	dst = AppendFixed(dst, call.XID, call.Version, credits, typeError)
	dst = binary.BigEndian.AppendUint32(dst, wgNumber(f.Code))
	return appendFault(dst, f)
}

// AppendMiddle appends the header of a part of an RPC message. remaining bytes follow in further
// parts.
func AppendMiddle(dst []byte, xid XID, d Direction, remaining int) []byte {
	kind := Procedure(typeCallMiddle)
	if d == Reply {
		kind = typeReplyMiddle
	}
	return binary.BigEndian.AppendUint32(AppendFixed(dst, xid, Version2, 0, kind), uint32(remaining))
}

// AppendGrant appends a message of credits alone.
func AppendGrant(dst []byte) []byte { return AppendFixed(dst, 0, Version2, 0, typeGrant) }

// AppendConnProp appends a message with properties. more follow in another one.
func AppendConnProp(dst []byte, xid XID, limit uint32, p *Properties, more bool) []byte {
	kind := Procedure(typePropFinal)
	if more {
		kind = typePropMiddle
	}
	return p.Append(AppendFixed(dst, xid, Version2, Credits(limit), kind), ReqProp)
}

// SetLimit writes the number of messages that the receiver may have sent into a message.
func SetLimit(message []byte, limit uint32) { binary.BigEndian.PutUint32(message[8:], limit) }

func (v2WorkingGroup) parse(h *Header, r *Reader, lim *Limits) error {
	kind := h.Procedure
	h.Limit, h.Credits = uint32(h.Credits), UnknownCredits
	switch kind {
	case typeError:
		return h.parseErrorWG(r)
	case typeGrant:
		h.Procedure = Grant
	case typePropMiddle, typePropFinal:
		if h.Procedure = ConnProp; kind == typePropMiddle {
			h.Procedure = PropMiddle
		}
		h.Props.parse(r, ReqProp)
	case typeCallExternal:
		h.Procedure, h.Direction, h.Invalidate = NoMsg, Call, Handle(r.Uint32())
		h.parseReads(r, lim)
		n := len(h.Reads)
		if r.err == nil && (n == 0 || h.Reads[n-1].Position != 0) {
			r.Fail("rdma_call", "it must have segments, all at position 0")
		}
		h.parseArguments(r, lim, n)
		h.parseWrites(r, lim)
		h.parseReply(r, lim)
	case typeCallInline:
		h.Procedure, h.Direction, h.Invalidate = Msg, Call, Handle(r.Uint32())
		h.parseArguments(r, lim, 0)
		h.parseWrites(r, lim)
		h.parseReply(r, lim)
	case typeReplyExternal:
		h.Procedure, h.Direction = NoMsg, Reply
		h.parseWrites(r, lim)
		if h.parseReply(r, lim); r.err == nil && !h.HasReply {
			r.Fail("rdma_reply", "it must have a Reply chunk")
		}
	case typeReplyInline:
		h.Procedure, h.Direction = Msg, Reply
		h.parseWrites(r, lim)
	case typeCallMiddle, typeReplyMiddle:
		if h.Procedure = Middle; kind == typeReplyMiddle {
			h.Direction = Reply
		}
		h.Remaining = r.Uint32()
	default:
		r.failWith(InvalidType, 0, "rdma_htype", "header type is %d, must be 4 to 13", uint32(kind))
	}
	return h.parsed(r)
}

// parseArguments reads the Read list, behind n segments of the Call chunk.
func (h *Header) parseArguments(r *Reader, lim *Limits, n int) {
	h.parseReads(r, lim)
	if r.err == nil && len(h.Reads) > n && h.Reads[n].Position == 0 {
		r.Fail("rdma_position", "position 0 is that of the Call chunk")
	}
}

// parseErrorWG reads the body of RDMA2_ERROR. An unknown code drops the message.
func (h *Header) parseErrorWG(r *Reader) error {
	n := r.Uint32()
	e, ok := wgErrors[n]
	if r.err == nil && !ok {
		return &ParseError{Field: "rdma_err", Offset: FixedSize, Reason: fmt.Sprintf("error %d is not known", n)}
	}
	switch h.Code = e.code; h.Code {
	case ErrVers:
		h.Low, h.High = r.Uint32(), r.Uint32()
	case ReadChunks, WriteChunks, Segments:
		h.Max = r.Uint32()
	case WriteResource:
		h.Index, h.Needed = r.Uint32(), r.Uint32()
	case ReplyResource:
		h.Needed = r.Uint32()
	}
	if r.err != nil {
		r.err.Code = 0
	}
	return h.parsed(r)
}

func (d v2WorkingGroup) append(h *Header, dst []byte) []byte {
	at := len(dst)
	switch {
	case h.Procedure == Error:
		dst = d.AppendFault(dst, h, 0, Fault2{Code: h.Code, Low: h.Low, High: h.High, Max: h.Max, Index: h.Index, Needed: h.Needed})
	case h.Procedure == Grant:
		dst = AppendFixed(dst, h.XID, Version2, 0, typeGrant)
	case h.Procedure == Middle:
		dst = AppendMiddle(dst, h.XID, h.Direction, int(h.Remaining))
	case h.Procedure == ConnProp || h.Procedure == PropMiddle:
		dst = AppendConnProp(dst, h.XID, 0, &h.Props, h.Procedure == PropMiddle)
	case h.Direction == Call:
		dst = d.AppendCall(dst, h.XID, 0, h.Procedure)
		d.SetInvalidate(dst[at:], h.Invalidate)
		body := h.Procedure == NoMsg
		for _, s := range h.Reads {
			if body && s.Position != 0 {
				dst, body = AppendEnd(dst), false
			}
			dst = AppendReadSegment(dst, s)
		}
		if body {
			dst = AppendEnd(dst)
		}
		dst = h.appendWrites(AppendEnd(dst))
		if h.HasReply {
			dst = appendChunk(dst, h.Reply())
		} else {
			dst = AppendEnd(dst)
		}
	default:
		dst = h.appendWrites(d.AppendReply(dst, h.XID, 0, h.Procedure))
		if h.Procedure == NoMsg {
			dst = appendChunk(dst, h.Reply())
		}
	}
	SetLimit(dst[at:], h.Limit)
	return dst
}
