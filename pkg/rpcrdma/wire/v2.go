package wire

import (
	"encoding/binary"
	"fmt"
)

// Version2 is RPC-over-RDMA version 2 in the dialect of docs/protocol-v2.md: the extension
// mechanism of the version's first drafts, the layout and the transport properties of
// draft-cel-nfsv4-rpcrdma-version-two-05, and draft-dnoveck-nfsv4-rpcrdma-rtrext-03.
const Version2 = 2

// Procedures of version 2. Msg, NoMsg and Error are those of version 1; 2 and 3 do not exist.
const (
	Optional Procedure = 5 // RDMA2_OPTIONAL: an operation of an extension
	ConnProp Procedure = 6 // RDMA2_CONNPROP: properties, with the first message of each side
	ReqProp  Procedure = 7 // RDMA2_REQPROP: a request to change properties
	RespProp Procedure = 8 // RDMA2_RESPROP: the answer to that
	UpdProp  Procedure = 9 // RDMA2_UPDPROP: news of a side's own properties
)

// Direction is the direction of an RPC message: RPC's msg_type.
type Direction uint32

// Directions.
const (
	Call  Direction = 0
	Reply Direction = 1
)

// Operation is the opttype of an RDMA2_OPTIONAL message.
type Operation uint32

// Operations. Those of properties are other names for the procedures 6 to 9, with the same body in
// optinfo.
const (
	OptConnProp Operation = 1
	OptReqProp  Operation = 2
	OptRespProp Operation = 3
	OptUpdProp  Operation = 4
	// XmtReq begins a request, XmtResp a reply, XmtCont continues either; ReptErr reports an error
	// in one (rtrext section 9).
	XmtReq  Operation = 5
	XmtResp Operation = 6
	XmtCont Operation = 7
	ReptErr Operation = 8
)

// Error codes of version 2 besides ErrVers.
const (
	BadXDR        ErrorCode = 2 // the header cannot be decoded
	InvalidOption ErrorCode = 3 // no such procedure, or no such operation
	ReadChunks    ErrorCode = 4 // more Read chunks than Error.Max
	WriteChunks   ErrorCode = 5 // more Write chunks than Error.Max
	Segments      ErrorCode = 6 // more segments in a chunk than Error.Max
	// the Write chunk with the index (from 1; 0: unknown) is shorter than the bytes needed
	WriteResource ErrorCode = 7
	ReplyResource ErrorCode = 8 // the reply needs room for so many bytes
	// InvalidOption9 is InvalidOption of draft -05's peers. It is understood and never sent.
	InvalidOption9 ErrorCode = 9
	System         ErrorCode = 10 // the responder cannot answer for other reasons
)

var errorNames2 = [...]string{
	ErrVers: "ERR_VERS", BadXDR: "BAD_XDR", InvalidOption: "INVALID_OPTION", ReadChunks: "READ_CHUNKS", WriteChunks: "WRITE_CHUNKS", Segments: "SEGMENTS",
	WriteResource: "WRITE_RESOURCE", ReplyResource: "REPLY_RESOURCE", InvalidOption9: "INVALID_OPTION", System: "SYSTEM",
}

// Name returns a code's name in a version.
func (c ErrorCode) Name(version uint32) string {
	if c >= InvalidProperty {
		return wgErrors[wgNumber(c)].name
	}
	if version == Version2 && c > 0 && int(c) < len(errorNames2) {
		return errorNames2[c]
	}
	return c.String()
}

// Sizes of version 2 in bytes.
const (
	// MinSize2 is the header of RDMA2_MSG with three absent lists: version 1's with direction and
	// inv_handle.
	MinSize2 = MinSize + 8
	// FirstMessage bounds the first message of a connection: its receiver may support version 1
	// only.
	FirstMessage = 1024
	// MaxProperties bounds the properties of a set.
	MaxProperties = 32
)

// parse2 reads the header of version 2 after the fixed words.
func (h *Header) parse2(r *Reader, lim *Limits) {
	switch h.Procedure {
	case Msg, NoMsg:
		h.Direction = r.direction("rdma_direction")
		h.Invalidate = Handle(r.Uint32())
		h.parseReads(r, lim)
		h.parseWrites(r, lim)
		h.parseReply(r, lim)
	case Optional:
		h.Direction = r.direction("rdma_optdir")
		h.Operation = Operation(r.Uint32())
		h.option(r, lim)
	case ConnProp, ReqProp, RespProp, UpdProp:
		h.Props.parse(r, h.Procedure)
	default:
		r.failWith(InvalidOption, 0, "rdma_proc", "procedure is %d, must be 0, 1, or 4 to 9", uint32(h.Procedure))
	}
}

// option reads optinfo. Bytes after the operation's body are skipped: they belong to a later form.
func (h *Header) option(r *Reader, lim *Limits) {
	n := r.Uint32()
	padded := (uint64(n) + 3) &^ 3
	alias := h.Operation >= OptConnProp && h.Operation <= OptUpdProp
	extension := lim.find(h.Operation)
	switch {
	case r.err != nil:
		return
	case !alias && extension == nil:
		r.failWith(InvalidOption, 0, "rdma_opttype", "operation %d is of no extension that is known", uint32(h.Operation))
		return
	case padded > uint64(r.left):
		r.ends("rdma_optinfo", padded)
		return
	}
	behind := r.left - int(padded)
	r.left, r.part = int(n), "optinfo"
	if alias {
		h.Alias = true
		h.Procedure = ConnProp + Procedure(h.Operation-OptConnProp)
		h.Props.parse(r, h.Procedure)
	} else {
		extension.Parse(h, r, lim)
	}
	if r.err != nil {
		return
	}
	r.left, r.part = r.left+int(padded)-int(n)+behind, ""
	r.skip(r.left - behind)
}

