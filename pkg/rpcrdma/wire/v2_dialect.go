package wire

// V2RoundTrip is version 2 in the dialect of docs/protocol-v2.md.
var V2RoundTrip Dialect = v2RoundTrip{}

type v2RoundTrip struct{}

func (v2RoundTrip) String() string { return "version 2 RoundTrip" }

func (v2RoundTrip) CallSize(Procedure) int { return MinSize2 }

func (v2RoundTrip) ReplySize() int { return MinSize2 }

func (v2RoundTrip) AppendCall(dst []byte, xid XID, credits Credits, p Procedure) []byte {
	return AppendMessage(dst, xid, credits, p, Call, 0)
}

func (v2RoundTrip) EndBody(dst []byte) []byte { return dst }

func (v2RoundTrip) SetInvalidate(call []byte, h Handle) { setInvalidate(call, FixedSize+4, h) }

func (v2RoundTrip) AppendReply(dst []byte, xid XID, credits Credits, p Procedure) []byte {
	return AppendEnd(AppendMessage(dst, xid, credits, p, Reply, 0))
}

func (v2RoundTrip) AppendReplyChunk(dst []byte, call *Header, written int) []byte {
	return appendReplyChunk(dst, call, written)
}

func (v2RoundTrip) AppendFault(dst []byte, call *Header, credits Credits, f Fault2) []byte {
	return AppendError2(dst, call.XID, credits, f)
}

func (v2RoundTrip) parse(h *Header, r *Reader, lim *Limits) error {
	if h.Procedure == Error {
		return h.parseError2(r)
	}
	h.parse2(r, lim)
	return h.parsed(r)
}

func (v2RoundTrip) append(h *Header, dst []byte) []byte { return h.append2(dst) }
