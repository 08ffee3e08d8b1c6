package wire

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
)

// Header is a parsed header. It is reused for the next message, keeps no reference to the message's
// memory, and must not be copied. The picture is that of version 1; in version 2 the direction and
// the handle to invalidate stand before the lists.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                              XID                              |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                          Version = 1                          |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|             Credits requested or granted                      |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                           Procedure                           |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Read list:   { 1, Position, Segment }...  0                  |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Write list:  { 1, count, Segment * count }...  0             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  Reply chunk: 0, or { 1, count, Segment * count }             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  the payload stream, in RDMA_MSG                              |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// (RFC 8166 sections 4.1 to 4.3.)
type Header struct {
	XID       XID
	Version   uint32
	Credits   Credits
	Procedure Procedure

	// Reads is the Read list. The segments of a chunk are in the order of the wire, the chunks in
	// the order of their positions, which version 1 does not demand.
	Reads []ReadSegment
	// HasReply means that there is a Reply chunk, perhaps without segments.
	HasReply bool

	// Code, Low and High are the body of an RDMA_ERROR message; Low and High only with ErrVers.
	Code      ErrorCode
	Low, High uint32

	// Direction and Invalidate exist in version 2: call or reply, and the handle that the reply may
	// invalidate, 0 for none.
	Direction  Direction
	Invalidate Handle
	// Max, Index and Needed belong to RDMA2_ERROR; see Fault2.
	Max, Index, Needed uint32
	// Operation is that of RDMA2_OPTIONAL. For the operations of properties, Procedure is the
	// equivalent procedure, and Alias is set.
	Operation Operation
	Alias     bool
	Props     Properties
	Transmit  Transmit
	// Body is the body of another extension's operation, which the extension reuses.
	Body any

	// Limit and Remaining exist in the dialect V2WorkingGroup: the number of messages that the peer
	// may have sent, and the bytes of an RPC message that follow a Middle.
	Limit, Remaining uint32

	// Align and Threshold exist in RDMA_MSGP (RFC 5666 section 3.9). Align is a power of two, or 0.
	Align, Threshold uint32

	// Size is the header's length in bytes, and the beginning of the payload stream.
	Size int

	// Dialect is the one in which the message came, V1 for versions that are not known.
	Dialect Dialect

	reader Reader // while the header is parsed
	writes []span // into segs
	reply  span
	segs   []Segment

	readsInline  [8]ReadSegment
	segsInline   [16]Segment
	writesInline [4]span
}

type span struct{ at, n int }

// Writes returns the number of chunks in the Write list.
func (h *Header) Writes() int { return len(h.writes) }

// Write returns the segments of Write chunk i; none for an empty one.
func (h *Header) Write(i int) []Segment { s := h.writes[i]; return h.segs[s.at : s.at+s.n : s.at+s.n] }

// Reply returns the segments of the Reply chunk.
func (h *Header) Reply() []Segment {
	return h.segs[h.reply.at : h.reply.at+h.reply.n : h.reply.at+h.reply.n]
}

// Chunks reports whether the header has any chunk.
func (h *Header) Chunks() bool { return len(h.Reads) > 0 || len(h.writes) > 0 || h.HasReply }

// Length returns the sum of the segments' lengths, which cannot overflow.
func Length(segs []Segment) (n uint64) {
	for _, s := range segs {
		n += uint64(s.Length)
	}
	return n
}

// Reset empties h and keeps its memory.
func (h *Header) Reset() {
	reads, writes, segs := h.Reads, h.writes, h.segs
	if reads == nil {
		reads, writes, segs = h.readsInline[:], h.writesInline[:], h.segsInline[:]
	}
	h.XID, h.Version, h.Credits, h.Procedure = 0, 0, 0, 0
	h.Dialect, h.HasReply, h.Code, h.Low, h.High, h.Size, h.reply = V1, false, 0, 0, 0, 0, span{}
	h.Align, h.Threshold, h.Limit, h.Remaining = 0, 0, 0, 0
	h.Direction, h.Invalidate, h.Max, h.Index, h.Needed, h.Operation, h.Alias = 0, 0, 0, 0, 0, 0, false
	h.Props.Reset()
	h.Transmit.Reset()
	h.Reads, h.writes, h.segs = reads[:0], writes[:0], segs[:0]
}

