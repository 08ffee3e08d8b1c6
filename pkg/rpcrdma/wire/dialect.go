package wire

import "encoding/binary"

// Dialect is the form of headers on a connection: version 1, or one of the texts about version 2. A
// parsed Header has the dialect in which it came. All fill the same fields: the engine looks at
// Procedure and Direction, and not at a dialect's numbers.
type Dialect interface {
	String() string
	// CallSize is the length in bytes of a call's header without chunks, p being Msg or NoMsg.
	CallSize(p Procedure) int
	// ReplySize bounds that of a reply with a word for an absent Reply chunk.
	ReplySize() int
	// AppendCall begins a call. The Position Zero Read chunk, EndBody, other segments of the Read
	// list, AppendEnd, the Write list and the Reply chunk follow.
	AppendCall(dst []byte, xid XID, credits Credits, p Procedure) []byte
	// EndBody ends the Position Zero Read chunk of a NoMsg where it is a list of its own.
	EndBody(dst []byte) []byte
	// SetInvalidate sets the handle that the reply may invalidate, where a call can name it.
	SetInvalidate(call []byte, h Handle)
	// AppendReply begins the reply to a call. The Write list and AppendReplyChunk follow.
	AppendReply(dst []byte, xid XID, credits Credits, p Procedure) []byte
	// AppendReplyChunk appends the call's Reply chunk with the length that was written.
	AppendReplyChunk(dst []byte, call *Header, written int) []byte
	// AppendFault answers a message with an error other than ERR_VERS.
	AppendFault(dst []byte, call *Header, credits Credits, f Fault2) []byte

	parse(h *Header, r *Reader, lim *Limits) error
	append(h *Header, dst []byte) []byte
}

// V1 is version 1.
var V1 Dialect = v1{}

type v1 struct{}

func (v1) String() string { return "version 1" }

func (v1) CallSize(Procedure) int { return MinSize }

func (v1) ReplySize() int { return MinSize }

func (v1) AppendCall(dst []byte, xid XID, credits Credits, p Procedure) []byte {
	return AppendFixed(dst, xid, Version1, credits, p)
}

func (v1) EndBody(dst []byte) []byte { return dst }

func (v1) SetInvalidate([]byte, Handle) {}

func (v1) AppendReply(dst []byte, xid XID, credits Credits, p Procedure) []byte {
	return AppendEnd(AppendFixed(dst, xid, Version1, credits, p))
}

func (v1) AppendReplyChunk(dst []byte, call *Header, written int) []byte {
	return appendReplyChunk(dst, call, written)
}

// AppendFault appends ERR_CHUNK, which stands for every code.
func (v1) AppendFault(dst []byte, call *Header, credits Credits, _ Fault2) []byte {
	return AppendError(dst, call.XID, call.Version, credits, ErrChunk, 0, 0)
}

func (v1) parse(h *Header, r *Reader, lim *Limits) error { return h.parse1(r, lim) }

func (v1) append(h *Header, dst []byte) []byte { return h.append1(dst) }

func appendReplyChunk(dst []byte, call *Header, written int) []byte {
	if call.HasReply {
		return AppendReturned(dst, call.Reply(), written)
	}
	return AppendEnd(dst)
}

func setInvalidate(call []byte, at int, h Handle) {
	binary.BigEndian.PutUint32(call[at:], uint32(h))
}
