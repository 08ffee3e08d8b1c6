// Package oncrpc is the RPC layer (RFC 5531): messages, credentials, record marking on TCP,
// rpcbind.
//
// A transport (TCP here, RPC-over-RDMA in pkg/rpcrdma) turns bytes into a [Call], a [Handler]
// answers it, and the transport turns the reply into bytes. In the other direction a [Requester]
// takes a [Request] and completes it. Code between a transport and a backend does not depend on the
// transport.
package oncrpc

import (
	"encoding/binary"

	"sluice.dev/sluice/pkg/bufpool"
	"sluice.dev/sluice/pkg/xdr"
)

// Message is an RPC message: a payload stream, and the bulk items taken out of it. The stream
// begins with the XID. A message owns the buffers of its memory; Release gives them back.
type Message struct {
	// Stream is the reduced payload stream: the concatenation of these slices.
	Stream [][]byte
	// Items were taken out of the stream, in order of position.
	Items []xdr.Item

	bufs []*bufpool.Buf
	// For Cut and Keep: the slices of the items. For Cut: an array for the stream.
	pieces, spare [][]byte
}

// Own makes m the owner of b: m.Release releases it.
func (m *Message) Own(b *bufpool.Buf) { m.bufs = append(m.bufs, b) }

// Disown makes the caller the owner of all buffers of m, appending them to dst. The message stays
// readable.
func (m *Message) Disown(dst []*bufpool.Buf) []*bufpool.Buf {
	dst = append(dst, m.bufs...)
	clear(m.bufs)
	m.bufs = m.bufs[:0]
	return dst
}

// Memory returns the bytes of the message's buffers, used or not.
func (m *Message) Memory() (n int) {
	for _, b := range m.bufs {
		n += cap(b.B)
	}
	return n
}

// Keep copies a list of slices, not their bytes, to memory that lasts as long as the message: for
// the Data of an item.
func (m *Message) Keep(list [][]byte) [][]byte {
	at := len(m.pieces)
	m.pieces = append(m.pieces, list...)
	return m.pieces[at:len(m.pieces):len(m.pieces)]
}

// Release gives back all buffers and empties the message. Its slices keep their capacity for the
// next use.
func (m *Message) Release() {
	for i, b := range m.bufs {
		b.Release()
		m.bufs[i] = nil
	}
	clear(m.Stream)
	clear(m.Items)
	clear(m.pieces)
	m.bufs, m.Stream, m.Items, m.pieces = m.bufs[:0], m.Stream[:0], m.Items[:0], m.pieces[:0]
}

// Len returns the length of the unreduced stream.
func (m *Message) Len() int {
	n := m.StreamLen()
	for _, it := range m.Items {
		n += xdr.Round(it.Length)
	}
	return n
}

// StreamLen returns the length of the reduced stream.
func (m *Message) StreamLen() (n int) {
	for _, s := range m.Stream {
		n += len(s)
	}
	return n
}

// SetXID writes xid into the stream.
func (m *Message) SetXID(xid uint32) {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], xid)
	left := b[:]
	for _, s := range m.Stream {
		if left = left[copy(s, left):]; len(left) == 0 {
			return
		}
	}
}

// Plan is a call's plan of its reply: the longest length, and the results that may be placed
// directly. Version 1's Write list and Reply chunk, and the round-trip extension's placement
// directions, are encodings of it.
type Plan struct {
	// MaxReply bounds the length in bytes of the unreduced reply stream, from its XID on.
	MaxReply int
	// Estimated marks MaxReply as an estimate of a call that changes nothing. Where the reply turns
	// out longer, a transport may send the call again, with more room (RFC 8267 section 3.1).
	Estimated bool
	// Results are the eligible results that the call may produce, in order.
	Results []Result
}

// Reset empties p and keeps its memory.
func (p *Plan) Reset() {
	clear(p.Results)
	*p = Plan{Results: p.Results[:0]}
}

// Bulk returns the bytes of bulk memory that a reply may take, from a [Binding]'s plan: those of
// the eligible results, and of the rest if that is not small. A reply of at most 16 KiB takes none.
func (p *Plan) Bulk() (n int) {
	rest := p.MaxReply
	for i := range p.Results {
		n += p.Results[i].Max
		rest -= xdr.Round(p.Results[i].Max)
	}
	if rest > smallRecord {
		n += rest
	}
	if n <= smallRecord {
		return 0
	}
	return n
}

// Result is one eligible result, planned by a call and reported by its reply.
type Result struct {
	// Max is the longest length of the result in bytes.
	Max int
	// Begin and End are the range [Begin, End) in the unreduced call stream of the operation that
	// yields the result.
	Begin, End int
	// Memory is the requester's buffer for the result, of at least Max bytes; nil lets the
	// transport choose. A responder's transport leaves it nil.
	Memory [][]byte
	// State is set by a reply.
	State ResultState
}

// ResultState is the way in which a reply carries a planned result.
type ResultState uint8

const (
	// Absent means that the reply has no such result (its operation failed, or it is empty).
	Absent ResultState = iota
	// Inline means that the result is part of the reply's stream.
	Inline
	// Placed means that the result is an item of the reply.
	Placed
	// TooShort means that the memory offered was too short; the result is inline.
	TooShort
)

// Binding is a program's upper-layer binding (RFC 8166 section 6): it finds the items of messages
// that may be placed directly, and bounds the length of replies. It reads headers and counts only,
// never copies data, and bounds everything that it reads. Messages of a program without a binding
// are not reduced.
type Binding interface {
	// Plan reads the arguments of a call, where d stands at the first byte of the procedure's
	// parameters. It fills in p.Results, p.MaxReply with the bound of the reply's length behind the
	// RPC reply header, and p.Estimated. Reading consumes the items of the call at the places of
	// eligible arguments; an item that d.Used() does not count was taken out where that is
	// forbidden. args receives the positions of all eligible arguments, inline or not.
	Plan(p *Plan, args []Argument, procedure uint32, d *xdr.Decoder) ([]Argument, error)
	// Results reads the results of a successful reply to a call with plan p, where d stands at the
	// first byte of the procedure's results. It appends one Found for each entry of p.Results, in
	// order. placed is for a requester's transport that cannot locate placed results yet: it has
	// the placed bytes of each planned result (0: none; the result is inline or absent). nil means
	// that the whole reply is inline in d.
	Results(found []Found, p *Plan, placed []int, procedure uint32, d *xdr.Decoder) ([]Found, error)
}

// Argument is an eligible argument in a call.
type Argument struct{ Position, Length int }

// Found is a planned result in a reply: its position in the unreduced reply stream, and its length
// in bytes.
type Found struct {
	State            ResultState
	Position, Length int
}

// Bindings returns the binding of a program and version, nil without one.
type Bindings func(program, version uint32) Binding