// Parse reads the header at the beginning of message. The error is a *ParseError; then only the
// fixed words present in the message are set, and the direction where the procedure has one.
func (h *Header) Parse(message [][]byte, lim *Limits) error {
	h.Reset()
	h.reader = Reader{rest: message}
	for _, s := range message {
		h.reader.left += len(s)
	}
	err := h.parse(&h.reader, lim)
	h.reader = Reader{}
	return err
}

func (h *Header) parse(r *Reader, lim *Limits) error {
	size := r.left
	if size < ErrChunkSize && (size != FixedSize || !lim.Done && lim.V2 != V2WorkingGroup) {
		return &ParseError{Field: "length", Reason: fmt.Sprintf("message has %d bytes, the shortest header has %d", size, MinSize)}
	}
	h.XID, h.Version = XID(r.Uint32()), r.Uint32()
	h.Credits, h.Procedure = Credits(r.Uint32()), Procedure(r.Uint32())
	v2 := h.Version == Version2 && lim.Version2
	if size < MinSize && h.Procedure != Error && !v2 && (!lim.Done || h.Procedure != Done) {
		return &ParseError{Field: "length", Reason: fmt.Sprintf("message has %d bytes, the shortest header has %d", size, MinSize)}
	}
	if v2 {
		h.Dialect = lim.Dialect()
	}
	return h.Dialect.parse(h, r, lim)
}

// parsed ends the header at the reader's place.
func (h *Header) parsed(r *Reader) error {
	h.Size = r.pos
	if r.err != nil {
		return r.err
	}
	return nil
}

// parse1 reads the header of version 1 after the fixed words. The form of ERR_VERS is the same in
// all versions (RFC 8166 section 4.1).
func (h *Header) parse1(r *Reader, lim *Limits) error {
	switch {
	case h.Procedure == Error:
		return h.parseError(r)
	case h.Version != Version1 || lim.NoVersion1:
		return &ParseError{Field: "rdma_vers", Offset: 4, Reason: fmt.Sprintf("version is %d, must be %s", h.Version, lim.versions()), Code: ErrVers}
	}
	switch h.Procedure {
	case Msg, NoMsg:
	case Done:
		h.Size = r.pos
		return nil
	case MsgP:
		if lim.Padded {
			h.parsePadding(r)
			break
		}
		return &ParseError{Field: "rdma_proc", Offset: 12, Reason: "RDMA_MSGP is no longer part of version 1", Code: ErrChunk}
	default:
		return &ParseError{Field: "rdma_proc", Offset: 12, Reason: fmt.Sprintf("procedure is %d, must be 0, 1 or 4", uint32(h.Procedure)), Code: ErrChunk}
	}
	h.parseReads(r, lim)
	h.parseWrites(r, lim)
	h.parseReply(r, lim)
	return h.parsed(r)
}

// parseError reads the body of an RDMA_ERROR message.
//
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|              Code: ERR_VERS = 1, ERR_CHUNK = 2                |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|  with ERR_VERS only: lowest version, highest version          |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
func (h *Header) parseError(r *Reader) error {
	switch h.Code = ErrorCode(r.Uint32()); h.Code {
	case ErrVers:
		h.Low, h.High = r.Uint32(), r.Uint32()
	case ErrChunk:
	default:
		return &ParseError{Field: "rdma_err", Offset: FixedSize, Reason: fmt.Sprintf("error is %d, must be 1 or 2", uint32(h.Code))}
	}
	h.Size = r.pos
	if r.err != nil {
		r.err.Code = 0
		return r.err
	}
	return nil
}

