// Package wire encodes and decodes RPC-over-RDMA: the headers of version 1 (RFC 8166) and of
// version 2 with its round-trip extension (see docs/protocol-v2.md), and the private data of
// connections (RFC 8797). It does no I/O and keeps no state.
//
// A received message is a list of slices, since a receive may consist of several segments; a header
// may cross them anywhere, even inside a word. Counts in a header are checked against [Limits]
// before memory is taken for them, and a reused [Header] allocates nothing.
//
// All integers are big-endian, as in XDR (RFC 4506).
package wire

import "fmt"

// XID identifies an RPC transaction. It is the first word of a header, of every version.
type XID uint32

// Credits is a number of calls that may be outstanding: requested in a call, granted in a reply
// (RFC 8166 section 3.3.1).
type Credits uint32

// Handle is an R_key or STag: it names a memory region of the peer that sent it.
type Handle uint32

// Position is an offset in the unreduced payload stream, counted from the RPC message's XID (RFC
// 8166 section 3.4.5).
type Position uint32

// Procedure is the kind of a message: the fourth word of a header.
type Procedure uint32

// Procedures of version 1 (RFC 8166 section 4.2).
const (
	Msg Procedure = 0 // RDMA_MSG: the payload stream follows the header
	// RDMA_NOMSG: the payload stream is in a Position Zero Read chunk or the Reply chunk
	NoMsg Procedure = 1
	MsgP  Procedure = 2 // RDMA_MSGP: of RFC 5666 alone; otherwise answered ERR_CHUNK
	Done  Procedure = 3 // RDMA_DONE: of RFC 5666 alone; otherwise dropped
	Error Procedure = 4 // RDMA_ERROR
)

func (p Procedure) String() string {
	switch p {
	case Msg:
		return "RDMA_MSG"
	case NoMsg:
		return "RDMA_NOMSG"
	case MsgP:
		return "RDMA_MSGP"
	case Done:
		return "RDMA_DONE"
	case Error:
		return "RDMA_ERROR"
	}
	if names := [...]string{"RDMA2_OPTIONAL", "RDMA2_CONNPROP", "RDMA2_REQPROP", "RDMA2_RESPROP", "RDMA2_UPDPROP"}; p >= Optional && int(p-Optional) < len(names) {
		return names[p-Optional]
	}
	return fmt.Sprintf("procedure %d", uint32(p))
}

// ErrorCode is the reason in an RDMA_ERROR message (RFC 8166 section 4.5).
type ErrorCode uint32

// Error codes of version 1.
const (
	ErrVers  ErrorCode = 1 // the version of the header is not supported
	ErrChunk ErrorCode = 2 // the header or its chunks cannot be used
)

func (c ErrorCode) String() string {
	switch c {
	case ErrVers:
		return "ERR_VERS"
	case ErrChunk:
		return "ERR_CHUNK"
	}
	return fmt.Sprintf("error %d", uint32(c))
}

// Version1 is RPC-over-RDMA version 1.
const Version1 = 1

// Sizes in bytes.
const (
	FixedSize       = 16 // the four words that begin every header
	MinSize         = 28 // the fixed words and three absent lists: the shortest valid header
	ErrChunkSize    = 20 // RDMA_ERROR with ERR_CHUNK
	ErrVersSize     = 28 // RDMA_ERROR with ERR_VERS
	SegmentSize     = 16 // a Segment in a Write or Reply chunk
	ReadSegmentSize = 24 // a ReadSegment in the Read list, with the word before it
	ChunkSize       = 8  // a Write chunk without its segments: the word before it, and the count
	ReplySize       = 4  // addition of a Reply chunk to MinSize, without its segments: its count
	MinThreshold    = 1 << 10
	MaxThreshold    = 256 << 10
)

// Segment is a piece of the peer's memory.
//
//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                            Handle                             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                            Length                             |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//	|                            Offset                             |
//	+                                                               +
//	|                                                               |
//	+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+-+
//
// (RFC 8166 section 3.4.3.)
type Segment struct {
	Handle Handle
	Length uint32
	Offset uint64
}

// ReadSegment is one entry of the Read list: a position before a segment. Neighbours with the same
// position are one chunk.
type ReadSegment struct {
	Position Position
	Segment
}

// Limits bound the contents of a header. Memory is taken only within them.
type Limits struct {
	ReadSegments     int // segments of the whole Read list
	WriteChunks      int // chunks of the Write list
	SegmentsPerChunk int // segments of one Read, Write or Reply chunk
	WriteSegments    int // segments of the Write list and the Reply chunk together

	// Version2 admits version 2, NoVersion1 refuses version 1. The limits on segments apply to
	// items of the extension, too.
	Version2, NoVersion1 bool
	// V2 is the dialect of version 2; nil means V2RoundTrip.
	V2 Dialect
	// Padded admits RDMA_MSGP, and Done RDMA_DONE of 16 bytes, which RFC 8166 has no longer.
	Padded, Done bool
	Items        int // bulk items of a message, and results that a request directs
	Buffers      int // buffer segments of all items
	// Extensions are the known ones; nil means RoundTrip.
	Extensions *Extensions
}

// Dialect is the dialect of version 2.
func (l *Limits) Dialect() Dialect {
	if l.V2 == nil {
		return V2RoundTrip
	}
	return l.V2
}

func (l *Limits) versions() string {
	if l.NoVersion1 {
		return "2"
	}
	if l.Version2 {
		return "1 or 2"
	}
	return "1"
}

// DefaultLimits exceed RFC 8267 section 6.4.2's guarantees to clients: 16 segments a chunk, one
// Write chunk, one Read chunk beside the Position Zero Read chunk.
var DefaultLimits = Limits{ReadSegments: 64, WriteChunks: 16, SegmentsPerChunk: 32, WriteSegments: 64, Items: 64, Buffers: 1024}

// ParseError describes the fault of a header.
type ParseError struct {
	// Field is the name of the faulty field.
	Field string
	// Offset is its place in the message.
	Offset int
	// Reason has the actual value and the correct ones.
	Reason string
	// Code is the responder's answer: ErrVers, ErrChunk, or 0 to drop the message.
	Code ErrorCode
	// Code2 is the answer in version 2, unless Code is ErrVers or 0, and Max its number.
	Code2 ErrorCode
	Max   uint32
}

func (e *ParseError) Error() string {
	return fmt.Sprintf("rpcrdma header: %s at byte %d: %s", e.Field, e.Offset, e.Reason)
}