// parseError2 reads the body of an RDMA2_ERROR message.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                             Code                              |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  1: lowest, highest version        4, 5, 6: the most allowed  |
//	|  7: index of the chunk, bytes needed       8: bytes needed    |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
func (h *Header) parseError2(r *Reader) error {
	switch h.Code = ErrorCode(r.Uint32()); h.Code {
	case ErrVers:
		h.Low, h.High = r.Uint32(), r.Uint32()
	case BadXDR, InvalidOption, InvalidOption9, System:
	case ReadChunks, WriteChunks, Segments:
		h.Max = r.Uint32()
	case WriteResource:
		h.Index, h.Needed = r.Uint32(), r.Uint32()
	case ReplyResource:
		h.Needed = r.Uint32()
	default:
		return &ParseError{Field: "rdma_err", Offset: FixedSize, Reason: fmt.Sprintf("error is %d, must be 1 to 10", uint32(h.Code))}
	}
	h.Size = r.pos
	if r.err != nil {
		r.err.Code = 0
		return r.err
	}
	return nil
}

func (r *Reader) direction(field string) Direction {
	d := Direction(r.Uint32())
	if r.err == nil && d > Reply {
		r.Fail(field, "direction is %d, must be 0 (call) or 1 (reply)", uint32(d))
	}
	return d
}

// AppendMessage appends the beginning of RDMA2_MSG or RDMA2_NOMSG; three lists must follow.
func AppendMessage(dst []byte, xid XID, credits Credits, p Procedure, d Direction, invalidate Handle) []byte {
	dst = AppendFixed(dst, xid, Version2, credits, p)
	dst = binary.BigEndian.AppendUint32(dst, uint32(d))
	return binary.BigEndian.AppendUint32(dst, uint32(invalidate))
}

// Fault2 is the body of an RDMA2_ERROR message. Each code uses some of the fields.
type Fault2 struct {
	Code          ErrorCode
	Low, High     uint32
	Max           uint32
	Index, Needed uint32
}

// Error2Size bounds an RDMA2_ERROR message.
const Error2Size = FixedSize + 12

// AppendError2 appends an RDMA2_ERROR message.
func AppendError2(dst []byte, xid XID, credits Credits, f Fault2) []byte {
	dst = AppendFixed(dst, xid, Version2, credits, Error)
	return appendFault(binary.BigEndian.AppendUint32(dst, uint32(f.Code)), f)
}

// appendFault appends the values of an error.
func appendFault(dst []byte, f Fault2) []byte {
	switch f.Code {
	case ErrVers:
		dst = binary.BigEndian.AppendUint32(dst, f.Low)
		dst = binary.BigEndian.AppendUint32(dst, f.High)
	case ReadChunks, WriteChunks, Segments:
		dst = binary.BigEndian.AppendUint32(dst, f.Max)
	case WriteResource:
		dst = binary.BigEndian.AppendUint32(dst, f.Index)
		dst = binary.BigEndian.AppendUint32(dst, f.Needed)
	case ReplyResource:
		dst = binary.BigEndian.AppendUint32(dst, f.Needed)
	}
	return dst
}

// append2 appends a parsed header of version 2, without bytes after the operation's body.
func (h *Header) append2(dst []byte) []byte {
	switch {
	case h.Procedure == Error:
		return AppendError2(dst, h.XID, h.Credits, Fault2{Code: h.Code, Low: h.Low, High: h.High, Max: h.Max, Index: h.Index, Needed: h.Needed})
	case h.Procedure == Optional:
		at := len(dst)
		dst = BeginOption(dst, h.XID, h.Credits, h.Direction, h.Operation)
		return EndOption(h.Transmit.Append(dst, h.Operation), at)
	case h.Procedure >= ConnProp:
		return AppendProperties(dst, h.XID, h.Credits, h.Direction, h.Procedure, &h.Props, h.Alias)
	}
	return h.appendLists(AppendMessage(dst, h.XID, h.Credits, h.Procedure, h.Direction, h.Invalidate))
}

// BeginOption appends the beginning of an RDMA2_OPTIONAL message. Everything appended until
// EndOption is its optinfo.
func BeginOption(dst []byte, xid XID, credits Credits, d Direction, op Operation) []byte {
	dst = AppendFixed(dst, xid, Version2, credits, Optional)
	dst = binary.BigEndian.AppendUint32(dst, uint32(d))
	dst = binary.BigEndian.AppendUint32(dst, uint32(op))
	return binary.BigEndian.AppendUint32(dst, 0)
}

// OptionSize is the length that BeginOption appends.
const OptionSize = FixedSize + 12

// EndOption writes the length of the optinfo of a message that began at dst[at], which is a
// multiple of four.
func EndOption(dst []byte, at int) []byte {
	binary.BigEndian.PutUint32(dst[at+OptionSize-4:], uint32(len(dst)-at-OptionSize))
	return dst
}