func (h *Header) parseReads(r *Reader, lim *Limits) {
	chunks, inChunk, unsorted := 0, 0, false
	for r.present("rdma_reads") {
		if len(h.Reads) >= lim.ReadSegments {
			// All chunks but the last one fit. One chunk alone is too long itself.
			code, most := ReadChunks, chunks-1
			if chunks == 1 {
				code, most = Segments, inChunk
			}
			r.failWith(code, most, "rdma_reads", "the Read list has more than %d segments", lim.ReadSegments)
			return
		}
		s := ReadSegment{Position: Position(r.Uint32())}
		if s.Position&3 != 0 && h.Dialect != V1 {
			r.unaligned(s.Position)
		}
		if last := len(h.Reads) - 1; last >= 0 && h.Reads[last].Position == s.Position {
			if inChunk++; inChunk > lim.SegmentsPerChunk {
				r.failWith(Segments, lim.SegmentsPerChunk, "rdma_reads", "the chunk at position %d has more than %d segments", s.Position, lim.SegmentsPerChunk)
			}
		} else {
			chunks, inChunk = chunks+1, 1
			if last >= 0 && h.Reads[last].Position > s.Position {
				if h.Dialect != V1 {
					r.Fail("rdma_position", "position %d follows %d, positions must not decrease", s.Position, h.Reads[last].Position)
				}
				unsorted = true
			}
			if unsorted && slices.ContainsFunc(h.Reads, func(before ReadSegment) bool { return before.Position == s.Position }) {
				r.Fail("rdma_position", "position %d comes again after %d, the segments of a chunk must follow each other", s.Position, h.Reads[last].Position)
			}
		}
		s.Segment = r.segment()
		if r.err != nil {
			return
		}
		h.Reads = append(h.Reads, s)
	}
	if unsorted {
		slices.SortStableFunc(h.Reads, func(a, b ReadSegment) int { return cmp.Compare(a.Position, b.Position) })
	}
	h.joinRoundUp(r)
}

// joinRoundUp makes a chunk that has only the round-up of the chunk before it a segment of that one
// (RFC 5666 section 3.7). Its position is no multiple of 4; no other chunk has such a position.
func (h *Header) joinRoundUp(r *Reader) {
	end := uint64(0)
	for i := range h.Reads {
		s := &h.Reads[i]
		first := i == 0 || h.Reads[i-1].Position != s.Position
		switch {
		case first && s.Position&3 == 0:
			end = uint64(s.Position) + uint64(s.Length)
			continue
		case !first:
		case i > 0 && h.Reads[i-1].Position > 0 && uint64(s.Position) == end && uint64(s.Length) == -end&3:
			s.Position = h.Reads[i-1].Position
		default:
			r.unaligned(s.Position)
			return
		}
		end += uint64(s.Length)
	}
}

func (r *Reader) unaligned(p Position) {
	r.Fail("rdma_position", "position %d is not a multiple of 4", p)
}

func (h *Header) parseWrites(r *Reader, lim *Limits) {
	for r.present("rdma_writes") {
		if len(h.writes) >= lim.WriteChunks {
			r.failWith(WriteChunks, lim.WriteChunks, "rdma_writes", "the Write list has more than %d chunks", lim.WriteChunks)
			return
		}
		h.writes = append(h.writes, h.parseChunk(r, lim, "rdma_writes"))
	}
}

func (h *Header) parseReply(r *Reader, lim *Limits) {
	if h.HasReply = r.present("rdma_reply"); h.HasReply {
		h.reply = h.parseChunk(r, lim, "rdma_reply")
	}
}

func (h *Header) parseChunk(r *Reader, lim *Limits, field string) span {
	n := r.Uint32()
	switch {
	case r.err != nil:
	case uint64(n) > uint64(lim.SegmentsPerChunk) || int(n) > lim.WriteSegments-len(h.segs):
		// Chunks of their equal share would have fit.
		r.failWith(Segments, min(lim.SegmentsPerChunk, lim.WriteSegments/(len(h.writes)+1)), field,
			"a chunk of %d segments is too many: a chunk may have %d, Write list and Reply chunk together %d",
			n, lim.SegmentsPerChunk, lim.WriteSegments)
	case uint64(n)*SegmentSize > uint64(r.left):
		r.Fail(field, "a chunk of %d segments is promised, the message ends after %d more bytes", n, r.left)
	}
	at := len(h.segs)
	for range n {
		if r.err != nil {
			return span{}
		}
		h.segs = append(h.segs, r.segment())
	}
	return span{at, int(n)}
}

