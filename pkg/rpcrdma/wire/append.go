package wire

import "encoding/binary"

// The functions here append to dst, which the caller makes large enough if memory must not move.

// AppendFixed appends the four words that begin every header.
func AppendFixed(dst []byte, xid XID, version uint32, credits Credits, p Procedure) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(xid))
	dst = binary.BigEndian.AppendUint32(dst, version)
	dst = binary.BigEndian.AppendUint32(dst, uint32(credits))
	return binary.BigEndian.AppendUint32(dst, uint32(p))
}

// AppendReadSegment appends an entry of the Read list.
func AppendReadSegment(dst []byte, s ReadSegment) []byte {
	dst = binary.BigEndian.AppendUint32(dst, 1)
	dst = binary.BigEndian.AppendUint32(dst, uint32(s.Position))
	return AppendSegment(dst, s.Segment)
}

// AppendEnd appends the word that ends the Read list or the Write list, or marks an absent Reply
// chunk.
func AppendEnd(dst []byte) []byte { return binary.BigEndian.AppendUint32(dst, 0) }

// AppendChunk appends the beginning of a Write chunk or of the Reply chunk; n segments must follow.
func AppendChunk(dst []byte, n int) []byte {
	dst = binary.BigEndian.AppendUint32(dst, 1)
	return binary.BigEndian.AppendUint32(dst, uint32(n))
}

// AppendSegment appends a segment of a chunk.
func AppendSegment(dst []byte, s Segment) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(s.Handle))
	dst = binary.BigEndian.AppendUint32(dst, s.Length)
	return binary.BigEndian.AppendUint64(dst, s.Offset)
}

// AppendReturned appends a Write or Reply chunk as a responder returns it: the same segments, with
// the lengths that result when written bytes fill them in order (RFC 8166 section 3.4.6).
func AppendReturned(dst []byte, segs []Segment, written int) []byte {
	dst = AppendChunk(dst, len(segs))
	for _, s := range segs {
		s.Length = min(s.Length, uint32(written))
		written -= int(s.Length)
		dst = AppendSegment(dst, s)
	}
	return dst
}

// AppendError appends an RDMA_ERROR message. low and high are used only with ErrVers. The version
// is that of the failing call.
func AppendError(dst []byte, xid XID, version uint32, credits Credits, code ErrorCode, low, high uint32) []byte {
	dst = AppendFixed(dst, xid, version, credits, Error)
	dst = binary.BigEndian.AppendUint32(dst, uint32(code))
	if code == ErrVers {
		dst = binary.BigEndian.AppendUint32(dst, low)
		dst = binary.BigEndian.AppendUint32(dst, high)
	}
	return dst
}

// Append appends the header, without its payload.
func (h *Header) Append(dst []byte) []byte {
	if h.Dialect == nil {
		return h.append1(dst)
	}
	return h.Dialect.append(h, dst)
}

func (h *Header) append1(dst []byte) []byte {
	if h.Procedure == Error {
		return AppendError(dst, h.XID, h.Version, h.Credits, h.Code, h.Low, h.High)
	}
	dst = AppendFixed(dst, h.XID, h.Version, h.Credits, h.Procedure)
	if h.Procedure == Done {
		return dst
	}
	if h.Procedure == MsgP {
		dst = AppendPadding(dst, h.Align, h.Threshold)
	}
	return h.appendLists(dst)
}

func (h *Header) appendLists(dst []byte) []byte {
	for _, s := range h.Reads {
		dst = AppendReadSegment(dst, s)
	}
	dst = h.appendWrites(AppendEnd(dst))
	if h.HasReply {
		return appendChunk(dst, h.Reply())
	}
	return AppendEnd(dst)
}

func (h *Header) appendWrites(dst []byte) []byte {
	for i := range h.writes {
		dst = appendChunk(dst, h.Write(i))
	}
	return AppendEnd(dst)
}

func appendChunk(dst []byte, segs []Segment) []byte {
	dst = AppendChunk(dst, len(segs))
	for _, s := range segs {
		dst = AppendSegment(dst, s)
	}
	return dst
}