// Reader reads words from a list of slices.
type Reader struct {
	cur  []byte
	rest [][]byte
	left int
	pos  int
	part string // name of the part that ends after left bytes, "" for the message
	err  *ParseError
}

// Fail records the fault of the field just read, unless there is an error already. The answer is
// BAD_XDR.
func (r *Reader) Fail(field, format string, args ...any) {
	r.failWith(BadXDR, 0, field, format, args...)
}

// failWith fails with an error of version 2, and the largest number that would have been accepted;
// in version 1 it is ERR_CHUNK.
func (r *Reader) failWith(code2 ErrorCode, limit int, field, format string, args ...any) {
	if r.err == nil {
		r.err = &ParseError{Field: field, Offset: r.pos, Reason: fmt.Sprintf(format, args...), Code: ErrChunk, Code2: code2, Max: uint32(limit)}
	}
}

// ends fails because n bytes are missing.
func (r *Reader) ends(field string, n uint64) {
	part := r.part
	if part == "" {
		part = "message"
	}
	r.Fail(field, "%s ends after %d more bytes, %d are needed", part, r.left, n)
}

// Uint32 reads a word, or returns 0 and records an error at the end.
func (r *Reader) Uint32() uint32 {
	if r.err != nil || r.left < 4 {
		r.ends("length", 4)
		return 0
	}
	r.left, r.pos = r.left-4, r.pos+4
	if len(r.cur) >= 4 {
		v := binary.BigEndian.Uint32(r.cur)
		r.cur = r.cur[4:]
		return v
	}
	var v uint32
	for range 4 {
		for len(r.cur) == 0 {
			r.cur, r.rest = r.rest[0], r.rest[1:]
		}
		v, r.cur = v<<8|uint32(r.cur[0]), r.cur[1:]
	}
	return v
}

// take appends the next n bytes to dst. They must exist.
func (r *Reader) take(dst []byte, n int) []byte {
	for r.left, r.pos = r.left-n, r.pos+n; n > 0; {
		for len(r.cur) == 0 {
			r.cur, r.rest = r.rest[0], r.rest[1:]
		}
		k := min(n, len(r.cur))
		dst, r.cur, n = append(dst, r.cur[:k]...), r.cur[k:], n-k
	}
	return dst
}

// skip passes over n bytes. They must exist.
func (r *Reader) skip(n int) {
	for r.left, r.pos = r.left-n, r.pos+n; n > 0; {
		for len(r.cur) == 0 {
			r.cur, r.rest = r.rest[0], r.rest[1:]
		}
		k := min(n, len(r.cur))
		r.cur, n = r.cur[k:], n-k
	}
}

// present reads the word before optional data.
func (r *Reader) present(field string) bool {
	switch v := r.Uint32(); {
	case r.err != nil || v == 0:
		return false
	case v == 1:
		return true
	default:
		r.Fail(field, "the word that says whether more follows is %#x, must be 0 or 1", v)
		return false
	}
}

func (r *Reader) segment() Segment {
	s := Segment{Handle: Handle(r.Uint32()), Length: r.Uint32()}
	s.Offset = uint64(r.Uint32())<<32 | uint64(r.Uint32())
	if r.err == nil && s.Offset > math.MaxUint64-uint64(s.Length) {
		r.Fail("offset", "a segment of %d bytes at offset %#x ends beyond 2^64", s.Length, s.Offset)
	}
	return s
}

// Payload appends to dst the slices of message after the first size bytes. Nothing is copied.
func Payload(dst, message [][]byte, size int) [][]byte {
	for _, s := range message {
		if size >= len(s) {
			size -= len(s)
			continue
		}
		dst = append(dst, s[size:])
		size = 0
	}
	return dst
}
